"""Evaluate a submission: read the references, match and score each answer, bootstrap, and write metrics.json.

The functions are in the order of the steps. Each answer of the task gets one row for each case. The rows of all answers
share one cohort, so that one paired bootstrap over cases serves every metric.
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

from tqdm import tqdm

from contract.editions.clinical import CENTRE
from contract.errors import (
    Finding,
    GroundTruthError,
    HecktorError,
    MetricError,
    PredictionError,
    is_permission_error,
    make_permission_error,
)
from contract.io.files import write_json
from contract.platform import METRICS_JSON
from evaluation.editions.profile import AnswerProfile, EvaluationProfile, TaskProfile, load_profile, with_options
from evaluation.inputs.ground_truth import Reference, check_case_names
from evaluation.inputs.mask_files import compute_max_unpacked_bytes, is_archive, unpack_masks
from evaluation.inputs.plain_files import check_table_columns, find_table, read_bounding_boxes
from evaluation.inputs.submission import NothingMatchedError, Submission, read_submission
from evaluation.metrics.rules import MaskRules, is_counted
from evaluation.options import EvaluationRequest, find_boxes
from evaluation.results import metrics_json
from evaluation.results.documents import IN_BOX, MetricsJson, remove_earlier_metrics
from evaluation.results.scored import ScoredAnswer, ScoredCohort, join_answers, measure_answer
from evaluation.rows import CaseRow
from evaluation.statistics.bootstrap import Estimate, Estimates, estimate, estimate_unranked


@dataclass(frozen=True)
class TeamReports:
    """The metrics.json of each team that was scored, and the error of every other team."""

    reports: Mapping[str, MetricsJson]
    errors: Mapping[str, HecktorError]

    def check(self) -> None:
        """Raise one `HecktorError` that names all teams that could not be scored."""
        if self.errors:
            count = len(self.reports) + len(self.errors)
            reasons = "; ".join(f"{team:.60}: {error.message}" for team, error in self.errors.items())
            raise HecktorError(f"{len(self.errors)} of {count} teams could not be scored", reasons)


@dataclass(frozen=True)
class SubmittedAnswers:
    """The submission of each answer of a task, and findings about the submitted files."""

    submissions: Mapping[str, Submission]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class _GroundTruth:
    """The reference of each answer of a task, and the file of the boxes inside which masks are compared."""

    task: TaskProfile
    references: Mapping[str, Reference[Any]]
    boxes_path: Path | None

    @cached_property
    def max_archive_bytes(self) -> int:
        """The maximum size of the unpacked masks of one archive."""
        targets = (target for reference in self.references.values() for target in reference.targets.values())
        return compute_max_unpacked_bytes(target for target in targets if isinstance(target, Path))


def evaluate_submission(request: EvaluationRequest) -> MetricsJson:
    """Evaluate one submission; its metrics.json is written completely or not at all.

    An unusable prediction is not an error: the edition's rule for missing cases applies to it.

    Raises:
        HecktorError: The ground truth or `predictions.json` cannot be used, or a ranked metric of a task with one
            answer is undefined.
    """
    result = evaluate_submissions({"": request})
    if result.errors:
        raise result.errors[""]
    return result.reports[""]


def evaluate_submissions(requests: Mapping[str, EvaluationRequest]) -> TeamReports:
    """Evaluate the submissions of several teams; each metrics.json is written completely or not at all.

    The requests differ only in submission, predictions and output. Teams with a zip file are unpacked and scored one
    after the other; for all other teams together each reference is read only once.

    Raises:
        HecktorError: The ground truth cannot be used.
    """
    request = next(iter(requests.values()))
    profile = load_profile(request.edition)
    task = with_options(profile.find_task(request.task), request.options)
    errors: dict[str, HecktorError] = {}
    for team, team_request in requests.items():
        with _record_error(team, errors):
            remove_earlier_metrics(team_request.output_dir, task.algorithm.name)
    boxes_path = find_boxes(task, request.ground_truth, request.bounding_boxes)
    ground_truth = _GroundTruth(task, read_references(profile, task, request.ground_truth, boxes_path), boxes_path)
    reports: dict[str, MetricsJson] = {}
    for group in _group_requests({team: requests[team] for team in requests if team not in errors}):
        result = _evaluate_group(ground_truth, group)
        reports |= result.reports
        errors |= result.errors
    return TeamReports({team: reports[team] for team in requests if team in reports}, errors)


def _group_requests(requests: Mapping[str, EvaluationRequest]) -> list[dict[str, EvaluationRequest]]:
    """Return the teams that are scored together: all teams without an archive, then every other team by itself."""
    folders = {team: request for team, request in requests.items() if not _has_archive(request)}
    archives = [{team: request} for team, request in requests.items() if _has_archive(request)]
    return [folders, *archives] if folders else archives


def _has_archive(request: EvaluationRequest) -> bool:
    return request.predictions is not None and is_archive(request.predictions)


def _evaluate_group(ground_truth: _GroundTruth, requests: Mapping[str, EvaluationRequest]) -> TeamReports:
    """Read the teams' submissions, score all of them together, and write each team's metrics.json."""
    task, references = ground_truth.task, ground_truth.references
    request = next(iter(requests.values()))
    errors: dict[str, HecktorError] = {}
    submitted: dict[str, SubmittedAnswers] = {}
    with ExitStack() as folders:
        for team, team_request in requests.items():
            with _record_error(team, errors):
                max_bytes = ground_truth.max_archive_bytes if _has_archive(team_request) else 0
                predictions = folders.enter_context(unpack_masks(team_request.predictions, max_bytes))
                submitted[team] = _read_team(ground_truth, replace(team_request, predictions=predictions))
        if not submitted:
            return TeamReports({}, errors)
        # The rows of each team, by answer.
        team_rows = {
            name: answer.scorer.score(
                references[name], [answers.submissions[name] for answers in submitted.values()], request.workers
            )
            for name, answer in task.answers.items()
        }
    reports: dict[str, MetricsJson] = {}
    bar = tqdm(submitted, desc="teams", unit="team", disable=None if len(submitted) > 1 else True, leave=False)
    for index, team in enumerate(bar):
        with _record_error(team, errors):
            rows_by_answer = {name: team_rows[name][index] for name in task.answers}
            report = _report_team(ground_truth, submitted[team], rows_by_answer, requests[team])
            reports[team] = report
            output_dir = requests[team].output_dir
            if output_dir is not None:
                write_json(output_dir / METRICS_JSON, report.to_dict())
    return TeamReports(reports, errors)


@contextmanager
def _record_error(team: str, errors: dict[str, HecktorError]) -> Iterator[None]:
    """Record the team's error, so that the other teams are scored."""
    try:
        yield
    except HecktorError as error:
        errors[team] = error
    except OSError as problem:
        if is_permission_error(problem):
            errors[team] = make_permission_error(problem.filename, HecktorError)
            return
        name = Path(os.fsdecode(problem.filename)).name if problem.filename else team
        errors[team] = HecktorError(name, f"cannot be read ({problem.strerror})", "readable files")


