"""The model card: data, licence, intended use, expected figures and limits of a package, on one page.

It contains no dates and no machine names, so that the same working directory gives the same bytes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

from algorithm.network.package import INTENSITIES
from baseline.heads.fitting import OUT_OF_FOLD_MASKS, HeadRecord, describe_masks, read_heads
from baseline.heads.models.targets import Target, make_targets
from baseline.heads.record import (
    KINDS,
    METRIC_TITLES,
    TargetRecord,
    describe_direction,
    describe_left_out,
    estimate_new_centres,
    read_cross_validation,
)
from baseline.network.plans import UNREACHED_SUV, NetworkPlan, read_plan
from baseline.package.existing import CONDITION, describe_networks, load_existing_networks
from baseline.postprocessing.record import load_current_record
from baseline.postprocessing.rules import list_mask_metric_titles
from baseline.release.cases import ReleaseCase, count_outcomes, list_head_specs, read_cases
from baseline.release.splits import read_splits
from baseline.work import CONFIGURATION, WorkFolders, read_preparation, read_training_edition
from contract.documents import Document, Text, escape_markdown, format_section, format_table, read_document
from contract.editions import Edition
from contract.editions.clinical import CENTRE
from contract.io.files import read_json
from contract.packages import CHANNEL_NUMBERS, CHANNELS, PostprocessingRules
from contract.platform import METRICS_JSON

Record = Mapping[str, Any]
PET: Final = CHANNELS.index("PET")
NO_REPORT: Final = "Run `hecktor train report` on these heads to add intervals and the metrics of their masks."
_CARD: Final = Template("""\
# $name

$purpose

This is not a medical device and has not been evaluated for use on patients.

For $edition.

## Intended use

$intended_use

## Licence

$licence

## Data and training

$training_data

Patients: $patients. By centre: $centres. Excluded because of errors in their files: $excluded.

Patients with a known value: $known.

$training $postprocessing Versions: $versions.

## Expected figures

Measured on patients held out of training, with 95% intervals over bootstrap samples of patients. For new centres \
read the last column, the mean over the centres with its t interval: the heads were fitted without patients of the \
centre, but the networks behind their features may have seen other patients of the centre. The intervals do not \
include how other training patients or centres would change the heads. The training report compares simpler models \
and shows each centre.

$figures

$targets

## Limits

