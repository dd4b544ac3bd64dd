"""Section of the training report about postprocessing: rules, gains, and each removed lesion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from baseline.report import page
from contract.packages import PostprocessingRules
from evaluation.page.html import paragraph
from evaluation.page.tables import Row, table
from evaluation.statistics.bootstrap import Estimate

_ABOUT: Final = (
    "Rules on 26-connected lesions of the out-of-fold masks, measured on the network's grid. For the gains, rules were "
    "found without the patient's fold or without the patient's centre; intervals are from the paired bootstrap. A true "
    "GTVp overlaps the reference's GTVp; a true GTVn has an IoU above 0.3 with a node of the reference."
)
_COUNTED: Final = ("Kept, true", "Kept, false", "Removed, true", "Removed, false")
_MEASURES: Final = ("patient", "label", "volume_ml", "mean_probability", "suv_max")
_HEADS: Final = ("Patient", "Label", "Volume, ml", "Mean probability", "SUVmax", "True", "Rule")


def postprocessing_section(document: Mapping[str, Any]) -> str:
    """The content of `postprocessing.json` as HTML."""
    if document["why_not"]:
        return paragraph(f"No postprocessing rules: {document['why_not']}.")
    parts = [
        page.listing("Rules", _rules(document["rules"])),
        page.listing("Gains", _gains(document)),
        page.listing("Lesions, true and false", _counts(document["lesions"])),
        page.listing("Removed lesions", _removed([one for one in document["lesions"] if one["rule"]])),
    ]
    return paragraph(_ABOUT) + page.grid(parts)


def _rules(rules: Mapping[str, Any]) -> str:
    rows = [Row([PostprocessingRules.words(rule), "yes" if value is True else value]) for rule, value in rules.items()]
    return table("Rules of the package", ["Rule", "Value"], rows)


def _gains(document: Mapping[str, Any]) -> str:
    rows = []
    for split, figures in document["cross_fitted"].items():
        for name, one in figures.items():
            gain = one["difference"]
            estimate = Estimate(gain["value"], gain["ci95_low"], gain["ci95_high"])
            title = document["titles"].get(name, name)
            rows.append(Row([f"{split} left out", title, one["unfiltered"], one["filtered"], estimate]))
    heads = ["Rules found with", "Metric", "Unfiltered", "Filtered", "Difference"]
    return table("Metrics on the network's grid, with 95% intervals of the difference", heads, rows, header_column=1)


def _counts(lesions: Sequence[Mapping[str, Any]]) -> str:
    counted = Counter((one["label"], bool(one["rule"]), one["true"]) for one in lesions)
    rows = [
        Row([label, *(counted[(label, removed, true)] for removed in (False, True) for true in (True, False))])
        for label in ("GTVp", "GTVn")
    ]
    return table("Lesions of patients with a reference", ["Label", *_COUNTED], rows)


def _removed(lesions: Sequence[Mapping[str, Any]]) -> str:
    truth = {None: "no reference", True: "true", False: "false"}
    rows = [
        Row([*(one[name] for name in _MEASURES), truth[one["true"]], PostprocessingRules.words(one["rule"])])
        for one in lesions
    ]
    return table(f"Removed lesions: {len(lesions)}", _HEADS, rows)
