"""The model card: training data, intended use, expected performance and limits of a package.

It holds no dates and no machine names: the same working directory gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from algorithm.network.package import ModelPackage
from baseline.network.plans import read_plan
from baseline.package.card.data import (
    TrainingScans,
    VariableCoverage,
    centres_of,
    centres_table,
    excluded,
    outcome_counts,
    scans_of,
    short,
    variables_of,
    variables_table,
)
from baseline.package.card.results import results
from baseline.package.existing import CONDITION, existing_networks, networks_record
from baseline.postprocessing.record import GAIN_HEADS, current_document, gain_rows
from baseline.release.cases import ReleaseCase, head_answers, read_cases
from baseline.release.record import edition_of
from baseline.release.splits import read_splits
from baseline.work import CONFIGURATIONS, WorkFolders
from contract.editions import Edition
from contract.files import read_json
from contract.markdown import bullets, section, table
from contract.packages import PostprocessingRules

_HALF: Final = 0.5
_NO_DEVICE: Final = "This is not a medical device and has not been evaluated for use on patients."
_SCANS: Final = "Whole images as released; the network sees the head and neck, cropped and resampled."
_EXPECT: Final = (
    "Measured on patients held out of training. With whole centres left out, the heads learnt nothing from patients of "
    "the centre; the masks behind their features come from networks that may have seen other patients of the centre. "
    "Figures of centres with few patients are uncertain."
)


def model_card(work: WorkFolders, description: Mapping[str, str]) -> str:
    """The card of a working directory's model, as Markdown.

    The step `heads` has been run; without the step `report` the card says which figures are missing. `description` has
    every key of `baseline.package.description.DEFAULTS`.

    Raises:
        HecktorError: an earlier step has not been run.
    """
    cases, edition = read_cases(work), edition_of(work)
    scans, variables = scans_of(cases), variables_of(cases, edition.clinical)
    sections = [
        section(1, description["name"], _sentence(description["purpose"]), _NO_DEVICE, f"For {edition.title}."),
        section(2, "Intended use", _sentence(description["intended_use"])),
        section(2, "Licence", _sentence(description["licence"])),
        section(2, "Training data", *_training_data(work, cases, edition, description["training_data"])),
        section(3, "Scans", _SCANS, scans.table(), scans.note()),
        section(3, "Clinical variables", variables_table(variables, len(cases))),
        section(2, "Training", *_training(work)),
        *_postprocessing(work),
        section(2, "Expected performance", _EXPECT, results(work)),
        section(2, "Limits", bullets(_limits(work, cases, edition, scans, variables))),
    ]
    return "\n\n".join(sections) + "\n"


def _training_data(work: WorkFolders, cases: Sequence[ReleaseCase], edition: Edition, description: str) -> list[str]:
    prepared = work.read(work.prepare_json)
    problems = read_json(work.problems_json) if work.problems_json.is_file() else []
    counts = [f"Patients: {len(cases)}. Centres: {', '.join(centres_of(cases))}.", excluded(prepared, problems)]
    outside = len(prepared["mask_outside_region"])
    if outside:
        counts.append(f"With part of the reference mask outside the segmented region: {outside}.")
    if prepared["mended"]:
        counts.append(f"With images corrected as in inference: {len(prepared['mended'])}.")
    return [_sentence(description), " ".join(counts), centres_table(cases, head_answers(edition))]


def _postprocessing(work: WorkFolders) -> list[str]:
    """The rules on the current masks with their cross-fitted gains, or why there are none; nothing without a search."""
    document = current_document(work)
    if document is None:
        return []
    if document["why_not"]:
        return [section(3, "Postprocessing", f"None: {document['why_not']}.")]
    rules = document["rules"]
    listed = table(
        ["Rule", "Value"],
        [[PostprocessingRules.words(rule), "yes" if value is True else value] for rule, value in rules.items()],
    )
    return [section(3, "Postprocessing", listed, table(GAIN_HEADS, list(gain_rows(document))))]


def _training(work: WorkFolders) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in work.read(work.prepare_json)["versions"].items())
    if (existing := existing_networks(work)) is not None:
        return [_networks_of(existing), f"Versions: {versions}."]
    splits = read_splits(work)
    networks = " and ".join(name for member in work.members for name in _architectures(member))
    about = (
        f"{networks}, one for each of {len(splits.folds)} folds balanced by centre and outcomes (seed {splits.seed}). "
        "Inference averages the probabilities of the passes that the time limit allows. Heads are fitted on features "
        "of masks from networks that never saw the patient."
    )
    plans = [read_plan(member).record() for member in work.members]
    rows = [[name.replace("_", " "), *(_option(plan[name]) for plan in plans)] for name in plans[0]]
    heads = [f"Value in {member.name}" for member in work.members] if work.is_ensemble else ["Value"]
    return [about, table(["Option of the plan", *heads], rows), f"Versions: {versions}."]


def _architectures(work: WorkFolders) -> list[str]:
    configurations = work.read(work.plans)["configurations"]
    networks = [configurations[CONFIGURATIONS[backbone]]["architecture"] for backbone in read_plan(work).backbones]
    return [one["network_class_name"].rsplit(".", 1)[-1] for one in networks]


def _networks_of(package: ModelPackage) -> str:
    record = networks_record(package)
    return (
        f"The networks are those of the package {record['name']} (sha256 of its manifest {record['sha256']}), trained "
        f"on: {_sentence(record.get('training_data', 'not described'))} Their licence: "
        f"{_sentence(record.get('licence', 'not stated'))} Here only the heads are trained, on features of masks that "
        f"all of these networks give together. The figures below hold only if {CONDITION}."
    )


def _option(value: Any) -> str:
    """A list by its parts; a hyphen for an empty list or nnU-Net's own choice."""
    shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str("" if value is None else value)
    return shown or "-"