def read_references(
    profile: EvaluationProfile, task: TaskProfile, ground_truth: Path, boxes_path: Path | None
) -> dict[str, Reference[Any]]:
    """Read the reference of each answer, with the bounding boxes of masks from the file `boxes_path`.

    Every reference gets the cases of all references; a case that was not in it has no target.
    """
    centre_columns = [
        spelling for variable in profile.edition.clinical if variable.name == CENTRE for spelling in variable.spellings
    ]
    references = {}
    for name, answer in task.answers.items():
        reference = answer.scorer.read_reference(ground_truth, centre_columns)
        if boxes_path is not None and isinstance(answer.rules, MaskRules):
            reference = replace(reference, boxes=read_bounding_boxes(boxes_path, reference.targets.keys()))
        references[name] = reference
    first = next(iter(references.values()))
    for name, reference in references.items():
        check_case_names(f"reference of {name}", reference.cases, first.cases)
    cases = {case for reference in references.values() for case in reference.cases}
    return {name: reference.with_cases(cases) for name, reference in references.items()}


def _read_team(ground_truth: _GroundTruth, request: EvaluationRequest) -> SubmittedAnswers:
    """Read a team's submission; if the result has no rows, an error does not name the reference's cases."""
    try:
        return read_submissions(ground_truth.task, ground_truth.references, request.submission, request.predictions)
    except NothingMatchedError as problem:
        if request.rows:
            raise
        # Submitters may see this message, which must not name the cases of the reference.
        raise PredictionError(
            problem.what, "found no prediction of a case", "predictions of the reference's cases"
        ) from None


def read_submissions(
    task: TaskProfile, references: Mapping[str, Reference[Any]], submission: Path, predictions: Path | None
) -> SubmittedAnswers:
    """Read the submission of each answer. A name is unknown only if no reference has it.

    Args:
        task: Task whose answers are read.
        references: The reference of each answer.
        submission: Folder in the platform's layout; unused if there are `predictions`.
        predictions: Plain files, as in `evaluation.evaluate`; None for a submission in the platform's layout.

    Raises:
        PredictionError: The files cannot be used, or none of them belongs to a case.
    """
    known = {case for reference in references.values() for case in reference.cases}
    table = predictions
    findings: tuple[Finding, ...] = ()
    if table is not None and task.has_several_answers:
        table = find_table(table, task.algorithm.head_specs)
        findings = check_table_columns(table, task.algorithm.head_specs)
    submissions: dict[str, Submission] = {}
    for name, profile in task.answers.items():
        cases = references[name].targets.keys()
        path = predictions if profile.answer.kind == "mask" else table
        if path is not None:
            submissions[name] = profile.scorer.read_files(path, cases, known - cases)
        else:
            submissions[name] = read_submission(submission, task.algorithm, profile.answer, cases, known - cases)
    all_findings = [*findings, *(finding for answers in submissions.values() for finding in answers.findings)]
    return SubmittedAnswers(submissions, tuple(dict.fromkeys(all_findings)))


