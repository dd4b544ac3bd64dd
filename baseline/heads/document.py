"""Write and summarise `cross_validation.json`: both kinds of cross-validation of every head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from algorithm.heads.documents import read_head
from baseline.cache import map_items
from baseline.heads.cohort import HeadCohort, outcome_rows
from baseline.heads.cross_validation import KINDS, cross_validated
from baseline.heads.models.kinds import Target
from baseline.heads.record import FORMAT_VERSION

_Item = tuple[Target, HeadCohort, str]


def cross_validation_document(
    cohorts: Sequence[tuple[Target, HeadCohort]], seed: int, why_not: Mapping[str, str], jobs: int = 1
) -> dict[str, Any]:
    """The content of `cross_validation.json`: a record for each target, and the reasons for missing heads.

    `jobs` is the number of processes.
    """
    # The slowest targets are often the last, so that one kind is started for all targets at once.
    items = [(target, cohort, kind) for kind in KINDS for target, cohort in cohorts]
    results = dict(map_items(partial(_part, seed=seed), items, jobs, "cross-validate heads", "part"))
    return {
        "format_version": FORMAT_VERSION,
        "seed": seed,
        **{target.name: _record(target, cohort, results) for target, cohort in cohorts},
        "no_head": dict(why_not),
    }


def _part(item: _Item, seed: int) -> tuple[tuple[str, str], dict[str, Any]]:
    target, cohort, kind = item
    return (target.name, kind), cross_validated(target, cohort, kind, seed)


def _record(target: Target, cohort: HeadCohort, results: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    patients = zip(cohort.ids, cohort.centres, outcome_rows(target.answer, cohort.outcomes), strict=True)
    return {
        "metric": target.metric,
        "patients": [{"id": patient, "centre": centre, **row} for patient, centre, row in patients],
        **{kind: results[target.name, kind] for kind in KINDS},
        **({"left_out_features": list(target.fitted)} if target.fitted else {}),
    }


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
            lines.append(f"{target.name}, {kind.replace('_', ' ')}: {shown}{_recalls(record)}")
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


def _recalls(record: Mapping[str, Any]) -> str:
    recalls = {name: value for name, value in record.get("recall", {}).items() if value is not None}
    return f" ({', '.join(f'{name} {value:.2f}' for name, value in recalls.items())})" if recalls else ""


def metrics_only(document: Mapping[str, Any], targets: Sequence[Target]) -> dict[str, Any]:
    """The part of `cross_validation.json` for the package's manifest: metrics over all patients and by centre."""
    parts: dict[str, Any] = {}
    for target in targets:
        record = document[target.name]
        kept = (target.metric, "by_centre", "recall", "why_not")
        parts[target.name] = {
            kind: {name: record[kind][name] for name in record[kind] if name in kept} for kind in KINDS
        }
        if "left_out_features" in record:
            parts[target.name]["left_out_features"] = record["left_out_features"]
    return parts
