"""The sentences at the top of the training report: new centres, images against simpler models, and the worst cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from baseline.heads.models.kinds import Target
from baseline.heads.record import METRIC_TITLES, TargetRecord
from baseline.report.masks import WORST, by_mean_dsc
from baseline.report.models import BEHIND, HEADS, TITLES

# What images have to beat.
_SIMPLER: Final = ("clinical", "tumour_volume")
# A trait is shared by at least this fraction of the worst cases, and is at least so many times rarer in the others.
_SHARED, _RARER = 0.5, 2.0
_NETWORKS: Final = "the networks behind the masks may have seen other patients of the centre"
# Parts of report.json by target, and records of cross_validation.json.
Figures = Mapping[str, Mapping[str, Any]]
Records = Mapping[str, TargetRecord]


def new_centres(targets: Sequence[Target], figures: Figures, records: Records) -> str:
    """The metrics to expect at new centres, or why there are none; `figures` as in `report.json`."""
    known, unknown = [], []
    for target in targets:
        estimate = figures[target.name]["models"].get(HEADS, {}).get("leave_one_centre_out")
        title = _within_sentence(target.title)
        if estimate is not None and estimate["value"] is not None:
            known.append(f"a {METRIC_TITLES[target.metric]} of {_figure(estimate)} for {title}")
        else:
            why = records[target.name].leave_one_centre_out.why_not or "the metric is undefined"
            unknown.append(f"No estimate for {title} at new centres: {why.removeprefix(f'{target.name}: ')}.")
    if not targets:
        return f"No estimate for new centres: {_NETWORKS}."
    if not known:
        return " ".join(unknown)
    expected = f"At a new centre expect {_listed(known)} (each centre predicted by heads that were fitted without it)"
    return " ".join([f"{expected}; {_NETWORKS}.", *unknown])


def images_or_not(targets: Sequence[Target], figures: Figures, records: Records) -> str:
    """Whether heads that use images beat clinical variables and tumour volume, by the intervals of the differences."""
    parts = []
    for target in targets:
        title, models = _within_sentence(target.title), figures[target.name]["models"]
        if why := records[target.name].nested.why_not:
            parts.append(f"not compared for {title} ({why.removeprefix(f'{target.name}: ')})")
            continue
        compared = [
            _comparison(models[name].get(BEHIND), TITLES[name], METRIC_TITLES[target.metric])
            for name in _SIMPLER
            if name in models
        ]
        parts += [f"{_listed(compared)} for {title}"] if compared else []
    return f"In nested cross-validation, heads that use images are {'; '.join(parts)}." if parts else ""


def _comparison(difference: Mapping[str, Any] | None, name: str, metric: str) -> str:
    low, high = (None if difference is None else difference[end] for end in ("ci95_low", "ci95_high"))
    if difference is None or low is None or high is None:
        known = difference is not None and difference["value"] is not None
        return f"not comparable with {name} ({'too few patients differ' if known else 'the difference is undefined'})"
    verdict = "better than" if low > 0 else "worse than" if high < 0 else "not separable from"
    return f"{verdict} {name} ({metric} {difference['value']:+.3f}, 95% interval {low:+.3f} to {high:+.3f})"


def worst_patients(rows: Sequence[Mapping[str, Any]], centre_of: Mapping[str, str]) -> str:
    """The patients with the lowest DSC and the traits they share; `rows` are the evaluation's rows of the masks."""
    ranked = by_mean_dsc(rows)
    count = min(WORST, len(ranked) // 2)
    if not count:
        return "Too few patients have a reference mask to identify the worst."
    limit = ranked[count - 1][0]  # who is as low as the last one belongs to the lowest, too
    names = [name for _, name in ranked]
    worst = [name for dsc, name in ranked if dsc <= limit]
    others = names[len(worst) :]
    if not others:
        return f"All {len(names)} patients have a DSC of at most {limit:.3f} (mean of GTVp and GTVn): none stands out."
    shared = [
        f"{sum(has[name] for name in worst)} of {len(worst)} {words} (others: {sum(has[name] for name in others)} of "
        f"{len(others)})"
        for words, has in _traits(rows, names, worst, centre_of).items()
        if _is_shared([has[name] for name in worst], [has[name] for name in others])
    ]
    values = f"{limit:.3f}" if ranked[0][0] == limit else f"{ranked[0][0]:.3f} to {limit:.3f}"
    common = _listed(shared) if shared else "they share no missed or false lesion, small volume or centre"
    shown = [*worst[:WORST], *([f"{len(worst) - WORST} more"] if len(worst) > WORST else [])]
    have = "has" if len(worst) == 1 else "have"
    return f"{_listed(shown)} {have} the lowest DSC (mean of GTVp and GTVn, {values}): {common}."


def _traits(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], worst: Sequence[str], centre_of: Mapping[str, str]
) -> dict[str, dict[str, bool]]:
    """Whether each patient has a trait, by the words of the trait."""
    row_of = {row["case"]: row for row in rows}
    volumes_ml = {name: _volume_ml(row_of[name]) for name in names}
    small_ml = float(np.quantile(list(volumes_ml.values()), 0.25))
    centre = Counter(centre_of[name] for name in worst).most_common(1)[0][0]
    return {
        "have a missed GTVp": {
            name: row["gtvp_reference_voxels"] > 0 and row["gtvp_intersection_voxels"] == 0
            for name, row in row_of.items()
        },
        "have missed nodes": {name: row["gtvn_lesions_fn"] > 0 for name, row in row_of.items()},
        "have a GTVp or nodes that the reference lacks": {
            name: row["gtvn_lesions_fp"] > 0 or (row["gtvp_reference_voxels"] == 0 < row["gtvp_predicted_voxels"])
            for name, row in row_of.items()
        },
        f"have a reference volume of at most {small_ml:.1f} ml, the smallest quarter of all": {
            name: volume <= small_ml for name, volume in volumes_ml.items()
        },
        f"are from {centre}": {name: centre_of[name] == centre for name in names},
    }


def _volume_ml(row: Mapping[str, Any]) -> float:
    return float(row["gtvp_reference_mm3"] + row["gtvn_reference_mm3"]) / 1000


def _is_shared(worst: Sequence[bool], others: Sequence[bool]) -> bool:
    of_worst, of_others = float(np.mean(worst)), float(np.mean(others))
    return of_worst >= _SHARED and of_worst >= _RARER * of_others


def _figure(estimate: Mapping[str, Any]) -> str:
    low, high = estimate["ci95_low"], estimate["ci95_high"]
    interval = "no interval" if low is None or high is None else f"95% interval {low:.3f} to {high:.3f}"
    return f"{estimate['value']:.3f} ({interval})"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _within_sentence(title: str) -> str:
    """A title in small letters unless it begins with an abbreviation, such as HPV."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]
