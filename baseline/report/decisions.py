"""Section of the training report about the decisions on lesions: rules, gains, and each lesion kept or dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from algorithm.decisions.rules import WORDS
from baseline.report import page
from evaluation.page.html import paragraph
from evaluation.page.tables import Row, table
from evaluation.statistics.bootstrap import Estimate

_ABOUT: Final = (
    "Rules on 26-connected lesions of the out-of-fold masks, measured on the network's grid. For the gains, rules were "
    "found without the patient's fold or without the patient's centre; intervals are from the paired bootstrap. A true "
    "GTVp overlaps the reference's GTVp; a true GTVn has an IoU above 0.3 with a node of the reference."
)


def decisions_section(document: Mapping[str, Any]) -> str:
    """The content of `decisions.json` as HTML."""
    if document["why_not"]:
        return paragraph(f"No decisions: {document['why_not']}.")
    lesions = document["lesions"]
    parts = [
        page.listing("Rules", _rules(document["rules"])),
        page.listing("Gains", _gains(document)),
        page.listing("Lesions, true and false", _counts(lesions)),
        page.listing("Dropped lesions", _lesions([one for one in lesions if one["rule"]], "Dropped lesions")),
        page.listing("Kept lesions", _lesions([one for one in lesions if not one["rule"]], "Kept lesions")),
    ]
    return paragraph(_ABOUT) + page.grid(parts)


def _rules(rules: Mapping[str, Any]) -> str:
    rows = [Row([WORDS[rule], "yes" if value is True else value]) for rule, value in rules.items()]
    return table("Rules of the package", ["Rule", "Value"], rows)


def _gains(document: Mapping[str, Any]) -> str:
    rows = []
    for split, figures in document["cross_fitted"].items():
        for name, one in figures.items():
            gain = one["difference"]
            estimate = Estimate(gain["value"], gain["ci95_low"], gain["ci95_high"])
            title = document["titles"].get(name, name)
            rows.append(Row([f"{split} left out", title, one["undecided"], one["decided"], estimate]))
    heads = ["Rules found with", "Metric", "Undecided", "Decided", "Difference"]
    return table("Metrics on the network's grid, with 95% intervals of the difference", heads, rows, header_column=1)


def _counts(lesions: Sequence[Mapping[str, Any]]) -> str:
    counted = Counter((one["label"], bool(one["rule"]), one["true"]) for one in lesions)
    rows = [
        Row([label, *(counted[(label, dropped, true)] for dropped in (False, True) for true in (True, False))])
        for label in ("GTVp", "GTVn")
    ]
    return table("Lesions of patients with a reference", ["Label", *_COUNTED], rows)


_COUNTED: Final = ("Kept, true", "Kept, false", "Dropped, true", "Dropped, false")
_MEASURES: Final = ("label", "volume_ml", "mean_probability", "max_probability", "suv_max", "distance_mm")
_HEADS: Final = ("Label", "Volume, ml", "Mean probability", "Maximum", "SUVmax", "From primary, mm", "True", "Rule")


def _lesions(lesions: Sequence[Mapping[str, Any]], title: str) -> str:
    rows = [
        Row([one["patient"], *(one[name] for name in _MEASURES), _truth(one["true"]), WORDS.get(one["rule"], "")])
        for one in lesions
    ]
    return table(f"{title}: {len(lesions)}", ["Patient", *_HEADS], rows)


def _truth(value: bool | None) -> str:
    return "no reference" if value is None else ("true" if value else "false")
