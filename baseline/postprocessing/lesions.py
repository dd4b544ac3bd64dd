"""Lesions of the out-of-fold masks, measured once at each foreground threshold so that rules need no images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.features.location import NODE_MM, bilateral, contralateral, neighbours, offset_mm
from algorithm.heads.features.shape import diameter_mm, mesh
from algorithm.heads.features.structure import structure_of
from algorithm.heads.staging import staged
from algorithm.masks.postprocessing import LesionMeasures, at_threshold, measure_lesions, pet_in_suv, removal_reasons
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import CHANNELS, image_path, label_path
from baseline.work import WorkFolders
from contract import labels
from contract.errors import InputError
from contract.images.volumes import Volume, read_volume
from contract.packages import PostprocessingRules, SmallestLesions
from evaluation.metrics.lesions import label_components, match_one_to_one
from evaluation.metrics.rules import MaskRules

STAGING_RULES: Final = ("t_stage_7th", "n_stage_7th")
_Flags = npt.NDArray[np.bool_]
_Float = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.intp]

# Each threshold has components of its own.
THRESHOLDS: Final = (0.3, 0.4, 0.5, 0.6, 0.7)
# Columns of `PatientLesions.counts`.
COUNTS: Final = (
    "gtvp_common", "gtvp_predicted", "gtvn_common", "gtvn_predicted", "nodes", "true_nodes", *STAGING_RULES
)  # fmt: skip
# Probabilities are stored in steps of 1 / 255; half a step stands for 0.
_STEPS: Final = 255.0
_CONNECTIVITY: Final = 26


@dataclass(frozen=True)
class LesionStaging:
    """Values of each lesion that the rules use: volume, diameter, offset from the midline, bone contact, centre."""

    volume_ml: npt.NDArray[np.float64]
    diameter_mm: npt.NDArray[np.float64]
    offset_mm: list[float | None]
    bone_contact: list[float | None]
    centre_mm: npt.NDArray[np.float64]
    smallest: SmallestLesions

    def stages(self, primary: _Flags, nodes: _Flags) -> tuple[float, ...]:
        """Numbers in T and N for the kept lesions without specks; NaN for T without a primary.

        The primary's bone contact and side are those of its largest lesion.
        """
        of_primary, of_nodes = (
            np.flatnonzero(kept & (self.volume_ml >= self.smallest.of(label)))
            for kept, label in zip((primary, nodes), labels.FOREGROUND, strict=True)
        )
        largest = max(of_primary, key=lambda row: float(self.volume_ml[row]), default=None)
        sized = [row for row in of_nodes if self.diameter_mm[row] >= NODE_MM]
        offsets = [self.offset_mm[row] for row in (sized or of_nodes)]
        features: dict[str, Any] = {
            "gtvp_diameter_mm": None if largest is None else self._extent_mm(of_primary),
            "gtvp_bone_contact": None if largest is None else self.bone_contact[largest],
            "gtvn_count": float(len(of_nodes)),
            "gtvn_count_5mm": float(len(sized)),
            "gtvn_largest_diameter_mm": float(self.diameter_mm[of_nodes].max(initial=0.0)),
            "gtvn_bilateral": bilateral(offsets),
            "gtvn_contralateral": contralateral(None if largest is None else self.offset_mm[largest], offsets),
        }
        stages = (staged(rule, features) for rule in STAGING_RULES)
        return tuple(np.nan if stage is None else float(stage[1:]) for stage in stages)

    def _extent_mm(self, rows: npt.NDArray[np.intp]) -> float:
        """The largest diameter; of several lesions that of two centres plus both radii."""
        diameters, centres = self.diameter_mm[rows], self.centre_mm[rows]
        apart = np.linalg.norm(centres[:, None] - centres, axis=2) + (diameters[:, None] + diameters) / 2
        return float(apart.max())


def measure_staging(measures: LesionMeasures, ct: Volume, smallest: SmallestLesions) -> LesionStaging:
    """Measure each lesion on the network's grid."""
    structures = [structure_of(measures.numbers == row + 1, ct.geometry) for row in range(len(measures.label))]
    known = [one for one in structures if one is not None]
    primary = measures.label == labels.GTVP
    contact = [
        neighbours(one, ct.array)["bone_contact"] if of_primary else None
        for one, of_primary in zip(known, primary, strict=True)
    ]
    return LesionStaging(
        measures.volume_ml,
        np.array([diameter_mm(mesh(one)[0]) for one in known], dtype=np.float64),
        [offset_mm(one, ct.array, ct.geometry) for one in known],
        contact,
        np.array([one.centre_mm for one in known], dtype=np.float64).reshape(-1, 3),
        smallest,
    )


