"""Run as many passes of the networks as the time allows, the most valuable first.

The time of the longest pass decides whether another one begins. If a device runs out of memory or is lost, the next
backend takes over; the sum of the passes so far is in RAM and stays.

A package may have several members, which are networks of different configurations. Each has its own cost and its own
backends: a member that is too slow or too large is left out, and the passes of the others go on.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from algorithm.case.inputs import Notices
from algorithm.deadline import Deadline, NoPassFitsError, StoppedError
from algorithm.masks.segmentation import log_probabilities, softmax
from algorithm.network.custom import HookFailedError
from algorithm.network.devices import first_line, is_device_failure
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage
from algorithm.network.tiles import (
    Backend,
    NetworkImage,
    NotANumberError,
    Pass,
    TooSlowError,
    backends,
    list_passes,
    slide,
    sum_bytes,
)
from contract.errors import Finding, ModelPackageError

LOGGER = logging.getLogger("hecktor")
# A pass may take this much longer than the longest one so far.
MAX_SLOWDOWN: Final = 1.2
# Errors of a pass after which its member is left out and the others go on.
_MEMBER_ERRORS: Final = (
    NoPassFitsError, TooSlowError, StoppedError, NotANumberError, HookFailedError, ModelPackageError,
)  # fmt: skip

_Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Progress:
    """Sum (label, z, y, x) over the passes so far.

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

        Networks trained with cross-entropy return logarithms of probabilities up to a constant per voxel, so networks
        of different architectures share one unit. The mean of logits is the geometric mean of the probabilities, which
        gives confident networks more weight. Both ways take a single sum in memory.
        """
        mean = self.total if self.done == 1 else self.total / np.float32(self.done)
        return log_probabilities(mean) if self.of_probabilities else mean


@dataclass
class _Member:
    """A member in one case.

    Attributes:
        name: Name of its configuration.
        patch: Voxels that its networks see at once, along the networks' axes.
        axes: For each axis of the networks the axis of the image (z, y, x).
        backends: The backend in use, and those that remain if it fails.
        backend: Description of the backend of its last pass, empty before the first one.
        longest_s: Seconds of its longest pass.
        full_precision_tiles: Number of tiles of all passes that were computed again in float32.
        is_left_out: Whether it makes no further pass.
    """

    name: str
    patch: tuple[int, int, int]
    axes: tuple[int, int, int]
    backends: tuple[Backend, ...]
    backend: str = ""
    longest_s: float = 0.0
    full_precision_tiles: int = 0
    is_left_out: bool = False


@dataclass
class Passes:
    """The passes of one case, the most valuable first; the deadline may stop them after any tile.

    Attributes:
        notices: Collects departures from the plan: members that are left out and devices that failed.
        progress: The passes so far, None before the first one.
    """

    image: NetworkImage
    passes: Sequence[Pass]
    networks: Networks
    deadline: Deadline
    device: torch.device
    notices: Notices = field(default_factory=Notices)
    progress: Progress | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not self.passes:
            raise ValueError("found no pass, expected at least one")
        package = self.networks.package
        size = sum_bytes(self.image.shape, len(package.channel_sources), len(package.manifest.labels))
        members: dict[str, _Member] = {}
        for fold, name in enumerate(package.manifest.configurations):
            if name not in members:
                of_member = backends(self.device, size, package.uses_half_precision(fold))
                members[name] = _Member(name, package.patch_of(fold), package.axes_of(fold), of_member)
        self._members = [members[name] for name in package.manifest.configurations]  # by fold
        self._waiting = deque(enumerate(self.passes, start=1))
        self._reason = ""
        self._channels = functools.cache(self.image.channels)
        self._tensor: torch.Tensor | None = None  # the channels on the device of the last pass

    def make_first(self) -> Progress:
        """Make passes until one is complete; a member that fails is left out.

        Raises:
            NoPassFitsError: There is too little time or memory for a single pass.
            StoppedError: The deadline stopped the pass.
        """
        while self.progress is None:
            if not self._waiting:
                raise NoPassFitsError(self._reason)
            self._make_next()
        return self.progress

    def make_all(self) -> Progress:
        """Make passes until all are complete or the time is up.

        Raises:
            NoPassFitsError: As `make_first`.
            StoppedError: As `make_first`.
        """
        progress = self.make_first()
        while self._waiting and not self.deadline.is_stopped():
            self._make_next()
            progress = self.progress or progress
        if progress.done < progress.planned:
            left = "" if self.deadline.time_limit_s is None else f": {self.deadline.left_s():.1f} s left"
            LOGGER.info("stopped after %d of %d passes%s", progress.done, progress.planned, left)
        return progress

    def _make_next(self) -> None:
        """Make the next pass that is worth beginning, if it succeeds."""
        number, step = self._waiting.popleft()
        member = self._members[step.fold]
        if not self._is_worth_beginning(member):
            return
        begun_s = self.deadline.clock()
        try:
            logits = self._make_pass(step, member)
        except _MEMBER_ERRORS as problem:
            if self.progress is None and isinstance(problem, StoppedError | ModelPackageError):
                raise
            self._reason = first_line(problem)
            actual = f"pass {number} of {len(self.passes)} left out: {self._reason}"
            self.notices.note(Finding(f"network {member.name}", actual, action="the network makes no further pass"))
            member.is_left_out = True
        except Exception as bug:
            if self.progress is None:
                raise
            LOGGER.exception("*** EARLY END *** %s: the best answer so far is written", type(bug).__name__)
            self._waiting.clear()
        else:
            self.progress = self._add_pass(member, logits)
            self._log_progress(self.progress.done, self.deadline.clock() - begun_s)

    def _is_worth_beginning(self, member: _Member) -> bool:
        """Return whether a pass would end in time at the cost of the longest pass of its member.

        A member without a pass so far is taken to cost as much as the others; the first tiles of its pass then correct
        the estimate. A member that was left out stays out, since the time only grows shorter. The first pass is
        always tried.
        """
        longest_s = member.longest_s or max(known.longest_s for known in self._members)
        if not member.is_left_out and longest_s and not self.deadline.fits(MAX_SLOWDOWN * longest_s):
            member.is_left_out = True
            if not member.backend:
                actual = f"no pass would end in the {self.deadline.left_s():.1f} s left"
                self.notices.note(Finding(f"network {member.name}", actual, action="the network is left out"))
        return not member.is_left_out

    def _add_pass(self, member: _Member, logits: _Float) -> Progress:
        """Return the progress with one more pass."""
        of_probabilities = self.networks.package.manifest.average == "probabilities"
        total = softmax(logits) if of_probabilities else logits
        done = 1
        if self.progress is not None:
            total = self.progress.total + total
            done += self.progress.done
        member.backend = member.backends[0].describe(member.full_precision_tiles)
        used = " and ".join(dict.fromkeys(known.backend for known in self._members if known.backend))
        return Progress(total, done, len(self.passes), used, of_probabilities)

    def _log_progress(self, done: int, seconds: float) -> None:
        """Log the seconds of a pass and, without a time limit, an estimate for the passes that follow."""
        remaining = ""
        if self._waiting and self.deadline.time_limit_s is None:
            text = describe_duration(seconds * len(self._waiting))
            remaining = f", about {text} for the other {len(self._waiting)} (Ctrl-C keeps the best answer so far)"
        LOGGER.info("pass %d of %d: %.1f s%s", done, len(self.passes), seconds, remaining)

    def _make_pass(self, step: Pass, member: _Member) -> _Float:
        """Make one pass, on the next backend if one fails; return the logits of the whole image."""
        while True:
            try:
                return self._try_pass(step, member)
            except TooSlowError as problem:
                if self.progress is not None:
                    raise
                raise NoPassFitsError(f"{problem}, {self.deadline.left_s():.1f} s left") from None
            except (RuntimeError, MemoryError) as problem:
                if not is_device_failure(problem):
                    raise
                reason = first_line(problem)
            failed, *left = member.backends
            self._tensor = None
            self.networks.free(failed.device)  # after the failed pass has let go of network and image
            if not left:
                raise NoPassFitsError(f"{failed} failed: {reason}")
            member.backends = tuple(left)
            self.notices.note(Finding(str(failed), f"failed ({reason})", action=f"going on with {left[0]}"))

    def _try_pass(self, step: Pass, member: _Member) -> _Float:
        """Make one pass on the present backend.

        Only this frame holds the network, so that a failed pass leaves none on the card. The image is kept for the
        later passes.
        """
        backend = member.backends[0]
        tensor = torch.from_numpy(self._channels()) if self._tensor is None else self._tensor
        ready_s = self.deadline.clock()
        network = self.networks.get(step.fold, backend.device)
        self._tensor = tensor = tensor.to(backend.sums)
        transposed = tensor.permute(0, *(1 + axis for axis in member.axes))
        mirrored = tuple(member.axes.index(axis) for axis in step.axes)
        result = slide(transposed, mirrored, network, member.patch, backend, self.deadline)
        member.longest_s = max(member.longest_s, self.deadline.clock() - ready_s)
        member.full_precision_tiles += result.full_precision_tiles
        return result.logits.transpose(0, *(1 + member.axes.index(axis) for axis in range(3)))


def describe_duration(seconds: float) -> str:
    """Return a duration in words, such as "45 s", "12 min" or "2.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def choose_passes(package: ModelPackage, *, has_pet: bool, max_passes: int | None, notices: Notices) -> list[Pass]:
    """List the passes of a case; networks that see only the PET make none without a PET.

    Raises:
        NoPassFitsError: No network can answer without a PET.
    """
    planned = list_passes(package)[:max_passes]
    passes = [step for step in planned if has_pet or not package.sees_pet_alone(step.fold)]
    left_out = len(planned) - len(passes)
    if left_out:
        action = f"{left_out} of {len(planned)} passes left out"
        notices.note(Finding("PET", "none that can be used", "one for networks that see only the PET", action))
    if not passes:
        raise NoPassFitsError("none answers without a PET")
    return passes
