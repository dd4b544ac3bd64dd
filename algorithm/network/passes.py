"""Run as many passes of the network as the time allows, most valuable first; after the first one there is an answer.

The measured time of the first tiles determines whether a smaller plan is used, the time of the first pass how many
more are run. If a device runs out of memory or is lost, a fallback device is used; the sums so far are in RAM and stay.

A package may have several members, networks of different configurations. Each has its own cost, its own devices and
perhaps its own image: a member that is too slow or too large is left out, and the passes of the others go on.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from algorithm.case.read import Case
from algorithm.deadline import Deadline, StoppedError
from algorithm.masks.postprocessing import postprocessed
from algorithm.masks.segmentation import Segmentation, log_probabilities, softmax
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.devices import Backend, backends, first_line, is_device_failure, release
from algorithm.network.images import MemberImage, network_image, other_images
from algorithm.network.networks import Networks
from algorithm.network.normalisation import HookFailedError
from algorithm.network.package import ModelPackage
from algorithm.network.windows import NotANumberError, Pass, PassPlan, slide, sum_bytes
from algorithm.region.localise import Region
from contract.errors import ModelPackageError

LOGGER = logging.getLogger("hecktor")
# A measured pass or tile may take this much longer the next time.
SLOWER: Final = 1.2

# What costs the member of a pass, and not the others.
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
class Ensemble:
    """Networks on a device, and the passes to make with them, most valuable first."""

    networks: Networks
    device: torch.device
    passes: tuple[Pass, ...]


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


PassObserver = Callable[[Pass, _Float], None]


@dataclass
class _Member:
    """A member in one case: its image, its backend and the fallbacks left, and its longest pass in seconds a voxel."""

    image: MemberImage
    backends: tuple[Backend, ...]
    rate: float = 0.0
    is_left_out: bool = False


@dataclass
class Passes:
    """The passes of one case, most valuable first; the deadline may stop them after any tile.

    `on_progress` is called after every pass with the progress so far, `on_pass` with each pass and its own logits
    (label, z, y, x) on the answer's grid, which it must not change; it must not fail. `others` are the images of
    configurations that do not see `image`.
    """

    image: MemberImage
    passes: Sequence[Pass]
    networks: Networks
    deadline: Deadline
    device: torch.device
    on_progress: Callable[[Progress], None] = lambda _: None
    on_pass: PassObserver | None = None
    others: Mapping[str, MemberImage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.passes:
            raise ValueError("found no pass, expected at least one")
        self._package = self.networks.package
        classes, channels = len(self._package.manifest.labels), len(self._package.channel_sources)
        self._members: dict[str, _Member] = {}
        for name in dict.fromkeys(self._package.fold_configurations):
            image = self.others.get(name, self.image)
            self._members[name] = _Member(image, backends(self.device, sum_bytes(image.shape, channels, classes)))
        self._start_with(self.passes[0])
        self._shown: MemberImage | None = None
        self._tensor = torch.zeros(())
        with suppress(HookFailedError):  # its own member's first pass meets it again
            self._shown, self._tensor = self.image, torch.from_numpy(self.image.data)
        self._begun_s = self._warm_s = self.deadline.clock()

    def run(self) -> Progress:
        """Make passes until all are complete or time is up.

        Raises:
            NoPassFitsError: there is too little time or memory for a single pass, even by the smallest plan.
            StoppedError: the deadline stopped the passes before the first one was complete.
        """
        progress, others = self._first_progress()
        for step in others:
            if self.deadline.stopped():
                break
            if not self._is_worth_beginning(step):
                continue
            try:
                logits = self._timed_pass(step)
            except (_TooSlowError, StoppedError, NoPassFitsError, *_OF_MEMBER, ModelPackageError) as reason:
                self._leave_out(step, reason)
            except Exception as bug:
                LOGGER.exception("*** EARLY END *** %s: the best answer so far is written", type(bug).__name__)
                break
            else:
                progress = self._with_pass(progress, step, logits)
        if progress.done < progress.planned:
            left_s = self.deadline.left_s()
            LOGGER.info("stopped after %d of %d passes: %.1f s left", progress.done, progress.planned, left_s)
        return progress

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
            except _OF_MEMBER as problem:
                reason = problem
                self._leave_out(step, reason)
        raise NoPassFitsError(first_line(reason)) from None

    def _start_with(self, step: Pass) -> None:
        self._plans = self._member(step).image.plans(self._package.patch_of(step.fold))
        self._plan = next(self._plans)

    def _leave_out(self, step: Pass, reason: Exception) -> None:
        LOGGER.warning("*** WARNING *** %s left out: %s", step, first_line(reason))
        self._member(step).is_left_out = True

    def _is_worth_beginning(self, step: Pass) -> bool:
        """True if a pass would end in time at the cost of the longest pass of its member.

        A member without a pass so far is taken to cost as much per voxel as the others; the first tiles of the pass
        then correct the estimate. A member that was left out stays out, since time only grows shorter.
        """
        member = self._member(step)
        rate = member.rate or max(one.rate for one in self._members.values())
        if not self.deadline.fits(SLOWER * rate * self._tile_voxels(step)):
            member.is_left_out = True
        return not member.is_left_out

    def _timed_pass(self, step: Pass) -> _Float:
        member = self._member(step)
        self._show(member.image)  # not part of the pass: later ones of the member have the image ready
        begun_s = self.deadline.clock()
        logits = self._whole_pass(step)
        member.rate = max(member.rate, (self.deadline.clock() - begun_s) / self._tile_voxels(step))
        return logits

    def _tile_voxels(self, step: Pass) -> int:
        plan = self._plan_of(step)
        return len(plan.tiles) * math.prod(plan.patch)

    def _member(self, step: Pass) -> _Member:
        return self._members[self._package.fold_configurations[step.fold]]

    def _plan_of(self, step: Pass) -> PassPlan:
        """The present plan for the image and the patch of the pass's own network."""
        plans = self._member(step).image.plans(self._package.patch_of(step.fold))
        return next(plan for plan in plans if plan.name == self._plan.name)

    def _show(self, image: MemberImage) -> None:
        """Take an image for the next pass, so that a single one lies on the card. Raises NoPassFitsError."""
        if image is not self._shown:
            try:
                self._shown, self._tensor = image, torch.from_numpy(image.data)
            except MemoryError:
                raise NoPassFitsError("too little memory for the image") from None

    def _with_pass(self, before: Progress | None, step: Pass, logits: _Float) -> Progress:
        """The progress with one more pass, reported to `on_progress`."""
        of_probabilities = self._package.averages_probabilities
        total, done = softmax(logits) if of_probabilities else logits, 1
        if before is not None:
            total, done = before.total + total, before.done + 1
        backend = str(self._member(step).backends[0])
        progress = Progress(total, done, len(self.passes), self._plan.name, backend, of_probabilities)
        self.on_progress(progress)
        return progress

    def _first_pass(self, step: Pass) -> _Float:
        while True:
            try:
                return self._timed_pass(step)
            except _TooSlowError as slow:
                self._use_smaller_plan(slow.tile_s)

    def _whole_pass(self, step: Pass) -> _Float:
        """One pass by the plan, on the next backend if one fails; logits of the answer's whole grid."""
        member, plan = self._member(step), self._plan_of(step)
        while True:
            backend = member.backends[0]
            try:
                network = self.networks.of(step.fold, backend.device)
                self._tensor = self._tensor.to(backend.sums)
                self._begun_s = self.deadline.clock()
                in_box = slide(self._tensor, step.axes, network, plan, backend, self._tile_done).numpy()
                logits = member.image.answer(in_box, plan.box)
            except (RuntimeError, MemoryError) as problem:
                if not is_device_failure(problem):
                    raise
                reason = first_line(problem)
            else:
                if self.on_pass is not None:
                    self.on_pass(step, logits)
                return logits
            self._turn_to_next(member, reason)

    def _turn_to_next(self, member: _Member, reason: str) -> None:
        failed, *left = member.backends
        self.networks.forget()
        release(failed.device)
        self._tensor = torch.from_numpy(member.image.data)
        if not left:
            raise NoPassFitsError(f"{failed} failed: {reason}")
        member.backends = tuple(left)
        LOGGER.warning("*** WARNING *** %s failed (%s), going on with %s", failed, reason, left[0])

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
                how = tile_s, self.deadline.left_s(), plan.name
                LOGGER.warning("*** WARNING *** %.2f s a tile and %.1f s left: using a smaller plan, %s", *how)
                return
        raise NoPassFitsError(f"{tile_s:.2f} s a tile, {self.deadline.left_s():.1f} s left")


