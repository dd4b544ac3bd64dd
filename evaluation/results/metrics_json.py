"""Write the parts of metrics.json, and read one back for a ranking or a report."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.documents import installed_version
from contract.errors import Finding, HecktorError
from contract.files import read_json
from contract.patient import listed
from evaluation.editions.document import MetricProfile
from evaluation.editions.profile import TaskProfile
from evaluation.metrics.overlap import WeightedMetric
from evaluation.results.board import file_in_folder
from evaluation.results.documents import (
    FIGURES,
    MAX_METRICS_BYTES,
    METRICS_FORMAT,
    MetricFigures,
    MetricsJson,
    check_document,
)
from evaluation.results.scored import MeasuredAnswer, ScoredCohort, cases_of, metrics_over, weighted_sums
from evaluation.statistics.bootstrap import Estimate

_NO_DATA: Final = "undefined: the cohort holds no data for it"
_AS_MISSING: Final = "each counts as a missing one"
_INFINITE: Final = "infinite: in at least half of the cases one mask is empty or there is no prediction"


@dataclass(frozen=True)
class TeamMetrics:
    """One team's metrics.json; `rows` is empty if it was written without them. `source` names it in messages.

    With several answers each row holds the answers' own rows by name. Validated results have the rows of each answer in
    `answers`, with their metrics, and the weights of the edition's `sums`.
    """

    team: str
    estimates: Mapping[str, Estimate]
    rows: Sequence[Mapping[str, Any]]
    cases: Mapping[str, Any]
    warnings: Sequence[str]
    provenance: Mapping[str, Any]
    source: str = ""
    centres: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, MeasuredAnswer] = field(default_factory=dict)
    sums: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def counted_cases(self) -> tuple[str, ...]:
        """The cases that count for any answer of validated results, sorted."""
        return cases_of(self.answers.values())

    def metrics_over(self, cases: Sequence[str]) -> dict[str, WeightedMetric]:
        """All metrics of validated results, as functions of the weights of these cases, which hold the team's own."""
        return metrics_over(cases, self.answers.values(), self.sums)

    def rows_of(self, answer: str, *, several: bool) -> list[Mapping[str, Any]]:
        """The rows of one answer; `several` says whether the rows are nested by answer.

        Raises HecktorError: the answer's part of a row is no object.
        """
        if not several:
            return list(self.rows)
        rows = [row for row in self.rows if answer in row]
        for row in rows:
            if not isinstance(row[answer], dict):
                raise HecktorError(f"{self.source}, {row['case']}", f"{answer} is no object", "the row of the answer")
        return [{**row[answer], "case": row["case"]} for row in rows]


def aggregates(estimates: Mapping[str, Estimate], *, with_half_width: bool = False) -> dict[str, Any]:
    """Every metric's value and interval; null if it is undefined for this cohort, or infinite.

    JSON has no infinity, so `infinite` lists the infinite figures. The half width is for the platform's leaderboards.
    """
    figures = {name: _figures(estimate) for name, estimate in estimates.items()}
    if with_half_width:
        for one in figures.values():
            one["ci95_half_width"] = half_width_of(one["ci95_low"], one["ci95_high"])
    return figures


def half_width_of(low: float | None, high: float | None) -> float | None:
    """Half the length of an interval, None without a finite one; 6 digits, since rounded ends differ by few."""
    if low is None or high is None or not math.isfinite(high - low):
        return None
    return round((high - low) / 2, 6)


def _figures(estimate: Estimate) -> dict[str, Any]:
    figures = {"value": estimate.value, "ci95_low": estimate.ci95_low, "ci95_high": estimate.ci95_high}
    infinite = [name for name, value in figures.items() if value is not None and math.isinf(value)]
    plain: dict[str, Any] = {name: None if name in infinite else value for name, value in figures.items()}
    return {**plain, "infinite": infinite} if infinite else plain


def group_blocks(
    cases: Sequence[str], group_of: Mapping[str, str], metrics: Mapping[str, WeightedMetric]
) -> dict[str, Any]:
    """Every metric on each group's cases, null if it is not finite, and the names of these cases.

    The metrics take weights over `cases`; a case without a group is left out.
    """
    of_case = [group_of.get(case) for case in cases]
    blocks = {}
    for group in sorted({name for name in of_case if name is not None}):
        weights = np.array([[float(name == group) for name in of_case]])
        names = [case for case, of in zip(cases, of_case, strict=True) if of == group]
        values = {name: float(metric(weights)[0]) for name, metric in metrics.items()}
        figures = {name: {"value": value if math.isfinite(value) else None} for name, value in values.items()}
        blocks[group] = {"cases": len(names), "names": names, "aggregates": figures}
    return blocks


