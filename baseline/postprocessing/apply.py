"""Apply rules to a patient's out-of-fold mask: mask on the CT's grid, features, and the reason for each lesion."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.heads.documents import Features
from algorithm.masks.postprocessing import LesionMeasures, apply_rules, at_threshold, measure_lesions, removal_reasons
from algorithm.masks.removed import REMOVED
from algorithm.masks.segmentation import Segmentation
from baseline.postprocessing.lesions import lesion_table, read_images, read_logits, read_reference
from baseline.postprocessing.record import FilteredLesion
from baseline.release.cases import ReleaseCase
from baseline.release.record import smallest_lesions_of
from baseline.work import WorkFolders
from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask
from contract.packages import NO_RULES, PostprocessingRules

_Labels = npt.NDArray[np.uint8]
_TRUE_IOU: Final = 0.3


@dataclass(frozen=True)
class FilteredPatient:
    """Features after the rules, None if they changed nothing; and the lesions."""

    features: Features | None
    lesions: list[FilteredLesion]


def filter_patient(
    case: ReleaseCase, work: WorkFolders, rules_of: dict[str, PostprocessingRules]
) -> tuple[str, FilteredPatient]:
    """Write a patient's filtered mask; returns its ID with features and lesions. `rules_of` is by patient ID.

    With the threshold of the argmax, each voxel of the unfiltered mask follows the nearest lesion of the network's
    grid. With another one the mask is interpolated from the stored probabilities.
    """
    from baseline.network.out_of_fold import features_of  # imports torch

    name, rules = case.patient_id, rules_of[case.patient_id]
    (ct, pet), logits = read_images(work, case), read_logits(work, name)
    moved, result = apply_rules(logits, pet, ct.geometry, rules)
    measures = measure_lesions(at_threshold(logits, rules.foreground_threshold), pet, ct.geometry)
    lesions = _lesions(case, measures, read_reference(work, case), rules)
    same_voxels = rules.foreground_threshold == NO_RULES.foreground_threshold
    target = work.mask(name)
    if same_voxels and not result.removed:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work.unfiltered_mask(name), target)
        return name, FilteredPatient(None, lesions)
    unfiltered = read_volume(work.unfiltered_mask(name), np.uint8)
    segmentation = Segmentation(moved, ct.array, pet, ct.geometry)
    mask = follow(unfiltered, result.places, ct.geometry) if same_voxels else segmentation.mask_on(unfiltered.geometry)
    write_mask(target, mask, unfiltered.geometry)
    return name, FilteredPatient(features_of(case, segmentation, smallest_lesions_of(work)), lesions)


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


def _lesions(
    case: ReleaseCase, measures: LesionMeasures, reference: Volume | None, rules: PostprocessingRules
) -> list[FilteredLesion]:
    """Each lesion with its measures, the rule that removes it, and whether it is true.

    A GTVp is true if it meets the reference's, a GTVn with an IoU above 0.3 with one of its nodes.
    """
    table = lesion_table(measures, reference)
    overlaps = np.where(measures.label == labels.GTVP, table.common > 0, (table.node_iou > _TRUE_IOU).any(1))
    return [
        FilteredLesion(
            patient=case.patient_id,
            centre=case.centre,
            label=labels.NAMES[int(measures.label[row])],
            volume_ml=round(float(measures.volume_ml[row]), 3),
            mean_probability=round(float(measures.mean_probability[row]), 3),
            suv_max=None if np.isnan(measures.suv_max[row]) else round(float(measures.suv_max[row]), 2),
            rule=rule,
            true=None if reference is None else bool(overlaps[row]),
        )
        for row, rule in enumerate(removal_reasons(measures, rules))
    ]
