"""Run as many passes of the networks as the time allows, the most valuable first.

The time of the longest pass decides whether another one is started. If a device runs out of memory or is lost, the next
backend takes over and the sum of the passes moves to RAM. Passes that were lost with a GPU are made again.

A package may have several members, which are networks of different configurations. Each member has its own cost and its
own backends: a member that is too slow or too large is left out, and the passes of the other members continue.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from algorithm.case.inputs import Notices
from algorithm.deadline import Deadline, NoPassFitsError, StoppedError
from algorithm.network.devices import first_line, is_device_failure
from algorithm.network.networks import HookFailedError, Networks
from algorithm.network.package import ModelPackage
from algorithm.network.tiles import (
    Backend,
    NetworkImage,
    NotANumberError,
    Pass,
    PassSum,
    Progress,
    TooSlowError,
    compute_sum_bytes,
    list_backends,
    list_passes,
    slide,
)
from contract.errors import Finding, ModelPackageError

LOGGER = logging.getLogger("hecktor")
# A pass may take this much longer than the longest one so far.
MAX_SLOWDOWN: Final = 1.2
# A sum on a GPU is copied to RAM after the first pass, after every pass whose number is a multiple of this number, and
# after the last pass.
COPY_EVERY: Final = 5
# Errors of a pass after which its member is left out and the other members continue.
_MEMBER_ERRORS: Final = (
    NoPassFitsError, TooSlowError, NotANumberError, HookFailedError, ModelPackageError,
)  # fmt: skip


@dataclass
class _Member:
    """The state of a member in one case.

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
    """

    image: NetworkImage
    passes: Sequence[Pass]
    networks: Networks
    deadline: Deadline
    device: torch.device
    notices: Notices = field(default_factory=Notices)

    def __post_init__(self) -> None:
        if not self.passes:
            raise ValueError("found no pass, expected at least one")
        package = self.networks.package
        size = compute_sum_bytes(self.image.shape, len(package.channel_sources), len(package.manifest.labels))
        members: dict[str, _Member] = {}
        for fold, name in enumerate(package.manifest.configurations):
            if name not in members:
                of_member = list_backends(self.device, size, package.uses_half_precision(fold))
                members[name] = _Member(name, package.patch_of(fold), package.axes_of(fold), of_member)
        self._members = [members[name] for name in package.manifest.configurations]  # by fold
        self._waiting = deque(enumerate(self.passes, start=1))
        self._added: list[tuple[int, Pass]] = []
        self._sum = PassSum()
        self._reason = ""
        self._channels = functools.cache(self.image.channels)
        self._tensor: torch.Tensor | None = None  # the channels on the device of the last pass
        self._averages_probabilities = package.manifest.average == "probabilities"

    @property
    def progress(self) -> Progress | None:
        """Return the passes whose sum is in RAM, None before the first one, without waiting for a GPU."""
        copy = self._sum.find_copy()
        if copy is None:
            return None
        used = " and ".join(dict.fromkeys(member.backend for member in self._members if member.backend))
        return Progress(copy.total.numpy(), copy.done, len(self.passes), used, self._averages_probabilities)

    def make_first(self) -> Progress:
        """Make passes until one is complete; a member that fails is left out.

        Raises:
            NoPassFitsError: There is too little time or memory for a single pass.
            StoppedError: The deadline stopped the pass.
        """
        while (progress := self.progress) is None:
            if not self._waiting:
                raise NoPassFitsError(self._reason)
            self._make_next()
        return progress

    def make_all(self) -> Progress:
        """Make passes until all are complete or the time is up.

        If the deadline stops the passes, the result is the copy of the sum that was completed last: a GPU that hangs is
        not waited for.

        Raises:
            NoPassFitsError: As `make_first`.
            StoppedError: As `make_first`.
        """
        first = self.make_first()
        while not self.deadline.is_stopped() and (self._waiting or self._sum.is_behind):
            if self._waiting:
                self._make_next()
            else:
                self._copy_sum(waits=True)
        progress = self.progress or first
        if progress.done < progress.planned:
            left = "" if self.deadline.time_limit_s is None else f": {self.deadline.left_s():.1f} s left"
            LOGGER.info("stopped after %d of %d passes%s", progress.done, progress.planned, left)
        return progress

    def _make_next(self) -> None:
        """Take the next pass from the queue, and run it if it is worth starting."""
        number, step = self._waiting.popleft()
        member = self._members[step.fold]
        if not self._is_worth_starting(member):
            return
        started_s = self.deadline.clock()
        try:
            self._make_pass(step, member)
        except StoppedError:
            if self._sum.done == 0:
                raise
            LOGGER.info("pass %d of %d was stopped", number, len(self.passes))
        except _MEMBER_ERRORS as problem:
            if self._sum.done == 0 and isinstance(problem, ModelPackageError):
                raise
            self._reason = first_line(problem)
            actual = f"pass {number} of {len(self.passes)} left out: {self._reason}"
            self.notices.note(Finding(f"network {member.name}", actual, action="the network makes no further pass"))
            member.is_left_out = True
        except Exception as bug:
            if self._sum.done == 0:
                raise
            LOGGER.exception("*** EARLY END *** %s: the best answer so far is written", type(bug).__name__)
            self._waiting.clear()
        else:
            member.backend = member.backends[0].describe(member.full_precision_tiles)
            self._added.append((number, step))
            self._log_progress(self._sum.done, self.deadline.clock() - started_s)
            if self._sum.on_card and (self._sum.done == 1 or self._sum.done % COPY_EVERY == 0):
                self._copy_sum(waits=self._sum.done == 1)

    def _is_worth_starting(self, member: _Member) -> bool:
        """Return whether a pass would end in time if it took as long as the longest pass of its member.

        A member without a pass so far is assumed to be as slow as the slowest one; the first tiles of its pass then
        correct the estimate. A member that was left out stays left out, since the time left only decreases. As long as
        the sum has no pass, a pass is always tried.
        """
        longest_s = member.longest_s or max(known.longest_s for known in self._members)
        if not member.is_left_out and self._sum.done and longest_s and not self.deadline.fits(MAX_SLOWDOWN * longest_s):
            member.is_left_out = True
            if not member.backend:
                actual = f"no pass would end in the {self.deadline.left_s():.1f} s left"
                self.notices.note(Finding(f"network {member.name}", actual, action="the network is left out"))
        return not member.is_left_out

    def _log_progress(self, done: int, seconds: float) -> None:
        """Log the seconds of a pass and, without a time limit, an estimate for the remaining passes."""
        remaining = ""
        if self._waiting and self.deadline.time_limit_s is None:
            text = describe_duration(seconds * len(self._waiting))
            remaining = f", about {text} for the other {len(self._waiting)} (Ctrl-C keeps the best answer so far)"
        LOGGER.info("pass %d of %d: %.1f s%s", done, len(self.passes), seconds, remaining)

    def _make_pass(self, step: Pass, member: _Member) -> None:
        """Make one pass and add it to the sum; if a backend fails, use the next one."""
        while True:
            try:
                self._try_pass(step, member)
            except TooSlowError as problem:
                if self._sum.done:
                    raise
                raise NoPassFitsError(f"{problem}, {self.deadline.left_s():.1f} s left") from None
            except (RuntimeError, MemoryError) as problem:
                if not is_device_failure(problem):
                    raise
                reason = first_line(problem)
            else:
                return
            failed, *left = member.backends
            self._tensor = None
            self.networks.free(failed.device)  # the failed pass no longer refers to the network and the image
            self._move_sum_to_ram()
            if not left:
                raise NoPassFitsError(f"{failed} failed: {reason}")
            member.backends = tuple(left)
            self.notices.note(Finding(str(failed), f"failed ({reason})", action=f"continuing with {left[0]}"))

    def _try_pass(self, step: Pass, member: _Member) -> None:
        """Make one pass on the current backend, and add it to the sum.

        Only this frame refers to the network, so that a failed pass leaves no network on the GPU. The image is kept for
        the later passes.
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
        logits = result.logits.permute(0, *(1 + member.axes.index(axis) for axis in range(3)))
        values = torch.softmax(logits, 0) if self._averages_probabilities else logits
        self._sum.add(values, on_card=backend.sums.type == "cuda")

    def _copy_sum(self, *, waits: bool) -> None:
        """Copy the sum to RAM; if the GPU fails, move the sum there.

        Passes that are lost, with the GPU or because RAM is full, are made again, but not on the GPU.
        """
        try:
            self._sum.start_copy()
            if waits:
                self._sum.finish_copy()
        except (RuntimeError, MemoryError) as problem:
            if not (self._sum.on_card and is_device_failure(problem)):
                raise
            LOGGER.warning("the sum of the passes moves to RAM (%s)", first_line(problem))
            if self._move_sum_to_ram():
                for member in self._members:
                    member.backends = tuple(backend for backend in member.backends if backend.device.type == "cpu")

    def _move_sum_to_ram(self) -> int:
        """Move the sum from a failed GPU to RAM; return the number of lost passes, which are queued again."""
        self._sum.move_to_ram()
        lost = self._added[self._sum.done :]
        self._waiting.extendleft(reversed(lost))
        del self._added[self._sum.done :]
        return len(lost)


def describe_duration(seconds: float) -> str:
    """Return a duration in words, such as "45 s", "12 min" or "2.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def choose_passes(package: ModelPackage, *, has_pet: bool, max_passes: int | None, notices: Notices) -> list[Pass]:
    """List the passes of a case, at most `max_passes`; without a PET, networks that see only the PET are left out.

    Raises:
        NoPassFitsError: All networks need a PET.
    """
    planned = list_passes(package)
    passes = [step for step in planned if has_pet or not package.sees_only_pet(step.fold)]
    left_out = len(planned) - len(passes)
    if left_out:
        action = f"{left_out} of {len(planned)} passes left out"
        notices.note(Finding("PET", "no usable image", "one for networks that see only the PET", action))
    if not passes:
        raise NoPassFitsError("no network can be used without a PET")
    return passes[:max_passes]
