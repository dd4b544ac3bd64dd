"""Uncertainty of a case's mask from its passes, written on request outside the sockets.

docs/inference.md has the formulae and their evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.masks.confidence import expected_dsc, lesions_of
from algorithm.masks.segmentation import Segmentation
from algorithm.region.grids import restore_bytes
from algorithm.uncertainty.disagreement import Disagreement
from contract import labels, platform
from contract.errors import OutputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume

FORMAT_VERSION: Final = 1
RECORD: Final = "uncertainty.json"
ENTROPY: Final = "uncertainty.mha"
INFORMATION: Final = "disagreement.mha"
# The maps are uint8 in hundredths of a bit, at most 100 log2(3) = 158.
STEPS_A_BIT: Final = 100
# Per label. No patient has more, but a poorly trained network may find thousands of specks.
MOST_LESIONS: Final = 500


def check_outside_sockets(option: str, path: Path, inputs: Sequence[Path], output: Path) -> None:
    """Raise `OutputError` if the path of a command line's option lies in a folder of the platform's sockets.

    `inputs` and `output` are folders, or files that the path must not name.
    """
    for root in (output, *inputs, platform.OUTPUT_DIR, platform.INPUT_DIR):
        if root.is_file() and path.resolve() == root.resolve():
            raise OutputError(option, f"{path} is a file of the case", "another file")
        if path.resolve().is_relative_to(root.resolve()):
            fault = f"{path} lies within {root}, which may hold the platform's sockets only"
            raise OutputError(option, fault, "a path outside")


def prepare_folder(folder: Path, inputs: Sequence[Path], output: Path) -> None:
    """Create the folder for the uncertainty, outside the sockets, and delete an earlier case's files."""
    check_outside_sockets("--uncertainty", folder, inputs, output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (RECORD, ENTROPY, INFORMATION):
            (folder / name).unlink(missing_ok=True)
    except OSError as problem:
        fault = f"{folder.name} cannot be used ({problem.strerror})"
        raise OutputError("--uncertainty", fault, "a writable folder") from None


def describe(segmentation: Segmentation, disagreement: Disagreement) -> dict[str, Any]:
    """The case as plain data: its passes, each label's expected DSC, and each lesion's confidence.

    All figures are measured on the network's grid. A figure is None without the one or two passes that it needs, and
    so is the expected DSC of a label that the mask does not have. At most the 500 largest lesions of a label are
    listed. `postprocessing`, only with a package that has such rules, lists the lesions that they removed.
    """
    mask = segmentation.mask()
    known = disagreement if segmentation.plan and disagreement.passes else None
    lesions = [lesion for label in labels.FOREGROUND for lesion in _lesions(mask, label, segmentation.grid, known)]
    return {
        "format_version": FORMAT_VERSION,
        "segmented_by": segmentation.how or "PET threshold",
        "passes": {
            "done": 0 if known is None else len(known.passes),
            "planned": segmentation.passes_planned if segmentation.plan else 0,
            "made": [] if known is None else [{"fold": p.fold, "mirrored": list(p.axes)} for p in known.passes],
        },
        "why_not": disagreement.fault or (None if known else "no pass of the network was made"),
        "labels": {labels.NAMES[label]: _label(mask, label, segmentation.grid, known) for label in labels.FOREGROUND},
        "lesions": lesions,
        **({} if segmentation.postprocessed is None else {"postprocessing": segmentation.postprocessed.as_json()}),
    }


def _label(
    mask: npt.NDArray[np.uint8], label: int, grid: Geometry, disagreement: Disagreement | None
) -> dict[str, float | None]:
    voxel_ml, own = grid.voxel_volume_mm3 / 1000, mask == label
    row: dict[str, float | None] = {"volume_ml": float(np.count_nonzero(own)) * voxel_ml}
    if disagreement is None:
        return row | {"expected_volume_ml": None, "expected_dsc": None, "pairwise_dsc": None}
    probability = disagreement.probability(label)
    return row | {
        "expected_volume_ml": float(probability.sum(dtype=np.float64)) * voxel_ml,
        "expected_dsc": expected_dsc(own, probability),
        "pairwise_dsc": disagreement.pairwise_dsc(label),
    }


def _lesions(
    mask: npt.NDArray[np.uint8], label: int, grid: Geometry, disagreement: Disagreement | None
) -> list[dict[str, Any]]:
    probability = None if disagreement is None else disagreement.probability(label).ravel()
    matrix = grid.index_to_physical_matrix()
    rows = []
    for voxels in lesions_of(mask, label)[:MOST_LESIONS]:
        index = np.array([axis.mean() for axis in np.unravel_index(voxels, mask.shape)])[::-1]
        shares = None
        if disagreement is not None and len(disagreement.passes) > 1:
            shares = disagreement.overlaps(label, voxels)
        rows.append(
            {
                "label": labels.NAMES[label],
                "volume_ml": len(voxels) * grid.voxel_volume_mm3 / 1000,
                "centroid_mm": [float(v) for v in matrix[:3, :3] @ index + matrix[:3, 3]],
                "mean_probability": None if probability is None else float(probability[voxels].mean(dtype=np.float64)),
                "found_by": None if shares is None else float((shares > 0).mean()),
                "mean_overlap": None if shares is None else float(shares.mean()),
            }
        )
    return rows


def write_maps(folder: Path, grid: Geometry, ct: Geometry, disagreement: Disagreement) -> None:
    """Write the entropy and, with two passes or more, the mutual information on the CT's grid: uint8 in 0.01 bit."""
    for name, values in ((ENTROPY, disagreement.entropy()), (INFORMATION, disagreement.information())):
        if values is not None:
            write_volume(folder / name, Volume(restore_bytes(values, grid, ct, STEPS_A_BIT), ct))
