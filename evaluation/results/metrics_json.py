"""The parts of metrics.json, and reading one back for a ranking or a report.

Leaderboards point at `aggregates.<metric>.value|ci95_low|ci95_high`. `cases` lists the cases that count and the reasons
why others do not, `provenance` the origin of the figures, and `results` one row for each case.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from contract.files import read_json
from contract.versions import installed_version
from evaluation.editions.edge_cases import INFINITE, MIN_PUBLIC_CASES, NOTHING_TO_MEASURE, PART_IS_NULL
from evaluation.editions.metrics import MetricProfile
from evaluation.editions.task import TaskProfile
from evaluation.results.scored import ScoredCohort
from evaluation.statistics.bootstrap import Estimate, Estimates

METRICS_FORMAT: Final = 1
MAX_METRICS_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True)
class TeamMetrics:
    """One team's metrics.json; `rows` is empty if it was written without them.

    With several answers each row holds the answers' own rows by name.
    """

    team: str
    estimates: Mapping[str, Estimate]
    rows: Sequence[Mapping[str, Any]]
    cases: Mapping[str, Any]
    warnings: Sequence[str]
    provenance: Mapping[str, Any]
    centres: Mapping[str, Any] = field(default_factory=dict)

    def rows_of(self, answer: str, *, several: bool) -> list[Mapping[str, Any]]:
        """The rows of one answer; `several` says whether the rows are nested by answer."""
        if not several:
            return list(self.rows)
        return [{"case": row["case"], **row[answer]} for row in self.rows if answer in row]


def aggregates(estimates: Estimates) -> dict[str, Any]:
    """Every metric's value and interval; null if it is undefined for this cohort, or infinite.

    JSON has no infinity, so `infinite` lists the infinite figures.
    """
    return {name: _figures(estimate) for name, estimate in estimates.by_metric.items()}


def _figures(estimate: Estimate) -> dict[str, Any]:
    figures = {"value": estimate.value, "ci95_low": estimate.ci95_low, "ci95_high": estimate.ci95_high}
    infinite = [name for name, value in figures.items() if value is not None and math.isinf(value)]
    plain: dict[str, Any] = {name: None if name in infinite else value for name, value in figures.items()}
    return {**plain, "infinite": infinite} if infinite else plain


def centres(cohort: ScoredCohort, *, public: bool) -> dict[str, Any]:
    """Every metric of each centre's cases alone, null if it is not finite.

    `public` leaves out the names of the cases, centres with few cases, and the metrics of answers whose centres are
    private.
    """
    hidden = cohort.private_in_centres if public else frozenset()
    metrics = {name: metric for name, metric in cohort.metrics.items() if name not in hidden}
    centre_of = cohort.centres
    of_case = [centre_of.get(case) for case in cohort.cases]
    blocks = {}
    for centre in sorted({name for name in of_case if name is not None}):
        weights = np.array([[float(name == centre) for name in of_case]])
        names = [case for case in cohort.cases if centre_of.get(case) == centre]
        if not metrics or (public and len(names) < MIN_PUBLIC_CASES):
            continue
        values = {name: float(metric(weights)[0]) for name, metric in metrics.items()}
        figures = {name: {"value": value if math.isfinite(value) else None} for name, value in values.items()}
        blocks[centre] = {"cases": len(names), **({} if public else {"names": names}), "aggregates": figures}
    return blocks


def warnings(
    cohort: ScoredCohort, values: Mapping[str, float | None], ranked: Mapping[str, MetricProfile]
) -> list[str]:
    """One line for each ranked metric that is undefined or infinite, and the warnings of each answer."""
    reasons = [f"{one.profile.prefix}{why}" for one in cohort.answers for why in one.measurement.undefined]
    reason_of = {why.partition(":")[0]: why for why in reasons}
    lines = []
    for name in (name for name, value in values.items() if value is None):
        null = [term for term in ranked[name].terms if values.get(term, 0.0) is None]
        because = PART_IS_NULL.format(metric=name, parts=", ".join(null)) if null else None
        lines.append(because or reason_of.get(name) or NOTHING_TO_MEASURE.format(metric=name))
    lines += [INFINITE.format(metric=name) for name, value in values.items() if value is not None and math.isinf(value)]
    for answer in cohort.answers:
        lines += [f"{answer.profile.prefix}{line}" for line in answer.measurement.warnings]
    return lines


def case_counts(cohort: ScoredCohort, *, public: bool = False) -> dict[str, Any]:
    """Which cases count, and the names of those that are missing, failed, skipped, unknown or duplicate.

    With several answers a case is missing if it has none of them; a single absent answer stands under `failed`, with
    the answer's name in the reason. `public` counts the skipped cases instead of naming them, since a reason such as
    an empty reference reveals the reference.
    """
    in_reference = {case for answer in cohort.answers for case in answer.reference.cases}
    unusable, missing, failed = _unusable(cohort)
    reasons = _reasons_for_skipping(cohort)
    return {
        "in_ground_truth": len(in_reference),
        "used": len(cohort.cases),
        "answered": len({row.case for answer in cohort.answers for row in answer.rows} - unusable),
        "missing": missing,
        "failed": failed,
        "skipped": {why: len(names) for why, names in reasons.items()} if public else reasons,
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
    reasons: dict[str, list[str]] = {}
    for answer in cohort.answers:
        # The prefix of the metrics may be empty for several answers.
        prefix = f"{answer.profile.answer.name}_" if cohort.has_several_answers else ""
        left_out = sorted({row.case for row in answer.rows} - {row.case for row in answer.counted})
        of_answer: dict[str, Sequence[str]] = {
            **answer.measurement.excluded,
            "no_target_in_ground_truth": answer.reference.without_target,
            "class_not_counted": answer.reference.not_counted,
            "no_usable_prediction": left_out,
        }
        reasons |= {f"{prefix}{why}": list(cases) for why, cases in of_answer.items() if cases}
    return reasons


def provenance(task: TaskProfile, cohort: ScoredCohort, more_options: Mapping[str, str]) -> dict[str, Any]:
    """The version, task, edition, rules and ranked metrics of an evaluation, and a checksum of its cases."""
    sums = {name: dict(metric.terms) for name, metric in task.metrics.items() if metric.terms}
    names = "\n".join(sorted({case for answer in cohort.answers for case in answer.reference.targets}))
    return {
        "format": METRICS_FORMAT,
        "version": installed_version("hecktor"),
        "task": task.algorithm.name,
        "edition": task.edition,
        "options": {**task.options, **more_options},
        "ranked_metrics": list(task.ranking.official_metrics),
        **({"weighted_sums": sums} if sums else {}),
        "case_set_sha256": hashlib.sha256(names.encode()).hexdigest(),
    }


def read_metrics(path: Path, team: str) -> TeamMetrics:
    """Read a metrics.json that this project wrote.

    Raises:
        HecktorError: no such file, or not a metrics.json of this project; the message names the file.
    """
    content = read_json(path, error=HecktorError, max_bytes=MAX_METRICS_BYTES)
    return parse_metrics(content, f"{path.parent.name}/{path.name}", team)


def parse_metrics(content: Any, where: str, team: str) -> TeamMetrics:
    """A team's metrics from the content of its metrics.json; `where` names it in messages. Raises as `read_metrics`."""
    parts = {"aggregates": dict, "provenance": dict, "cases": dict, "results": list, "warnings": list}
    for key, kind in parts.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            name = "object" if kind is dict else "list"
            raise HecktorError(where, f"no {name} `{key}`", "a metrics.json of `hecktor evaluate`")
    if content["provenance"].get("format") != METRICS_FORMAT:
        raise HecktorError(where, f"format {content['provenance'].get('format')!r}", f"{METRICS_FORMAT}")
    estimates = {name: _estimate(raw, f"{where}: {name}") for name, raw in content["aggregates"].items()}
    centres = content.get("centres")
    return TeamMetrics(
        team,
        estimates,
        content["results"],
        content["cases"],
        content["warnings"],
        content["provenance"],
        centres if isinstance(centres, dict) else {},
    )


def _estimate(raw: Any, where: str) -> Estimate:
    values = []
    for key in ("value", "ci95_low", "ci95_high"):
        value = raw.get(key) if isinstance(raw, dict) else "nothing"
        if value is None and key in (raw.get("infinite") or ()):
            value = math.inf
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise HecktorError(f"{where}.{key}", f"found {value!r}", "a number or null")
        values.append(value)
    return Estimate(*values)
