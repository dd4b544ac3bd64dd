"""Find minimum volumes, apply them to the out-of-fold masks, and measure the lesions again."""

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
from baseline.cache import cache, key_of, load_cached, map_items
from baseline.postprocessing.record import (
    FORMAT_VERSION,
    SCORE,
    PostprocessingRecord,
    RuleGain,
    change_text,
    recorded,
)
from baseline.postprocessing.volumes import (
    MaskCohort,
    PatientLesions,
    cross_fitted,
    gains,
    lesion_table,
    minimum_volumes,
    score_of,
)
from baseline.preparation import edition_of, smallest_lesions_of
from baseline.release.cases import ReleaseCase, label_path, read_cases
from baseline.release.data_set import read_prepared_ct_and_pet
from baseline.release.splits import Splits, read_splits
from baseline.work import WorkFolders
from contract import labels
from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask
from contract.io.files import write_json
from contract.packages import NO_RULES, PostprocessingRules

_Labels = npt.NDArray[np.uint8]
_Float = npt.NDArray[np.float32]

# With fewer patients a single lesion changes the score by more than any minimum volume gains.
LEAST_PATIENTS: Final = 30
# Probabilities are stored in steps of 1 / 255; half a step stands for 0.
_STEPS: Final = 255.0


def postprocess(work: WorkFolders, features: Mapping[str, Features], jobs: int = 1) -> dict[str, Features]:
    """Write `postprocessing.json`, and filtered masks and features; returns these features by patient ID.

    `features` are those of the unfiltered masks. Skipped for unchanged probabilities, references and splits. If no rule
    gains, or the patients are too few to tell, masks and features stay unfiltered and the file says why.
    """
    cases, key = read_cases(work), _key(work)
    cached: dict[str, Features] | None = load_cached(work.features_json, key)
    complete = all(work.mask(case.patient_id).is_file() for case in cases)
    if cached is not None and complete and recorded(work, key):
        return cached
    record = _record(work, cases, key, jobs)
    filtered = _filter(work, cases, _rules_of_masks(read_splits(work), record), features, jobs)
    write_json(work.postprocessing_json, record.model_dump(mode="json"))
    cache(work.features_json, key, filtered)
    return filtered


def keep_all(work: WorkFolders, features: Mapping[str, Features]) -> dict[str, Features]:
    """Write masks and features as they were measured."""
    cases = read_cases(work)
    key = key_of(work, (work.unfiltered_features_json,), {"version": FORMAT_VERSION})
    kept: dict[str, Features] | None = load_cached(work.features_json, key)
    if kept is None or not all(work.mask(case.patient_id).is_file() for case in cases):
        kept = _filter(work, cases, {case.patient_id: NO_RULES for case in cases}, features, 1)
        cache(work.features_json, key, kept)
    return kept


def _rules_of_masks(splits: Splits, record: PostprocessingRecord) -> dict[str, PostprocessingRules]:
    """The rules that filter each patient's out-of-fold mask, by ID: those found without the patient's fold.

    The rules of all patients would be tested on the patients that chose them. Without stored rules there are none.
    """
    folds = enumerate(splits.folds)
    if record.why_not:
        return {patient: NO_RULES for _, fold in folds for patient in fold}
    of_fold = record.rules_by_group["folds"]
    return {patient: of_fold[_fold_name(number)] for number, fold in folds for patient in fold}


def _fold_name(number: int) -> str:
    return f"fold {number}"


def _key(work: WorkFolders) -> str:
    cases = read_cases(work)
    references = [label_path(work.raw, case) for case in cases if case.mask is not None]
    probabilities = [work.probabilities(case.patient_id) for case in cases]
    files = [work.unfiltered_features_json, work.splits_json, *probabilities, *references]
    made_from = {"version": FORMAT_VERSION, "edition": edition_of(work).name, "cases": [one.as_json() for one in cases]}
    return key_of(work, files, made_from | {"smallest_lesions": smallest_lesions_of(work).model_dump()})


def _record(work: WorkFolders, cases: Sequence[ReleaseCase], key: str, jobs: int) -> PostprocessingRecord:
    """The content of `postprocessing.json` but for the lesions."""
    edition = edition_of(work)
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

    if why_not := _why_not(scored):
        return record(why_not)
    score, measure = score_of(edition), partial(measure_patient, work=work)
    tables = {one.patient_id: one for one in map_items(measure, scored, jobs, "measure lesions")}
    cohort = MaskCohort([tables[case.patient_id] for case in scored], score)
    if not any(patient.nodes for patient in cohort.patients):
        return record("no reference has a GTVn", weights=dict(score.weights))
    return record(**fit_volumes(cohort, read_splits(work)))


def _why_not(scored: Sequence[ReleaseCase]) -> str:
    """The reason why no minimum volume can be found for these patients; empty if one can."""
    if len(scored) < LEAST_PATIENTS:
        return f"{len(scored)} patients with a reference, expected at least {LEAST_PATIENTS}"
    if len({case.centre for case in scored}) < 2:
        return "all patients are from one centre, but a minimum volume must hold with a centre left out"
    return ""


