"""As many passes as the time allows, most valuable first; after the first one an answer is in hand.

No table of devices: what the first tiles cost decides whether the plan is kept or shrinks, what the first pass costs
decides how many follow. A device that runs out of memory or is lost is left for the next one, and what was summed up
until then is kept, in RAM.

A package may have several members, networks of different configurations. Each has its own cost and its own devices: one
that is too slow or too large is left out, and the passes of the others go on.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from algorithm.budget import Budget
from algorithm.network.devices import Backend, backends, is_device_failure, release
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage
from algorithm.network.windows import TILE_STEP, Box, NotANumberError, Pass, Plan, slide, sum_bytes, whole
from contract.errors import ModelPackageError

LOGGER = logging.getLogger("hecktor")
COARSER_STEPS: Final = (0.75, 1.0)
# A measured pass or tile may take this much longer the next time.
SLOWER: Final = 1.2
# Logit of the background, and minus that of the lesions, where a shrunken plan did not look.
NOT_LOOKED_AT: Final = 20.0

_Float = npt.NDArray[np.float32]


class NoPassFitsError(Exception):
    """Not even the smallest plan gives an answer from the network; says why."""


class StoppedError(Exception):
    """Somebody asked for an end."""


class _TooSlowError(Exception):
    """The pass would not end in time; `tile_s` is what a tile costs."""

    def __init__(self, tile_s: float) -> None:
        super().__init__(f"{tile_s:.2f} s a tile")
        self.tile_s = tile_s


@dataclass(frozen=True)
class Progress:
    """What has been done: summed logits (label, z, y, x) of `done` passes of `planned`, by what plan and where."""

    total: _Float
    done: int
    planned: int
    plan: str
    backend: str

    @property
    def logits(self) -> _Float:
        """Logits averaged over the passes, whatever network made them.

        Networks that were trained with cross-entropy answer logarithms of probabilities, up to a constant of the
        voxel, so that those of different architectures have one unit. Their mean is the geometric mean of the
        probabilities: who is sure counts more than who is not. It takes a single sum in memory.
        """
        return self.total / np.float32(self.done)


def plan_passes(folds: int, axes: tuple[int, ...]) -> tuple[Pass, ...]:
    """All passes, most valuable first: the folds as they are, then one mirror after the other, each over all folds."""
    mirrors = [
        combination for count in range(len(axes) + 1) for combination in itertools.combinations(sorted(axes), count)
    ]
    return tuple(Pass(fold, mirror) for mirror in mirrors for fold in range(folds))


def planned_passes(package: ModelPackage) -> tuple[Pass, ...]:
    """All passes of a package: each of its folds, mirrored along each combination of its `mirror_axes`."""
    return plan_passes(len(package.fold_files), tuple(int(axis) for axis in package.manifest.get("mirror_axes", ())))


@dataclass
class Passes:
    """One case's passes.

    Args:
        data: normalised channels (channel, z, y, x) of the whole grid.
        passes: what to do, most valuable first.
        networks: where the folds' networks come from.
        budget: the time left.
        device: where the user wants the network.
        focus: the box of (z, y, x) in which lesions are suspected, or None; asked only if time is short.
        stop: whether somebody asked for an end; looked at after every tile.
        better: told after every pass.
        seen: told each pass and its own logits (label, z, y, x), once it is made; must not fail or change them.
    """

    data: _Float
    passes: Sequence[Pass]
    networks: Networks
    budget: Budget
    device: torch.device
    focus: Callable[[], Box | None] = lambda: None
    stop: Callable[[], bool] = lambda: False
    better: Callable[[Progress], None] = lambda _: None
    seen: Callable[[Pass, _Float], None] = lambda _step, _logits: None

    def __post_init__(self) -> None:
        if not self.passes:
            raise ValueError("no pass to make, expected at least one")
        self._plan = self._full_plan(TILE_STEP)
        self._tensor = torch.from_numpy(self.data)
        classes = len(self.networks.package.manifest["labels"])
        self._ladder = backends(self.device, sum_bytes(self.data.shape[1:], self.data.shape[0], classes))
        self._begun_s = self._warm_s = self.budget.clock()
        self._rates: dict[str, float] = {}  # member: the longest pass so far, in seconds a voxel of its tiles
        self._rungs: dict[str, int] = {}  # member: its place on the ladder, 0 where it is not named
        self._given_up: set[str] = set()

    def run(self) -> Progress:
        """Make passes until all are made or time is up.

        Raises:
            NoPassFitsError: there is neither the time nor the memory for a single pass, even by the smallest plan.
            StoppedError: an end was asked for before the first pass was made.
        """
        progress = self._first_pass()
        self.better(progress)
        for step in self.passes[1:]:
            if self.stop():
                break
            if not self._is_worth_beginning(step):
                continue
            try:
                logits = self._timed_pass(step)
            except (_TooSlowError, StoppedError, NoPassFitsError, NotANumberError, ModelPackageError) as reason:
                LOGGER.warning("*** WARNING *** %s left out: %s", step, reason or type(reason).__name__)
                self._given_up.add(self._member(step))
                continue
            progress = self._progress(progress.total + logits, progress.done + 1, step)
            self.better(progress)
        if progress.done < progress.planned:
            LOGGER.info(
                "stopped after %d of %d passes: %.1f s left", progress.done, progress.planned, self.budget.left_s()
            )
        return progress

    def _is_worth_beginning(self, step: Pass) -> bool:
        """Whether a pass would end in time if it took as long as the longest of its member.

        Before there is one, a voxel of its tiles is taken to cost what the others' do; the pass's own first tiles then
        show what is true. A member that was left out or has no time left does not come back: time only grows shorter.
        """
        member = self._member(step)
        rate = self._rates.get(member, max(self._rates.values()))
        if not self.budget.fits(SLOWER * rate * self._tile_voxels(step)):
            self._given_up.add(member)
        return member not in self._given_up

    def _timed_pass(self, step: Pass) -> _Float:
        begun_s, member = self.budget.clock(), self._member(step)
        logits = self._whole_pass(step)
        rate = (self.budget.clock() - begun_s) / self._tile_voxels(step)
        self._rates[member] = max(rate, self._rates.get(member, 0.0))
        return logits

    def _tile_voxels(self, step: Pass) -> int:
        plan = self._plan_of(step)
        return len(plan.tiles) * math.prod(plan.patch)

    def _member(self, step: Pass) -> str:
        return self.networks.package.fold_configurations[step.fold]

    def _plan_of(self, step: Pass) -> Plan:
        """The present plan with the patch of the pass's own network."""
        return replace(self._plan, patch=self.networks.package.patch_of(step.fold))

    def _backend_of(self, step: Pass) -> Backend:
        return self._ladder[self._rungs.get(self._member(step), 0)]

    def _progress(self, total: _Float, done: int, step: Pass) -> Progress:
        return Progress(total, done, len(self.passes), self._plan.name, str(self._backend_of(step)))

    def _first_pass(self) -> Progress:
        first = self.passes[0]
        while True:
            try:
                logits = self._timed_pass(first)
            except _TooSlowError as slow:
                self._plan = self._smaller_plan(slow.tile_s)
                LOGGER.warning(
                    "*** WARNING *** %.2f s a tile and %.1f s left: the plan shrinks to %s",
                    slow.tile_s,
                    self.budget.left_s(),
                    self._plan.name,
                )
            except NotANumberError:
                raise NoPassFitsError("the network answers NaN or infinity") from None
            else:
                return self._progress(logits, 1, first)

    def _whole_pass(self, step: Pass) -> _Float:
        """One pass by the plan, on the next backend where one fails; logits of the whole grid."""
        plan = self._plan_of(step)
        while True:
            backend = self._backend_of(step)
            try:
                network = self.networks.of(step.fold, backend.device)
                self._tensor = self._tensor.to(backend.sums)
                self._begun_s = self.budget.clock()
                found = slide(self._tensor, step.axes, network, plan, backend, self._tile_done)
                logits = self._spread(found.numpy())
            except (RuntimeError, MemoryError) as problem:
                if not is_device_failure(problem):
                    raise
                reason = (str(problem) or type(problem).__name__).splitlines()[0]
            else:
                self.seen(step, logits)
                return logits
            self._turn_to_next(step, backend, reason)

    def _turn_to_next(self, step: Pass, failed: Backend, reason: str) -> None:
        self.networks.forget()
        release(failed.device)
        self._tensor = torch.from_numpy(self.data)
        rung = self._rungs.get(self._member(step), 0) + 1
        if rung == len(self._ladder):
            raise NoPassFitsError(f"{failed} failed: {reason}")
        self._rungs[self._member(step)] = rung
        LOGGER.warning("*** WARNING *** %s failed (%s), going on with %s", failed, reason, self._ladder[rung])

    def _tile_done(self, number: int, count: int) -> None:
        """Judge after each tile whether the pass ends in time; the first tile also pays for warming up."""
        if self.stop():
            raise StoppedError("an end was asked for")
        now_s, left = self.budget.clock(), count - number
        if number == 1:
            self._warm_s = now_s
        tile_s = now_s - self._begun_s if number == 1 else (now_s - self._warm_s) / (number - 1)
        judged = number > 1 or not self.budget.fits(tile_s)
        if left and judged and not self.budget.fits(left * tile_s):
            raise _TooSlowError(tile_s)

    def _spread(self, logits: _Float) -> _Float:
        """Logits of the plan's box on the whole grid, background where the plan did not look."""
        shape = self.data.shape[1:]
        if logits.shape[1:] == shape:
            return logits
        full = np.full((logits.shape[0], *shape), -NOT_LOOKED_AT, dtype=np.float32)
        full[0] = NOT_LOOKED_AT
        full[(slice(None), *self._plan.box)] = logits
        return full

    def _full_plan(self, step: float) -> Plan:
        name = "the whole region" if step == TILE_STEP else f"the whole region, tiles {step:g} of a patch apart"
        return Plan(whole(self.data.shape[1:]), step, self._first_patch, name)

    @property
    def _first_patch(self) -> tuple[int, int, int]:
        return self.networks.package.patch_of(self.passes[0].fold)

    def _smaller_plan(self, tile_s: float) -> Plan:
        """The best plan of fewer tiles than the present one that fits what is left."""
        now = len(self._plan.tiles)
        for plan in self._shrunken_plans():
            tiles = len(plan.tiles)
            if tiles < now and self.budget.fits(SLOWER * tiles * tile_s):
                return plan
        raise NoPassFitsError(f"{tile_s:.2f} s a tile, {self.budget.left_s():.1f} s left")

    def _shrunken_plans(self) -> Iterator[Plan]:
        for step in COARSER_STEPS:
            yield self._full_plan(step)
        box = self.focus()
        if box is not None:
            for step in (TILE_STEP, *COARSER_STEPS):
                yield Plan(box, step, self._first_patch, f"what is hot in the PET, tiles {step:g} of a patch apart")
