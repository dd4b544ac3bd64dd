"""Export of a training's model package: networks, heads, fitted features, calibration and model card.

The calibration maps the expected DSC of the networks to the DSC of out-of-fold masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.documents import Head
from algorithm.heads.feature_hook import list_feature_folders
from algorithm.heads.head_hook import list_head_folders
from baseline.cache import map_items
from baseline.fit import check_heads
from baseline.heads.fitting import collect_fallbacks, describe_masks, make_lesion_size_entry, read_heads
from baseline.heads.record import read_cross_validation
from baseline.network.jobs import list_final_checkpoints
from baseline.network.plans import read_plan
from baseline.own_features import load_fitted_hooks, read_feature_digests, read_fit_digests
from baseline.package.card import DEFAULTS, make_model_card
from baseline.package.existing import describe_networks, load_existing_networks
from baseline.postprocessing.record import load_rules_in_use
from baseline.release.cases import ReleaseCase, label_path, read_cases
from baseline.release.splits import read_splits
from baseline.work import WorkFolders, read_training_edition
from contract import labels
from contract.code import Code
from contract.images.volumes import read_volume
from contract.packages import DscCalibration, make_edition_entries
from contract.processes import count_usable_cpus

if TYPE_CHECKING:  # imports torch
    from baseline.package.export import EnsembleMember

# Minimum number of patients with the label in the mask and with a reference; with fewer, the label's expected DSC is
# not calibrated.
MIN_PATIENTS: Final = 30
# With fewer patients, starting processes takes longer than reading the masks.
_MIN_FOR_PROCESSES: Final = 40
# Stored value of the probability 1.
_STORED_ONE: Final = np.float32(255)
_Pairs = dict[str, tuple[float, float]]


def export_model(
    work: WorkFolders, output: Path, description: Mapping[str, str] = DEFAULTS, code: Code | None = None
) -> Path:
    """Write the model package of networks and fitted heads, with its model card, to `output`; return `output`.

    `code` is the custom code of the networks. The networks are run once before they are packed.

    Raises:
        HecktorError: A step has not been run, or the heads were fitted before another step changed their features.
    """
    from baseline.package.export import PackageContents, export_contents  # torch takes seconds

    check_heads(work)
    heads = {name: record.head for name, record in read_heads(work).items()}
    manifest = _make_manifest(work, heads, description)
    card = make_model_card(work, description)
    if code:
        code.use(list_head_folders(heads.values()))
    features = load_fitted_hooks(work.heads_json.parent, heads.values(), code or Code({})) if heads else []
    existing = load_existing_networks(work)
    if existing is not None:
        if code:
            code.use(existing.manifest.code)
        contents = PackageContents(existing, heads, manifest, card, features, code, work.custom_heads)
    else:
        members, entries = _read_trained_members(work)
        contents = PackageContents(members, heads, {**manifest, **entries}, card, features, None, work.custom_heads)
    return export_contents(output, contents)


def _make_manifest(work: WorkFolders, heads: Mapping[str, Head], description: Mapping[str, str]) -> dict[str, Any]:
    """Make the manifest without the entries of trained networks."""
    fitted, document = read_heads(work), read_cross_validation(work)
    cases, splits, edition = read_cases(work), read_splits(work), read_training_edition(work)
    existing = load_existing_networks(work)
    training = {
        "patients": len(cases),
        "centres": sorted({case.centre for case in cases}),
        "folds": len(splits.folds),
        "seed": splits.seed,
    }
    training |= {"heads_fitted_on": masks} if (masks := describe_masks(fitted)) else {}
    training |= {"plan": read_plan(work).to_record()} if existing is None else {}
    rules = load_rules_in_use(work)
    manifest = {
        **description,
        **make_edition_entries(edition),
        **({} if rules is None else {"postprocessing": rules}),
        "training": training,
        **({} if existing is None else {"networks_from": describe_networks(existing)}),
        "fallbacks": collect_fallbacks(edition, fitted),
        **_make_calibration_entry(work),
        **make_lesion_size_entry(fitted),
        "out_of_fold": {
            name: {record.metric: round(record.out_of_fold, 4), "setting": dict(record.setting)}
            for name, record in fitted.items()
        },
        "cross_validation": document.to_manifest(),
    }
    if custom := {*list_feature_folders(heads.values()), *list_head_folders(heads.values())}:
        digests = read_feature_digests(work) | read_fit_digests(work) | document.code_digests()
        manifest["code"] = {name: digest for name, digest in digests.items() if name in custom}
    return manifest


def export_networks(work: WorkFolders) -> Path:
    """Write a package of the trained networks without heads, for measuring features; return its folder."""
    from baseline.package.export import PackageContents, export_contents

    members, entries = _read_trained_members(work)
    description = {"name": "out-of-fold", "purpose": "measuring features in training"}
    description |= make_edition_entries(read_training_edition(work))
    return export_contents(work.root / "bare_package", PackageContents(members, {}, {**description, **entries}))


def _read_trained_members(work: WorkFolders) -> tuple[list[EnsembleMember], dict[str, Any]]:
    """Read the trained networks, fold 0 first as `ModelPackage` expects, and make their entries of the manifest."""
    from baseline.network.checkpoint import read_checkpoint
    from baseline.package.existing import read_trained_plans
    from baseline.package.export import EnsembleMember

    plans, final = work.read(work.plans), list_final_checkpoints(work)
    members = [
        EnsembleMember(read_trained_plans(plans, name), name, map(read_checkpoint, paths))
        for name, paths in final.items()
    ]
    # The checkpoint has the plan's mirror axes, or no axes if the trainer does not mirror.
    mirror_axes = read_checkpoint(next(iter(final.values()))[0]).mirror_axes
    # docs/formats.md compares the averages.
    channels = list(read_training_edition(work).algorithms[0].channels)
    return members, {"channels": channels, "mirror_axes": list(mirror_axes), "average": "probabilities"}


def fit_calibrations(work: WorkFolders) -> dict[str, DscCalibration]:
    """Fit the map of each label on the out-of-fold probabilities of all patients with a reference.

    Labels with few masks are left out. The result is empty for masks from the user, which have no probabilities.
    """
    scored = [case for case in read_cases(work) if case.mask is not None]
    stored = [case for case in scored if work.probabilities(case.patient_id).is_file()]
    if len(stored) < MIN_PATIENTS:
        return {}
    jobs = count_usable_cpus() if len(stored) >= _MIN_FOR_PROCESSES else 1
    patients = list(map_items(partial(compare_patient, work=work), stored, jobs, "calibrate the expected DSC"))
    calibrations = {}
    for label in labels.LESIONS:
        pairs = [patient[label] for patient in patients if label in patient]
        if len(pairs) >= MIN_PATIENTS:
            calibrations[label] = fit_calibration(pairs)
    return calibrations


def fit_calibration(pairs: Sequence[tuple[float, float]]) -> DscCalibration:
    """Fit the isotonic regression of true on expected DSC."""
    from sklearn.isotonic import IsotonicRegression

    expected, true_dsc = np.array(pairs, dtype=np.float64).T
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(expected, true_dsc)
    return DscCalibration(expected=tuple(fitted.X_thresholds_.tolist()), dsc=tuple(fitted.y_thresholds_.tolist()))


def compare_patient(case: ReleaseCase, work: WorkFolders) -> _Pairs:
    """Return expected and true DSC of each label in a patient's out-of-fold mask."""
    with np.load(work.probabilities(case.patient_id)) as content:
        gtvp, gtvn = content["gtvp"], content["gtvn"]
    reference = read_volume(label_path(work.raw, case), np.uint8).array
    return compare_probabilities(gtvp, gtvn, reference)


