"""Deep features: what the encoder of the network sees at the lesions, one number for each channel of its last stage.

The network looks at tiles of its patch size around the lesions. Each cell of the last stage counts by how much of it is
lesion, so that a channel's value is its mean over all lesion voxels of GTVp and GTVn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from torch import nn
from torch.nn import functional

from algorithm.budget import Budget
from algorithm.case.read import Case
from algorithm.heads.features.deep import named
from algorithm.heads.features.region import TOUCHING, Feature
from algorithm.masks.segmentation import Segmentation
from algorithm.network.devices import is_device_failure, release, synchronise
from algorithm.network.enhance import Enhanced
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage
from algorithm.network.segment import normalise, scan_channels
from algorithm.network.windows import Box, pad_to

LOGGER = logging.getLogger("hecktor")
# The channels of different folds have nothing to do with each other: one fold's network measures everyone.
FOLD: Final = 0
# What lies beyond so many tiles, laid around the largest lesions first, does not count.
MOST_TILES: Final = 4

_Flags = npt.NDArray[np.bool_]
TileDone = Callable[[int, int], None]


class _TooSlowError(Exception):
    """The tiles would not end in time."""


def deep_features(
    case: Case, found: Segmentation, networks: Networks, budget: Budget, device: torch.device
) -> dict[str, Feature]:
    """Deep features by the network of fold 0, by name; none where there is no lesion, and where the log says why.

    Args:
        case: where the package takes an image's own scale from the whole scan, that is this case's.
        found: the lesions, with CT and PET on the network's grid.
        networks: where fold 0's network comes from.
        budget: the time left; too little of it is no error.
        device: where the network runs; that it fails is no error.
    """
    if not budget.fits(0.0):
        return _left_out("no time left")
    package, begun_s = networks.package, budget.clock()

    def tile_done(number: int, count: int) -> None:
        if not budget.fits((count - number) * (budget.clock() - begun_s) / number):
            raise _TooSlowError(f"{budget.left_s():.1f} s left after tile {number} of {count}")

    try:
        pet = np.zeros_like(found.ct) if found.pet is None else found.pet
        data = normalise((found.ct, pet), package, scan_channels(case, package))
        pooled = pooled_features(data, found.mask() > 0, networks.of(FOLD, device), patch_of(package), tile_done)
    except _TooSlowError as problem:
        return _left_out(str(problem))
    except (RuntimeError, MemoryError) as problem:
        if not is_device_failure(problem):
            raise
        networks.forget()
        release(device)
        return _left_out(f"{device} failed ({(str(problem) or type(problem).__name__).splitlines()[0]})")
    return {} if pooled is None else named(pooled)


def _left_out(reason: str) -> dict[str, Feature]:
    LOGGER.warning("*** WARNING *** no encoder features: %s", reason)
    return {}


def patch_of(package: ModelPackage) -> tuple[int, int, int]:
    """The size (z, y, x) of the patches that the network of fold 0 was trained on."""
    return package.patch_of(FOLD)


@torch.inference_mode()
def pooled_features(
    data: npt.NDArray[np.float32],
    lesion: _Flags,
    network: nn.Module,
    patch: tuple[int, int, int],
    tile_done: TileDone = lambda _number, _count: None,
) -> npt.NDArray[np.float64] | None:
    """The mean of each channel of the last encoder stage over the lesion voxels, shape (channels,).

    Args:
        data: normalised channels (channel, z, y, x).
        lesion: GTVp and GTVn together, (z, y, x) of the same grid.
        network: in evaluation mode; it runs where its weights are, in full precision.
        patch: the tiles' size (z, y, x).
        tile_done: called after each tile with its number from 1 and the number of tiles; what it raises ends the work.

    Returns:
        None without a lesion, and where the network answers NaN or infinity.
    """
    wide = pad_to(torch.from_numpy(data), patch)
    inside = pad_to(torch.from_numpy(lesion)[None].to(torch.uint8), patch)[0].numpy() > 0
    device = next(network.parameters()).device
    tiles = lesion_tiles(inside, patch)
    total, voxels = np.zeros(0), 0
    for number, (box, part) in enumerate(tiles, start=1):
        maps = deepest_maps(network, wide[(slice(None), *box)][None].to(device))[0].double().cpu()
        synchronise(device)
        count = int(np.count_nonzero(part))
        share = _averaged(torch.from_numpy(part)[None].double(), maps.shape[1:])
        total = (total if voxels else 0.0) + count * np.asarray((maps * share).sum((1, 2, 3)) / share.sum())
        voxels += count
        tile_done(number, len(tiles))
    return np.asarray(total / voxels) if voxels and np.isfinite(total).all() else None


def deepest_maps(network: nn.Module, tile: torch.Tensor) -> torch.Tensor:
    """The last encoder stage of a U-Net of nnU-Net's or of a SegResNet, (batch, channel, z, y, x).

    Args:
        network: as `algorithm.network.networks` builds it.
        tile: normalised channels (batch, channel, z, y, x).
    """
    if isinstance(network, Enhanced):
        return deepest_maps(network.network, network.seen(tile))
    inner: Any = network
    maps: torch.Tensor = inner.encoder(tile)[-1] if hasattr(inner, "encoder") else inner.encode(tile)[0]
    return maps


def _averaged(image: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Means over the cells of a coarser grid."""
    z, y, x = shape
    return functional.adaptive_avg_pool3d(image, (z, y, x))


def lesion_tiles(lesion: _Flags, patch: tuple[int, int, int]) -> list[tuple[Box, _Flags]]:
    """Boxes of the patch's size, at most four, each with the lesion voxels that count in it, (z, y, x) of the box.

    Each box lies around the middle of the largest lesion (26-connected) that is left, moved inwards at the grid's
    edges, and takes every lesion voxel that it holds: none counts twice.

    Args:
        lesion: (z, y, x), along each axis at least as large as the patch.
        patch: (z, y, x).
    """
    left = lesion.copy()
    tiles: list[tuple[Box, _Flags]] = []
    while left.any() and len(tiles) < MOST_TILES:
        parts, _ = ndimage.label(left, structure=TOUCHING)
        voxels = np.argwhere(parts == np.bincount(parts.ravel())[1:].argmax() + 1)
        # A voxel of the lesion itself: the middle of a ring would be none.
        middle = voxels[((voxels - voxels.mean(0)) ** 2).sum(1).argmin()]
        start = [
            int(np.clip(at - size // 2, 0, whole - size))
            for at, size, whole in zip(middle, patch, lesion.shape, strict=True)
        ]
        z, y, x = (slice(first, first + size) for first, size in zip(start, patch, strict=True))
        tiles.append(((z, y, x), left[z, y, x].copy()))
        left[z, y, x] = False
    return tiles
