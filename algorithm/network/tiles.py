"""The passes of a case over its region, and their sum.

In a pass a network slides over the region in overlapping tiles, which are summed as in nnU-Net. The sum of the passes
is on the device that makes them, with copies in RAM.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from algorithm.deadline import Deadline
from algorithm.masks.segmentation import log_probabilities
from algorithm.network.nnunet import compute_gaussian, compute_steps_for_sliding_window
from algorithm.network.package import ModelPackage

# Tiles overlap by half a patch.
TILE_STEP: Final = 0.5
# Larger sums stay in RAM, so that the GPU always has memory for the network.
MAX_SUM_ON_GPU_BYTES: Final = 4 * 2**30

Box = tuple[slice, slice, slice]
_Float = npt.NDArray[np.float32]


class NotANumberError(Exception):
    """The network returns NaN or infinity, even in full precision."""


class TooSlowError(Exception):
    """The pass would not end in time; `tile_s` is the cost of a tile."""

    def __init__(self, tile_s: float) -> None:
        super().__init__(f"{tile_s:.2f} s a tile")
        self.tile_s = tile_s


@dataclass(frozen=True)
class Backend:
    """The devices of a pass: the network runs on `device`, in half precision if `half`, and the sums are on `sums`."""

    device: torch.device
    sums: torch.device
    half: bool = True

    def __str__(self) -> str:
        """Return the name for log and record, with the number type of the network."""
        return self.describe()

    def describe(self, full_precision_tiles: int = 0) -> str:
        """Return the name; if tiles were computed again in float32, it contains their number."""
        computed_in = self._dtype_name
        if computed_in != "float32" and full_precision_tiles:
            computed_in += f", {full_precision_tiles} tile{'s' * (full_precision_tiles > 1)} in float32"
        if self.device.type != "cuda":
            return f"{self.device.type} ({computed_in})"
        return f"{torch.cuda.get_device_name(self.device)} ({computed_in}, sums on {self.sums.type})"

    @property
    def _dtype_name(self) -> str:
        if self.half and self.device.type == "cuda":
            return "float16"
        return "bfloat16" if self.half and cpu_has_bfloat16() else "float32"


def list_backends(device: torch.device, sum_bytes: int, half: bool = True) -> tuple[Backend, ...]:
    """Return the best backend and its fallbacks, in order: the GPU, the GPU with sums in RAM, the CPU.

    Whether the first backend has its sums in RAM depends on `sum_bytes`, the size of the images and of the sums of one
    pass. The second backend may succeed even if the first one has its sums in RAM, because `Networks` keeps only one
    network at a time after the first failure.
    """
    cpu = torch.device("cpu")
    if device.type == "cpu":
        return (Backend(cpu, cpu, half),)
    sums = cpu if sum_bytes > MAX_SUM_ON_GPU_BYTES else device
    return (Backend(device, sums, half), Backend(device, cpu, half), Backend(cpu, cpu, half))


def compute_sum_bytes(shape: Sequence[int], channels: int, classes: int) -> int:
    """Return the bytes of the images, logits and weights of one pass and of the sum of all passes, in float32.

    `shape` is the shape (z, y, x) of the grid, and `classes` counts the background.
    """
    return 4 * (channels + 2 * classes + 1) * math.prod(shape)


def cpu_has_bfloat16() -> bool:
    """Return whether this CPU multiplies bfloat16 in hardware, which is faster than float32 and gives the same masks.

    oneDNN reports support for every CPU with AVX-512, but some of these are slower in bfloat16 than in float32.
    """
    checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    in_hardware = any(check is not None and check() for check in checks)
    return in_hardware and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def synchronise(device: torch.device) -> None:
    """Wait until the GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class NetworkImage:
    """The input image of the passes.

    Attributes:
        shape: Number of voxels (z, y, x).
        channels: Computes the normalised channels (channel, z, y, x); the first pass that needs them calls it.
    """

    shape: tuple[int, ...]
    channels: Callable[[], _Float]

    @classmethod
    def from_channels(cls, data: _Float) -> NetworkImage:
        """Return the image of channels (channel, z, y, x) that are already normalised, such as in a training case."""
        return cls(data.shape[1:], lambda: data)


@dataclass(frozen=True)
class Pass:
    """One pass: the network of a fold over the whole grid, mirrored along `axes` of (z, y, x)."""

    fold: int
    axes: tuple[int, ...] = ()


def list_mirrored_passes(folds: int, axes: tuple[int, ...]) -> tuple[Pass, ...]:
    """List all passes, most valuable first: all folds without mirroring, then all folds for each set of axes."""
    mirrors = [mirror for count in range(len(axes) + 1) for mirror in itertools.combinations(sorted(axes), count)]
    return tuple(Pass(fold, mirror) for mirror in mirrors for fold in range(folds))


def list_passes(package: ModelPackage) -> tuple[Pass, ...]:
    """List all passes of a package: each of its folds, mirrored along each combination of its `mirror_axes`."""
    return list_mirrored_passes(len(package.fold_files), tuple(package.manifest.mirror_axes))


