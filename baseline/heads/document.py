"""`cross_validation.json`: both kinds of cross-validation of every head, and nested ones with other splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from algorithm.heads.documents import read_head
from baseline.cache import map_items
from baseline.heads.cohort import HeadCohort, outcome_rows
from baseline.heads.cross_validation import HEADS, KINDS, SINGLE_BEST, cross_validated, repeated
from baseline.heads.models.kinds import Target
from baseline.heads.record import FORMAT_VERSION

# Nested cross-validations of each head, each with other splits; the first one is recorded in full.
REPEATS: Final = 5
PATIENTS_PER_REPEAT: Final = 20
_NESTED: Final = "nested"
_REPEAT: Final = "repeat"
_Item = tuple[Target, HeadCohort, str, int]


def cross_validation_document(
    cohorts: Sequence[tuple[Target, HeadCohort]],
    seed: int,
    why_not: Mapping[str, str],
    jobs: int = 1,
    repeats: int | None = None,
) -> dict[str, Any]:
    """The content of `cross_validation.json`: a record for each target, and the reasons for missing heads.

    `jobs` is the number of processes, `repeats` the number of nested cross-validations (None for `repeats_for` the
    largest cohort).
    """
    patients = max((len(cohort.ids) for _, cohort in cohorts), default=0)
    repeats = repeats_for(patients) if repeats is None else repeats
    parts = [*((kind, 0) for kind in KINDS), *((_REPEAT, number) for number in range(1, repeats))]
    # The slowest targets are often the last, so that parts of one kind are started for all targets at once.
    items = [(target, cohort, kind, number) for kind, number in parts for target, cohort in cohorts]
    results = dict(map_items(partial(_part, seed=seed), items, jobs, "cross-validate heads", "part"))
    return {
        "format_version": FORMAT_VERSION,
        "seed": seed,
        **{target.name: _record(target, cohort, results) for target, cohort in cohorts},
        "no_head": dict(why_not),
    }


def repeats_for(patients: int) -> int:
    """Number of nested cross-validations: one for each 20 patients, at least 1 and at most 5.

    Of fewer than 40 patients the spread between splits says nothing that the interval over patients does not.
    """
    return max(1, min(REPEATS, patients // PATIENTS_PER_REPEAT))


def _part(item: _Item, seed: int) -> tuple[tuple[str, str, int], Any]:
    target, cohort, kind, number = item
    result = repeated(target, cohort, seed, number) if kind == _REPEAT else cross_validated(target, cohort, kind, seed)
    return (target.name, kind, number), result


def _record(target: Target, cohort: HeadCohort, results: Mapping[tuple[str, str, int], Any]) -> dict[str, Any]:
    patients = zip(cohort.ids, cohort.centres, outcome_rows(target.answer, cohort.outcomes), strict=True)
    record = {kind: results[target.name, kind, 0] for kind in KINDS}
    if "why_not" not in record[_NESTED]:
        record[_NESTED] = record[_NESTED] | {"repeats": _repeats(target, record[_NESTED], results)}
    return {
        "metric": target.metric,
        "patients": [{"id": patient, "centre": centre, **row} for patient, centre, row in patients],
        **record,
        **({"left_out_features": list(target.fitted)} if target.fitted else {}),
    }


def _repeats(
    target: Target, first: Mapping[str, Any], results: Mapping[tuple[str, str, int], Any]
) -> dict[str, list[float | None]]:
    """The metric of each nested cross-validation, of the heads and of the single best model."""
    others = [results[key] for key in sorted(results) if key[:2] == (target.name, _REPEAT)]
    known = [one for one in others if one is not None]
    return {
        HEADS: [first[target.metric], *(one[HEADS] for one in known)],
        SINGLE_BEST: [first["comparators"][SINGLE_BEST][target.metric], *(one[SINGLE_BEST] for one in known)],
    }


def spread_of(record: Mapping[str, Any], model: str = HEADS) -> tuple[float, float] | None:
    """Mean and standard deviation of a model's metric over the repeats of one kind's record.

    None for a record without repeats, and for fewer than two defined figures.
    """
    values = [value for value in record.get("repeats", {}).get(model, []) if value is not None]
    return (float(np.mean(values)), float(np.std(values, ddof=1))) if len(values) > 1 else None


def summary(heads: Mapping[str, Any], document: Mapping[str, Any], targets: Sequence[Target]) -> str:
    """A few lines for the console: the fitted heads, and their cross-validated metrics."""
    lines = [
        f"{name}: {record['model']}, {record['metric']} {record['out_of_fold']:.3f} over the folds that selected it"
        for name, record in heads.items()
    ]
    lines += [f"{name}: no head ({reason})" for name, reason in document["no_head"].items()]
    for target in targets:
        for kind in KINDS:
            record = document[target.name][kind]
            value = record.get(target.metric)
            shown = record.get("why_not", "undefined") if value is None else f"{target.metric} {value:.3f}"
            lines.append(f"{target.name}, {kind.replace('_', ' ')}: {shown}{spread_text(record)}{_recalls(record)}")
        if text := left_out_text(document[target.name], heads.get(target.name)):
            lines.append(f"{target.name}: {text}")
    return "\n".join(lines)


def left_out_text(record: Mapping[str, Any], shipped: Mapping[str, Any] | None) -> str:
    """The features that both estimates of a target do without, and those that its head uses; empty if there are none.

    `record` and `shipped` are the target's parts of `cross_validation.json` and `heads.json` (None without a head).
    """
    names = record.get("left_out_features", [])
    if not names:
        return ""
    text = (
        "Both estimates leave out the features that were fitted to outcomes, which have learnt from held-out patients "
    )
    text += f"({', '.join(names)})"
    if shipped is None:
        return f"{text}."
    used = read_head(shipped["head"], "heads.json").features
    return f"{text}; the shipped head uses {', '.join(name for name in names if name in used) or 'none of them'}."


def spread_text(record: Mapping[str, Any]) -> str:
    """Mean and spread over the repeats, of the heads and of the single best model; empty without repeats."""
    heads, single = spread_of(record), spread_of(record, SINGLE_BEST)
    if heads is None or single is None:
        return ""
    count = len(record["repeats"][HEADS])
    return (
        f", {heads[0]:.3f} +- {heads[1]:.3f} over {count} splits (single best model {single[0]:.3f} +- {single[1]:.3f})"
    )


def _recalls(record: Mapping[str, Any]) -> str:
    recalls = {name: value for name, value in record.get("recall", {}).items() if value is not None}
    return f" ({', '.join(f'{name} {value:.2f}' for name, value in recalls.items())})" if recalls else ""


def metrics_only(document: Mapping[str, Any], targets: Sequence[Target]) -> dict[str, Any]:
    """The part of `cross_validation.json` for the package's manifest: metrics over all patients and by centre."""
    parts: dict[str, Any] = {}
    for target in targets:
        record = document[target.name]
        kept = (target.metric, "by_centre", "recall", "repeats", "why_not")
        parts[target.name] = {
            kind: {name: record[kind][name] for name in record[kind] if name in kept} for kind in KINDS
        }
        if "left_out_features" in record:
            parts[target.name]["left_out_features"] = record["left_out_features"]
    return parts
