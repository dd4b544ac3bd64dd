"""Apply rules to a patient's out-of-fold mask: mask on the CT's grid, features, and the verdict on each lesion."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.decisions.apply import active, decide, verdicts_of
from algorithm.decisions.lesions import Candidate, Scans, candidates_of, shifted
from algorithm.decisions.rules import NO_DECISIONS, Decisions
from algorithm.heads.measure import Features
from algorithm.masks.decided import DROPPED, RELABELLED
from algorithm.masks.segmentation import Segmentation
from baseline.decisions.tables import read_logits, read_scans
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import label_path
from baseline.work import WorkFolders
from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask
from evaluation.metrics.lesions import label_components

_Labels = npt.NDArray[np.uint8]
_IOU, _CONNECTIVITY = 0.3, 26


@dataclass(frozen=True)
class DecidedPatient:
    """Features after the decisions, None if they changed nothing; and the lesions as plain data."""

    features: Features | None
    lesions: list[dict[str, Any]]


def decide_patient(case: ReleaseCase, work: WorkFolders, rules: Decisions) -> tuple[str, DecidedPatient]:
    """Write a patient's decided mask; returns its ID with features and lesions.

    With the thresholds of the argmax, each voxel of the undecided mask follows the nearest lesion of the network's
    grid. With others the mask is interpolated from the stored probabilities.
    """
    from baseline.network.out_of_fold import features_of  # imports torch

    name, scans, logits = case.patient_id, read_scans(work, case), read_logits(work, case.patient_id)
    moved, result = decide(logits, scans, rules)
    lesions = _lesions(case, work, shifted(logits, rules.thresholds), scans, rules)
    same_voxels = rules.thresholds == NO_DECISIONS.thresholds
    target = work.mask(name)
    if same_voxels and not result.dropped and not result.relabelled:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work.undecided_mask(name), target)
        return name, DecidedPatient(None, lesions)
    undecided = read_volume(work.undecided_mask(name), np.uint8)
    segmentation = Segmentation(moved, scans.ct, scans.pet, scans.grid)
    mask = follow(undecided, result.places, scans.grid) if same_voxels else segmentation.mask_on(undecided.geometry)
    write_mask(target, mask, undecided.geometry)
    return name, DecidedPatient(features_of(case, segmentation), lesions)


def follow(mask: Volume, places: _Labels, grid: Geometry) -> _Labels:
    """A mask on the CT's grid in which each voxel has the fate of the nearest lesion in `places`.

    `places` is on the network's grid, as in `DecidedLesions`.
    """
    result = mask.array.copy()
    index = np.argwhere(result)[:, ::-1]
    if not len(index) or not places.any():
        return result
    nearest = ndimage.distance_transform_edt(
        places == 0, sampling=grid.array_spacing_mm, return_distances=False, return_indices=True
    )
    fates = places[tuple(nearest)]
    matrix = grid.physical_to_index_matrix() @ mask.geometry.index_to_physical_matrix()
    there = np.rint(index @ matrix[:3, :3].T + matrix[:3, 3]).astype(np.int64)
    x, y, z = np.clip(there, 0, np.asarray(grid.size) - 1).T
    fate = fates[z, y, x]
    own = result[result > 0]
    result[result > 0] = np.where(fate == DROPPED, 0, np.where(fate > RELABELLED, fate % RELABELLED, own))
    return result


def _lesions(
    case: ReleaseCase, work: WorkFolders, logits: npt.NDArray[np.float32], scans: Scans, rules: Decisions
) -> list[dict[str, Any]]:
    """Each lesion with its measures, the rule that drops it, and whether it is true."""
    lesions = active(candidates_of(logits, scans, rules.gtvp_threshold), rules)
    reference = None if case.mask is None else read_volume(label_path(work.raw, case), np.uint8).array
    nodes = None if reference is None else label_components(reference == labels.GTVN, _CONNECTIVITY)[0]
    return [
        {
            "patient": case.patient_id,
            "centre": case.centre,
            "label": labels.NAMES[one.label],
            "volume_ml": round(one.volume_ml, 3),
            "mean_probability": round(one.mean_probability, 3),
            "max_probability": round(one.max_probability, 3),
            "suv_max": None if one.suv_max is None else round(one.suv_max, 2),
            "distance_mm": None if one.distance_mm is None else round(one.distance_mm, 1),
            "rule": verdict.rule,
            "true": None if reference is None or nodes is None else _is_true(one, reference, nodes),
        }
        for one, verdict in zip(lesions, verdicts_of(lesions, rules), strict=True)
    ]


def _is_true(one: Candidate, reference: _Labels, nodes: npt.NDArray[np.int32]) -> bool:
    """A GTVp that meets the reference's, or a GTVn with an IoU above 0.3 with one of its nodes."""
    inside = one.structure.inside
    if one.label == labels.GTVP:
        return bool((one.structure.cut(reference)[inside] == labels.GTVP).any())
    common = np.bincount(one.structure.cut(nodes)[inside])[1:]
    sizes = np.bincount(nodes.ravel(), minlength=len(common) + 1)[1 : len(common) + 1]
    return bool((common / np.maximum(sizes + np.count_nonzero(inside) - common, 1) > _IOU).any())
