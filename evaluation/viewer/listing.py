"""The content of cases.json: every case with the values by which a viewer sorts and filters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from evaluation.analyses.sources import TaskResults
from evaluation.metrics.surface import LOST
from evaluation.rows.mask import CASE_VALUES

# Values of a case itself stand under this name in place of a team's.
OF_CASE: Final = ""
# JSON has no infinity.
INFINITE: Final = "inf"
_MM3_A_ML: Final = 1000.0

Row = Mapping[str, Any]


@dataclass(frozen=True)
class ListedMetric:
    """A value of each case; `higher_is_better` is None for a property of the case itself."""

    key: str
    title: str
    higher_is_better: bool | None
    digits: int


_OF_CASES: Final = (
    ListedMetric("gtvp_volume_ml", "GTVp volume (ml)", None, 1),
    ListedMetric("gtvn_volume_ml", "GTVn volume (ml)", None, 1),
    ListedMetric("gtvn_lesions", "GTVn lesions", None, 0),
)


def list_cases(
    title: str, centres: Mapping[str, str | None], results: TaskResults | None, colours: Mapping[str, str]
) -> dict[str, Any]:
    """The content of cases.json; without `results` (None) the cases have no values.

    `centres` is None for a case whose centre is unknown; `colours` are in the order in which teams are shown.
    """
    rows = {} if results is None else _mask_rows(results)
    keys = {key for by_case in rows.values() for row in by_case.values() for key in row}
    metrics = [ListedMetric(**asdict(one)) for one in CASE_VALUES if one.key in keys]
    return {
        "title": f"{title}: cases",
        "edition": title,
        "teams": [{"name": team, "colour": colour} for team, colour in colours.items()],
        "metrics": [asdict(metric) for metric in (*metrics, *(_OF_CASES if metrics else ()))],
        "cases": [{"case": case, "centre": centre, **_entry(case, rows, metrics)} for case, centre in centres.items()],
    }


def _mask_rows(results: TaskResults) -> dict[str, dict[str, Row]]:
    """Rows of the mask by team and case."""
    answer = results.task.mask
    name = "" if answer is None else answer.name
    return {one.team: {row["case"]: row for row in results.rows_of(one, name)} for one in results.teams}


def _entry(case: str, rows: Mapping[str, Mapping[str, Row]], metrics: list[ListedMetric]) -> dict[str, Any]:
    values: dict[str, dict[str, float | str | None]] = {
        metric.key: {team: value_of(by_case[case], metric.key) for team, by_case in rows.items() if case in by_case}
        for metric in metrics
    }
    row = next((by_case[case] for by_case in rows.values() if case in by_case), None)
    if row is None:
        return {"values": values, "facts": ""}
    gtvp, gtvn = (row[f"{label}_reference_mm3"] / _MM3_A_ML for label in ("gtvp", "gtvn"))
    lesions = row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"]
    for metric, value in zip(_OF_CASES, (gtvp, gtvn, lesions), strict=True):
        values[metric.key] = {OF_CASE: _rounded(value)}
    return {"values": values, "facts": facts(gtvp, gtvn, lesions)}


def value_of(row: Row, key: str) -> float | str | None:
    """A team's value with four decimals; `inf` for a lost distance, None if nothing is measured, as of empty masks."""
    if key.endswith("_hd95_mm") and row.get(f"{key.removesuffix('_hd95_mm')}_surface") in LOST:
        return INFINITE
    return _rounded(row.get(key))


def _rounded(value: float | None) -> float | None:
    """Four decimals, enough for each metric's digits; None for what JSON cannot hold."""
    return None if value is None or not math.isfinite(value) else round(value, 4)


def facts(gtvp_ml: float, gtvn_ml: float, gtvn_lesions: int) -> str:
    """The reference in one line."""
    return f"GTVp {gtvp_ml:.1f} ml · GTVn {gtvn_ml:.1f} ml in {gtvn_lesions} lesion{'' if gtvn_lesions == 1 else 's'}"


def worst_cases(listing: Mapping[str, Any]) -> list[str]:
    """Names of the cases by their mean over the teams of the first metric, the lowest first; cases without it last.

    The first metric is a DSC, without a value for a team that rightly marks nothing, which counts as 1.
    """
    key = listing["metrics"][0]["key"] if listing["metrics"] else None

    def mean(entry: Mapping[str, Any]) -> float:
        values = [1.0 if value is None else value for value in entry["values"].get(key, {}).values()]
        return sum(values) / len(values) if values else math.inf

    return [entry["case"] for entry in sorted(listing["cases"], key=mean)]
