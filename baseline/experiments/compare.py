"""Compare plans, decisions and packages by the evaluation's metrics and tests, on out-of-fold answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from baseline.cache import key_of
from baseline.experiments.answers import Experiment, answered_by, write_answers, write_references
from baseline.experiments.packages import chosen_experiments
from baseline.experiments.page import write_comparison
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.prepare import edition_of
from baseline.release.splits import read_splits
from baseline.report.current import OUTDATED, heads_are_current
from baseline.report.mask_profile import mask_profile
from baseline.work import WorkFolders
from contract.editions import Algorithm, Answer
from contract.errors import HecktorError
from contract.files import read_json, write_json
from contract.platform import METRICS_JSON
from evaluation.analyses.sources import DECIDING, TaskResults, deciding_metrics
from evaluation.editions.profile import load_profile
from evaluation.pipeline import EvaluationRequest, evaluate_submission
from evaluation.ranking.leaderboard import leaderboard
from evaluation.ranking.table import as_text
from evaluation.report.page import page_file
from evaluation.results.teams import load_teams

# Increment when the same answers give other metrics.
_VERSION: Final = 1
_DIFFERENCE: Final = ("difference", "ci95_low", "ci95_high")


@dataclass(frozen=True)
class Comparison:
    """Results of one task, or the reason why it cannot be compared."""

    title: str
    results: TaskResults | None
    why_not: str = ""


def compare(
    work: WorkFolders, names: Sequence[str], output: Path | None, jobs: int, device: str = "cpu"
) -> tuple[str, Path]:
    """Compare experiments; returns a summary for the console and the path of the page.

    Args:
        work: any plan of the working directory.
        names: plans, ensembles, `NAME:undecided`, or paths of model packages.
        output: the HTML file, or a folder for index.html; None for one below `comparisons` in the working directory.
        jobs: number of processes.
        device: of a package's networks, if these have not segmented the patients yet.

    Raises:
        HecktorError: fewer than two experiments, one without masks, two of one name, or no patient in common.
    """
    if len(set(names)) < 2:
        raise HecktorError("compare", f"found {', '.join(names)}", "at least two different experiments")
    given_page = None if output is None else page_file(output)  # checked before the work
    experiments = chosen_experiments(work, list(dict.fromkeys(names)), device, jobs)
    titles = [one.name for one in experiments]
    experiments, outdated = without_outdated_heads(experiments)
    cases, lines = common_patients(experiments)
    lines = outdated + lines
    folder = work.shared / "comparisons"
    compared = compare_tasks(experiments, cases, folder / "results", jobs)
    page = given_page or folder / f"{'-against-'.join(titles).replace(':', '-')}.html"
    results = [one.results for one in compared if one.results is not None]
    write_comparison(page, results, experiments, cases, lines + reasons(compared))
    return "\n".join([*lines, *map(summary, compared)]), page


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


def common_patients(experiments: Sequence[Experiment]) -> tuple[list[ReleaseCase], list[str]]:
    """Patients of whom every experiment has a mask, and a line for each experiment that lacks some.

    Raises:
        HecktorError: there is no such patient.
    """
    cases = read_cases(experiments[0].work)
    ids = [case.patient_id for case in cases]
    known = {one.name: {name for name in ids if one.mask(name).is_file()} for one in experiments}
    common = set.intersection(*known.values())
    lines = [
        f"{name} has masks of {len(mine)} of {len(cases)} patients; the comparison is restricted to the {len(common)} "
        "that all experiments have"
        for name, mine in known.items()
        if len(mine) < len(cases)
    ]
    if not common:
        counts = ", ".join(f"{name} {len(mine)}" for name, mine in known.items())
        raise HecktorError("compare", f"no patient with a mask of every experiment ({counts})", "at least one")
    return [case for case in cases if case.patient_id in common], lines


def compare_tasks(
    experiments: Sequence[Experiment], cases: Sequence[ReleaseCase], folder: Path, jobs: int
) -> list[Comparison]:
    """Every task of the edition; where an experiment lacks a head, a task of several answers is its mask alone."""
    work = experiments[0].work
    edition = edition_of(work)
    comparisons = []
    for algorithm in edition.algorithms:
        answered = {answer.name: _answered(answer, experiments, cases) for answer in algorithm.heads}
        missing = [name for name, patients in answered.items() if not patients]
        source, why = edition.evaluation_profile, ""
        if missing and algorithm.mask is not None:
            source = mask_profile(edition, folder)
            why = f"{', '.join(missing)}: not compared, since not every experiment has out-of-fold answers of a head"
        elif missing:
            comparisons.append(Comparison(algorithm.title, None, "not every experiment has such a head"))
            continue
        task = load_profile(source).task(algorithm.name).algorithm
        run = _Run(source, task, cases, answered, folder / f"task{algorithm.number}", jobs, read_splits(work).seed)
        comparisons.append(_compared(run, experiments, why))
    return comparisons


def _answered(answer: Answer, experiments: Sequence[Experiment], cases: Sequence[ReleaseCase]) -> frozenset[str]:
    return answered_by(answer, experiments) & {case.patient_id for case in cases if case.has(answer)}


@dataclass(frozen=True)
class _Run:
    """Inputs of the comparison of one task: name or path of the profile, and patients by answer."""

    profile: str
    task: Algorithm
    cases: Sequence[ReleaseCase]
    answered: Mapping[str, frozenset[str]]
    folder: Path
    jobs: int
    seed: int


def _compared(run: _Run, experiments: Sequence[Experiment], why: str) -> Comparison:
    references = write_references(run.folder / "reference", run.cases, run.task, run.answered)
    try:
        results = {one.name: _evaluated(run, one, references) for one in experiments}
        loaded = load_teams(results, task=run.task.name, edition=run.profile)
        board = leaderboard(loaded, seed=run.seed)
    except HecktorError as problem:
        return Comparison(run.task.title, None, str(problem))
    profile = loaded.profile
    board = {**board, DECIDING: deciding_metrics(profile.ranking.official, profile.ranking)}
    prefixes = {name: one.prefix for name, one in profile.answers.items()} if profile.has_several_answers else {}
    order = [entry["team"] for entry in (*board["teams"], *board["unranked"])]
    ordered = sorted(loaded.teams, key=lambda team: order.index(team.team))
    return Comparison(run.task.title, TaskResults(run.task, board, ordered, prefixes), why)


def _evaluated(run: _Run, experiment: Experiment, references: Path) -> dict[str, Any]:
    """The content of metrics.json for one experiment, computed again only if masks, heads or patients have changed."""
    folder = run.folder / experiment.name.replace(":", "-")
    masks = [experiment.mask(case.patient_id) for case in run.cases if run.task.mask is not None]
    records = experiment.work.cross_validation_json
    sources = [*masks, *(case.mask for case in run.cases), records if run.task.heads else None]
    answered = {name: sorted(patients) for name, patients in run.answered.items()}
    options = {"version": _VERSION, "edition": run.profile, "seed": run.seed, "answered": answered}
    key = key_of(sources, {**options, "patients": [case.patient_id for case in run.cases]})
    cached = folder / METRICS_JSON
    if cached.is_file() and (folder / "key.json").is_file() and read_json(folder / "key.json") == key:
        content: dict[str, Any] = read_json(cached)
        return content
    patients = {case.patient_id for case in run.cases}
    predictions = write_answers(folder / "answers", experiment, run.task, patients)
    content = evaluate_submission(
        EvaluationRequest(
            ground_truth=references,
            submission=folder,
            output_dir=folder,
            task=run.task.name,
            edition=run.profile,
            predictions=predictions,
            seed=run.seed,
            workers=0 if run.jobs <= 1 else run.jobs,
        )
    )
    if unusable := [f"{one['case']}: {one['why']}" for one in content["cases"]["failed"]] + content["cases"]["missing"]:
        raise HecktorError(experiment.name, f"{len(unusable)} answers cannot be scored ({unusable[0]})", "all")
    write_json(folder / "key.json", key)
    return content


def reasons(comparisons: Sequence[Comparison]) -> list[str]:
    """A line for each task or answer that could not be compared."""
    return [f"{one.title}: {one.why_not}" for one in comparisons if one.why_not]


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
