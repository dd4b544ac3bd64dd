"""Make the parts of a metrics.json, and read a metrics.json for a ranking or a report."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.documents import find_version
from contract.errors import Finding, HecktorError
from contract.io.files import read_json
from contract.patient import format_names
from evaluation.editions.document import MetricProfile
from evaluation.editions.profile import TaskProfile
from evaluation.metrics.overlap import WeightedMetric
from evaluation.results.board import describe_file
from evaluation.results.documents import (
    MAX_METRICS_BYTES,
    METRICS_FORMAT,
    CaseCounts,
    CentreBlock,
    CentreValue,
    FailedCase,
    MetricFigures,
    MetricsJson,
    Provenance,
    check_document,
)
from evaluation.results.scored import ScoredAnswer, ScoredCohort, collect_sum_weights
from evaluation.statistics.bootstrap import Estimate

_NO_DATA: Final = "undefined: the cohort contains no data for it"
_AS_MISSING: Final = "each case counts as missing"
_INFINITE: Final = "infinite: in at least half of the cases one mask is empty or there is no prediction"


def make_aggregates(estimates: Mapping[str, Estimate], *, with_half_width: bool = False) -> dict[str, MetricFigures]:
    """Return the figures of every metric; the half width of its interval is for the platform's leaderboards."""
    figures = {}
    for name, estimate in estimates.items():
        low, high = estimate.ci95_low, estimate.ci95_high
        optional = {"ci95_half_width": half_width(low, high)} if with_half_width else {}
        figures[name] = MetricFigures.from_values(estimate.value, low, high, **optional)
    return figures


def half_width(low: float | None, high: float | None) -> float | None:
    """Return half the length of an interval, rounded to 6 decimals; None without a finite interval."""
    if low is None or high is None or not math.isfinite(high - low):
        return None
    return round((high - low) / 2, 6)


def compute_group_blocks(
    cases: Sequence[str], group_of: Mapping[str, str], metrics: Mapping[str, WeightedMetric]
) -> dict[str, CentreBlock]:
    """Compute every metric on the cases of each group; a value that is not finite becomes null.

    Args:
        cases: Names of the cohort's cases.
        group_of: Group of each case; cases without a group are left out.
        metrics: Functions of weights over `cases`.
    """
    groups = [group_of.get(case) for case in cases]
    blocks = {}
    for group in sorted({name for name in groups if name is not None}):
        is_member = [name == group for name in groups]
        weights = np.array([is_member], dtype=np.float64)
        values = {name: float(metric(weights)[0]) for name, metric in metrics.items()}
        figures = {name: CentreValue(value=value if math.isfinite(value) else None) for name, value in values.items()}
        names = [*compress(cases, is_member)]
        blocks[group] = CentreBlock(cases=len(names), names=names, aggregates=figures)
    return blocks


def list_warnings(
    cohort: ScoredCohort, estimates: Mapping[str, Estimate], ranked: Mapping[str, MetricProfile]
) -> list[str]:
    """Return a line for each ranked metric that is undefined or infinite, and the warnings of each answer.

    Args:
        cohort: The scored submission.
        estimates: Every metric that the result shows.
        ranked: The metrics that rank.
    """
    values = {name: estimate.value for name, estimate in estimates.items()}
    reasons = [
        f"{answer.profile.prefix}{reason}" for answer in cohort.answers for reason in answer.measurement.undefined
    ]
    reason_of = {reason.partition(":")[0]: reason for reason in reasons}
    lines = []
    for name in (name for name in ranked if values[name] is None):
        undefined_terms = [term for term in ranked[name].terms if values.get(term, 0.0) is None]
        if undefined_terms:
            lines.append(f"{name}: null, since {', '.join(undefined_terms)} has no value")
        else:
            lines.append(reason_of.get(name, f"{name}: {_NO_DATA}"))
    lines += [f"{name}: {_INFINITE}" for name in ranked if math.isinf(values[name] or 0.0)]
    return [*lines, *(line for answer in cohort.answers for line in _list_answer_warnings(answer, estimates))]


