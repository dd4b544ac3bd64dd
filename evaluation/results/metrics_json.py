"""Write the parts of metrics.json, and read one back for a ranking or a report."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
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
from evaluation.results.scored import ScoredAnswer, ScoredCohort, select_weighted_sums
from evaluation.statistics.bootstrap import Estimate

_NO_DATA: Final = "undefined: the cohort holds no data for it"
_AS_MISSING: Final = "each counts as a missing one"
_INFINITE: Final = "infinite: in at least half of the cases one mask is empty or there is no prediction"


def make_aggregates(estimates: Mapping[str, Estimate], *, with_half_width: bool = False) -> dict[str, MetricFigures]:
    """Return the figures of every metric; the half width of its interval is for the platform's leaderboards."""
    figures = {}
    for name, one in estimates.items():
        more = {"ci95_half_width": half_width(one.ci95_low, one.ci95_high)} if with_half_width else {}
        figures[name] = MetricFigures.from_values(one.value, one.ci95_low, one.ci95_high, **more)
    return figures


def half_width(low: float | None, high: float | None) -> float | None:
    """Return half the length of an interval, None without a finite one; 6 digits, since rounded ends differ by few."""
    if low is None or high is None or not math.isfinite(high - low):
        return None
    return round((high - low) / 2, 6)


def compute_group_blocks(
    cases: Sequence[str], group_of: Mapping[str, str], metrics: Mapping[str, WeightedMetric]
) -> dict[str, CentreBlock]:
    """Compute every metric on each group's cases, null if it is not finite, and the names of these cases.

    The metrics take weights over `cases`; a case without a group is left out.
    """
    of_case = [group_of.get(case) for case in cases]
    blocks = {}
    for group in sorted({name for name in of_case if name is not None}):
        weights = np.array([[float(name == group) for name in of_case]])
        names = [case for case, of in zip(cases, of_case, strict=True) if of == group]
        values = {name: float(metric(weights)[0]) for name, metric in metrics.items()}
        figures = {name: CentreValue(value=value if math.isfinite(value) else None) for name, value in values.items()}
        blocks[group] = CentreBlock(cases=len(names), names=names, aggregates=figures)
    return blocks


def list_warnings(
    cohort: ScoredCohort, estimates: Mapping[str, Estimate], ranked: Mapping[str, MetricProfile]
) -> list[str]:
    """Write one line for each ranked metric that is undefined or infinite, and the warnings of each answer.

    `estimates` holds each metric that the result shows.
    """
    values = {name: one.value for name, one in estimates.items()}
    reasons = [f"{one.profile.prefix}{why}" for one in cohort.answers for why in one.measurement.undefined]
    reason_of = {why.partition(":")[0]: why for why in reasons}
    lines = []
    for name in (name for name in ranked if values[name] is None):
        null = [term for term in ranked[name].terms if values.get(term, 0.0) is None]
        if null:
            lines.append(f"{name}: null, since {', '.join(null)} has no value")
        else:
            lines.append(reason_of.get(name, f"{name}: {_NO_DATA}"))
    lines += [f"{name}: {_INFINITE}" for name in ranked if math.isinf(values[name] or 0.0)]
    for answer in cohort.answers:
        for name, warn in answer.measurement.warnings.items():
            one = estimates.get(f"{answer.profile.prefix}{name}")
            line = None if one is None or one.value is None else warn(one.value, one.ci95_high)
            lines += [f"{answer.profile.prefix}{line}"] if line is not None else []
    return lines


def list_findings(cohort: ScoredCohort) -> list[Finding]:
    """List answers that no case has, masks on other grids, references that are incomplete, cases without a centre."""
    lines = [
        Finding(one.profile.answer.name, f"no usable answer to any of {len(one.rows)} cases", action=_AS_MISSING)
        for one in cohort.answers
        if all(row.error is not None for row in one.rows)
    ]
    lines += [
        finding for answer in cohort.answers for finding in answer.profile.scorer.find_problems(answer.counted_rows)
    ]
    lines += [finding for answer in cohort.answers for finding in _describe_incomplete(answer)]
    centre_of = cohort.centres
    without = [case for case in cohort.cases if case not in centre_of]
    if without:
        found = f"none known for {format_names(without)}" if centre_of else "none known"
        expected = "a column CenterID, or IDs such as CHUV-001"
        lines.append(Finding("centres", found, expected, "left out of the figures by centre"))
    return lines


def _describe_incomplete(answer: ScoredAnswer) -> list[Finding]:
    """Name the cases with a part of the target in the reference, such as RFS without Relapse."""
    list_counted_cases: dict[str, list[str]] = {}
    for case, what in sorted(answer.reference.incomplete.items()):
        list_counted_cases.setdefault(what, []).append(case)
    return [
        Finding(f"reference of {answer.profile.answer.name}", f"{what} for {format_names(cases)}", "both", "not scored")
        for what, cases in list_counted_cases.items()
    ]


