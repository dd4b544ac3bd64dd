"""The lesions of each patient at each pair of thresholds, measured once, so that rules are scored without images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.decisions.lesions import Candidate, Scans, candidates_of, shifted
from algorithm.heads.features.neighbours import neighbours
from algorithm.heads.features.shape import diameter_mm, mesh
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import CHANNELS, image_path, label_path
from baseline.work import WorkFolders
from contract import labels
from contract.errors import InputError
from contract.images.volumes import Volume, read_volume
from evaluation.metrics.lesions import label_components

_Float = npt.NDArray[np.float32]
_Labels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Thresholds = tuple[float, float]

# Thresholds of the foreground and of GTVp against GTVn. Each pair has components of its own.
FOREGROUND_THRESHOLDS: Final = (0.3, 0.4, 0.5, 0.6, 0.7)
GTVP_THRESHOLDS: Final = (0.35, 0.5, 0.65)
ALL_THRESHOLDS: Final[tuple[Thresholds, ...]] = (
    *((value, 0.5) for value in FOREGROUND_THRESHOLDS),
    *((0.5, value) for value in GTVP_THRESHOLDS if value != 0.5),
)
# Probabilities are stored in steps of 1 / 255; half a step stands for 0.
_STEPS: Final = 255.0
CONNECTIVITY: Final = 26
# Columns of a lesion table. The last ones are for the staging rules.
_COLUMNS: Final = ("label", "merged", "other_share", "volume_ml", "mean_probability", "max_probability", "suv_max")
_COLUMNS_TOO: Final = ("suv_peak", "distance_mm", "offset_mm", "contralateral")
COLUMNS: Final = (*_COLUMNS, *_COLUMNS_TOO, "voxels", "in_gtvp", "in_gtvn", "diameter_mm", "bone_contact")


@dataclass(frozen=True)
class LesionTable:
    """Candidates of one patient: values of `COLUMNS`, NaN where unknown, (lesions, columns).

    `overlaps` lists (lesion, reference node, common voxels) for each GTVn candidate that meets a reference node;
    `centres_mm` is (lesions, 3).
    """

    values: Floats
    overlaps: Integers
    centres_mm: Floats


@dataclass(frozen=True)
class PatientTables:
    """The tables of one patient by thresholds, with its reference: voxels of both labels, and of each node."""

    patient_id: str
    centre: str
    voxel_mm3: float
    gtvp_voxels: int
    gtvn_voxels: int
    node_voxels: Integers
    tables: dict[Thresholds, LesionTable]


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
        raise InputError(
            path.name, f"unreadable ({problem})", "probabilities, as `hecktor train heads` writes"
        ) from None
    background = _STEPS - np.minimum(gtvp.astype(np.float32) + gtvn, _STEPS)
    whole = np.stack([background, gtvp.astype(np.float32), gtvn.astype(np.float32)])
    return np.asarray(np.log(np.maximum(whole, np.float32(0.5)) / np.float32(_STEPS)))


def read_scans(work: WorkFolders, case: ReleaseCase) -> Scans:
    """The patient's prepared images; an empty PET counts as absent."""
    ct, pet = (read_volume(image_path(work.raw, case, number), "float32") for number in range(len(CHANNELS)))
    return Scans.of(ct.array, pet.array if pet.array.any() else None, ct.geometry)


def tables_of(case: ReleaseCase, work: WorkFolders, with_stages: bool) -> PatientTables:
    """Measure the lesions of one patient with a reference at `ALL_THRESHOLDS`; diameters only for stages."""
    scans, logits = read_scans(work, case), read_logits(work, case.patient_id)
    reference = read_volume(label_path(work.raw, case), np.uint8)
    nodes, count = label_components(reference.array == labels.GTVN, CONNECTIVITY)
    tables = {
        thresholds: _table(shifted(logits, thresholds), thresholds[1], scans, reference, nodes, with_stages)
        for thresholds in ALL_THRESHOLDS
    }
    return PatientTables(
        case.patient_id,
        case.centre,
        scans.grid.voxel_volume_mm3,
        int(np.count_nonzero(reference.array == labels.GTVP)),
        int(np.count_nonzero(reference.array == labels.GTVN)),
        np.bincount(nodes.ravel(), minlength=count + 1)[1:],
        tables,
    )


def _table(
    logits: _Float,
    gtvp_threshold: float,
    scans: Scans,
    reference: Volume,
    nodes: npt.NDArray[np.int32],
    with_stages: bool,
) -> LesionTable:
    candidates = candidates_of(logits, scans, gtvp_threshold)
    rows = [_row(one, reference.array, scans.ct, with_stages) for one in candidates]
    overlaps = [(number, *pair) for number, one in enumerate(candidates) for pair in _overlaps(one, nodes)]
    return LesionTable(
        np.array(rows, dtype=np.float64).reshape(-1, len(COLUMNS)),
        np.array(overlaps, dtype=np.intp).reshape(-1, 3),
        np.array([one.structure.centre_mm for one in candidates], dtype=np.float64).reshape(-1, 3),
    )


def _row(one: Candidate, reference: _Labels, ct: _Float, with_stages: bool) -> list[float | None]:
    inside = one.structure.cut(reference)[one.structure.inside]
    diameter = diameter_mm(mesh(one.structure)[0]) if with_stages else None
    bone = neighbours(one.structure, ct)["bone_contact"] if with_stages and one.label == labels.GTVP else None
    counted = inside.size, np.count_nonzero(inside == labels.GTVP), np.count_nonzero(inside == labels.GTVN)
    return [*(getattr(one, name) for name in (*_COLUMNS, *_COLUMNS_TOO)), *counted, diameter, bone]


def _overlaps(one: Candidate, nodes: npt.NDArray[np.int32]) -> Sequence[tuple[int, int]]:
    """Number from 0 and common voxels of each reference node that a GTVn candidate meets."""
    if one.label != labels.GTVN:
        return []
    common = np.bincount(one.structure.cut(nodes)[one.structure.inside])
    return [(int(number) - 1, int(common[number])) for number in np.flatnonzero(common) if number]
