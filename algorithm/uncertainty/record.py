"""How far a case's answer can be trusted, from its passes: beside the answer, on request, and never in a socket.

docs/uncertainty.md has the formulae and what the figures are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.read import Case
from algorithm.heads.features.region import TOUCHING
from algorithm.heads.hpv import hpv_positive, hpv_probability
from algorithm.heads.linear import LinearHead
from algorithm.heads.measure import clinical_features, image_features
from algorithm.masks.segmentation import Segmentation
from algorithm.region.grids import restore_bytes
from algorithm.uncertainty.disagreement import Disagreement
from contract import labels, platform
from contract.editions import load_edition
from contract.errors import OutputError
from contract.files import write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.tasks import HPV, Task

FORMAT_VERSION: Final = 1
RECORD: Final = "uncertainty.json"
ENTROPY: Final = "uncertainty.mha"
INFORMATION: Final = "disagreement.mha"
# The maps are uint8: hundredths of a bit, of which there are at most 100 log2(3) = 158.
STEPS_A_BIT: Final = 100
# Of a label; no patient has more, but a network that was hardly trained may find thousands of specks.
MOST_LESIONS: Final = 500


def prepare_folder(folder: Path, input_dir: Path, output_dir: Path) -> None:
    """Make the folder for the uncertainty, without an earlier case's.

    Raises:
        OutputError: it lies where the platform's sockets are, or cannot be made.
    """
    for root in (output_dir, input_dir, platform.OUTPUT_DIR, platform.INPUT_DIR):
        if folder.resolve().is_relative_to(root.resolve()):
            raise OutputError(
                "--uncertainty",
                f"{folder} lies within {root}, where nothing but the platform's sockets may be",
                "a folder outside",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (RECORD, ENTROPY, INFORMATION):
            (folder / name).unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(
            "--uncertainty", f"{folder.name} cannot be used ({problem.strerror})", "a writable folder"
        ) from None


def describe(segmentation: Segmentation, told: Disagreement) -> dict[str, Any]:
    """The case as plain data: its passes, each label's expected DSC, and each lesion's confidence.

    Everything is measured on the network's grid. What needs a pass is None where none was made, what needs two where
    there is but one; a label that the mask has not has no expected DSC. Of each label's lesions the 500 largest stand.
    """
    mask = segmentation.mask()
    known = told if segmentation.by_network and told.passes else None
    lesions = [lesion for label in labels.FOREGROUND for lesion in _lesions(mask, label, segmentation.grid, known)]
    return {
        "format_version": FORMAT_VERSION,
        "segmented_by": segmentation.how or "PET threshold",
        "passes": {
            "done": 0 if known is None else len(known.passes),
            "planned": segmentation.passes_planned if segmentation.by_network else 0,
            "made": [] if known is None else [{"fold": p.fold, "mirrored": list(p.axes)} for p in known.passes],
        },
        "why_not": told.fault or (None if known else "no pass of the network was made"),
        "labels": {labels.NAMES[label]: _label(mask, label, segmentation.grid, known) for label in labels.FOREGROUND},
        "lesions": lesions,
    }


def expected_dsc(mask: npt.NDArray[np.bool_], probability: npt.NDArray[np.float32]) -> float | None:
    """Twice the expected overlap over the sum of both sizes: 2 sum_A p / (|A| + sum p); None where `mask` is empty.

    With voxels independent at these probabilities it is close to the expected DSC of `mask` against the truth (soft
    Dice confidence, Borges, Pacheco and Silva 2024, arXiv 2402.10665). Both are of one shape.
    """
    size = int(np.count_nonzero(mask))
    if size == 0:
        return None
    inside, everywhere = probability[mask].sum(dtype=np.float64), probability.sum(dtype=np.float64)
    return float(2 * inside / (size + everywhere))


def _label(
    mask: npt.NDArray[np.uint8], label: int, grid: Geometry, told: Disagreement | None
) -> dict[str, float | None]:
    voxel_ml, own = grid.voxel_volume_mm3 / 1000, mask == label
    found: dict[str, float | None] = {"volume_ml": float(np.count_nonzero(own)) * voxel_ml}
    if told is None:
        return found | {"expected_volume_ml": None, "expected_dsc": None, "pairwise_dsc": None}
    probability = told.probability(label)
    return found | {
        "expected_volume_ml": float(probability.sum(dtype=np.float64)) * voxel_ml,
        "expected_dsc": expected_dsc(own, probability),
        "pairwise_dsc": told.pairwise_dsc(label),
    }


def lesions_of(mask: npt.NDArray[np.uint8], label: int) -> list[npt.NDArray[np.intp]]:
    """The places in the flattened mask of each 26-connected lesion of a label, the largest first."""
    numbered, count = ndimage.label(mask == label, structure=TOUCHING)
    if not count:
        return []
    places = np.flatnonzero(numbered)
    number = numbered.ravel()[places]
    order = np.argsort(number, kind="stable")
    return sorted(np.split(places[order], np.flatnonzero(np.diff(number[order])) + 1), key=len, reverse=True)


def _lesions(
    mask: npt.NDArray[np.uint8], label: int, grid: Geometry, told: Disagreement | None
) -> list[dict[str, Any]]:
    probability = None if told is None else told.probability(label).ravel()
    matrix = grid.index_to_physical_matrix()
    rows = []
    for voxels in lesions_of(mask, label)[:MOST_LESIONS]:
        index = np.array([axis.mean() for axis in np.unravel_index(voxels, mask.shape)])[::-1]
        shares = None if told is None else told.overlaps(label, voxels)
        several = shares is not None and len(shares) > 1
        rows.append(
            {
                "label": labels.NAMES[label],
                "volume_ml": len(voxels) * grid.voxel_volume_mm3 / 1000,
                "centroid_mm": [float(v) for v in matrix[:3, :3] @ index + matrix[:3, 3]],
                "mean_probability": None if probability is None else float(probability[voxels].mean(dtype=np.float64)),
                "found_by": float((shares > 0).mean()) if several and shares is not None else None,
                "mean_overlap": float(shares.mean()) if several and shares is not None else None,
            }
        )
    return rows


def answers_over_folds(
    task: Task,
    head: LinearHead,
    case: Case,
    segmentation: Segmentation,
    told: Disagreement,
    go_on: Callable[[], bool],
) -> dict[str, Any]:
    """The head's answer from each fold's own unmirrored mask, and how far they lie apart.

    `low`, `high` and `spread` (standard deviation; None with fewer than two folds) are of the score: the log partial
    hazard, or the logit of HPV positive. Folds are left out, and counted, once `go_on` says no.
    """
    folds: list[dict[str, Any]] = []
    unmirrored = [(number, step.fold) for number, step in enumerate(told.passes) if not step.axes]
    clinical, centre = clinical_features(case.patient, load_edition().clinical), case.patient.centre
    for number, fold in unmirrored:
        if not go_on():
            break
        mask = told.mask(number)
        features = image_features(mask, segmentation.ct, segmentation.pet, segmentation.grid, case.dose) | clinical
        row: dict[str, Any] = {"fold": fold, "score": head.score(features, centre)}
        if task is HPV:
            row["positive"] = hpv_positive(head, features, centre)
            row["probability"] = hpv_probability(head, features, centre)
        folds.append(row)
    scores = [float(row["score"]) for row in folds]
    return {
        "folds": folds,
        "folds_left_out": len(unmirrored) - len(folds),
        "low": min(scores, default=None),
        "high": max(scores, default=None),
        "spread": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
    }


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the record. Raises `OutputError`."""
    write_json(folder / RECORD, record)


def write_maps(folder: Path, grid: Geometry, ct: Geometry, told: Disagreement) -> None:
    """Write the entropy and, with two passes or more, the mutual information on the CT's grid: uint8, 0.01 bit a step.

    Raises `OutputError`.
    """
    for name, values in ((ENTROPY, told.entropy()), (INFORMATION, told.information())):
        if values is not None:
            write_volume(folder / name, Volume(restore_bytes(values, grid, ct, STEPS_A_BIT), ct))
