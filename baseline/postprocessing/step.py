"""Step `postprocess`: fit rules on lesions, apply them to the out-of-fold masks, and measure the lesions again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.heads.documents import Features
from algorithm.masks.postprocessing import apply_rules, measure_lesions, pet_in_suv
from algorithm.masks.segmentation import REMOVED, Segmentation
from baseline.cache import compute_key, load_cached, map_items, store_cached
from baseline.postprocessing.record import (
    FORMAT_VERSION,
    PostprocessingRecord,
    is_recorded,
)
from baseline.postprocessing.rules import (
    MaskCohort,
    PatientLesions,
    assemble_counts,
    estimate_gains,
    fit_rules,
    make_lesion_table,
    make_mask_score,
)
from baseline.release.cases import ReleaseCase, label_path, read_cases
from baseline.release.data_set import read_prepared_ct_and_pet
from baseline.release.splits import Splits, read_splits
from baseline.work import WorkFolders, read_min_lesion_sizes, read_training_edition
from contract import labels
from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask
from contract.io.files import write_json
from contract.packages import NO_RULES, PostprocessingRules

_Labels = npt.NDArray[np.uint8]
_Float = npt.NDArray[np.float32]

# With fewer patients, a single lesion changes the score by more than a rule can gain.
MIN_PATIENTS: Final = 30
# Probabilities are stored in steps of 1 / 255; half a step is used for 0.
_STEPS: Final = 255.0


def postprocess(work: WorkFolders, features: Mapping[str, Features], jobs: int = 1) -> dict[str, Features]:
    """Write `postprocessing.json`, and filtered masks and features; return the features by patient ID.

    `features` belong to the unfiltered masks. Nothing is done for unchanged probabilities, references and splits. If no
    rule gains, or if there are too few patients, masks and features stay unfiltered and the file has the reason.
    """
    cases, key = read_cases(work), _compute_key(work)
    cached: dict[str, Features] | None = load_cached(work.features_json, key)
    complete = all(work.mask(case.patient_id).is_file() for case in cases)
    if cached is not None and complete and is_recorded(work, key):
        return cached
    record = _make_record(work, cases, key, jobs)
    filtered = _filter_masks(work, cases, _assign_rules(read_splits(work), record), features, jobs)
    write_json(work.postprocessing_json, record.model_dump(mode="json"))
    store_cached(work.features_json, key, filtered)
    return filtered


def copy_unfiltered(work: WorkFolders, features: Mapping[str, Features]) -> dict[str, Features]:
    """Write masks and features as they were measured."""
    cases = read_cases(work)
    key = compute_key(work, (work.unfiltered_features_json,), {"version": FORMAT_VERSION})
    unfiltered: dict[str, Features] | None = load_cached(work.features_json, key)
    if unfiltered is None or not all(work.mask(case.patient_id).is_file() for case in cases):
        unfiltered = _filter_masks(work, cases, {case.patient_id: NO_RULES for case in cases}, features, 1)
        store_cached(work.features_json, key, unfiltered)
    return unfiltered


def _assign_rules(splits: Splits, record: PostprocessingRecord) -> dict[str, PostprocessingRules]:
    """Assign to each patient the rules found without the patient's fold, which filter the out-of-fold mask.

    The rules of all patients would be tested on the patients that chose them. If no rules are stored, no patient has
    rules.
    """
    folds = enumerate(splits.folds)
    if record.why_not:
        return {patient: NO_RULES for _, fold in folds for patient in fold}
    of_fold = record.rules_by_group["folds"]
    return {patient: of_fold[_fold_name(number)] for number, fold in folds for patient in fold}


def _fold_name(number: int) -> str:
    return f"fold {number}"


def _compute_key(work: WorkFolders) -> str:
    cases = read_cases(work)
    references = [label_path(work.raw, case) for case in cases if case.mask is not None]
    probabilities = [work.probabilities(case.patient_id) for case in cases]
    files = [work.unfiltered_features_json, work.splits_json, *probabilities, *references]
    made_from = {
        "version": FORMAT_VERSION,
        "edition": read_training_edition(work).name,
        "cases": [case.as_json() for case in cases],
    }
    return compute_key(work, files, made_from | {"smallest_lesions": read_min_lesion_sizes(work).model_dump()})


def _make_record(work: WorkFolders, cases: Sequence[ReleaseCase], key: str, jobs: int) -> PostprocessingRecord:
    """Find the rules, and make the content of `postprocessing.json`."""
    edition = read_training_edition(work)
    scored = [case for case in cases if case.mask is not None]

    def record(why_not: str, **content: Any) -> PostprocessingRecord:
        return PostprocessingRecord(
            format_version=FORMAT_VERSION,
            edition=edition.name,
            patients=len(scored),
            made_from=key,
            why_not=why_not,
            **content,
        )

    if why_not := _find_obstacle(scored):
        return record(why_not)
    score, measure = make_mask_score(edition), partial(measure_patient, work=work)
    tables = {patient.patient_id: patient for patient in map_items(measure, scored, jobs, "measure lesions")}
    cohort = MaskCohort([tables[case.patient_id] for case in scored], score)
    if not any(patient.nodes for patient in cohort.patients):
        return record("no reference has a GTVn", weights=dict(score.weights))
    return record(**fit_record(cohort, read_splits(work)))


def _find_obstacle(scored: Sequence[ReleaseCase]) -> str:
    """Find the reason why no rule can be fitted to these patients; empty if there is no reason."""
    if len(scored) < MIN_PATIENTS:
        return f"{len(scored)} patients with a reference, expected at least {MIN_PATIENTS}"
    if len({case.centre for case in scored}) < 2:
        return "all patients are from one centre, but a rule must also gain with a centre left out"
    return ""


def measure_patient(case: ReleaseCase, work: WorkFolders) -> PatientLesions:
    """Measure the lesions of one patient with a reference."""
    logits, (ct, pet) = read_logits(work, case.patient_id), read_images(work, case)
    reference = read_volume(label_path(work.raw, case), np.uint8).array
    table = make_lesion_table(measure_lesions(logits, pet, ct.geometry), reference)
    gtvp, gtvn = (int(np.count_nonzero(reference == label)) for label in labels.FOREGROUND)
    nodes = table.node_iou.shape[1]
    return PatientLesions(case.patient_id, case.centre, ct.geometry.voxel_volume_mm3, gtvp, gtvn, nodes, table)


def read_logits(work: WorkFolders, patient_id: str) -> _Float:
    """Read the logarithms of the stored probabilities, (label, z, y, x).

    Raises:
        InputError: The file was not written by the measurement.
    """
    path = work.probabilities(patient_id)
    try:
        with np.load(path) as content:
            gtvp, gtvn = content["gtvp"], content["gtvn"]
    except (OSError, ValueError, KeyError, EOFError) as problem:
        expected = "probabilities as written by `hecktor train heads`"
        raise InputError(path.name, f"unreadable ({problem})", expected) from None
    background = _STEPS - np.minimum(gtvp.astype(np.float32) + gtvn, _STEPS)
    steps = np.stack([background, gtvp.astype(np.float32), gtvn.astype(np.float32)])
    return np.asarray(np.log(np.maximum(steps, np.float32(0.5)) / np.float32(_STEPS)))


def read_images(work: WorkFolders, case: ReleaseCase) -> tuple[Volume, _Float | None]:
    """Read the patient's prepared CT, and the PET in SUV; an empty PET counts as absent."""
    ct, pet = read_prepared_ct_and_pet(work.raw, case)
    return ct, pet_in_suv(pet)