def _report_team(
    ground_truth: _GroundTruth,
    submitted: SubmittedAnswers,
    rows_by_answer: Mapping[str, Sequence[CaseRow]],
    request: EvaluationRequest,
) -> MetricsJson:
    """Return the metrics.json of a team from the rows of each answer.

    Raises:
        PredictionError: The edition's rule for missing cases leaves nothing to score.
        MetricError: A ranked metric of a task with one answer is undefined.
    """
    task = ground_truth.task
    answers = []
    for name, profile in task.answers.items():
        rows = rows_by_answer[name]
        suffix = f" of {name}" if task.has_several_answers else ""
        _require_predictions(rows, profile.rules.missing, suffix, may_name_cases=request.rows)
        answers.append(score_answer(profile, ground_truth.references[name], submitted.submissions[name], rows))
    for answer in answers:
        if answer.measurement.undefined and not task.has_several_answers:
            raise MetricError(f"{answer.profile.prefix}{answer.measurement.undefined[0]}")
    return build_report(task, answers, request, submitted.findings, ground_truth.boxes_path)


def _require_predictions(rows: Sequence[CaseRow], missing: str, suffix: str, *, may_name_cases: bool) -> None:
    """Raise PredictionError if the edition's rule for missing cases leaves nothing to score.

    Args:
        rows: The rows of an answer.
        missing: The rule.
        suffix: Name of the answer at the end of a message, such as " of rfs"; empty in a task with one answer.
        may_name_cases: Whether the message may name a case of the reference.
    """
    unusable = [row for row in rows if row.error is not None]
    if unusable and missing == "stop":
        problem = f"{len(unusable)} cases without a usable prediction{suffix}"
        if not may_name_cases:
            raise PredictionError(f"{problem}, expected one for every case")
        raise PredictionError(f"{problem}, {unusable[0].case}", f"{unusable[0].error}")
    if rows and not any(is_counted(row.error, missing) for row in rows):
        raise PredictionError(f"none of {len(rows)} cases has a usable prediction{suffix}, expected at least one")


def score_answer(
    profile: AnswerProfile, reference: Reference[Any], submission: Submission, rows: Sequence[CaseRow]
) -> ScoredAnswer:
    """Select the rows of an answer that count and compute their metrics."""
    measured = measure_answer(profile, profile.scorer.make_table(rows))
    return ScoredAnswer(**vars(measured), rows=rows, reference=reference, submission=submission)


def build_report(
    task: TaskProfile,
    answers: Sequence[ScoredAnswer],
    request: EvaluationRequest,
    findings: Sequence[Finding] = (),
    boxes_path: Path | None = None,
) -> MetricsJson:
    """Build the metrics.json of scored answers.

    Args:
        task: Task of the answers.
        answers: The answers in the task's order.
        request: Request that gives the seed, the number of bootstraps and `rows`.
        findings: Findings that come first among the result's warnings.
        boxes_path: File of bounding boxes, whose checksum is stored; None without boxes.
    """
    cohort = join_answers(answers, task.metrics)
    estimates = _estimate(task, cohort, request.seed, request.bootstraps)
    warnings = [*map(str, findings), *metrics_json.list_warnings(cohort, estimates.by_metric, task.metrics)]
    if request.rows:
        warnings += map(str, metrics_json.list_findings(cohort))
    report = MetricsJson(
        aggregates=metrics_json.make_aggregates(estimates.by_metric, with_half_width=True),
        centres=metrics_json.compute_group_blocks(cohort.cases, cohort.centres, cohort.metrics),
        cases=metrics_json.count_cases(cohort),
        warnings=warnings,
        provenance=metrics_json.make_provenance(
            task,
            cohort,
            {} if boxes_path is None else {IN_BOX: _compute_checksum(boxes_path)},
            seed=request.seed,
            bootstraps=request.bootstraps,
            redraws=estimates.redraws,
            redraws_of_extra_metrics=estimates.extra_redraws,
        ),
        results=cohort.rows_as_json(),
    )
    return report if request.rows else metrics_json.remove_rows(report)


def _estimate(task: TaskProfile, cohort: ScoredCohort, seed: int, bootstraps: int) -> Estimates:
    """Estimate all metrics of the cohort.

    All ranked metrics use the same draws. The other metrics may be undefined, so they are drawn separately.
    """
    n_cases, metrics = len(cohort.cases), cohort.metrics
    ranked = {name: metrics[name] for name in task.metrics if name in metrics}
    unranked = {name: metric for name, metric in metrics.items() if name not in ranked}
    undefined = {name: Estimate(None, None, None) for name in task.metrics if name not in ranked}
    main = estimate(ranked, n_cases, bootstraps, seed)
    extra = estimate_unranked(unranked, n_cases, bootstraps, seed)
    return Estimates({**main.by_metric, **undefined, **extra.by_metric}, main.redraws, extra.redraws)


def _compute_checksum(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        raise GroundTruthError(path.name, "cannot be read", "a CSV file") from None