def compare_probabilities(
    gtvp: npt.NDArray[np.uint8], gtvn: npt.NDArray[np.uint8], reference: npt.NDArray[np.uint8]
) -> _Pairs:
    """Return expected and true DSC of each label of the argmax; probabilities are in steps of 1 / 255."""
    from algorithm.masks.segmentation import argmax, expected_dsc

    first, second = gtvp.astype(np.float32), gtvn.astype(np.float32)
    probabilities = np.stack([np.maximum(_STORED_ONE - first - second, 0), first, second])
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities / _STORED_ONE)
    mask, expected_of = argmax(logits), expected_dsc(logits)
    pairs = {}
    for label in labels.FOREGROUND:
        name = labels.NAMES[label]
        expected = expected_of[name]
        if expected is not None:
            predicted, true = mask == label, reference == label
            overlap = np.count_nonzero(predicted & true)
            pairs[name] = (expected, float(2 * overlap / (np.count_nonzero(predicted) + np.count_nonzero(true))))
    return pairs


def _make_calibration_entry(work: WorkFolders) -> Mapping[str, Any]:
    """Return the manifest's entry with the maps; it is empty if no label has a map."""
    maps = fit_calibrations(work)
    if not maps:
        return {}
    return {"expected_dsc": {label: calibration.model_dump(mode="json") for label, calibration in maps.items()}}