def fit_record(cohort: MaskCohort, splits: Splits) -> dict[str, Any]:
    """Fit the rules, and estimate their gains with folds and with centres left out, as parts of the record."""
    groups_of = {
        "folds": {_fold_name(number): fold for number, fold in enumerate(splits.folds)},
        "centres": splits.centres,
    }
    fitted = fit_rules(cohort, groups_of, splits.seed)
    names = np.array([patient.patient_id for patient in cohort.patients])
    gain_of = {}
    for split, groups in groups_of.items():
        inside = {group: np.isin(names, list(members)).astype(np.float64) for group, members in groups.items()}
        counts = assemble_counts(cohort, inside, fitted.by_group[split])
        gain_of[split] = estimate_gains(cohort, counts, splits.seed)
    reasons = [f"{PostprocessingRules.describe_rule(name)}: {why}" for name, why in fitted.decisions.items()]
    return {
        "weights": dict(cohort.score.weights),
        "titles": dict(cohort.score.titles),
        "cross_fitted": gain_of,
        "rules_by_group": fitted.by_group,
        "decisions": fitted.decisions,
        "why_not": "; ".join(reasons) if fitted.rules == NO_RULES else "",
        "rules": fitted.rules,
    }


def _filter_masks(
    work: WorkFolders,
    cases: Sequence[ReleaseCase],
    rules_of: Mapping[str, PostprocessingRules],
    features: Mapping[str, Features],
    jobs: int,
) -> dict[str, Features]:
    """Write each patient's filtered mask; return the features of these masks by patient ID."""
    work.features_json.unlink(missing_ok=True)  # features of earlier masks
    if all(rules == NO_RULES for rules in rules_of.values()):
        work.masks.mkdir(parents=True, exist_ok=True)
        for case in cases:
            shutil.copyfile(work.raw_mask(case.patient_id), work.mask(case.patient_id))
        return dict(features)
    changed = dict(map_items(partial(filter_patient, work=work, rules_of=rules_of), cases, jobs, "postprocess"))
    return {name: row if (new := changed.get(name)) is None else new for name, row in features.items()}