def _limits(
    work: WorkFolders,
    cases: Sequence[ReleaseCase],
    edition: Edition,
    scans: TrainingScans,
    variables: Sequence[VariableCoverage],
) -> list[str]:
    """One sentence for each limit, from the training data or a measurement."""
    answers, heads = head_answers(edition), work.read(work.heads_json)
    lines = [
        f"Trained on {', '.join(centres_of(cases))}. At other centres expect the figures with whole centres left out.",
        _scan_limits(scans),
    ]
    lines += [
        f"{one.title} is known for {one.known} of {len(cases)} training patients (centres: {one.centres}): "
        + ("nothing was learnt from it." if one.known == 0 else "effects learnt from it rest on these.")
        for one in variables
        if one.known < _HALF * len(cases)
    ]
    counts = [f"{name}: {count}" for answer in answers for name, count in outcome_counts(answer, cases).items()]
    lines.append(f"Training patients by outcome: {', '.join(counts)}.")
    lines += [
        f"There is no head for {one.head}: " + _without_head(one.stand_in is not None)
        for one in answers
        if one.head not in heads
    ]
    lines.append(
        "It segments primary tumours (GTVp) and lymph nodes (GTVn) of the head and neck in FDG-PET/CT, and may find "
        "lesions in images that contain none. It is not trained for other diseases or tracers."
    )
    return lines


def _without_head(has_stand_in: bool) -> str:
    return "its stand-in is written." if has_stand_in else "that task ends with an error."


def _scan_limits(scans: TrainingScans) -> str:
    spans = [
        ("CT", "slice distance, mm", "CT slices {} mm apart"),
        ("CT", "length, mm", "CT scans {} mm long"),
        ("PET", "voxel in plane, mm", "PET voxels of {} mm in plane"),
    ]
    known = [(text, values) for kind, name, text in spans if (values := scans.values(kind, name))]
    if not known:
        return "The ranges of voxel sizes and fields of view are unknown: the training scans were unavailable."
    listed = ", ".join(text.format(f"{short(values[0])} to {short(values[-1])}") for text, values in known)
    return f"Trained on {listed}; the model has not seen scans outside these ranges."


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) or not text else text + "."