def _list_answer_warnings(answer: ScoredAnswer, estimates: Mapping[str, Estimate]) -> list[str]:
    lines = []
    for name, warn in answer.measurement.warnings.items():
        estimate = estimates.get(f"{answer.profile.prefix}{name}")
        if estimate is not None and estimate.value is not None:
            line = warn(estimate.value, estimate.ci95_high)
            if line is not None:
                lines.append(f"{answer.profile.prefix}{line}")
    return lines


def list_findings(cohort: ScoredCohort) -> list[Finding]:
    """List the findings that organisers should look at.

    These are answers without a usable prediction for any case, probable mistakes such as masks on other grids,
    incomplete references, and cases without a centre.
    """
    lines = [
        Finding(answer.profile.answer.name, f"no usable answer to any of {len(answer.rows)} cases", action=_AS_MISSING)
        for answer in cohort.answers
        if None not in answer.table.errors
    ]
    lines += [
        finding for answer in cohort.answers for finding in answer.profile.scorer.find_problems(answer.counted_rows)
    ]
    lines += [finding for answer in cohort.answers for finding in _describe_incomplete(answer)]
    centre_of = cohort.centres
    without_centre = [case for case in cohort.cases if case not in centre_of]
    if without_centre:
        problem = f"none known for {format_names(without_centre)}" if centre_of else "none known"
        expected = "a column CenterID, or IDs such as CHUV-001"
        lines.append(Finding("centres", problem, expected, "left out of the figures by centre"))
    return lines


def _describe_incomplete(answer: ScoredAnswer) -> list[Finding]:
    """Return a finding for each kind of incomplete target in the reference, such as RFS without Relapse."""
    cases_of: dict[str, list[str]] = {}
    for case, what in sorted(answer.reference.incomplete.items()):
        cases_of.setdefault(what, []).append(case)
    return [
        Finding(f"reference of {answer.profile.answer.name}", f"{what} for {format_names(cases)}", "both", "not scored")
        for what, cases in cases_of.items()
    ]


def count_cases(cohort: ScoredCohort) -> CaseCounts:
    """Count the cases that count, and list the names of missing, failed, skipped, unknown and duplicate cases.

    In a task with several answers a case is missing if all of its answers are absent. If only some answers are absent,
    each of them is listed under `failed`, with the answer's name in the reason.
    """
    in_reference = {case for answer in cohort.answers for case in answer.reference.cases}
    rows = [(answer.profile.answer.name, row) for answer in cohort.answers for row in answer.rows]
    submitted = {row.case for _, row in rows if row.error is None or row.failed}
    unusable = {row.case for _, row in rows if row.error is not None}
    failed = [
        FailedCase(case=row.case, why=f"{name}: {row.error}" if cohort.has_several_answers else row.error)
        for name, row in sorted(rows, key=lambda entry: entry[1].case)
        if row.error is not None and row.case in submitted
    ]
    return CaseCounts(
        in_ground_truth=len(in_reference),
        used=len(cohort.cases),
        answered=len({row.case for _, row in rows} - unusable),
        missing=sorted(unusable - submitted),
        failed=failed,
        skipped=_list_skipped(cohort),
        unknown=cohort.unknown,
        duplicate=sorted({case for answer in cohort.answers for case in answer.submission.duplicate}),
    )


def _list_skipped(cohort: ScoredCohort) -> dict[str, list[str] | int]:
    """Return the cases that do not count, by the reason."""
    cases_of: dict[str, Sequence[str]] = dict(cohort.excluded)
    for answer in cohort.answers:
        prefix = cohort.get_reason_prefix(answer)
        cases_of[f"{prefix}no_target_in_ground_truth"] = answer.reference.without_target
        cases_of[f"{prefix}class_not_counted"] = answer.reference.not_counted
        cases_of[f"{prefix}no_usable_prediction"] = sorted(set(answer.table.cases) - set(answer.counted.cases))
    return {reason: list(cases) for reason, cases in cases_of.items() if cases}