def filter_patient(
    case: ReleaseCase, work: WorkFolders, rules_of: Mapping[str, PostprocessingRules]
) -> tuple[str, Features | None]:
    """Write a patient's filtered mask; return patient ID and features, None if the rules changed nothing.

    `rules_of` has rules by patient ID. A voxel of the unfiltered mask is removed if the nearest lesion on the network's
    grid is removed.
    """
    from baseline.network.out_of_fold import measure_segmentation  # imports torch

    name, target = case.patient_id, work.mask(case.patient_id)
    (ct, pet), logits = read_images(work, case), read_logits(work, name)
    filtered, result = apply_rules(logits, pet, ct.geometry, rules_of[name])
    if not result.removed:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work.raw_mask(name), target)
        return name, None
    unfiltered = read_volume(work.raw_mask(name), np.uint8)
    write_mask(target, transfer_removal(unfiltered, result.lesion_map, ct.geometry), unfiltered.geometry)
    return name, measure_segmentation(
        case, Segmentation(filtered, ct.array, pet, ct.geometry), read_min_lesion_sizes(work)
    )


def transfer_removal(mask: Volume, lesion_map: _Labels, grid: Geometry) -> _Labels:
    """Remove the voxels of a mask on the CT's grid whose nearest lesion in `lesion_map` is removed.

    `lesion_map` is on the network's grid, as in `PostprocessingResult`.
    """
    result = mask.array.copy()
    index = np.argwhere(result)[:, ::-1]
    if not len(index) or not lesion_map.any():
        return result
    nearest = ndimage.distance_transform_edt(
        lesion_map == 0, sampling=grid.array_spacing_mm, return_distances=False, return_indices=True
    )
    matrix = grid.physical_to_index_matrix() @ mask.geometry.index_to_physical_matrix()
    on_grid = np.rint(index @ matrix[:3, :3].T + matrix[:3, 3]).astype(np.int64)
    x, y, z = np.clip(on_grid, 0, np.asarray(grid.size) - 1).T
    removed = lesion_map[tuple(nearest)][z, y, x] == REMOVED
    result[result > 0] = np.where(removed, 0, result[result > 0])
    return result