def segment(
    case: Case,
    region: Region,
    ensemble: Ensemble,
    deadline: Deadline,
    on_first_pass: Callable[[Segmentation], None] = lambda _: None,
    on_pass: PassObserver | None = None,
    by_threshold: Callable[[], Segmentation] | None = None,
) -> Segmentation:
    """Run the ensemble's networks over `region`, with as many passes as the deadline allows.

    If not even the smallest plan fits, or networks of the PET alone have none, the PET threshold answers, and the log
    says so. `on_first_pass` is called with the result of the first pass if more are planned, `on_pass` as in `Passes`.
    `by_threshold` returns the segmentation by PET threshold, which is made here otherwise. Raises `StoppedError` if the
    deadline stops the first pass.
    """
    package = ensemble.networks.package
    lesions = by_threshold or cache(lambda: threshold_segmentation(case, region))
    passes = [one for one in ensemble.passes if case.pet is not None or not package.sees_pet_alone(one.fold)]
    if len(passes) < len(ensemble.passes):
        LOGGER.warning("*** WARNING *** PET: none that can be used, expected one for networks that see it alone")
    if not passes:
        LOGGER.warning("*** FALLBACK *** no network without a PET: the PET threshold answers")
        return lesions()
    image = network_image(case, region, package, lesions)
    (ct, *others), restoration = image.scans, image.restoration
    pet = others[0] if not case.is_mr and others[0].any() else None

    def segmentation(progress: Progress) -> Segmentation:
        made = progress.done, progress.planned, progress.plan, progress.backend
        raw = Segmentation(progress.logits, ct, pet, image.answer_grid, *made, restoration)
        return postprocessed(raw, package.manifest.postprocessing)

    def on_progress(progress: Progress) -> None:
        if progress.done == 1 < progress.planned:
            on_first_pass(segmentation(progress))

    run = Passes(
        image,
        passes,
        ensemble.networks,
        deadline,
        ensemble.device,
        on_progress=on_progress,
        on_pass=on_pass,
        others=other_images(case, region, package, image.answer_grid, lesions),
    )
    try:
        return segmentation(run.run())
    except NoPassFitsError as reason:
        LOGGER.warning("*** FALLBACK *** no pass of the network (%s): the %s answers", reason, case.fallback)
        return lesions()
