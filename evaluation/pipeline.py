"""Evaluate a submission: read the references, match and score each answer, bootstrap, and write metrics.json.

Each answer of the task gets one row for each case. The rows of all answers share one cohort, so that one paired
bootstrap over cases serves every metric.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from contract.editions.clinical import CENTRE
from contract.errors import Finding, GroundTruthError, HecktorError, MetricError, PredictionError
from contract.io.files import write_json
from contract.platform import METRICS_JSON
from evaluation.editions.profile import EvaluationProfile, TaskProfile, load_profile, with_options
from evaluation.inputs.ground_truth import Reference, check_common
from evaluation.inputs.mask_files import compute_max_unpacked_bytes, is_archive, unpack_masks
from evaluation.inputs.plain_files import find_table, read_bounding_boxes
from evaluation.inputs.submission import NothingMatchedError, Submission, read_submission
from evaluation.metrics.rules import MaskRules, is_counted
from evaluation.options import EvaluationRequest, find_boxes
from evaluation.results import metrics_json
from evaluation.results.documents import IN_BOX, MetricsJson, remove_earlier
from evaluation.results.scored import ScoredAnswer, ScoredCohort, join_answers, measure_answer
from evaluation.rows import CaseRow
from evaluation.statistics import DEFAULT_BOOTSTRAPS, DEFAULT_SEED
from evaluation.statistics.bootstrap import Estimate, Estimates, estimate, estimate_unranked


def evaluate_submission(request: EvaluationRequest) -> MetricsJson:
    """The `metrics.json` of a submission, which is written whole or not at all.

    Raises HecktorError: the ground truth or `predictions.json` cannot be used, or a ranked metric of a task with one
    answer is undefined. An unusable prediction is not an error; it counts by the edition's rule for missing cases.
    """
    reports, faults = evaluate_submissions({"": request})
    if faults:
        raise faults[""]
    return reports[""]


def evaluate_submissions(
    requests: Mapping[str, EvaluationRequest],
) -> tuple[dict[str, MetricsJson], dict[str, HecktorError]]:
    """Return the teams' metrics.json, each written whole or not at all, and the faults of the other teams.

    The requests differ only in submission, predictions and output. Each reference is read once for all teams
    without an archive; archives are unpacked and scored one after the other.
    Raises HecktorError: the ground truth cannot be used.
    """
    request, *_ = requests.values()
    profile = load_profile(request.edition)
    task = with_options(profile.task(request.task), request.options)
    reports: dict[str, MetricsJson] = {}
    faults: dict[str, HecktorError] = {}
    for team, one in requests.items():
        with _fault_of(team, faults):
            remove_earlier(one.output_dir, task.algorithm.name)
    boxes = find_boxes(task, request.ground_truth, request.bounding_boxes)
    cohort = _Cohort(task, read_references(profile, task, request.ground_truth, boxes), boxes)
    usable = [team for team in requests if team not in faults]
    archives = [team for team in usable if is_archive(requests[team].predictions or Path())]
    groups = [[team for team in usable if team not in archives], *([team] for team in archives)]
    for group in filter(None, groups):
        reports |= _evaluate_group(cohort, {team: requests[team] for team in group}, faults)
    return {team: reports[team] for team in requests if team in reports}, faults


@dataclass(frozen=True)
class _Cohort:
    """The references of a task's answers, and the file of boxes inside which masks are compared."""

    task: TaskProfile
    references: Mapping[str, Reference[Any]]
    boxes: Path | None

    @cached_property
    def max_archive_bytes(self) -> int:
        """The most bytes of masks in one submission."""
        targets = (target for reference in self.references.values() for target in reference.targets.values())
        return compute_max_unpacked_bytes(target for target in targets if isinstance(target, Path))


