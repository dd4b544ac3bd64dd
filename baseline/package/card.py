"""The model card: training data, intended use, expected performance and limits of a package.

It holds no dates and no machine names: the same working directory gives the same bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any, Final

from algorithm.heads.documents import read_head
from baseline.heads.cross_validation import KINDS, METRIC_TITLES
from baseline.heads.document import left_out_text
from baseline.heads.fitting import OUT_OF_FOLD
from baseline.heads.metrics import mask_metric_titles
from baseline.heads.models.kinds import Target, direction_in_words
from baseline.heads.models.targets import COMPARATORS, targets_of
from baseline.heads.record import CrossValidation, read_cross_validation
from baseline.network.plans import read_plan
from baseline.package.existing import CONDITION, existing_networks, networks_record
from baseline.postprocessing.record import GAIN_HEADS, current_record, gain_rows
from baseline.release.cases import ReleaseCase, head_answers, read_cases
from baseline.release.record import edition_of, read_preparation
from baseline.release.splits import read_splits
from baseline.work import WorkFolders
from contract.documents import plain, section, table
from contract.editions import Answer, Edition
from contract.editions.clinical import CENTRE
from contract.files import read_json
from contract.packages import PostprocessingRules
from contract.platform import METRICS_JSON

Record = Mapping[str, Any]
NO_REPORT: Final = "Not computed: run `hecktor train report` for these heads."
_CARD: Final = Template("""\
# $name

$purpose

This is not a medical device and has not been evaluated for use on patients.

For $edition.

## Intended use

$intended_use

## Licence

$licence

## Training data

$training_data

Patients: $patients. Centres: $centres. Excluded for errors in their files: $excluded.

$patients_by_centre

Clinical variables, with the number of patients of whom each is known: $variables.

## Training

$training Versions: $versions.

### Postprocessing

$postprocessing

## Expected performance

Measured on patients held out of training, with 95% intervals over bootstrap samples of patients. With whole centres \
left out, the heads learnt nothing from patients of the centre; the masks behind their features come from networks \
that may have seen other patients of the centre. Figures of centres with few patients are uncertain; those of the \
heads by centre are in the manifest.

### Segmentation

$segmentation

$targets

## Limits