def warnings(cohort: ScoredCohort, estimates: Mapping[str, Estimate], ranked: Mapping[str, MetricProfile]) -> list[str]:
    """One line for each ranked metric that is undefined or infinite, and the warnings of each answer.

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


def findings(cohort: ScoredCohort) -> list[Finding]:
    """Answers that no case has, masks on other grids, and cases without a centre."""
    lines = [
        Finding(one.profile.answer.name, f"no usable answer to any of {len(one.rows)} cases", action=_AS_MISSING)
        for one in cohort.answers
        if all(row.error is not None for row in one.rows)
    ]
    lines += [finding for one in cohort.answers for finding in one.measurement.findings]
    centre_of = cohort.centres
    without = [case for case in cohort.cases if case not in centre_of]
    if without:
        found = f"none known for {listed(without)}" if centre_of else "none known"
        expected = "a column CenterID, or IDs such as CHUV-001"
        lines.append(Finding("centres", found, expected, "left out of the figures by centre"))
    return lines


def case_counts(cohort: ScoredCohort) -> dict[str, Any]:
    """Which cases count, and the names of those that are missing, failed, skipped, unknown or duplicate.

    With several answers a case is missing if it has none of them; a single absent answer stands under `failed`, with
    the answer's name in the reason.
    """
    in_reference = {case for answer in cohort.answers for case in answer.reference.cases}
    unusable, missing, failed = _unusable(cohort)
    return {
        "in_ground_truth": len(in_reference),
        "used": len(cohort.cases),
        "answered": len({row.case for answer in cohort.answers for row in answer.rows} - unusable),
        "missing": missing,
        "failed": failed,
        "skipped": _reasons_for_skipping(cohort),
        "unknown": cohort.unknown,
        "duplicate": sorted({case for answer in cohort.answers for case in answer.submission.duplicate}),
    }


def _unusable(cohort: ScoredCohort) -> tuple[set[str], list[str], list[dict[str, str | None]]]:
    """Cases that lack a usable answer, the missing ones among them, and the reasons of the others."""
    rows = [(answer.profile.answer.name, row) for answer in cohort.answers for row in answer.rows]
    submitted = {row.case for _, row in rows if row.error is None or row.failed}
    without = sorted(((name, row) for name, row in rows if row.error is not None), key=lambda entry: entry[1].case)
    failed = [
        {"case": row.case, "why": f"{name}: {row.error}" if cohort.has_several_answers else row.error}
        for name, row in without
        if row.case in submitted
    ]
    unusable = {row.case for _, row in without}
    return unusable, sorted(unusable - submitted), failed


def _reasons_for_skipping(cohort: ScoredCohort) -> dict[str, list[str]]:
    reasons: dict[str, Sequence[str]] = dict(cohort.excluded)
    for answer in cohort.answers:
        left_out = sorted({row.case for row in answer.rows} - {row.case for row in answer.counted})
        of_answer: dict[str, Sequence[str]] = {
            "no_target_in_ground_truth": answer.reference.without_target,
            "class_not_counted": answer.reference.not_counted,
            "no_usable_prediction": left_out,
        }
        prefix = cohort.reason_prefix(answer)
        reasons |= {f"{prefix}{why}": cases for why, cases in of_answer.items()}
    return {why: list(cases) for why, cases in reasons.items() if cases}


def provenance(task: TaskProfile, cohort: ScoredCohort, more_options: Mapping[str, str]) -> dict[str, Any]:
    """The version, task, edition, rules and ranked metrics of an evaluation, and a checksum of its cases."""
    sums = weighted_sums(task.metrics)
    return {
        "format": METRICS_FORMAT,
        "version": installed_version("hecktor"),
        "task": task.algorithm.name,
        "edition": task.edition,
        **({} if task.own_edition is None else {"own_edition": task.own_edition}),
        "options": {**task.options, **more_options},
        "ranked_metrics": list(task.ranking.official_metrics),
        **({"weighted_sums": sums} if sums else {}),
        "case_set_sha256": case_set_digest(case for answer in cohort.answers for case in answer.reference.targets),
    }


def case_set_digest(cases: Iterable[str]) -> str:
    """The digest of the names of a set of cases."""
    return hashlib.sha256("\n".join(sorted(set(cases))).encode(errors="replace")).hexdigest()


def without_rows(report: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a metrics.json for submitters: aggregates and numbers of cases, no row, name, centre or digest.

    A digest of the names would tell who has a target to anyone who knows the names of all patients.
    """
    provenance = {key: value for key, value in report["provenance"].items() if key != "case_set_sha256"}
    return {
        "aggregates": report["aggregates"],
        "cases": {name: report["cases"][name] for name in ("in_ground_truth", "used", "answered")},
        "warnings": report["warnings"],
        "provenance": provenance,
    }


def read_metrics(path: Path, team: str) -> TeamMetrics:
    """Read a metrics.json that this project wrote.

    Raises HecktorError: no such file, or not a metrics.json of this project; the message names the file.
    """
    where = file_in_folder(path)
    content = read_json(path, error=HecktorError, max_bytes=MAX_METRICS_BYTES, name=_source(where, team))
    return parse_metrics(content, where, team)


def parse_metrics(content: Any, where: str, team: str) -> TeamMetrics:
    """A team's metrics from its metrics.json, an object or its content; `where` names it in messages.

    Raises as `read_metrics`.
    """
    document = content if isinstance(content, MetricsJson) else check_document(content, MetricsJson, where)
    _check_cases(document.results, where)
    return TeamMetrics(
        team,
        {name: estimate_of(figures) for name, figures in document.aggregates.items()},
        document.results,
        document.cases.model_dump(exclude_unset=True),
        document.warnings,
        document.provenance.model_dump(exclude_unset=True),
        _source(where, team),
        {name: block.model_dump(exclude_unset=True) for name, block in document.centres.items()},
    )


def _source(where: str, team: str) -> str:
    """The file and the team, without saying one twice."""
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


def estimate_of(figures: MetricFigures) -> Estimate:
    """The estimate from its form in JSON."""
    return Estimate(*(math.inf if name in figures.infinite else getattr(figures, name) for name in FIGURES))
