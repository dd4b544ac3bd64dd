"""The model card: what a package was made from, for what it is, what to expect of it, and where its limits lie.

It holds no dates and nothing of the machine: the same working directory gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from baseline.heads.models.targets import TARGETS
from baseline.network.plans import CONFIGURATIONS
from baseline.package.card.data import (
    Scans,
    Variable,
    centres_of,
    centres_table,
    left_out,
    scans_of,
    short,
    variables_of,
    variables_table,
)
from baseline.package.card.results import results
from baseline.release.cases import ReleaseCase
from baseline.work import Work
from contract.files import read_json
from contract.markdown import bullets, section, table

_HALF: Final = 0.5


def model_card(work: Work, description: Mapping[str, str]) -> str:
    """The card of a working directory's model, as Markdown.

    Args:
        work: after the steps up to `heads`; what the step `report` would add is said to be missing where it is.
        description: every key of `baseline.package.description.DEFAULTS`.

    Raises:
        HecktorError: a step before has not been done.
    """
    cases, scans = work.cases(), scans_of(work.cases())
    variables = variables_of(cases)
    sections = [
        section(1, description["name"], _sentence(description["purpose"]), _NO_DEVICE),
        section(2, "Intended use", _sentence(description["intended_use"])),
        section(2, "Licence", _sentence(description["licence"])),
        section(2, "Training data", *_training_data(work, cases, description["training_data"])),
        section(3, "Scans", _SCANS, scans.table(), scans.note()),
        section(3, "Clinical variables", variables_table(variables, len(cases))),
        section(2, "How it was made", *_making(work)),
        section(2, "What to expect", _EXPECT, results(work)),
        section(2, "Limits", bullets(_limits(work, cases, scans, variables))),
    ]
    return "\n\n".join(sections) + "\n"


_NO_DEVICE: Final = "This is not a medical device; nobody has judged it for use on patients."
_SCANS: Final = "Whole images as released; the network sees the head and neck, cut out and resampled."
_EXPECT: Final = (
    "By patients who were held out of training. With whole centres left out nobody of the centre was learnt from by "
    "the heads; the masks behind their features come from networks that may have seen other patients of the centre. A "
    "centre of few patients says little."
)


def _training_data(work: Work, cases: Sequence[ReleaseCase], told: str) -> list[str]:
    prepared = work.prepared()
    problems = work.root / "problems.json"
    counts = [f"Patients: {len(cases)}. Centres: {', '.join(centres_of(cases))}."]
    counts.append(left_out(prepared, read_json(problems) if problems.is_file() else []))
    outside = len(prepared["mask_outside_region"])
    if outside:
        counts.append(f"With a part of the reference mask outside the region that is looked at: {outside}.")
    if prepared["mended"]:
        counts.append(f"With images mended as inference mends them: {len(prepared['mended'])}.")
    return [_sentence(told), " ".join(counts), centres_table(cases)]


def _making(work: Work) -> list[str]:
    splits, plan, configurations = work.splits(), work.plan(), work.plans()["configurations"]
    versions = ", ".join(f"{name} {version}" for name, version in work.prepared()["versions"].items())
    networks = " and ".join(_network(configurations[CONFIGURATIONS[backbone]]) for backbone in plan.backbones)
    told = (
        f"{networks}, one for each of {len(splits.folds)} folds; the folds are balanced by centre, "
        f"relapse and HPV status and dealt with seed {splits.seed}. Inference averages as many of their passes as the "
        "time limit allows. Heads are fitted on features of the masks from the network that never saw the patient."
    )
    rows = [[name.replace("_", " "), _option(value)] for name, value in asdict(plan).items()]
    return [told, table(["Option of the plan", "Value"], rows), f"Versions: {versions}."]


def _network(configuration: Mapping[str, Any]) -> str:
    return str(configuration["architecture"]["network_class_name"].rsplit(".", 1)[-1])


def _option(value: Any) -> str:
    """A list by its parts; what is left to nnU-Net, and an empty list, as a hyphen."""
    return (
        ", ".join(map(str, value)) if isinstance(value, list | tuple) else str("" if value is None else value)
    ) or "-"


def _limits(work: Work, cases: Sequence[ReleaseCase], scans: Scans, variables: Sequence[Variable]) -> list[str]:
    """Plain sentences, each from the training data or from what was measured."""
    lines = [
        f"Learnt from {', '.join(centres_of(cases))}. Elsewhere expect what is left with whole centres left out.",
    ]
    lines += _scan_limits(scans)
    lines += [
        f"{one.title} is known of {one.known} in {len(cases)} training patients (centres: {one.centres}): "
        + ("it was not learnt from." if one.known == 0 else "what was learnt from it rests on those.")
        for one in variables
        if one.known < _HALF * len(cases)
    ]
    relapses = sum(case.relapse is True and case.rfs_days is not None for case in cases)
    negative = sum(case.hpv is False for case in cases)
    lines.append(f"Relapses among the training patients: {relapses}; known to be HPV negative: {negative}.")
    absent = [target.name for target in TARGETS if target.name not in work.heads()]
    lines += [f"There is no head for {name}: that task ends with an error." for name in absent]
    lines.append(
        "It looks for a primary tumour (GTVp) and lymph nodes (GTVn) of the head and neck in FDG-PET/CT and may find "
        "them where there are none; it knows no other disease and no other tracer."
    )
    return lines


def _scan_limits(scans: Scans) -> list[str]:
    spans = [
        ("CT", "slice distance, mm", "CT slices {} mm apart"),
        ("CT", "length, mm", "CT scans {} mm long"),
        ("PET", "voxel in plane, mm", "PET voxels of {} mm in plane"),
    ]
    found = [(text, scans.span(kind, name)) for kind, name, text in spans]
    told = [text.format(f"{short(span[0])} to {short(span[1])}") for text, span in found if span is not None]
    if not told:
        return ["Between what voxels and fields of view the training scans lie is not known: they were not at hand."]
    return [f"Trained on {', '.join(told)}; what lies outside was never seen."]


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    if not text:
        return text
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
