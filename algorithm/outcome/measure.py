"""The outcome network's features of one case, from images around the tumour, as far as the time allows."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from algorithm.deadline import Deadline
from algorithm.masks.segmentation import Segmentation
from algorithm.outcome.plan import OutcomeFolds
from algorithm.region.grids import resample
from contract import labels
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

if TYPE_CHECKING:  # torch is imported only if a network runs
    import torch

LOGGER = logging.getLogger("hecktor")

_Float = npt.NDArray[np.float32]
AIR_HU: Final = -1000.0
# Window of soft tissue, and the largest SUV that still tells tumours apart.
_LOWEST_HU: Final = -200.0
_HIGHEST_HU: Final = 300.0
_HIGHEST_SUV: Final = 25.0
_SUV_UNIT: Final = 5.0


def check_outcome(folds: OutcomeFolds) -> None:
    """Build the outcome network and compare it with the headers of its files, before the time becomes short.

    Raises:
        ModelPackageError: a file is not a safetensors file or holds tensors of another network.
    """
    import torch

    from algorithm.outcome.network import OutcomeNetwork, check_shapes

    with torch.device("meta"):
        network = OutcomeNetwork(folds.plan)
    for path in folds.files:
        try:
            with safe_open(str(path), framework="pt") as file:
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as problem:
            raise ModelPackageError(path.name, f"not a safetensors file ({problem})") from None
        check_shapes(network, shapes, path.name)


def outcome_features(
    folds: OutcomeFolds,
    segmentation: Segmentation,
    clinical: Mapping[str, float | None],
    deadline: Deadline,
    device: torch.device,
) -> dict[str, float | None]:
    """Mean of the folds' answers by feature; None for all where no network can answer, with a line in the log.

    It cannot without a PET, without a tumour in the mask and without time. Folds for which the time does not suffice
    are left out of the mean.
    """
    import torch

    absent: dict[str, float | None] = dict.fromkeys(folds.plan.features)
    if segmentation.pet is None:
        LOGGER.info("outcome network: left out, no PET")
        return absent
    if deadline.stopped() or deadline.left_s() <= 0:
        LOGGER.warning("*** WARNING *** outcome network: left out, no time")
        return absent
    try:
        try:
            answers = _answers(folds, segmentation, clinical, deadline, device)
        except (RuntimeError, MemoryError) as problem:
            if device.type == "cpu":
                raise
            LOGGER.warning("*** WARNING *** outcome network: %s failed (%s), going on with the CPU", device, problem)
            device = torch.device("cpu")
            answers = _answers(folds, segmentation, clinical, deadline, device)
    except (RuntimeError, MemoryError, ModelPackageError) as problem:
        LOGGER.warning("*** WARNING *** outcome network: left out (%s)", problem, exc_info=problem)
        return absent
    if not answers:
        LOGGER.info("outcome network: left out, no tumour")
        return absent
    LOGGER.info("outcome network: %d of %d networks on %s", len(answers), len(folds.files), device)
    means = (sum(values) / len(answers) for values in zip(*answers, strict=True))
    return dict(zip(folds.plan.features, means, strict=True))


def _answers(
    folds: OutcomeFolds,
    segmentation: Segmentation,
    clinical: Mapping[str, float | None],
    deadline: Deadline,
    device: torch.device,
) -> list[list[float]]:
    """The answers of each fold that the time allows, empty without a tumour."""
    import torch

    from algorithm.outcome.network import load_outcome_network

    plan, pet = folds.plan, segmentation.pet
    if pet is None:
        return []
    mask = segmentation.mask()
    cube = tumour_cube(mask, segmentation.ct, pet, segmentation.grid, plan.voxels, plan.spacing_mm)
    if cube is None:
        return []
    numbers = [math.nan if (value := clinical.get(name)) is None else value for name in plan.clinical]
    image, values = torch.from_numpy(cube)[None].to(device), torch.tensor([numbers], device=device)
    longest_s, rows = 0.0, list[list[float]]()
    for path in folds.files:
        if deadline.stopped() or (rows and not deadline.fits(longest_s)):
            LOGGER.warning("*** WARNING *** outcome network: no time for %d networks", len(folds.files) - len(rows))
            break
        begun_s = deadline.elapsed_s()
        network = load_outcome_network(plan, path).to(device)
        with torch.inference_mode():
            rows.append([float(value) for value in network.answers(image, values)[0].cpu()])
        longest_s = max(longest_s, deadline.elapsed_s() - begun_s)
    return rows


def tumour_cube(
    mask: npt.NDArray[np.uint8], ct: _Float, pet: _Float, grid: Geometry, voxels: int, spacing_mm: float
) -> _Float | None:
    """CT, PET, GTVp and GTVn, shape (4, voxels, voxels, voxels); None without a tumour.

    The cube is centred on the centroid of GTVp, or of GTVn without GTVp. CT and PET are scaled to about -1 to 1 and
    0 to 5; the masks are shares of each voxel.

    Args:
        mask: labels in (z, y, x) on `grid`.
        ct: HU on `grid`.
        pet: SUV on `grid`.
        grid: the segmentation's grid.
        voxels: edge of the cube.
        spacing_mm: size of its voxels.
    """
    centre = _centre_mm(mask, grid)
    if centre is None:
        return None
    x, y, z = (float(value) for value in centre - (voxels - 1) / 2 * spacing_mm)
    cube = Geometry((voxels, voxels, voxels), (spacing_mm, spacing_mm, spacing_mm), (x, y, z))
    density = np.clip(resample(Volume(ct, grid), cube, AIR_HU), _LOWEST_HU, _HIGHEST_HU)
    middle, half = (_HIGHEST_HU + _LOWEST_HU) / 2, (_HIGHEST_HU - _LOWEST_HU) / 2
    uptake = np.clip(resample(Volume(pet, grid), cube, 0.0), 0.0, _HIGHEST_SUV)
    shares = (resample(Volume((mask == label).astype(np.float32), grid), cube, 0.0) for label in labels.FOREGROUND)
    return np.stack([(density - middle) / half, uptake / _SUV_UNIT, *shares]).astype(np.float32)


def _centre_mm(mask: npt.NDArray[np.uint8], grid: Geometry) -> npt.NDArray[np.float64] | None:
    """Centroid (x, y, z) of the first label that the mask holds."""
    matrix = grid.index_to_physical_matrix()
    for label in labels.FOREGROUND:
        places = np.argwhere(mask == label)
        if len(places):
            return np.asarray(matrix[:3, :3] @ places.mean(0)[::-1] + matrix[:3, 3], dtype=np.float64)
    return None
