"""One pass: a network slid over a window of the grid in overlapping tiles, summed as nnU-Net does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from nnunetv2.inference.sliding_window_prediction import compute_gaussian, compute_steps_for_sliding_window
from torch import nn
from torch.nn import functional

from algorithm.network.devices import Backend, cpu_has_bfloat16, synchronise

TILE_STEP: Final = 0.5
Box = tuple[slice, slice, slice]


class NotANumberError(Exception):
    """The network returns NaN or infinity, even in full precision."""


@dataclass(frozen=True)
class Pass:
    """One fold's network over the grid, mirrored along `axes` of (z, y, x)."""

    fold: int
    axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class PassPlan:
    """Tiles of a pass in `box` of the grid (z, y, x), at most `step` of a patch apart."""

    box: Box
    step: float
    patch: tuple[int, int, int]
    name: str

    @property
    def tiles(self) -> list[Box]:
        """The tiles of the box after padding it to the patch, first to last."""
        padded = tuple(max(s.stop - s.start, n) for s, n in zip(self.box, self.patch, strict=True))
        steps = compute_steps_for_sliding_window(padded, self.patch, self.step)
        steps = [sorted(set(axis)) for axis in steps]  # a patch of one voxel would repeat positions
        return [
            (slice(z, z + self.patch[0]), slice(y, y + self.patch[1]), slice(x, x + self.patch[2]))
            for z, y, x in itertools.product(*steps)
        ]


TileDone = Callable[[int, int], None]


@torch.inference_mode()
def slide(
    data: torch.Tensor,
    axes: tuple[int, ...],
    network: nn.Module,
    plan: PassPlan,
    backend: Backend,
    tile_done: TileDone,
) -> torch.Tensor:
    """Logits (label, z, y, x) of one pass over the plan's box, mirrored along `axes`, float32, on the CPU.

    `data` are the normalised channels (channel, z, y, x) of the whole grid, on `backend.sums`; `network` is on
    `backend.device`. `tile_done` is called after each tile with its number from 1 and the number of tiles; an exception
    ends the pass. Raises `NotANumberError` where a tile's logits are not finite.
    """
    inner = data[(slice(None), *plan.box)]
    padded = _padded(inner, plan.patch)
    weight = compute_gaussian(
        plan.patch, sigma_scale=1 / 8, value_scaling_factor=10, dtype=torch.float32, device=backend.sums
    )
    tiles = plan.tiles
    norm = torch.zeros(padded.shape[1:], device=backend.sums)
    total = torch.zeros(())
    for number, tile in enumerate(tiles, start=1):
        part = padded[(slice(None), *tile)][None].to(backend.device)
        logits = _tile_logits(network, part, axes)
        if number == 1:
            total = torch.zeros((logits.shape[0], *padded.shape[1:]), device=backend.sums)
        total[(slice(None), *tile)] += logits.to(backend.sums) * weight
        norm[tile] += weight
        synchronise(backend.device)
        tile_done(number, len(tiles))
    total /= norm
    margins = [(have - want) // 2 for have, want in zip(padded.shape[1:], inner.shape[1:], strict=True)]
    middle = (slice(start, start + size) for start, size in zip(margins, inner.shape[1:], strict=True))
    return total[(slice(None), *middle)].cpu().contiguous()


def _tile_logits(network: nn.Module, part: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    spatial = [axis + 2 for axis in axes]
    given = part.flip(spatial) if spatial else part
    logits = _forward(network, given, half=True)
    if not bool(torch.isfinite(logits).all()):
        logits = _forward(network, given, half=False)
        if not bool(torch.isfinite(logits).all()):
            raise NotANumberError("the network returns NaN or infinity")
    return (logits.flip(spatial) if spatial else logits)[0]


def _forward(network: nn.Module, part: torch.Tensor, *, half: bool) -> torch.Tensor:
    kind = part.device.type
    dtype = torch.float16 if kind == "cuda" else torch.bfloat16
    with torch.autocast(kind, dtype, enabled=half and (kind == "cuda" or cpu_has_bfloat16())):
        logits: torch.Tensor = network(part)
    return logits.float()


def _padded(data: torch.Tensor, patch: tuple[int, ...]) -> torch.Tensor:
    """Zero-pad each axis to the patch, half on either side as nnU-Net does."""
    pads: list[int] = []
    for have, want in zip(reversed(data.shape[1:]), reversed(patch), strict=True):
        missing = max(want - have, 0)
        pads += [missing // 2, missing - missing // 2]
    return functional.pad(data, pads) if any(pads) else data


def whole(shape: tuple[int, ...]) -> Box:
    """The box of a whole grid of (z, y, x) voxels."""
    z, y, x = shape
    return (slice(0, z), slice(0, y), slice(0, x))


def sum_bytes(shape: tuple[int, ...], channels: int, classes: int) -> int:
    """Bytes of images, logits and weights of one pass over a grid of (z, y, x) voxels, in float32."""
    return 4 * (channels + classes + 1) * math.prod(shape)