def _evaluate_group(
    cohort: _Cohort, requests: Mapping[str, EvaluationRequest], faults: dict[str, HecktorError]
) -> dict[str, MetricsJson]:
    """Score teams together and write each metrics.json; a team that fails gets an entry in `faults`."""
    task, references = cohort.task, cohort.references
    reports: dict[str, MetricsJson] = {}
    submitted: dict[str, tuple[dict[str, Submission], tuple[Finding, ...]]] = {}
    request, *_ = requests.values()
    with ExitStack() as folders:
        for team, of_team in requests.items():
            with _fault_of(team, faults):
                max_bytes = cohort.max_archive_bytes if is_archive(of_team.predictions or Path()) else 0
                predictions = folders.enter_context(unpack_masks(of_team.predictions, max_bytes))
                submitted[team] = _submitted(task, references, of_team.submission, predictions, of_team.rows)
        if not submitted:
            return {}
        rows = {
            name: one.scorer.score(references[name], [given[name] for given, _ in submitted.values()], request.workers)
            for name, one in task.answers.items()
        }
    bar = tqdm(submitted, desc="teams", unit="team", disable=None if len(submitted) > 1 else True, leave=False)
    for place, team in enumerate(bar):
        with _fault_of(team, faults):
            given, findings = submitted[team]
            answers = [
                score_answer(task, name, references[name], given[name], rows[name][place], named=request.rows)
                for name in task.answers
            ]
            _check_defined(task, answers)
            reports[team] = build_report(
                task,
                answers,
                findings,
                boxes=cohort.boxes,
                seed=request.seed,
                bootstraps=request.bootstraps,
                rows=request.rows,
            )
            if (output_dir := requests[team].output_dir) is not None:
                write_json(output_dir / METRICS_JSON, reports[team].to_dict())
    return reports


@contextmanager
def _fault_of(team: str, faults: dict[str, HecktorError]) -> Iterator[None]:
    """Keep the team's fault, so that the other teams are scored."""
    try:
        yield
    except HecktorError as fault:
        faults[team] = fault
    except OSError as problem:
        name = Path(os.fsdecode(problem.filename)).name if problem.filename else team
        faults[team] = HecktorError(name, f"cannot be read ({problem.strerror})", "readable files")


def _submitted(
    task: TaskProfile,
    references: Mapping[str, Reference[Any]],
    submission: Path,
    predictions: Path | None,
    named: bool,
) -> tuple[dict[str, Submission], tuple[Finding, ...]]:
    try:
        return read_submissions(task, references, submission, predictions)
    except NothingMatchedError as problem:
        if named:
            raise
        # Submitters may see this message, which must not name the cases of the reference.
        raise PredictionError(problem.what, "found no prediction of a case", "some of the reference") from None


def read_references(
    profile: EvaluationProfile, task: TaskProfile, ground_truth: Path, boxes: Path | None
) -> dict[str, Reference[Any]]:
    """The reference of each answer, with the bounding boxes of masks from the file `boxes`.

    A case of one reference that another lacks is without a target there.
    """
    centre_columns = [name for one in profile.edition.clinical if one.name == CENTRE for name in one.spellings]
    references = {}
    for name, answer in task.answers.items():
        reference = answer.scorer.read_reference(ground_truth, centre_columns)
        if boxes is not None and isinstance(answer.rules, MaskRules):
            reference = replace(reference, boxes=read_bounding_boxes(boxes, reference.targets.keys()))
        references[name] = reference
    first, *_ = references.values()
    for name, one in references.items():
        check_common(f"reference of {name}", one.cases, first.cases)
    known = {case for one in references.values() for case in one.cases}
    return {name: one.with_cases(known) for name, one in references.items()}


def read_submissions(
    task: TaskProfile, references: Mapping[str, Reference[Any]], submission: Path, predictions: Path | None
) -> tuple[dict[str, Submission], tuple[Finding, ...]]:
    """Each submitted answer, and findings about the files; names that any reference has are not unknown.

    The answers are in the plain files `predictions` or, without them, in the platform's folder `submission`.
    """
    known = {case for one in references.values() for case in one.cases}
    table = predictions
    findings: tuple[Finding, ...] = ()
    if table is not None and task.has_several_answers:
        table, findings = find_table(table, task.algorithm.head_specs)
    submissions: dict[str, Submission] = {}
    for name, one in task.answers.items():
        cases = references[name].targets.keys()
        path = predictions if one.answer.kind == "mask" else table
        if path is not None:
            submissions[name] = one.scorer.read_files(path, cases, known - cases)
        else:
            submissions[name] = read_submission(submission, task.algorithm, one.answer, cases, known - cases)
    of_answers = (finding for answers in submissions.values() for finding in answers.findings)
    return submissions, tuple(dict.fromkeys((*findings, *of_answers)))