def count_cases(cohort: ScoredCohort) -> CaseCounts:
    """Count the cases that count, and list the names of those that are missing, failed, skipped, unknown or duplicate.

    With several answers a case is missing if it has none of them; a single absent answer stands under `failed`, with
    the answer's name in the reason.
    """
    in_reference = {case for answer in cohort.answers for case in answer.reference.cases}
    unusable, missing, failed = _unusable(cohort)
    return CaseCounts(
        in_ground_truth=len(in_reference),
        used=len(cohort.cases),
        answered=len({row.case for answer in cohort.answers for row in answer.rows} - unusable),
        missing=missing,
        failed=failed,
        skipped=_reasons_for_skipping(cohort),
        unknown=cohort.unknown,
        duplicate=sorted({case for answer in cohort.answers for case in answer.submission.duplicate}),
    )


def _unusable(cohort: ScoredCohort) -> tuple[set[str], list[str], list[FailedCase]]:
    """Find cases that lack a usable answer, the missing ones among them, and the reasons of the others."""
    rows = [(answer.profile.answer.name, row) for answer in cohort.answers for row in answer.rows]
    submitted = {row.case for _, row in rows if row.error is None or row.failed}
    without = sorted(((name, row) for name, row in rows if row.error is not None), key=lambda entry: entry[1].case)
    failed = [
        FailedCase(case=row.case, why=f"{name}: {row.error}" if cohort.has_several_answers else row.error)
        for name, row in without
        if row.case in submitted
    ]
    unusable = {row.case for _, row in without}
    return unusable, sorted(unusable - submitted), failed


def _reasons_for_skipping(cohort: ScoredCohort) -> dict[str, list[str] | int]:
    reasons: dict[str, Sequence[str]] = dict(cohort.excluded)
    for answer in cohort.answers:
        left_out = sorted(set(answer.table.cases) - set(answer.counted.cases))
        of_answer: dict[str, Sequence[str]] = {
            "no_target_in_ground_truth": answer.reference.without_target,
            "class_not_counted": answer.reference.not_counted,
            "no_usable_prediction": left_out,
        }
        prefix = cohort.reason_prefix(answer)
        reasons |= {f"{prefix}{why}": cases for why, cases in of_answer.items()}
    return {why: list(cases) for why, cases in reasons.items() if cases}


def make_provenance(
    task: TaskProfile, cohort: ScoredCohort, more_options: Mapping[str, str], **draws: Any
) -> Provenance:
    """Record the version, task, edition, rules, ranked metrics, checksum of the cases, and draws of an evaluation."""
    more: dict[str, Any] = {} if task.own_edition is None else {"own_edition": task.own_edition}
    if sums := select_weighted_sums(task.metrics):
        more["weighted_sums"] = sums
    return Provenance(
        format=METRICS_FORMAT,
        version=find_version("hecktor"),
        task=task.algorithm.name,
        edition=task.edition,
        options={**task.options, **more_options},
        ranked_metrics=list(task.ranking.official_metrics),
        case_set_sha256=compute_case_digest(case for answer in cohort.answers for case in answer.reference.targets),
        **more,
        **draws,
    )


def compute_case_digest(cases: Iterable[str]) -> str:
    """Return the digest of the names of a set of cases."""
    return hashlib.sha256("\n".join(sorted(set(cases))).encode(errors="replace")).hexdigest()


def remove_rows(report: MetricsJson) -> MetricsJson:
    """Return a metrics.json for submitters: aggregates and numbers of cases, no row, name, centre or digest.

    A digest of the names would tell who has a target to anyone who knows the names of all patients.
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

    Raises HecktorError: no such file, or not a metrics.json of this project; the message names the file.
    """
    where = describe_file(path)
    content = read_json(path, error=HecktorError, max_bytes=MAX_METRICS_BYTES, name=describe_source(where, team))
    return parse_metrics(content, where)


def parse_metrics(content: Any, where: str) -> MetricsJson:
    """Return the metrics.json itself, or parse its content; `where` names it in messages. Raises as `read_metrics`."""
    if isinstance(content, MetricsJson):
        document = content
    else:
        _check_format(content, where)
        document = check_document(content, MetricsJson, where)
    _check_cases(document.results, where)
    return document


def _check_format(content: Any, where: str) -> None:
    """Raise `HecktorError` for a metrics.json of another format, whose rows have other keys."""
    origin = content.get("provenance") if isinstance(content, dict) else None
    stated = origin.get("format") if isinstance(origin, dict) else None
    if isinstance(stated, int) and stated != METRICS_FORMAT:
        raise HecktorError(where, f"format {stated}", f"format {METRICS_FORMAT}; evaluate again")


def describe_source(where: str, team: str) -> str:
    """Return the file and the team, without naming either twice."""
    return where if team in where else team if where in team else f"{where} ({team})"


def _check_cases(rows: Sequence[Mapping[str, Any]], where: str) -> None:
    cases: set[str] = set()
    for number, row in enumerate(rows):
        case = row.get("case")
        if not isinstance(case, str) or not case.strip():
            raise HecktorError(f"{where}.results[{number}].case", f"found {case!r:.60}", "the name of a case")
        if case in cases:
            raise HecktorError(f"{where}, {case}", "two rows", "one row a case")
        cases.add(case)
