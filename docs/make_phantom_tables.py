"""Print the tables of docs/cases.md, from the declarations and from patients drawn without rendering.

`.venv/bin/python docs/make_phantom_tables.py`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import numpy as np

from rehearsal.phantoms.centres import CENTRES, UNSEEN_CENTRES, Centre
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.outcome import HAZARD, hazard_terms
from rehearsal.phantoms.records import Record
from rehearsal.phantoms.truth import best_possible

SEED: Final = 7
DRAWS: Final = 2000
STAGED_SEED: Final = 2026
STAGED_DRAWS: Final = 500


def main() -> int:
    """Print the tables."""
    sys.stdout.write("\n".join([*centre_table(), "", *bounds_table(), "", *stage_tables(), ""]))
    return 0


def centre_table() -> list[str]:
    """Markdown table of the centres' declared parameters."""
    head = (
        "centre",
        "scanner",
        "CT pixel mm",
        "CT slice mm",
        "CT noise HU",
        "CT padding HU",
        "contrast %",
        "PET pixel mm",
        "PET slice mm",
        "PSF mm",
        "PET noise",
        "SUV factor",
        "whole body / head / cut %",
        "arms raised %",
        "RT dose %",
        "tobacco / alcohol / status missing %",
        "weight",
    )
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"] + [
        "| " + " | ".join(_centre_cells(centre)) + " |" for centre in CENTRES
    ]


def _centre_cells(centre: Centre) -> tuple[str, ...]:
    missing = centre.missing
    return (
        f"**{centre.code}**" if centre.code in UNSEEN_CENTRES else centre.code,
        centre.scanner,
        _choices(centre.ct_pixel_mm),
        _choices(centre.ct_slice_mm),
        _range(centre.ct_noise_hu),
        _choices(centre.padding_hu),
        _percent(centre.contrast_share),
        _choices(centre.pet_pixel_mm),
        _choices(centre.pet_slice_mm),
        _range(centre.psf_fwhm_mm),
        _range(centre.pet_noise),
        f"{centre.suv_bias:.2f}",
        " / ".join(map(_percent, (centre.whole_body_share, centre.head_only_share, centre.cut_share))),
        _percent(centre.arms_up_share),
        _percent(centre.rt_dose_share),
        " / ".join(map(_percent, (missing.tobacco, missing.alcohol, missing.performance_status))),
        f"{centre.weight:g}",
    )


def _choices(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(set(values)))


def _range(values: tuple[float, float]) -> str:
    return f"{values[0]:g} to {values[1]:g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def bounds_table() -> list[str]:
    """Upper bounds of prediction and cohort statistics, with 95% bootstrap intervals."""
    cases = [make_case(SEED, index, CENTRES) for index in range(DRAWS)]
    days = np.array([case.outcome.rfs_days for case in cases], dtype=np.float64)
    events = np.array([case.outcome.relapse for case in cases])
    positive = np.array([case.outcome.hpv_positive for case in cases])
    terms = [hazard_terms(case.clinical, case.disease, case.outcome.hpv_positive) for case in cases]
    groups = {
        "everything (the oracle)": tuple(HAZARD),
        "tumour volume and node count": ("log_total_volume", "sqrt_node_count"),
        "performance status and tobacco, nothing missing": ("performance_status", "tobacco"),
        "HPV status alone": ("hpv_positive",),
    }
    lines = ["| predictors | C-index (95% interval) |", "|---|---|"]
    for name, names in groups.items():
        risk = np.array([sum(HAZARD[term] * row[term] for term in names) for row in terms])
        lines.append(f"| {name} | {_with_interval(partial(_c_index_of, days, events, risk))} |")
    logit = np.array([case.outcome.hpv_logit for case in cases])
    volume = np.array([case.disease.gtvp_ml for case in cases])
    lines += [
        "",
        f"HPV logit, AUC: {_with_interval(lambda i: _auc(logit[i], positive[i]))}",
        f"HPV logit, best balanced accuracy: {_with_interval(lambda i: _balanced(logit[i], positive[i]))}",
        f"relapses during follow-up: {events.mean():.1%}; HPV positive: {positive.mean():.1%}",
        f"GTVp: none in {(volume == 0).mean():.1%}, median {np.median(volume[volume > 0]):.1f} ml",
        f"nodes: none in {np.mean([not case.disease.nodes for case in cases]):.0%}",
        "fields of view: "
        + ", ".join(
            f"{view.replace('_', ' ')} {np.mean([c.protocol.field_of_view == view for c in cases]):.0%}"
            for view in ("head_and_neck", "whole_body", "head", "cut")
        ),
    ]
    return lines


