"""Heads on automatic masks beside heads on reference masks: the cost of automatic masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from baseline.heads.cohort import outcomes_in
from baseline.heads.cross_validation import KINDS, METRIC_TITLES
from baseline.heads.models.kinds import Target
from baseline.report import page
from baseline.report.models import difference, metric_of
from evaluation.metrics.overlap import WeightedMetric
from evaluation.page.tables import Row, table
from evaluation.statistics.extras import estimate_extras

_TITLES: Final = {"automatic": "automatic masks", "reference": "reference masks", "cost": "reference less automatic"}


def reference_masks(
    target: Target, automatic: Mapping[str, Any], reference: Mapping[str, Any], bootstraps: int, seed: int
) -> tuple[list[str], dict[str, Any]]:
    """A table of both, with paired intervals over the patients of both records, and the same figures as plain data.

    Each head was fitted and cross-validated on masks of its own kind. Empty if no kind of cross-validation has both.
    """
    kinds = [kind for kind in KINDS if "why_not" not in automatic[kind] and "why_not" not in reference[kind]]
    places = _common(automatic, reference)
    if not kinds or not len(places[0]):
        return [], {}
    outcomes = outcomes_in(target.answer, [automatic["patients"][place] for place in places[0]])
    metrics: dict[str, WeightedMetric] = {}
    for kind in kinds:
        scored = [_picked(record[kind], chosen) for record, chosen in zip((automatic, reference), places, strict=True)]
        first, second = (metric_of(target, outcomes, one) for one in scored)
        metrics |= {f"automatic {kind}": first, f"reference {kind}": second, f"cost {kind}": difference(second, first)}
    estimates = estimate_extras(metrics, len(places[0]), bootstraps, seed).by_metric
    rows = [Row([title, *(estimates[f"{name} {kind}"] for kind in kinds)]) for name, title in _TITLES.items()]
    caption = f"{METRIC_TITLES[target.metric].capitalize()} of the same {len(places[0])} patients, with 95% intervals"
    listing = page.listing("Reference masks", table(caption, ["Heads on", *(KINDS[kind] for kind in kinds)], rows))
    values = {kind: {name: vars(estimates[f"{name} {kind}"]) for name in _TITLES} for kind in kinds}
    return [listing], {"reference_masks": values}


def _common(*records: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Places of the patients of both records, in the order of the first."""
    first, second = ({row["id"]: place for place, row in enumerate(one["patients"])} for one in records)
    names = [name for name in first if name in second]
    return [first[name] for name in names], [second[name] for name in names]


def _picked(scored: Mapping[str, Any], places: list[int]) -> dict[str, Any]:
    """The answers to some patients."""
    return {key: [scored[key][n] for n in places] for key in ("score", "positive", "class") if key in scored}