def score_answer(
    task: TaskProfile,
    name: str,
    reference: Reference[Any],
    submission: Submission,
    rows: Sequence[CaseRow],
    *,
    named: bool = True,
) -> ScoredAnswer:
    """One answer of a task with the rows that count and their metrics; `named` allows an error to name a case."""
    profile = task.answers[name]
    of_answer = f" of {name}" if task.has_several_answers else ""
    _check_missing(rows, profile.rules.missing, of_answer, named=named)
    return ScoredAnswer(**vars(measure_answer(profile, rows)), reference=reference, submission=submission)


def _check_defined(task: TaskProfile, answers: Sequence[ScoredAnswer]) -> None:
    """Raise MetricError for a task with one answer of which a ranked metric is undefined."""
    for one in answers:
        if one.measurement.undefined and not task.has_several_answers:
            raise MetricError(f"{one.profile.prefix}{one.measurement.undefined[0]}")


def _check_missing(rows: Sequence[CaseRow], missing: str, of_answer: str, *, named: bool) -> None:
    """Raise PredictionError if the edition's rule for missing cases leaves nothing to score."""
    without = [row for row in rows if row.error is not None]
    if without and missing == "stop":
        found = f"{len(without)} cases without a usable prediction{of_answer}"
        if not named:
            raise PredictionError(f"{found}, expected one of every case")
        raise PredictionError(f"{found}, {without[0].case}", f"{without[0].error}")
    if rows and not any(is_counted(row.error, missing) for row in rows):
        raise PredictionError(f"none of {len(rows)} cases has a usable prediction{of_answer}, expected at least one")


def build_report(
    task: TaskProfile,
    answers: Sequence[ScoredAnswer],
    findings: Sequence[Finding] = (),
    *,
    boxes: Path | None = None,
    seed: int = DEFAULT_SEED,
    bootstraps: int = DEFAULT_BOOTSTRAPS,
    rows: bool = True,
) -> MetricsJson:
    """The metrics.json of scored answers; `findings` become its first warnings, `boxes` are told by their checksum."""
    cohort = join_answers(answers, task.metrics)
    estimates = _estimate(task, cohort, seed, bootstraps)
    draws = {"seed": seed, "bootstraps": bootstraps, "redraws": estimates.redraws}
    report = MetricsJson(
        aggregates=metrics_json.aggregates(estimates.by_metric, with_half_width=True),
        centres=metrics_json.group_blocks(cohort.cases, cohort.centres, cohort.metrics),
        cases=metrics_json.case_counts(cohort),
        warnings=[
            *map(str, findings),
            *metrics_json.warnings(cohort, estimates.by_metric, task.metrics),
            *(map(str, metrics_json.findings(cohort)) if rows else ()),
        ],
        provenance=metrics_json.provenance(
            task,
            cohort,
            {} if boxes is None else {IN_BOX: _checksum(boxes)},
            **draws,
            redraws_of_extra_metrics=estimates.extra_redraws,
        ),
        results=cohort.rows_as_json(),
    )
    return report if rows else metrics_json.remove_rows(report)


def _estimate(task: TaskProfile, cohort: ScoredCohort, seed: int, bootstraps: int) -> Estimates:
    """The ranked metrics from common draws; the others from separate draws, since they may be undefined."""
    n_cases, metrics = len(cohort.cases), cohort.metrics
    ranked = {name: metrics[name] for name in task.metrics if name in metrics}
    main = estimate(ranked, n_cases, bootstraps, np.random.default_rng(seed))
    others = {name: metric for name, metric in metrics.items() if name not in ranked}
    absent = {name: Estimate(None, None, None) for name in task.metrics if name not in ranked}
    extra = estimate_unranked(others, n_cases, bootstraps, seed)
    return Estimates({**main.by_metric, **absent, **extra.by_metric}, main.redraws, extra.redraws)


def _checksum(boxes: Path) -> str:
    try:
        return hashlib.sha256(boxes.read_bytes()).hexdigest()
    except OSError:
        raise GroundTruthError(boxes.name, "cannot be read", "a CSV file") from None
