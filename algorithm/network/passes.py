"""Run as many passes of the network as the time allows, most valuable first; after the first one there is an answer.

The measured time of the first tiles determines whether a smaller plan is used, the time of the first pass how many
more are run. If a device runs out of memory or is lost, a fallback device is used; the sums so far are in RAM and stay.

A package may have several members, networks of different configurations. Each has its own cost and its own devices: a
member that is too slow or too large is left out, and the passes of the others go on.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from nnunetv2.inference.sliding_window_prediction import compute_gaussian

from algorithm.case.inputs import Notices
from algorithm.case.read import Case
from algorithm.deadline import Deadline, StoppedError
from algorithm.masks.postprocessing import postprocessed
from algorithm.masks.segmentation import Segmentation, log_probabilities, softmax
from algorithm.network.devices import Backend, backends, first_line, is_device_failure, release
from algorithm.network.images import CaseImage, MemberImage
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage
from algorithm.network.preprocessing import HookFailedError
from algorithm.network.windows import NotANumberError, Pass, PassPlan, slide, sum_bytes
from algorithm.region.localise import Region
from contract.errors import Finding, ModelPackageError

LOGGER = logging.getLogger("hecktor")
# A measured pass or tile may take this much longer the next time.
SLOWER: Final = 1.2

# Faults that cost the member of a pass, and not the others.
_OF_MEMBER: Final = (HookFailedError, NotANumberError)

_Float = npt.NDArray[np.float32]


class NoPassFitsError(Exception):
    """Not even the smallest plan gives an answer from the network; the message is the reason."""


class _TooSlowError(Exception):
    """The pass would not end in time; `tile_s` is the cost of a tile."""

    def __init__(self, tile_s: float) -> None:
        super().__init__(f"{tile_s:.2f} s a tile")
        self.tile_s = tile_s


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


def plan_passes(folds: int, axes: tuple[int, ...]) -> tuple[Pass, ...]:
    """All passes, most valuable first: the folds as they are, then one mirror after the other, each over all folds."""
    mirrors = [mirror for count in range(len(axes) + 1) for mirror in itertools.combinations(sorted(axes), count)]
    return tuple(Pass(fold, mirror) for mirror in mirrors for fold in range(folds))


def planned_passes(package: ModelPackage) -> tuple[Pass, ...]:
    """All passes of a package: each of its folds, mirrored along each combination of its `mirror_axes`."""
    return plan_passes(len(package.fold_files), tuple(package.manifest.mirror_axes))


@dataclass
class _Member:
    """A member in one case: its backend and the fallbacks left, and the seconds of its longest pass.

    `backend` is that of its last pass, empty before the first one.
    """

    backends: tuple[Backend, ...]
    backend: str = ""
    longest_s: float = 0.0
    is_left_out: bool = False


@dataclass
class Passes:
    """The passes of one case, most valuable first; the deadline may stop them after any tile.

    `notices` take what differs from the intended way: networks that are left out, devices that failed, a smaller plan.
    """

    image: MemberImage
    passes: Sequence[Pass]
    networks: Networks
    deadline: Deadline
    device: torch.device
    notices: Notices = field(default_factory=Notices)

    def __post_init__(self) -> None:
        if not self.passes:
            raise ValueError("found no pass, expected at least one")
        self._package = self.networks.package
        classes, channels = len(self._package.manifest.labels), len(self._package.channel_sources)
        self._members: dict[str, _Member] = {}
        named = self._package.fold_configurations
        for name in dict.fromkeys(named):
            half = self._package.in_half_precision(named.index(name))
            at = backends(self.device, sum_bytes(self.image.shape, channels, classes), half)
            self._members[name] = _Member(at)
        self._start_with(self.passes[0])
        self._tensor: torch.Tensor | None = None  # the image, once a pass needs it
        self._begun_s = self._warm_s = self.deadline.clock()

    def run(self) -> Progress:
        """The last of `progress`."""
        return deque(self.progress(), maxlen=1).pop()

    def progress(self) -> Iterator[Progress]:
        """Make passes until all are complete or time is up; the progress after each of them, at least one.

        Raises:
            NoPassFitsError: there is too little time or memory for a single pass, even by the smallest plan.
            StoppedError: the deadline stopped the passes before the first one was complete.
        """
        progress, others = self._first_progress()
        yield progress
        for step in others:
            if self.deadline.stopped():
                break
            if not self._is_worth_beginning(step):
                continue
            try:
                logits = self._whole_pass(step)
            except (_TooSlowError, StoppedError, NoPassFitsError, *_OF_MEMBER, ModelPackageError) as reason:
                self._leave_out(step, reason)
            except Exception as bug:
                LOGGER.exception("*** EARLY END *** %s: the best answer so far is written", type(bug).__name__)
                break
            else:
                progress = self._with_pass(progress, step, logits)
                yield progress
        if progress.done < progress.planned:
            left_s = self.deadline.left_s()
            LOGGER.info("stopped after %d of %d passes: %.1f s left", progress.done, progress.planned, left_s)

    def _first_progress(self) -> tuple[Progress, Sequence[Pass]]:
        """The progress after the first pass, and the passes after it; a member that fails is left out."""
        reason: Exception = NotANumberError()
        for number, step in enumerate(self.passes):
            if self._member(step).is_left_out:
                continue
            if number:
                self._start_with(step)
            try:
                return self._with_pass(None, step, self._first_pass(step)), self.passes[number + 1 :]
            except (NoPassFitsError, *_OF_MEMBER) as problem:
                reason = problem
                self._leave_out(step, reason)
        raise NoPassFitsError(first_line(reason)) from None

    def _start_with(self, step: Pass) -> None:
        self._plans = self.image.plans(self._package.patch_of(step.fold))
        self._plan = next(self._plans)

    def _leave_out(self, step: Pass, reason: Exception) -> None:
        number = self.passes.index(step) + 1
        found = f"pass {number} of {len(self.passes)} left out: {first_line(reason)}"
        self.notices.note(Finding(f"network {self._name(step)}", found, action="the network makes no further pass"))
        self._member(step).is_left_out = True

    def _is_worth_beginning(self, step: Pass) -> bool:
        """True if a pass would end in time at the cost of the longest pass of its member.

        A member without a pass so far is taken to cost as much as the others; the first tiles of the pass then correct
        the estimate. A member that was left out stays out, since time only grows shorter.
        """
        member = self._member(step)
        longest_s = member.longest_s or max(one.longest_s for one in self._members.values())
        if not member.is_left_out and not self.deadline.fits(SLOWER * longest_s):
            member.is_left_out = True
            if not member.backend:
                found = f"no pass would end in the {self.deadline.left_s():.1f} s left"
                self.notices.note(Finding(f"network {self._name(step)}", found, action="the network is left out"))
        return not member.is_left_out

    def _member(self, step: Pass) -> _Member:
        return self._members[self._name(step)]

    def _name(self, step: Pass) -> str:
        return self._package.fold_configurations[step.fold]

    def _plan_of(self, step: Pass) -> PassPlan:
        """The present plan for the patch of the pass's own network."""
        plans = self.image.plans(self._package.patch_of(step.fold))
        return next(plan for plan in plans if plan.name == self._plan.name)

    def _with_pass(self, before: Progress | None, step: Pass, logits: _Float) -> Progress:
        """The progress with one more pass."""
        of_probabilities = self._package.averages_probabilities
        total, done = softmax(logits) if of_probabilities else logits, 1
        if before is not None:
            total, done = before.total + total, before.done + 1
        self._member(step).backend = str(self._member(step).backends[0])
        used = " and ".join(dict.fromkeys(one.backend for one in self._members.values() if one.backend))
        return Progress(total, done, len(self.passes), self._plan.name, used, of_probabilities)

    def _first_pass(self, step: Pass) -> _Float:
        while True:
            try:
                return self._whole_pass(step)
            except _TooSlowError as slow:
                self._use_smaller_plan(slow.tile_s)

    def _whole_pass(self, step: Pass) -> _Float:
        """One pass by the plan, on the next backend if one fails; logits of the whole image."""
        member, plan = self._member(step), self._plan_of(step)
        while True:
            try:
                logits = self._attempt(step, member, plan)
            except (RuntimeError, MemoryError) as problem:
                if not is_device_failure(problem):
                    raise
                reason = first_line(problem)
            else:
                return logits
            self._turn_to_next(member, reason)

    def _attempt(self, step: Pass, member: _Member, plan: PassPlan) -> _Float:
        """One pass on the present backend; its frame holds the network, so that a failed pass leaves none on the card.

        The image is not part of the pass: later ones of the member have it ready.
        """
        backend = member.backends[0]
        tensor = torch.from_numpy(self.image.data) if self._tensor is None else self._tensor
        ready_s = self.deadline.clock()
        network = self.networks.of(step.fold, backend.device)
        with self.networks.need.measured(backend.device):
            self._tensor = tensor = tensor.to(backend.sums)
            self._begun_s = self.deadline.clock()
            in_box = slide(tensor, step.axes, network, plan, backend, self._tile_done).numpy()
        logits = self.image.answer(in_box, plan.box)
        member.longest_s = max(member.longest_s, self.deadline.clock() - ready_s)
        return logits

    def _turn_to_next(self, member: _Member, reason: str) -> None:
        """Free all that lies on the failed device before its memory is given back, and take the next one."""
        failed, *left = member.backends
        self.networks.forget()
        self._tensor = None
        compute_gaussian.cache_clear()  # nnU-Net keeps the weights of tiles on the card
        release(failed.device)
        if not left:
            raise NoPassFitsError(f"{failed} failed: {reason}")
        member.backends = tuple(left)
        self.notices.note(Finding(str(failed), f"failed ({reason})", action=f"going on with {left[0]}"))

    def _tile_done(self, number: int, count: int) -> None:
        """Check after each tile whether the pass ends in time; the first tile includes the warm-up."""
        self.deadline.check()
        now_s, left = self.deadline.clock(), count - number
        if number == 1:
            self._warm_s = now_s
        tile_s = now_s - self._begun_s if number == 1 else (now_s - self._warm_s) / (number - 1)
        reliable = number > 1 or not self.deadline.fits(tile_s)
        if left and reliable and not self.deadline.fits(left * tile_s):
            raise _TooSlowError(tile_s)

    def _use_smaller_plan(self, tile_s: float) -> None:
        """Take the best plan with fewer tiles than the present one that fits the time left."""
        tiles = len(self._plan.tiles)
        for plan in self._plans:
            if len(plan.tiles) < tiles and self.deadline.fits(SLOWER * len(plan.tiles) * tile_s):
                self._plan = plan
                found = f"{tile_s:.2f} s a tile and {self.deadline.left_s():.1f} s left"
                self.notices.note(Finding("passes", found, action=f"using a smaller plan, {plan.name}"))
                return
        raise NoPassFitsError(f"{tile_s:.2f} s a tile, {self.deadline.left_s():.1f} s left")


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
    planned = planned_passes(package)[:most_passes]
    passes = [one for one in planned if case.pet is not None or not package.sees_pet_alone(one.fold)]
    if without := len(planned) - len(passes):
        action = f"{without} of {len(planned)} passes left out"
        notices.note(Finding("PET", "none that can be used", "one for networks that see it alone", action))
    if not passes:
        raise NoPassFitsError("none answers without a PET")
    image = CaseImage(case, region, package, lesions)
    ct, *others = image.scans
    pet = others[0] if not case.is_mr and others[0].any() else None
    begun_s = deadline.clock()

    def segmentation(progress: Progress) -> Segmentation:
        made = progress.done, progress.planned, progress.plan, progress.backend
        raw = Segmentation(progress.logits, ct, pet, image.grid, *made, image.restoration)
        return postprocessed(raw, package.manifest.postprocessing)

    for progress in Passes(image, passes, networks, deadline, device, notices).progress():
        LOGGER.info("pass %d of %d: %.1f s", progress.done, progress.planned, deadline.clock() - begun_s)
        begun_s = deadline.clock()
        if progress.done == 1:
            yield segmentation(progress)
    if progress.done > 1:
        yield segmentation(progress)
