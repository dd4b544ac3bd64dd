"""Compare plans: evaluate their out-of-fold answers, rank them, and write the evaluation's report of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from baseline.experiments.answers import UNFILTERED, Experiment, answered_by_all, experiment_of, write_answers
from baseline.postprocessing.record import current_record
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.record import edition_of
from baseline.release.splits import read_splits
from baseline.report.masks import mask_edition, require_all_scored, write_references
from baseline.report.report import OUTDATED, heads_are_current
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import write_json, write_text
from contract.platform import METRICS_JSON
from evaluation.analyses.pipeline import task_analyses
from evaluation.analyses.sources import DECIDING, TaskResults, deciding_metrics
from evaluation.api import evaluate, rank
from evaluation.editions.profile import TaskProfile, load_profile
from evaluation.page.html import colours_of
from evaluation.ranking.table import as_text
from evaluation.report.page import PageContent, build_page, page_file
from evaluation.results.board import LEADERBOARD_JSON
from evaluation.results.metrics_json import read_metrics

_ABOUT: Final = "Out-of-fold answers. Each plan is shown as a team."
_DIFFERENCE: Final = ("difference", "ci95_low", "ci95_high")


@dataclass(frozen=True)
class Comparison:
    """Results of one task, or the reason why it or one of its answers cannot be compared."""

    title: str
    results: TaskResults | None
    why_not: str = ""


def compare(work: WorkFolders, names: Sequence[str], output: Path | None, jobs: int) -> tuple[str, Path]:
    """Compare plans, ensembles or `NAME:unfiltered`; returns a summary for the console and the path of the page.

    Args:
        work: any plan of the working directory.
        names: plans, ensembles, or `NAME:unfiltered` for the masks before postprocessing.
        output: the HTML file, or a folder for index.html; None for one below `comparisons` in the working directory.
        jobs: number of processes.
    """
    if len(set(names)) < 2:
        raise HecktorError("compare", f"found {', '.join(names)}", "at least two different experiments")
    given_page = None if output is None else page_file(output)  # checked before the work
    experiments = [experiment_of(work.shared, name) for name in dict.fromkeys(names)]
    experiments, outdated = without_outdated_heads(experiments)
    cases, lines = common_patients(experiments)
    folder = work.shared / "comparisons"
    comparisons = compare_tasks(experiments, cases, folder / "results", jobs)
    lines = [*outdated, *searched_rules(experiments), *lines]
    reasons = [f"{one.title}: {one.why_not}" for one in comparisons if one.why_not]
    page = given_page or folder / f"{'-against-'.join(one.name for one in experiments).replace(':', '-')}.html"
    results = [one.results for one in comparisons if one.results is not None]
    title, colours = " against ".join(one.name for one in experiments), colours_of([one.name for one in experiments])
    about = " ".join([_ABOUT, *(f"{line}." for line in [*lines, *reasons])])
    analyses = {one.key: task_analyses(one) for one in results}
    write_text(page, build_page(PageContent(title, about, results, analyses, [], colours, with_cases=True)))
    return "\n".join([*lines, *map(summary, comparisons)]), page


def without_outdated_heads(experiments: Sequence[Experiment]) -> tuple[list[Experiment], list[str]]:
    """The experiments without outdated heads, and a line for each of these."""
    current, lines = [], []
    for one in experiments:
        outdated = one.has_heads and one.work.cross_validation_json.is_file() and not heads_are_current(one.work)
        current.append(replace(one, has_heads=False) if outdated else one)
        if outdated:
            lines.append(
                f"{one.name}: heads left out, since they were {OUTDATED} (`hecktor train "
                f"heads{one.work.name_option}` fits them again)"
            )
    return current, lines


def searched_rules(experiments: Sequence[Experiment]) -> list[str]:
    """A line for each plan whose masks follow a search for postprocessing rules."""
    records = [(one.name, current_record(one.work)) for one in experiments if not one.name.endswith(UNFILTERED)]
    return [f"{name}: {record.effect}" for name, record in records if record is not None and record.settings]


def common_patients(experiments: Sequence[Experiment]) -> tuple[list[ReleaseCase], list[str]]:
    """Patients of whom every experiment has a mask, and a line for each experiment that lacks some."""
    cases = read_cases(experiments[0].work)
    with_mask = {
        one.name: {case.patient_id for case in cases if one.mask(case.patient_id).is_file()} for one in experiments
    }
    common = set.intersection(*with_mask.values())
    lines = [
        f"{name} has masks of {len(patients)} of {len(cases)} patients; the comparison is restricted to the "
        f"{len(common)} that all experiments have"
        for name, patients in with_mask.items()
        if len(patients) < len(cases)
    ]
    if not common:
        counts = ", ".join(f"{name} {len(patients)}" for name, patients in with_mask.items())
        raise HecktorError("compare", f"no patient with a mask of every experiment ({counts})", "at least one")
    return [case for case in cases if case.patient_id in common], lines


def compare_tasks(
    experiments: Sequence[Experiment], cases: Sequence[ReleaseCase], folder: Path, jobs: int
) -> list[Comparison]:
    """Every task of the edition; if an experiment lacks a head, a task of several answers is its mask alone."""
    work = experiments[0].work
    edition, seed = edition_of(work), read_splits(work).seed
    comparisons = []
    for algorithm in edition.algorithms:
        answered = {answer.name: answered_by_all(answer, experiments, cases) for answer in algorithm.heads}
        missing = [name for name, patients in answered.items() if not patients]
        profile, why_not = edition.source, ""
        if missing and algorithm.mask is None:
            comparisons.append(Comparison(algorithm.title, None, "not every experiment has such a head"))
            continue
        if missing:
            profile = mask_edition(edition)
            why_not = f"{', '.join(missing)}: not compared, since not every experiment has such a head"
        task = load_profile(profile).task(algorithm.name)
        references = write_references(
            folder / f"task{algorithm.number}" / "reference",
            cases,
            task.algorithm.heads,
            answered,
            with_masks=algorithm.mask is not None,
        )
        try:
            results = _ranked(experiments, cases, task, references, profile, seed, jobs)
        except HecktorError as problem:
            comparisons.append(Comparison(algorithm.title, None, str(problem)))
        else:
            comparisons.append(Comparison(algorithm.title, results, why_not))
    return comparisons


def _ranked(
    experiments: Sequence[Experiment],
    cases: Sequence[ReleaseCase],
    task: TaskProfile,
    references: Path,
    profile: str,
    seed: int,
    jobs: int,
) -> TaskResults:
    """Evaluate and rank the experiments; metrics.json and leaderboard.json are written beside the references."""
    name, paths = task.algorithm.name, {}
    for one in experiments:
        folder = references.with_name(one.name.replace(":", "-"))
        answers = write_answers(folder / "answers", one, task.algorithm, {case.patient_id for case in cases})
        result = evaluate(
            references,
            task=name,
            predictions=answers,
            edition=profile,
            output=folder,
            seed=seed,
            workers=jobs,
        )
        require_all_scored(result.content, one.name)
        paths[one.name] = folder / METRICS_JSON
    board = rank(paths, task=name, edition=profile, seed=seed).to_dict()
    write_json(references.with_name(LEADERBOARD_JSON), board)
    board[DECIDING] = deciding_metrics(task.ranking.official, task.ranking)
    prefixes = {name: one.prefix for name, one in task.answers.items()} if task.has_several_answers else {}
    order = [entry["team"] for entry in (*board["teams"], *board["incomplete"])]
    return TaskResults(task.algorithm, board, [read_metrics(paths[team], team) for team in order], prefixes)


def summary(comparison: Comparison) -> str:
    """The table of a task, and a line for each metric and pair of experiments."""
    lines = [comparison.title, *([comparison.why_not] if comparison.why_not else [])]
    if comparison.results is None:
        return "\n".join(lines)
    board = comparison.results.board
    lines.append(as_text(board).rstrip())
    order = [entry["team"] for entry in board["teams"]]
    for name, tests in (board["comparisons"] or {}).items():
        pairs = (pair for pair in tests["pairs"] if order.index(pair["team"]) < order.index(pair["than"]))
        lines += [_pair_line(board["metrics"][name], pair) for pair in pairs]
    return "\n".join(lines)


def _pair_line(title: str, pair: Mapping[str, Any]) -> str:
    # Added to 0, a negative zero becomes a positive one.
    difference, low, high = (None if pair[key] is None else pair[key] + 0.0 for key in _DIFFERENCE)
    interval = "" if low is None or high is None else f" [{low:+.4f}, {high:+.4f}]"
    shown = "undefined" if difference is None else f"{difference:+.4f}{interval}, p {pair['p']:.2g}"
    return f"{title}: {pair['team']} over {pair['than']} {shown}"
