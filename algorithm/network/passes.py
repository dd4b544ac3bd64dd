"""Run as many passes of the network as the time allows, most valuable first; after the first one there is an answer.

The measured time of the first tiles determines whether a smaller plan is used, the time of the first pass how many
more are run. If a device runs out of memory or is lost, a fallback device is used; the sums so far are in RAM and stay.

A package may have several members, networks of different configurations. Each has its own cost and its own devices: a
member that is too slow or too large is left out, and the passes of the others go on.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from algorithm.case.inputs import Notices
from algorithm.case.read import Case
from algorithm.deadline import Deadline, StoppedError
from algorithm.masks.postprocessing import apply_postprocessing
from algorithm.masks.segmentation import Segmentation, log_probabilities, softmax
from algorithm.network.custom import HookFailedError
from algorithm.network.devices import first_line, is_device_failure
from algorithm.network.networks import Networks
from algorithm.network.preprocessing import case_image, focus_box
from algorithm.network.tiles import (
    Backend,
    NetworkImage,
    NotANumberError,
    Pass,
    PassPlan,
    TooSlowError,
    backends,
    list_passes,
    pass_plans,
    slide,
    sum_bytes,
)
from algorithm.region.localise import Region
from contract.errors import Finding, ModelPackageError

LOGGER = logging.getLogger("hecktor")
# A measured pass or tile may take this much longer the next time.
SLOWER: Final = 1.2

_Float = npt.NDArray[np.float32]


class NoPassFitsError(Exception):
    """Not even the smallest plan gives an answer from the network; the message is the reason."""


# Faults of a pass that cost the network of that pass, and not the others.
_LEFT_OUT: Final = (
    NoPassFitsError, TooSlowError, StoppedError, NotANumberError, HookFailedError, ModelPackageError,
)  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """Sum (label, z, y, x) over `done` passes of `planned`, made by `plan` on `backend`.

    The sum is of logits, or of probabilities if the package averages those.
    """

    total: _Float
    done: int
    planned: int
    plan: str
    backend: str
    of_probabilities: bool = False

    @property
    def logits(self) -> _Float:
        """Logits averaged over the passes, or the logarithm of the averaged probabilities.

        Networks trained with cross-entropy return logarithms of probabilities up to a constant per voxel, so networks
        of different architectures share one unit. The mean of logits is the geometric mean of the probabilities, which
        gives confident networks more weight. Both ways take a single sum in memory.
        """
        mean = self.total if self.done == 1 else self.total / np.float32(self.done)
        return log_probabilities(mean) if self.of_probabilities else mean


@dataclass
class _Member:
    """A member in one case: its patch, its backend and the fallbacks left, and the seconds of its longest pass.

    `backend` is that of its last pass, empty before the first one. `full_precision_tiles` counts tiles of all its
    passes that were computed again in float32.
    """

    name: str
    patch: tuple[int, int, int]
    backends: tuple[Backend, ...]
    backend: str = ""
    longest_s: float = 0.0
    full_precision_tiles: int = 0
    is_left_out: bool = False


@dataclass
class Passes:
    """The passes of one case, most valuable first; the deadline may stop them after any tile.

    `notices` take what differs from the intended way: networks that are left out, devices that failed, a smaller plan.
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
        size = sum_bytes(self.image.shape, len(package.channel_sources), len(package.manifest.labels))
        members: dict[str, _Member] = {}
        for fold, name in enumerate(package.manifest.configurations):
            if name not in members:
                at = backends(self.device, size, package.uses_half_precision(fold))
                members[name] = _Member(name, package.patch_of(fold), at)
        self._members = [members[name] for name in package.manifest.configurations]  # by fold
        self._plan = next(pass_plans(self.image.shape, self.image.focus))
        self._channels = functools.cache(self.image.channels)
        self._tensor: torch.Tensor | None = None  # the channels on the device of the last pass

    def run(self) -> Progress:
        """The last of `progress`."""
        return deque(self.progress(), maxlen=1).pop()

    def progress(self) -> Iterator[Progress]:
        """Make passes until all are complete or time is up; the progress after each of them, at least one.

        A member that fails is left out.

        Raises:
            NoPassFitsError: there is too little time or memory for a single pass, even by the smallest plan.
            StoppedError: the deadline stopped the passes before the first one was complete.
        """
        progress: Progress | None = None
        reason = ""
        for step in self.passes:
            member = self._members[step.fold]
            if progress is not None and self.deadline.stopped():
                break
            if not self._is_worth_beginning(member):
                continue
            try:
                logits = self._first_pass(step, member) if progress is None else self._whole_pass(step, member)
            except _LEFT_OUT as problem:
                if progress is None and isinstance(problem, StoppedError | ModelPackageError):
                    raise
                reason = first_line(problem)
                found = f"pass {self.passes.index(step) + 1} of {len(self.passes)} left out: {reason}"
                self.notices.note(Finding(f"network {member.name}", found, action="the network makes no further pass"))
                member.is_left_out = True
                continue
            except Exception as bug:
                if progress is None:
                    raise
                LOGGER.exception("*** EARLY END *** %s: the best answer so far is written", type(bug).__name__)
                break
            progress = self._with_pass(progress, member, logits)
            yield progress
        if progress is None:
            raise NoPassFitsError(reason)
        if progress.done < progress.planned:
            left_s = self.deadline.left_s()
            LOGGER.info("stopped after %d of %d passes: %.1f s left", progress.done, progress.planned, left_s)

    def _is_worth_beginning(self, member: _Member) -> bool:
        """True if a pass would end in time at the cost of the longest pass of its member.

        A member without a pass so far is taken to cost as much as the others; the first tiles of the pass then correct
        the estimate. A member that was left out stays out, since time only grows shorter. The first pass is tried
        whatever the time.
        """
        longest_s = member.longest_s or max(one.longest_s for one in self._members)
        if not member.is_left_out and longest_s and not self.deadline.fits(SLOWER * longest_s):
            member.is_left_out = True
            if not member.backend:
                found = f"no pass would end in the {self.deadline.left_s():.1f} s left"
                self.notices.note(Finding(f"network {member.name}", found, action="the network is left out"))
        return not member.is_left_out

    def _with_pass(self, before: Progress | None, member: _Member, logits: _Float) -> Progress:
        """The progress with one more pass."""
        of_probabilities = self.networks.package.manifest.average == "probabilities"
        total, done = softmax(logits) if of_probabilities else logits, 1
        if before is not None:
            total, done = before.total + total, before.done + 1
        member.backend = member.backends[0].describe(member.full_precision_tiles)
        used = " and ".join(dict.fromkeys(one.backend for one in self._members if one.backend))
        return Progress(total, done, len(self.passes), self._plan.name, used, of_probabilities)

    def _first_pass(self, step: Pass, member: _Member) -> _Float:
        """The first pass that is complete, by the best plan that fits the time."""
        plans = pass_plans(self.image.shape, self.image.focus)
        self._plan = next(plans)
        while True:
            try:
                return self._whole_pass(step, member)
            except TooSlowError as slow:
                self._plan = self._smaller_plan(plans, member.patch, slow.tile_s)

    def _smaller_plan(self, plans: Iterator[PassPlan], patch: tuple[int, int, int], tile_s: float) -> PassPlan:
        """The best of the plans left with fewer tiles than the present one that fits the time left."""
        tiles = len(self._plan.tiles(patch))
        for plan in plans:
            count = len(plan.tiles(patch))
            if count < tiles and self.deadline.fits(SLOWER * count * tile_s):
                found = f"{tile_s:.2f} s a tile and {self.deadline.left_s():.1f} s left"
                self.notices.note(Finding("passes", found, action=f"using a smaller plan, {plan.name}"))
                return plan
        raise NoPassFitsError(f"{tile_s:.2f} s a tile, {self.deadline.left_s():.1f} s left")

    def _whole_pass(self, step: Pass, member: _Member) -> _Float:
        """One pass by the plan, on the next backend if one fails; logits of the whole image."""
        while True:
            try:
                return self._attempt(step, member)
            except (RuntimeError, MemoryError) as problem:
                if not is_device_failure(problem):
                    raise
                reason = first_line(problem)
            failed, *left = member.backends
            self._tensor = None
            self.networks.forget(failed.device)  # after the failed pass has let go of network and image
            if not left:
                raise NoPassFitsError(f"{failed} failed: {reason}")
            member.backends = tuple(left)
            self.notices.note(Finding(str(failed), f"failed ({reason})", action=f"going on with {left[0]}"))

    def _attempt(self, step: Pass, member: _Member) -> _Float:
        """One pass on the present backend; its frame holds the network, so that a failed pass leaves none on the card.

        The image is not part of the pass: later ones of the member have it ready.
        """
        backend = member.backends[0]
        tensor = torch.from_numpy(self._channels()) if self._tensor is None else self._tensor
        ready_s = self.deadline.clock()
        network = self.networks.of(step.fold, backend.device)
        with self.networks.measured(backend.device):
            self._tensor = tensor = tensor.to(backend.sums)
            result = slide(tensor, step.axes, network, self._plan, member.patch, backend, self.deadline)
        member.longest_s = max(member.longest_s, self.deadline.clock() - ready_s)
        member.full_precision_tiles += result.full_precision_tiles
        return result.logits