@dataclass(frozen=True)
class LesionTable:
    """Measures of each lesion, and its overlap with the reference.

    Attributes:
        measures: without the voxels.
        common: voxels in the same label of the reference, (lesions,).
        node_common: voxels in each reference node, (lesions, nodes).
        node_iou: IoU with each reference node; 0 for a GTVp, (lesions, nodes).
        staging: None if the edition has no stages.
    """

    measures: LesionMeasures
    common: _Integers
    node_common: _Integers
    node_iou: Floats
    staging: LesionStaging | None = None


@dataclass(frozen=True)
class PatientLesions:
    """Tables of one patient by foreground threshold, and the size of its reference: voxels, nodes, mm3 of a voxel."""

    patient_id: str
    centre: str
    voxel_mm3: float
    gtvp_voxels: int
    gtvn_voxels: int
    nodes: int
    tables: Mapping[float, LesionTable]

    def counts(self, rules: PostprocessingRules, mask_rules: MaskRules) -> tuple[float, ...]:
        """`COUNTS` of the mask after the rules, NaN for unknown stages; nodes are matched as in the evaluation."""
        table = self.tables[rules.foreground_threshold]
        measures = table.measures
        kept = np.array([not reason for reason in removal_reasons(measures, rules)], dtype=np.bool_)
        primary, node = (kept & (measures.label == label) for label in labels.FOREGROUND)
        iou = table.node_iou[node]
        limit = mask_rules.iou_threshold
        lesion, reference = np.nonzero(iou > limit if mask_rules.iou_strict else iou >= max(limit, 1e-9))
        unique = max(len(lesion) - len(set(lesion)), len(reference) - len(set(reference))) == 0
        true = len(lesion) if unique else len(match_one_to_one(reference, lesion, iou[lesion, reference]))
        voxels = ((table.common[one].sum(), measures.voxels[one].sum()) for one in (primary, node))
        counts = *(float(count) for pair in voxels for count in pair), float(np.count_nonzero(node)), float(true)
        return (*counts, *((np.nan, np.nan) if table.staging is None else table.staging.stages(primary, node)))


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
    ct, pet = (read_volume(image_path(work.raw, case, number), "float32") for number in range(len(CHANNELS)))
    return ct, pet_in_suv(pet.array if pet.array.any() else None)


def read_reference(work: WorkFolders, case: ReleaseCase) -> Volume | None:
    """The reference on the network's grid, None for a patient without one."""
    return None if case.mask is None else read_volume(label_path(work.raw, case), np.uint8)


def lesion_table(measures: LesionMeasures, reference: Volume | None) -> LesionTable:
    """The lesions with their overlap with the reference, none without one."""
    truth = np.zeros_like(measures.numbers) if reference is None else reference.array
    nodes, count = label_components(truth == labels.GTVN, _CONNECTIVITY)
    inside = measures.numbers > 0
    lesion = measures.numbers[inside] - 1
    label = measures.label[lesion]
    size = len(measures.label)
    common = np.bincount(lesion[truth[inside] == label], minlength=size)
    pairs = np.zeros((size, count + 1), dtype=np.intp)
    np.add.at(pairs, (lesion, nodes[inside]), label == labels.GTVN)
    node_voxels = np.bincount(nodes.ravel(), minlength=count + 1)[1:]
    node_common = pairs[:, 1:]
    iou = node_common / np.maximum(measures.voxels[:, None] + node_voxels - node_common, 1)
    return LesionTable(replace(measures, numbers=measures.numbers[:0]), common, node_common, iou)


def measure_patient(case: ReleaseCase, work: WorkFolders, limits: SmallestLesions | None) -> PatientLesions:
    """Measure the lesions of one patient with a reference at each of `THRESHOLDS`.

    `limits` are those of lesions that count in a stage, None for an edition without stages.
    """
    logits, (ct, pet), reference = (
        read_logits(work, case.patient_id),
        read_images(work, case),
        read_reference(work, case),
    )
    if reference is None:
        raise ValueError(f"{case.patient_id}: reference expected")
    tables = {}
    for threshold in THRESHOLDS:
        measures = measure_lesions(at_threshold(logits, threshold), pet, ct.geometry)
        staging = None if limits is None else measure_staging(measures, ct, limits)
        tables[threshold] = replace(lesion_table(measures, reference), staging=staging)
    gtvp, gtvn = (int(np.count_nonzero(reference.array == label)) for label in labels.FOREGROUND)
    nodes = tables[0.5].node_iou.shape[1]
    return PatientLesions(case.patient_id, case.centre, ct.geometry.voxel_volume_mm3, gtvp, gtvn, nodes, tables)