- Trained only on patients of the centres above and their scanners; variables that few patients have contributed \
little.
- It segments primary tumours (GTVp) and lymph nodes (GTVn) of the head and neck in $images, and may find lesions \
in images that contain none. It is not trained for other diseases or tracers.
""")


class Description(Document):
    """Name, purpose, intended use, training data and licence of a package."""

    name: Text = "hecktor-baseline"
    purpose: Text = "research; not a medical device"
    intended_use: Text = (
        "answering the tasks of the named challenge from images of head and neck cancer, in research; "
        "never for diagnosis or treatment"
    )
    training_data: Text = "not described"
    licence: Text = "not stated; the terms of the training data may bind what was trained on them"


DEFAULTS: Final[Mapping[str, str]] = Description().model_dump()


def read_description(path: Path | None) -> dict[str, str]:
    """Read the description in a JSON file, completed with defaults; None gives the defaults."""
    return dict(DEFAULTS) if path is None else read_document(path, Description).model_dump()


def make_model_card(work: WorkFolders, description: Mapping[str, str]) -> str:
    """Make the card of a working directory's model, as Markdown.

    The step `heads` must have been run. If the step `report` has not been run, the card says which figures are missing.
    `description` has every key of `DEFAULTS`.
    """
    cases, edition, preparation = read_cases(work), read_training_edition(work), read_preparation(work)
    document, report, targets = read_cross_validation(work), _read_report(work), make_targets(edition)
    centres = sorted(Counter(case.centre for case in cases).items())
    figures = format_table(
        ["", "Patients", "Held out", "At new centres"],
        [
            *_make_mask_rows(work, edition, report),
            *(_make_head_row(target, document.targets[target.name], report) for target in targets),
        ],
    )
    heads = read_heads(work)
    sections = []
    for target in targets:
        name = target.name
        sections.append(_describe_head(target, document.targets[name], heads.get(name), document.no_head.get(name)))
    summary = [] if report is None else report["summary"]  # new centres, and images against simpler models
    return _CARD.substitute(
        {key: _make_sentence(value) for key, value in description.items()},
        name=escape_markdown(description["name"]),
        edition=edition.title,
        images="T2-weighted MR" if cases[0].is_mr else "FDG-PET/CT",
        patients=len(cases),
        centres=", ".join(f"{name} {count}" for name, count in centres),
        excluded=len(preparation.left_out),
        known=", ".join(f"{name} {count}" for name, count in _count_known(cases, edition).items()),
        training=_describe_training(work),
        postprocessing=_describe_postprocessing(work),
        versions=", ".join(f"{name} {version}" for name, version in preparation.versions.items()),
        figures="\n\n".join([figures, *([NO_REPORT] if report is None else []), *filter(None, summary)]),
        targets="\n\n".join(sections),
    )


def _make_sentence(text: str) -> str:
    """Return the text in one line, with a capital letter at its start and a full stop at its end."""
    text = " ".join(text.split())
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) or not text else text + "."


def _count_known(cases: Sequence[ReleaseCase], edition: Edition) -> dict[str, int]:
    """Count the patients with a mask, with each outcome, event and rarer class, with a dose and with each variable."""
    counts = {"with_mask": sum(case.mask is not None for case in cases)}
    for answer in list_head_specs(edition):
        counts |= count_outcomes(answer, cases)
    counts["with_dose"] = sum(case.dose is not None for case in cases)
    for variable in edition.clinical:
        if variable.name != CENTRE:
            counts[variable.key] = sum(case.patient.values.get(variable.name) is not None for case in cases)
    return {name.removeprefix("with_").replace("_", " "): count for name, count in counts.items()}


def _describe_training(work: WorkFolders) -> str:
    if (existing := load_existing_networks(work)) is not None:
        record = describe_networks(existing)
        return (
            f"The networks come from the package {record['name']} (sha256 of its manifest {record['sha256']}), "
            f"trained on: {_make_sentence(record.get('training_data', 'not described'))} Their licence: "
            f"{_make_sentence(record.get('licence', 'not stated'))} Only the heads were trained here, on features of "
            f"the ensemble's masks. The figures below hold only if {CONDITION}. "
            f"{_describe_pet_scale(work, existing.plans)}"
        ).strip()
    splits, plan = read_splits(work), read_plan(work)
    networks, masks = " and ".join(plan.backbones), describe_masks(read_heads(work))
    split = f"one for each of {len(splits.folds)} folds balanced by centre and outcomes (seed {splits.seed})"
    sentences = [
        f"Networks: {networks}, {split}; the manifest lists the plan's options.",
        _describe_pet_scale(work, read_json(work.plans)) if work.plans.is_file() else "",
        f"Heads were fitted on features of {masks}.",
        _describe_held_out_masks(len(splits.folds), plan) if masks == OUT_OF_FOLD_MASKS else "",
    ]
    return " ".join(filter(None, sentences))


def _describe_pet_scale(work: WorkFolders, plans: Record) -> str:
    """Describe the normalisation of the PET in nnU-Net's plans.

    Empty for networks of MR, custom networks and networks that do not see both CT and PET.
    """
    configuration = plans["configurations"].get(CONFIGURATION, {})
    schemes = configuration.get("normalization_schemes", ())
    sources = configuration.get(CHANNEL_NUMBERS, list(range(len(CHANNELS))))
    if read_cases(work)[0].channels != CHANNELS or len(schemes) != len(CHANNELS) or PET not in sources:
        return ""
    number = sources.index(PET)
    if schemes[number] == "CTNormalization":
        statistics = configuration.get(INTENSITIES, plans[INTENSITIES])[str(number)]
        low, high = (statistics[f"percentile_{name}"] for name in ("00_5", "99_5"))
        clipped = f"clipped to SUV {low:.2f} to {high:.2f}, " if high < UNREACHED_SUV else ""
        scale = f"minus {statistics['mean']:.2f}, divided by {statistics['std']:.2f}"
        return f"The networks see the PET on a fixed scale: SUV, {clipped}{scale}, as in the lesions of all patients."
    if schemes[number] == "ZScoreNormalization":
        return "The networks see the PET minus its mean, divided by its standard deviation in each image."
    return ""


def _describe_held_out_masks(folds: int, plan: NetworkPlan) -> str:
    """Describe how the masks behind the figures differ from the masks of the package."""
    axes = len(plan.mirror_axes)
    combined = ", without combined mirrors" if axes > 1 else ""
    return (
        f"The held-out masks behind the figures below were made by one fold with {1 + axes} passes of each network"
        f"{combined}; a new patient is segmented by the average of {folds} folds with up to {2**axes} passes. The "
        "figures do not measure this average."
    )


def _describe_postprocessing(work: WorkFolders) -> str:
    """Describe the rules for the current masks, or the reason why no rule is used."""
    record = load_current_record(work)
    if record is None or record.why_not:
        reason = "the step was not run on these masks" if record is None else record.why_not
        return f"No postprocessing: {reason}."
    rules = [f"{PostprocessingRules.describe_rule(rule)} {value}" for rule, value in record.rules.as_json().items()]
    return f"Postprocessing: {', '.join(rules)}."


def _read_report(work: WorkFolders) -> Record | None:
    """Read `report.json`; return None if it is absent or was made from other heads."""
    if not work.report_json.is_file():
        return None
    report: Record = read_json(work.report_json)
    records = read_cross_validation(work).targets
    for name, kind in itertools.product(records, KINDS):
        reported = report.get(name, {}).get("models", {}).get("heads", {}).get(kind, {}).get("value")
        value = records[name].kinds[kind].get_metric(records[name].metric)
        if (reported is None) != (value is None) or not math.isclose(reported or 0, value or 0, abs_tol=1e-6):
            return None
    return report


def _make_mask_rows(work: WorkFolders, edition: Edition, report: Record | None) -> list[list[object]]:
    """Make a row for each metric of the out-of-fold masks, which are not measured at new centres."""
    path = work.segmentation / METRICS_JSON
    if report is None or not path.is_file():
        return []
    scored, titles = read_json(path), list_mask_metric_titles(edition)
    patients = scored["cases"]["used"]
    return [[title, patients, _format_estimate(scored["aggregates"][name]), "-"] for name, title in titles.items()]


def _make_head_row(target: Target, record: TargetRecord, report: Record | None) -> list[object]:
    """Make the row of a head: its metric in the nested cross-validation and at new centres."""
    reported = {} if report is None else report[target.name]["models"].get("heads", {})
    nested, left_out = record.kinds.values()
    inside = reported.get("nested") or {"value": nested.get_metric(target.metric)}
    outside = vars(estimate_new_centres(left_out.by_centre.values()))
    if outside["value"] is None:
        outside = {"value": left_out.get_metric(target.metric)}
    cells = [
        "-" if kind.why_not else _format_estimate(estimate)
        for kind, estimate in ((nested, inside), (left_out, outside))
    ]
    return [f"{target.title}, {METRIC_TITLES[target.metric]}", len(record.patients), *cells]


def _describe_head(target: Target, record: TargetRecord, head: HeadRecord | None, no_head: str | None) -> str:
    """Describe the kind of head, the meaning of its answers, and each missing figure with the reason."""
    if head is None:
        has_fallback = target.answer.fallback is not None
        instead = "its fallback is written" if has_fallback else "its task ends with an error"
        shipped = f"There is no head: {no_head or 'not fitted'}; {instead}."
    else:
        features, answers = len(head.head.features), describe_direction(target.answer, head.head)
        model = f"Model: {head.model}, {features} feature{'s' * (features != 1)}."
        shipped = " ".join(filter(None, [model, head.reason, answers]))
    missing = [
        f"{KINDS[kind].capitalize()}: not computed ({scored.why_not})."
        for kind, scored in record.kinds.items()
        if scored.why_not
    ]
    return format_section(3, target.title, " ".join(filter(None, [shipped, *missing, describe_left_out(record, head)])))


def _format_estimate(record: Record) -> str:
    value, low, high = (record.get(name) for name in ("value", "ci95_low", "ci95_high"))
    if value is None:
        return "undefined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} ({low:.3f} to {high:.3f})"