def segment(
    case: Case,
    region: Region,
    networks: Networks,
    device: torch.device,
    deadline: Deadline,
    notices: Notices,
    lesions: Segmentation | None = None,
    most_passes: int | None = None,
) -> Iterator[Segmentation]:
    """Segmentations by the networks: of the first pass, if more are made, and of all that fit the deadline.

    `lesions` are suspected, for the box of a smaller plan, such as those of the PET threshold; None sees the whole
    region alone. `notices` are as in `Passes`.

    Raises:
        NoPassFitsError: not even the smallest plan fits, or networks of the PET alone have none.
        StoppedError: the deadline stopped the first pass.
    """
    package = networks.package
    planned = list_passes(package)[:most_passes]
    passes = [one for one in planned if case.pet is not None or not package.sees_pet_alone(one.fold)]
    if without := len(planned) - len(passes):
        action = f"{without} of {len(planned)} passes left out"
        notices.note(Finding("PET", "none that can be used", "one for networks that see it alone", action))
    if not passes:
        raise NoPassFitsError("none answers without a PET")
    seen = case_image(case, region, package)
    focus = None if lesions is None else focus_box(lesions.mask(), lesions.grid, seen.grid)
    image = NetworkImage(seen.grid.array_shape, seen.channels, focus)
    ct, *others = seen.scans
    pet = others[0] if not case.is_mr and others[0].any() else None
    begun_s = deadline.clock()

    def segmentation(progress: Progress) -> Segmentation:
        made = progress.done, progress.planned, progress.plan, progress.backend
        raw = Segmentation(progress.logits, ct, pet, seen.grid, *made, seen.restore)
        rules = package.manifest.postprocessing
        return raw if rules is None else apply_postprocessing(raw, rules)

    for progress in Passes(image, passes, networks, deadline, device, notices).progress():
        LOGGER.info("pass %d of %d: %.1f s", progress.done, progress.planned, deadline.clock() - begun_s)
        begun_s = deadline.clock()
        if progress.done == 1:
            yield segmentation(progress)
    if progress.done > 1:
        yield segmentation(progress)