- Trained on $centres. At other centres expect the figures with whole centres left out.
- The model has seen no other scanners than those of these centres, and learnt little from variables that few \
patients have.
- It segments primary tumours (GTVp) and lymph nodes (GTVn) of the head and neck in $images, and may find lesions \
in images that contain none. It is not trained for other diseases or tracers.
""")


def model_card(work: WorkFolders, description: Mapping[str, str]) -> str:
    """The card of a working directory's model, as Markdown.

    The step `heads` has been run; without the step `report` the card says which figures are missing. `description` has
    every key of `baseline.package.description.DEFAULTS`.
    """
    cases, edition, report = read_cases(work), edition_of(work), _report(work)
    preparation = read_preparation(work)
    figures = {
        **{key: _sentence(value) for key, value in description.items()},
        "name": plain(description["name"]),
        "edition": edition.title,
        "images": "T2-weighted MR" if cases[0].is_mr else "FDG-PET/CT",
        "patients": len(cases),
        "centres": ", ".join(sorted({case.centre for case in cases})),
        "excluded": len(preparation.left_out),
        "patients_by_centre": _patients_by_centre(cases, head_answers(edition)),
        "variables": _variables(cases, edition),
        "training": _training(work),
        "versions": ", ".join(f"{name} {version}" for name, version in preparation.versions.items()),
        "postprocessing": _postprocessing(work),
        "segmentation": _segmentation(work, edition, report),
        "targets": "\n\n".join(_target(work, target, report) for target in targets_of(edition)),
    }
    return _CARD.substitute(figures)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) or not text else text + "."


def _patients_by_centre(cases: Sequence[ReleaseCase], answers: Sequence[Answer]) -> str:
    """Patients of each centre: in total, with a mask, with each outcome, with a dose."""
    groups: dict[str, list[ReleaseCase]] = {}
    for case in sorted(cases, key=lambda case: case.centre):
        groups.setdefault(case.centre, []).append(case)
    rows = {name: _counts(group, answers) for name, group in [*groups.items(), ("all", cases)]}
    return table(["Centre", *rows["all"]], [[name, *counts.values()] for name, counts in rows.items()])


def _counts(cases: Sequence[ReleaseCase], answers: Sequence[Answer]) -> dict[str, int]:
    counts = {"Patients": len(cases), "Mask": sum(case.mask is not None for case in cases)}
    for answer in answers:
        known = [case.outcome(answer) for case in cases if case.has(answer)]
        counts[answer.socket.title] = len(known)
        if answer.kind == "risk":
            counts[f"{answer.columns['event']}s"] = known.count(True)
        for value in answer.classes[:-1]:
            counts[f"{answer.name.upper()} negative" if value is False else str(value)] = known.count(value)
    return counts | {"RT dose": sum(case.dose is not None for case in cases)}


def _variables(cases: Sequence[ReleaseCase], edition: Edition) -> str:
    names = {one.name: one.key for one in edition.clinical if one.name != CENTRE}
    known = {key: sum(case.patient.values.get(name) is not None for case in cases) for name, key in names.items()}
    return ", ".join(f"{key} {count}" for key, count in known.items())


def _training(work: WorkFolders) -> str:
    if (existing := existing_networks(work)) is not None:
        record = networks_record(existing)
        return (
            f"The networks are those of the package {record['name']} (sha256 of its manifest {record['sha256']}), "
            f"trained on: {_sentence(record.get('training_data', 'not described'))} Their licence: "
            f"{_sentence(record.get('licence', 'not stated'))} Here only the heads are trained, on features of masks "
            f"that all of these networks give together. The figures below hold only if {CONDITION}."
        )
    splits = read_splits(work)
    masks = sorted({one.get("masks") or OUT_OF_FOLD for one in work.read(work.heads_json).values()})
    networks = " and ".join(read_plan(work).backbones)
    return (
        f"Networks: {networks}, one for each of {len(splits.folds)} folds balanced by centre and outcomes (seed "
        f"{splits.seed}); the manifest has the options of the plan. Inference averages the probabilities of the passes "
        f"that the time limit allows. Heads are fitted on features of {', '.join(masks)}."
    )


def _postprocessing(work: WorkFolders) -> str:
    """The rules on the current masks with their cross-fitted gains, or why there are none."""
    record = current_record(work)
    if record is None or record.why_not:
        return f"None: {'the step was not run on these masks' if record is None else record.why_not}."
    rules = [[PostprocessingRules.words(rule), value] for rule, value in record.rules.as_json().items()]
    gains = table(GAIN_HEADS, list(gain_rows(record)))
    about = "These volumes are those of all patients; each out-of-fold mask has those that were found without its fold."
    return f"{table(['Rule', 'Value'], rules)}\n\n{about}\n\n{gains}"


def _report(work: WorkFolders) -> Record | None:
    """`report.json`; None if it is absent or was made from other heads."""
    if not work.report_json.is_file():
        return None
    report: Record = read_json(work.report_json)
    records = read_cross_validation(work).targets()
    for target, kind in itertools.product(targets_of(edition_of(work)), KINDS):
        reported = report.get(target.name, {}).get("models", {}).get("heads", {}).get(kind, {}).get("value")
        value = records[target.name][kind].get(target.metric)
        if (reported is None) != (value is None) or not math.isclose(reported or 0, value or 0, abs_tol=1e-6):
            return None
    return report


def _segmentation(work: WorkFolders, edition: Edition, report: Record | None) -> str:
    path = work.segmentation / METRICS_JSON
    if report is None or not path.is_file():
        return NO_REPORT
    scored = read_json(path)
    titles, cases = mask_metric_titles(edition), scored["cases"]["used"]
    rows = [["all", cases, *(_estimate(scored["aggregates"][name]) for name in titles)]]
    for centre, group in sorted(scored["centres"].items()):
        rows.append([centre, group["cases"], *(_estimate(group["aggregates"][name]) for name in titles)])
    about = f"{cases} patients, each segmented by a network that never saw them, on the CT's own grid."
    return f"{about}\n\n{table(['Centre', 'Patients', *titles.values()], rows)}"


def _target(work: WorkFolders, target: Target, report: Record | None) -> str:
    document, head = read_cross_validation(work), work.read(work.heads_json).get(target.name)
    record = document.targets()[target.name]
    known = {kind: title.capitalize() for kind, title in KINDS.items() if "why_not" not in record[kind]}
    rows = []
    # Entrants' heads, under their own names.
    others = (*target.comparators, *target.rules)
    own = dict.fromkeys(one for kind in known for one in record[kind]["comparators"] if one not in others)
    for name, title in {
        "heads": "heads",
        **{one: COMPARATORS.get(one, one) for one in (*target.comparators, *own, *target.rules)},
    }.items():
        reported = {} if report is None else report[target.name]["models"].get(name, {})
        cells = []
        for kind in known:
            scored = record[kind] if name == "heads" else record[kind]["comparators"].get(name, {})
            cells.append(_estimate(reported.get(kind) or {"value": scored.get(target.metric)}))
        rows.append([title, *cells, _estimate(reported["gap"]) if reported.get("gap") else "-"])
    parts = [f"{METRIC_TITLES[target.metric].capitalize()} over {len(record['patients'])} patients."]
    parts += [] if report else [f"No intervals. {NO_REPORT}"]
    parts += [
        f"{title.capitalize()}: not computed ({record[kind]['why_not']})."
        for kind, title in KINDS.items()
        if kind not in known
    ]
    parts += [left_out_text(record, head)]
    models = [table(["", *known.values(), "Difference"], rows)] if known else []
    return section(3, target.title, _head(document, target, head), " ".join(filter(None, parts)), *models)


def _head(document: CrossValidation, target: Target, head: Record | None) -> str:
    if head is None:
        has_fallback = target.answer.fallback is not None
        instead = "its fallback is written" if has_fallback else "its task ends with an error"
        return f"There is no head: {document.no_head.get(target.name, 'not fitted')}; {instead}."
    features = len(read_head(head["head"], "heads.json").features)
    return f"Shipped: `{head['model']}`; features: {features}. {direction_in_words(target.answer, head['head'])}"


def _estimate(record: Record) -> str:
    value, low, high = (record.get(name) for name in ("value", "ci95_low", "ci95_high"))
    if value is None:
        return "undefined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} ({low:.3f} to {high:.3f})"