def make_provenance(
    task: TaskProfile, cohort: ScoredCohort, more_options: Mapping[str, str], **draws: Any
) -> Provenance:
    """Record the version, task, edition, rules, ranked metrics, checksum of the cases, and draws of an evaluation."""
    optional: dict[str, Any] = {}
    if task.own_edition is not None:
        optional["own_edition"] = task.own_edition
    sum_weights = collect_sum_weights(task.metrics)
    if sum_weights:
        optional["weighted_sums"] = sum_weights
    return Provenance(
        format=METRICS_FORMAT,
        version=find_version("hecktor"),
        task=task.algorithm.name,
        edition=task.edition,
        options={**task.options, **more_options},
        ranked_metrics=list(task.ranking.official_metrics),
        case_set_sha256=compute_case_digest(case for answer in cohort.answers for case in answer.reference.targets),
        **optional,
        **draws,
    )


def compute_case_digest(cases: Iterable[str]) -> str:
    """Return the digest of the names of a set of cases."""
    return hashlib.sha256("\n".join(sorted(set(cases))).encode(errors="replace")).hexdigest()


def remove_rows(report: MetricsJson) -> MetricsJson:
    """Return the results for submitters: aggregates and numbers of cases without rows, names, centres and digest.

    A digest of the names would reveal who has a target to anyone who knows the names of all patients.
    """
    cases = report.cases
    return MetricsJson(
        aggregates=report.aggregates,
        cases=CaseCounts(in_ground_truth=cases.in_ground_truth, used=cases.used, answered=cases.answered),
        warnings=report.warnings,
        provenance=Provenance(**report.provenance.model_dump(exclude_unset=True, exclude={"case_set_sha256"})),
    )


def read_metrics(path: Path, team: str) -> MetricsJson:
    """Read a metrics.json that this project wrote.

    Raises:
        HecktorError: The file does not exist or is not a metrics.json of this project; the message names the file.
    """
    where = describe_file(path)
    content = read_json(path, error=HecktorError, max_bytes=MAX_METRICS_BYTES, name=describe_source(where, team))
    return parse_metrics(content, where)


def parse_metrics(content: Any, where: str) -> MetricsJson:
    """Parse the content of a metrics.json; return it unchanged if it is parsed already.

    Args:
        content: Parsed JSON, or a `MetricsJson`.
        where: Name of the file in messages.

    Raises:
        HecktorError: The content is not a metrics.json of this project; the message names the place.
    """
    if isinstance(content, MetricsJson):
        document = content
    else:
        _check_format(content, where)
        document = check_document(content, MetricsJson, where)
    _check_cases(document.results, where)
    return document


def _check_format(content: Any, where: str) -> None:
    """Raise `HecktorError` if the metrics.json states another format; its rows have other keys."""
    origin = content.get("provenance") if isinstance(content, dict) else None
    stated = origin.get("format") if isinstance(origin, dict) else None
    if isinstance(stated, int) and stated != METRICS_FORMAT:
        raise HecktorError(where, f"format {stated}", f"format {METRICS_FORMAT}; evaluate again")


def describe_source(where: str, team: str) -> str:
    """Return the file and the team for messages; only the longer name if it contains the other one."""
    if team in where:
        return where
    return team if where in team else f"{where} ({team})"


def _check_cases(rows: Sequence[Mapping[str, Any]], where: str) -> None:
    """Raise `HecktorError` for a row without the name of a case, or for two rows of one case."""
    cases: set[str] = set()
    for number, row in enumerate(rows):
        case = row.get("case")
        if not isinstance(case, str) or not case.strip():
            raise HecktorError(f"{where}.results[{number}].case", f"found {case!r:.60}", "the name of a case")
        if case in cases:
            raise HecktorError(f"{where}, {case}", "two rows", "one row per case")
        cases.add(case)