def _with_interval(statistic: Callable[[np.ndarray], float], replicates: int = 200, patients: int = DRAWS) -> str:
    rng = np.random.default_rng(SEED)
    values = [statistic(rng.integers(0, patients, patients)) for _ in range(replicates)]
    low, high = np.percentile(values, (2.5, 97.5))
    return f"{statistic(np.arange(patients)):.3f} ({low:.3f} to {high:.3f})"


def stage_tables() -> list[str]:
    """Shares of the stages, best possible results and missing values of patients with drawn stages."""
    cases = [make_case(STAGED_SEED, index, CENTRES, staged=True) for index in range(STAGED_DRAWS)]
    records = [case.staging for case in cases if case.staging]
    rows = [("t_anatomy", "t_stage", stage) for stage in ("T0", "T1", "T2", "T3", "T4", None)]
    rows += [("n_anatomy", "n_stage", stage) for stage in ("N0", "N1", "N2", "N3")]
    lines = ["| stage | anatomy % | recorded % |", "|---|---|---|"]
    lines += [
        f"| {stage} | {_share(records, true, stage)} | {_share(records, noted, stage)} |" for true, noted, stage in rows
    ]
    lines += ["", "| best possible | value (95% interval) |", "|---|---|"]
    for name in best_possible(cases):
        lines.append(f"| {name} | {_with_interval(partial(_best, cases, name), patients=STAGED_DRAWS)} |")
    lines += [""] + [
        f"{name}: missing in {np.mean([case.record[name] is None for case in cases]):.0%}, "
        f"never recorded by {', '.join(centre.code for centre in CENTRES if name in centre.never_recorded)}"
        for name in ("tobacco", "alcohol", "performance_status", "hpv_status")
    ]
    lengths = np.array([case.protocol.ct.size[2] * case.protocol.ct.spacing_mm[2] for case in cases])
    volumes = np.array([case.disease.gtvp_ml for case in cases if case.disease.gtvp_ml])
    relapses, positive = (
        np.mean([getattr(case.outcome, name) for case in cases]) for name in ("relapse", "hpv_positive")
    )
    activity, long = np.mean([record.activity is not None for record in records]), (lengths >= 1330).mean()
    return [
        *lines,
        f"relapses {relapses:.1%}, HPV positive {positive:.1%}, PET in Bq/ml {activity:.1%}",
        f"GTVp median {np.median(volumes):.1f} ml, scans of 1330 mm or more {long:.1%}, longest {lengths.max():.0f} mm",
    ]


def _share(records: list[Record], name: str, stage: str | None) -> str:
    return f"{100 * np.mean([getattr(record, name) == stage for record in records]):.0f}"


def _best(cases: list[PhantomCase], name: str, chosen: np.ndarray) -> float:
    value = best_possible([cases[index] for index in chosen])[name]
    return float("nan") if value is None else value


def _c_index_of(days: np.ndarray, events: np.ndarray, risk: np.ndarray, chosen: np.ndarray) -> float:
    """Harrell's C-index, ties in risk count half."""
    days, events, risk = days[chosen], events[chosen], risk[chosen]
    earlier = (days[:, None] < days[None, :]) & events[:, None]
    higher = (risk[:, None] > risk[None, :]) + 0.5 * (risk[:, None] == risk[None, :])
    return float(higher[earlier].mean())


def _auc(score: np.ndarray, positive: np.ndarray) -> float:
    return float((score[positive][:, None] > score[~positive][None, :]).mean())


def _balanced(score: np.ndarray, positive: np.ndarray) -> float:
    """Balanced accuracy at the best threshold for these patients."""
    order = np.argsort(-score)
    sensitivity = np.cumsum(positive[order]) / positive.sum()
    specificity = 1 - np.cumsum(~positive[order]) / (~positive).sum()
    return float(((sensitivity + specificity) / 2).max())


if __name__ == "__main__":
    sys.exit(main())
