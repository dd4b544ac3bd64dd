"""Lesions of the out-of-fold masks, measured once so that their removal needs no images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.masks.postprocessing import LesionMeasures, measure_lesions, pet_in_suv, removal_reasons
from baseline.release.cases import ReleaseCase, label_path
from baseline.release.data_set import prepared_ct_and_pet
from baseline.work import WorkFolders
from contract import labels
from contract.errors import InputError
from contract.images.volumes import Volume, read_volume
from contract.packages import PostprocessingRules
from evaluation.metrics.lesions import label_components, match_one_to_one
from evaluation.metrics.rules import MaskRules

_Labels = npt.NDArray[np.uint8]
_Float = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.intp]

# Columns of `PatientLesions.counts`.
COUNTS: Final = ("gtvp_common", "gtvp_predicted", "gtvn_common", "gtvn_predicted", "nodes", "true_nodes")
# Probabilities are stored in steps of 1 / 255; half a step stands for 0.
_STEPS: Final = 255.0
_CONNECTIVITY: Final = 26


@dataclass(frozen=True)
class LesionTable:
    """Measures of each lesion, and its overlap with the reference.

    Attributes:
        measures: without the voxels.
        common: voxels in the same label of the reference, (lesions,).
        node_iou: IoU with each reference node; 0 for a GTVp, (lesions, nodes).
    """

    measures: LesionMeasures
    common: _Integers
    node_iou: Floats


@dataclass(frozen=True)
class PatientLesions:
    """The lesions of one patient, and the size of its reference: voxels, nodes, mm3 of a voxel."""

    patient_id: str
    centre: str
    voxel_mm3: float
    gtvp_voxels: int
    gtvn_voxels: int
    nodes: int
    table: LesionTable

    def counts(self, rules: PostprocessingRules, mask_rules: MaskRules) -> tuple[float, ...]:
        """`COUNTS` of the mask after the rules; nodes are matched as in the evaluation."""
        table, measures = self.table, self.table.measures
        kept = np.array([not reason for reason in removal_reasons(measures, rules)], dtype=np.bool_)
        primary, node = (kept & (measures.label == label) for label in labels.FOREGROUND)
        iou = table.node_iou[node]
        limit = mask_rules.iou_threshold
        lesion, reference = np.nonzero(iou > limit if mask_rules.iou_strict else iou >= max(limit, 1e-9))
        unique = max(len(lesion) - len(set(lesion)), len(reference) - len(set(reference))) == 0
        true = len(lesion) if unique else len(match_one_to_one(reference, lesion, iou[lesion, reference]))
        voxels = ((table.common[one].sum(), measures.voxels[one].sum()) for one in (primary, node))
        return *(float(count) for pair in voxels for count in pair), float(np.count_nonzero(node)), float(true)


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
    ct, pet = prepared_ct_and_pet(work.raw, case)
    return ct, pet_in_suv(pet)


def lesion_table(measures: LesionMeasures, reference: _Labels) -> LesionTable:
    """The lesions with their overlap with the reference, (z, y, x)."""
    nodes, count = label_components(reference == labels.GTVN, _CONNECTIVITY)
    inside = measures.numbers > 0
    lesion = measures.numbers[inside] - 1
    label = measures.label[lesion]
    size = len(measures.label)
    common = np.bincount(lesion[reference[inside] == label], minlength=size)
    pairs = np.zeros((size, count + 1), dtype=np.intp)
    np.add.at(pairs, (lesion, nodes[inside]), label == labels.GTVN)
    node_voxels = np.bincount(nodes.ravel(), minlength=count + 1)[1:]
    iou = pairs[:, 1:] / np.maximum(measures.voxels[:, None] + node_voxels - pairs[:, 1:], 1)
    return LesionTable(replace(measures, numbers=measures.numbers[:0]), common, iou)


def measure_patient(case: ReleaseCase, work: WorkFolders) -> PatientLesions:
    """Measure the lesions of one patient with a reference."""
    logits, (ct, pet) = read_logits(work, case.patient_id), read_images(work, case)
    reference = read_volume(label_path(work.raw, case), np.uint8).array
    table = lesion_table(measure_lesions(logits, pet, ct.geometry), reference)
    gtvp, gtvn = (int(np.count_nonzero(reference == label)) for label in labels.FOREGROUND)
    nodes = table.node_iou.shape[1]
    return PatientLesions(case.patient_id, case.centre, ct.geometry.voxel_volume_mm3, gtvp, gtvn, nodes, table)
