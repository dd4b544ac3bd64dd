"""What a trainer calls at the end of each epoch so that the page of the training keeps up with it.

Nothing here may stop or change a training: what fails is one line of warning, the random states and the network are
left as they were, and the page is made less often where it would take too much of the time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from baseline.network.progress.curves import Curves
    from baseline.network.progress.patients import Window
    from baseline.work import Work

LOGGER = logging.getLogger("hecktor")
# Of the time since the training began, for the curves with the page and for the pictures each.
_SHARE: Final = 0.01
_PICTURE_EPOCHS: Final = 5


@dataclass
class Allowance:
    """Time that something may take: no more than `share` of what has passed, the first time whatever it is."""

    share: float
    clock: Callable[[], float] = time.monotonic
    spent_s: float = 0.0
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    @property
    def due(self) -> bool:
        """Whether what was spent so far is within the share."""
        return self.spent_s <= self.share * (self.clock() - self.began_s)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time within."""
        began = self.clock()
        try:
            yield
        finally:
            self.spent_s += self.clock() - began


@dataclass
class Watcher:
    """Follows one trainer from the beginning of its process on."""

    curves: Allowance = field(default_factory=lambda: Allowance(_SHARE))
    pictures: Allowance = field(default_factory=lambda: Allowance(_SHARE))
    latest: Curves | None = None
    windows: tuple[Window, ...] | None = None
    drawn_after: int | None = None
    told: bool = False
    warned: set[str] = field(default_factory=set)

    def after_epoch(self, trainer: Any) -> None:
        """Bring the fold's files and the page up to date, where it is time for it.

        Args:
            trainer: an `nnUNetTrainer` that has ended an epoch and counted it. Of several processes of one training
                only the first does anything.
        """
        if trainer.local_rank != 0:
            return
        try:
            from baseline.network.progress.patients import randomness_kept

            with randomness_kept(trainer.device):
                last = trainer.current_epoch >= trainer.num_epochs
                show = self.curves.due or last
                self._try("curves", self.curves, self._keep, trainer)
                if self._picture_due(trainer.current_epoch) or last:
                    self._try("pictures of validation patients", self.pictures, self._draw, trainer)
                if show:
                    self._try("page", self.curves, self._show, trainer)
        except Exception as problem:  # noqa: BLE001  no fault of the page is worth a training
            self._warn("page", problem)

    def _picture_due(self, epoch: int) -> bool:
        return self.pictures.due and (self.drawn_after is None or epoch - self.drawn_after >= _PICTURE_EPOCHS)

    def _try(self, what: str, allowance: Allowance, step: Callable[[Any], None], trainer: Any) -> None:
        try:
            with allowance.spending():
                step(trainer)
        except Exception as problem:  # noqa: BLE001  no fault of the page is worth a training
            self._warn(what, problem)

    def _warn(self, what: str, problem: Exception) -> None:
        """One line for each kind of failure: it may well come back after every epoch."""
        said = " ".join(f"{what} left out ({type(problem).__name__}: {problem})".split())
        if said not in self.warned:
            self.warned.add(said)
            LOGGER.warning("*** WARNING *** training page: %s; the training goes on", said)

    def _draw(self, trainer: Any) -> None:
        from baseline.network.progress.figures import patients_jpeg
        from baseline.network.progress.page import PICTURE
        from baseline.network.progress.patients import fixed_windows, predicted
        from contract.files import write_bytes

        self.drawn_after = trainer.current_epoch
        if self.windows is None:
            self.windows = fixed_windows(trainer)
        if self.windows:
            masks = predicted(trainer, self.windows)
            write_bytes(_fold_folder(trainer) / PICTURE, patients_jpeg(self.windows, masks, trainer.current_epoch))

    def _keep(self, trainer: Any) -> None:
        """Every time, since it is quick: without news of it a fold would pass for stopped."""
        from baseline.network.progress.curves import curves_of, write_curves
        from baseline.network.progress.page import CURVES

        self.latest = None
        curves = curves_of(trainer, _name(trainer), time.time())
        write_curves(_fold_folder(trainer) / CURVES, curves)
        self.latest = curves

    def _show(self, trainer: Any) -> None:
        from baseline.network.progress.figures import curves_svg
        from baseline.network.progress.page import FIGURE, write_page
        from contract.files import write_text

        if self.latest is not None:
            write_text(_fold_folder(trainer) / FIGURE, curves_svg(self.latest))
        page = write_page(_work(trainer).training, time.time())
        if not self.told:
            trainer.print_to_log_file(f"training page: {page}")
            self.told = True


def _work(trainer: Any) -> Work:
    """The working directory, above nnunet/results/<data set>/<network>/fold_<number>."""
    from baseline.work import Work

    return Work(Path(trainer.output_folder).parents[4])


def _fold_folder(trainer: Any) -> Path:
    output = Path(trainer.output_folder)
    return _work(trainer).training / output.parent.name / output.name


def _name(trainer: Any) -> str:
    """What the split is called: `fold 3`, `without CHUM`."""
    from baseline.release.splits import read_splits

    path = _work(trainer).splits_json
    names = read_splits(path).names if path.is_file() else ()
    fold = int(trainer.fold)
    return names[fold] if fold < len(names) else f"fold {fold}"