@dataclass(frozen=True)
class PassResult:
    """Logits of one pass.

    Attributes:
        logits: Shape (label, z, y, x) of the whole grid, float32, on the device of the backend's sums.
        full_precision_tiles: Number of tiles that half precision could not represent, computed again in float32.
    """

    logits: torch.Tensor
    full_precision_tiles: int


def list_tiles(shape: Sequence[int], patch: tuple[int, int, int]) -> list[Box]:
    """List the tiles of a grid with this shape (z, y, x), which is padded to the patch where it is smaller."""
    padded = tuple(max(have, want) for have, want in zip(shape, patch, strict=True))
    steps = compute_steps_for_sliding_window(padded, patch, TILE_STEP)
    steps = [sorted(set(axis)) for axis in steps]  # nnU-Net repeats positions for a patch of one voxel
    return [
        (slice(z, z + patch[0]), slice(y, y + patch[1]), slice(x, x + patch[2]))
        for z, y, x in itertools.product(*steps)
    ]


@torch.inference_mode()
def slide(
    data: torch.Tensor,
    axes: tuple[int, ...],
    network: nn.Module,
    patch: tuple[int, int, int],
    backend: Backend,
    deadline: Deadline,
) -> PassResult:
    """Compute one pass over the whole grid, mirrored along `axes`.

    Args:
        data: Normalised channels on `backend.sums`; the axes after the channel are the network's axes.
        axes: Mirrored axes of the network, 0, 1 or 2.
        network: Network on `backend.device`.
        patch: Voxels that the network sees at once.
        backend: Devices of network and sums.
        deadline: May stop the pass after any tile.

    Raises:
        NotANumberError: The logits of a tile are not finite.
        StoppedError: The deadline stopped the pass.
        TooSlowError: The pass would not end before the deadline.
    """
    ends_s = [deadline.clock()]
    padded = _pad(data, patch)
    weight = compute_gaussian(
        patch, sigma_scale=1 / 8, value_scaling_factor=10, dtype=torch.float32, device=backend.sums
    )
    tiles = list_tiles(data.shape[1:], patch)
    norm = torch.zeros(padded.shape[1:], device=backend.sums)
    total = torch.zeros(())
    full_precision_tiles = 0
    for number, tile in enumerate(tiles, start=1):
        part = padded[(slice(None), *tile)][None].to(backend.device)
        logits = _compute_tile_logits(network, part, axes, half=backend.half)
        if backend.half and not _is_finite(logits):
            logits = _compute_tile_logits(network, part, axes, half=False)
            full_precision_tiles += 1
        if not _is_finite(logits):
            raise NotANumberError("the network returns NaN or infinity")
        if number == 1:
            total = torch.zeros((logits.shape[0], *padded.shape[1:]), device=backend.sums)
        total[(slice(None), *tile)] += logits.to(backend.sums) * weight
        norm[tile] += weight
        synchronise(backend.device)
        deadline.check()
        ends_s.append(deadline.clock())
        _check_time(ends_s, len(tiles), deadline)
    total /= norm
    margins = [(have - want) // 2 for have, want in zip(padded.shape[1:], data.shape[1:], strict=True)]
    inner = (slice(start, start + size) for start, size in zip(margins, data.shape[1:], strict=True))
    return PassResult(total[(slice(None), *inner)].contiguous(), full_precision_tiles)


def _check_time(ends_s: Sequence[float], count: int, deadline: Deadline) -> None:
    """Raise `TooSlowError` if the remaining tiles of `count` would not end in time.

    `ends_s` has the start of the pass and the end of each tile so far. The first tile includes the warm-up, so it
    decides only if another tile as long would exceed the time left.
    """
    number = len(ends_s) - 1
    tile_s = ends_s[1] - ends_s[0] if number == 1 else (ends_s[-1] - ends_s[1]) / (number - 1)
    is_reliable = number > 1 or not deadline.fits(tile_s)
    if number < count and is_reliable and not deadline.fits((count - number) * tile_s):
        raise TooSlowError(tile_s)


def _compute_tile_logits(network: nn.Module, part: torch.Tensor, axes: tuple[int, ...], *, half: bool) -> torch.Tensor:
    spatial = [axis + 2 for axis in axes]
    flipped = part.flip(spatial) if spatial else part
    logits = _forward(network, flipped, half=half)
    return (logits.flip(spatial) if spatial else logits)[0]


def _is_finite(logits: torch.Tensor) -> bool:
    return bool(torch.isfinite(logits).all())


def _forward(network: nn.Module, part: torch.Tensor, *, half: bool) -> torch.Tensor:
    kind = part.device.type
    dtype = torch.float16 if kind == "cuda" else torch.bfloat16
    with torch.autocast(kind, dtype, enabled=half and (kind == "cuda" or cpu_has_bfloat16())):
        logits: torch.Tensor = network(part)
    return logits.float()


def _pad(data: torch.Tensor, patch: tuple[int, ...]) -> torch.Tensor:
    """Zero-pad each axis to the patch, half on either side, as nnU-Net does."""
    pads: list[int] = []
    for have, want in zip(reversed(data.shape[1:]), reversed(patch), strict=True):
        missing = max(want - have, 0)
        pads += [missing // 2, missing - missing // 2]
    return functional.pad(data, pads) if any(pads) else data


@dataclass(frozen=True)
class Progress:
    """The sum (label, z, y, x) over the passes so far, in RAM.

    Attributes:
        total: Sum of logits, or of probabilities if the package averages probabilities.
        done: Number of passes in the sum.
        planned: Number of passes that were planned.
        backend: Devices that made the passes.
        of_probabilities: Whether `total` is a sum of probabilities.
    """

    total: _Float
    done: int
    planned: int
    backend: str
    of_probabilities: bool = False

    @property
    def logits(self) -> _Float:
        """Return the mean of the logits, or the logarithm of the mean probabilities.

        Networks trained with cross-entropy return logarithms of probabilities up to a constant per voxel, so the logits
        of different architectures have the same unit. The mean of the logits is the geometric mean of the
        probabilities, which gives confident networks more weight. Both means need only one sum in memory.
        """
        mean = self.total if self.done == 1 else self.total / np.float32(self.done)
        return log_probabilities(mean) if self.of_probabilities else mean


@dataclass(frozen=True)
class SumCopy:
    """A copy of the sum in RAM, and the number of its passes."""

    total: torch.Tensor
    done: int


class PassSum:
    """The sum (label, z, y, x) over the passes so far, and the copy in RAM that was completed last.

    A pass is added in place. A sum on a GPU is copied while the GPU computes the next pass. The copy and the next
    addition are in one stream, so a copy contains only complete passes. Each copy has its own memory and is read only
    after its event, so an earlier copy stays valid as long as it is needed.

    Attributes:
        done: Number of passes in the sum.
        on_card: Whether the sum is on a GPU.
    """

    def __init__(self) -> None:
        self.done = 0
        self.on_card = False
        self._total = torch.zeros(())
        self._copy: SumCopy | None = None
        self._in_flight: tuple[SumCopy, torch.cuda.Event] | None = None

    @property
    def is_behind(self) -> bool:
        """Return whether the sum contains passes that are not in a complete copy."""
        return self.done > (0 if self._copy is None else self._copy.done)

    @torch.inference_mode()
    def add(self, values: torch.Tensor, *, on_card: bool) -> None:
        """Add the values of a pass (label, z, y, x) in place; the values of the first pass become the sum."""
        if self.done == 0:
            self._total, self.on_card = values, on_card
        else:
            self._note_complete_copy()
            self._total += values.to(self._total.device)
        self.done += 1

    @torch.inference_mode()
    def start_copy(self) -> None:
        """Start a copy to RAM, unless a copy contains all passes; if the sum is in RAM, the copy is complete on return.

        Raises:
            MemoryError: There is no memory for the copy.
            RuntimeError: There is no memory for the copy, or the GPU failed.
        """
        self.finish_copy()
        if not self.is_behind:
            return
        if not self.on_card:
            self._copy = SumCopy(self._total.clone(), self.done)
            return
        pinned = torch.empty(self._total.shape, dtype=self._total.dtype, pin_memory=True)
        pinned.copy_(self._total, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record(torch.cuda.current_stream(self._total.device))
        self._in_flight = SumCopy(pinned, self.done), copied

    def finish_copy(self) -> None:
        """Wait until the copy in flight is complete, if there is one. Raises `RuntimeError` if the GPU failed."""
        if self._in_flight is not None:
            copy, copied = self._in_flight
            copied.synchronize()
            self._copy, self._in_flight = copy, None

    def find_copy(self) -> SumCopy | None:
        """Return the copy that was completed last, None before the first one, without waiting for a GPU.

        A sum in RAM is copied now, so the copy contains all passes.
        """
        if not self.on_card and self.is_behind:
            self.start_copy()
        with suppress(RuntimeError):  # a lost GPU completes no copy
            self._note_complete_copy()
        return self._copy

    def _note_complete_copy(self) -> None:
        """Keep the copy in flight if it is complete, because a GPU that is lost later can no longer be queried."""
        if self._in_flight is not None and self._in_flight[1].query():
            self.finish_copy()

    def move_to_ram(self) -> None:
        """Move the sum from a failed GPU to RAM; if the GPU is lost, only the last complete copy is left.

        Raises:
            MemoryError: There is no memory for the sum.
            RuntimeError: There is no memory for the sum.
        """
        if not self.on_card:
            return
        try:
            self._total = self._total.cpu()
        except RuntimeError:
            copy = self.find_copy()
            self._total, self.done = (torch.zeros(()), 0) if copy is None else (copy.total.clone(), copy.done)
        self._in_flight = None
        self.on_card = False