def measure_patient(case: ReleaseCase, work: WorkFolders) -> PatientLesions:
    """Measure the lesions of one patient with a reference."""
    logits, (ct, pet) = read_logits(work, case.patient_id), read_images(work, case)
    reference = read_volume(label_path(work.raw, case), np.uint8).array
    table = lesion_table(measure_lesions(logits, pet, ct.geometry), reference)
    gtvp, gtvn = (int(np.count_nonzero(reference == label)) for label in labels.FOREGROUND)
    nodes = table.node_iou.shape[1]
    return PatientLesions(case.patient_id, case.centre, ct.geometry.voxel_volume_mm3, gtvp, gtvn, nodes, table)


def read_logits(work: WorkFolders, patient_id: str) -> _Float:
    """Logarithms of the stored probabilities, (label, z, y, x).

    Raises:
        InputError: not the file that the measurement writes.
    """
    path = work.probabilities(patient_id)
    try:
        with np.load(path) as content:
            gtvp, gtvn = content["gtvp"], content["gtvn"]
    except (OSError, ValueError, KeyError, EOFError) as problem:
        expected = "probabilities, as `hecktor train heads` writes"
        raise InputError(path.name, f"unreadable ({problem})", expected) from None
    background = _STEPS - np.minimum(gtvp.astype(np.float32) + gtvn, _STEPS)
    whole = np.stack([background, gtvp.astype(np.float32), gtvn.astype(np.float32)])
    return np.asarray(np.log(np.maximum(whole, np.float32(0.5)) / np.float32(_STEPS)))


def read_images(work: WorkFolders, case: ReleaseCase) -> tuple[Volume, _Float | None]:
    """The patient's prepared CT, and its PET in SUV; an empty PET counts as absent."""
    ct, pet = read_prepared_ct_and_pet(work.raw, case)
    return ct, pet_in_suv(pet)


def fit_volumes(cohort: MaskCohort, splits: Splits) -> dict[str, Any]:
    """The rules of all patients, and the gains with folds and with centres left out, as parts of the record.

    Rules are stored only if both gains, the expected ones for patients that did not choose them, are large enough.
    """
    folds = {_fold_name(number): fold for number, fold in enumerate(splits.folds)}
    rules, gain_of, by_group = minimum_volumes(cohort, np.ones(len(cohort.patients))), {}, {}
    for split, groups in (("folds", folds), ("centres", splits.centres)):
        counts, by_group[split] = cross_fitted(cohort, groups)
        gain_of[split] = gains(cohort, counts, splits.seed)
    why_not = _fault(rules, gain_of, cohort.score.min_gain)
    return {
        "weights": dict(cohort.score.weights),
        "titles": dict(cohort.score.titles),
        "cross_fitted": gain_of,
        "rules_by_group": by_group,
        "why_not": why_not,
        "rules": NO_RULES if why_not else rules,
    }


def _fault(rules: PostprocessingRules, gain_of: Mapping[str, Mapping[str, RuleGain]], min_gain: float) -> str:
    """Return the reason why the rules are not used; empty if they are."""
    if rules == NO_RULES:
        return "no minimum volume gains enough"
    for split, figures in gain_of.items():
        gain = figures[SCORE].difference
        if not gain.value >= min_gain:
            found = f"with volumes found without the patient's {split[:-1]}, the score changes by {change_text(gain)}"
            return f"{found}, expected at least +{min_gain:.5f}"
    return ""


def _filter(
    work: WorkFolders,
    cases: Sequence[ReleaseCase],
    rules_of: Mapping[str, PostprocessingRules],
    features: Mapping[str, Features],
    jobs: int,
) -> dict[str, Features]:
    """Write each patient's mask; returns the features of these masks by patient ID."""
    work.features_json.unlink(missing_ok=True)  # of earlier masks
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
    """Write a patient's filtered mask; returns its ID and its features, None if the rules changed nothing.

    `rules_of` is by patient ID. Each voxel of the unfiltered mask follows the nearest lesion of the network's grid.
    """
    from baseline.network.out_of_fold import features_of  # imports torch

    name, target = case.patient_id, work.mask(case.patient_id)
    (ct, pet), logits = read_images(work, case), read_logits(work, name)
    filtered, result = apply_rules(logits, pet, ct.geometry, rules_of[name])
    if not result.removed:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work.raw_mask(name), target)
        return name, None
    unfiltered = read_volume(work.raw_mask(name), np.uint8)
    write_mask(target, follow(unfiltered, result.places, ct.geometry), unfiltered.geometry)
    return name, features_of(case, Segmentation(filtered, ct.array, pet, ct.geometry), smallest_lesions_of(work))


def follow(mask: Volume, places: _Labels, grid: Geometry) -> _Labels:
    """A mask on the CT's grid without the voxels whose nearest lesion in `places` is removed.

    `places` is on the network's grid, as in `Postprocessed`.
    """
    result = mask.array.copy()
    index = np.argwhere(result)[:, ::-1]
    if not len(index) or not places.any():
        return result
    nearest = ndimage.distance_transform_edt(
        places == 0, sampling=grid.array_spacing_mm, return_distances=False, return_indices=True
    )
    matrix = grid.physical_to_index_matrix() @ mask.geometry.index_to_physical_matrix()
    there = np.rint(index @ matrix[:3, :3].T + matrix[:3, 3]).astype(np.int64)
    x, y, z = np.clip(there, 0, np.asarray(grid.size) - 1).T
    removed = places[tuple(nearest)][z, y, x] == REMOVED
    result[result > 0] = np.where(removed, 0, result[result > 0])
    return result
