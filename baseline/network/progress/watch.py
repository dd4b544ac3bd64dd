"""Update the training page at the end of each epoch.

Nothing here may stop or change a training: a failure is one line of warning, random states and network are restored,
and the page is updated less often if it would take too much time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from baseline.network.progress.curves import CURVES, Curves, curves_of, write_curves
from baseline.network.progress.figures import curves_svg, patients_jpeg
from baseline.network.progress.page import FIGURE, PICTURE, write_page
from baseline.network.progress.patients import Window, fixed_windows, predicted, preserved_randomness
from baseline.release.splits import read_splits
from baseline.work import WorkFolders, work_of_results
from contract.files import write_bytes, write_text

LOGGER = logging.getLogger("hecktor")
# Share of the elapsed time for the curves with the page, and another for the pictures.
_SHARE: Final = 0.01
_PICTURE_EPOCHS: Final = 5


class TimeShare:
    """A task's time: at most `share` of the elapsed time. The first run is always allowed."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.share, self.clock, self.start_s, self.spent_s = share, clock, clock(), 0.0

    @property
    def due(self) -> bool:
        return self.spent_s <= self.share * (self.clock() - self.start_s)

    @contextmanager
    def spending(self) -> Iterator[None]:
        start = self.clock()
        try:
            yield
        finally:
            self.spent_s += self.clock() - start


@dataclass
class TrainingPage:
    """Curves, pictures and page of one trainer during one process."""

    curves: TimeShare = field(default_factory=lambda: TimeShare(_SHARE))
    pictures: TimeShare = field(default_factory=lambda: TimeShare(_SHARE))
    latest: Curves | None = None
    windows: tuple[Window, ...] | None = None
    drawn_epoch: int | None = None
    announced: bool = False
    warned: set[str] = field(default_factory=set)

    def after_epoch(self, trainer: Any) -> None:
        """Update the fold's files and the page if they are due; with DDP only the first process acts.

        The `trainer`, an `nnUNetTrainer`, has ended and counted an epoch.
        """
        if trainer.local_rank != 0:
            return
        try:
            with preserved_randomness(trainer.device):
                last = trainer.current_epoch >= trainer.num_epochs
                show = self.curves.due or last
                self._try("curves", self.curves, self._write_curves, trainer)
                if self._picture_due(trainer.current_epoch) or last:
                    self._try("pictures of validation patients", self.pictures, self._draw_pictures, trainer)
                if show:
                    self._try("page", self.curves, self._write_page, trainer)
        except Exception as problem:  # noqa: BLE001  a fault of the page must not end a training
            self._warn("page", problem)

    def _picture_due(self, epoch: int) -> bool:
        return self.pictures.due and (self.drawn_epoch is None or epoch - self.drawn_epoch >= _PICTURE_EPOCHS)

    def _try(self, what: str, time_share: TimeShare, step: Callable[[Any], None], trainer: Any) -> None:
        try:
            with time_share.spending():
                step(trainer)
        except Exception as problem:  # noqa: BLE001  a fault of the page must not end a training
            self._warn(what, problem)

    def _warn(self, what: str, problem: Exception) -> None:
        """Log each kind of failure once, since it may recur after every epoch."""
        message = " ".join(f"no {what} ({type(problem).__name__}: {problem})".split())
        if message not in self.warned:
            self.warned.add(message)
            LOGGER.warning("*** WARNING *** training page: %s; the training continues", message)

    def _draw_pictures(self, trainer: Any) -> None:
        self.drawn_epoch = trainer.current_epoch
        if self.windows is None:
            self.windows = fixed_windows(trainer)
        if self.windows:
            masks = predicted(trainer, self.windows)
            write_bytes(_fold_folder(trainer) / PICTURE, patients_jpeg(self.windows, masks, trainer.current_epoch))

    def _write_curves(self, trainer: Any) -> None:
        """Write the curves after every epoch: a fold without news would look stopped."""
        self.latest = None
        curves = curves_of(trainer, _name(trainer), time.time())
        write_curves(_fold_folder(trainer) / CURVES, curves)
        self.latest = curves

    def _write_page(self, trainer: Any) -> None:
        if self.latest is not None:
            write_text(_fold_folder(trainer) / FIGURE, curves_svg(self.latest))
        page = write_page(_work(trainer).training, time.time())
        if not self.announced:
            trainer.print_to_log_file(f"training page: {page}")
            self.announced = True


def _work(trainer: Any) -> WorkFolders:
    """The working directory, above nnunet/results/<data set>/<network>/fold_<number>."""
    return work_of_results(Path(trainer.output_folder))


def _fold_folder(trainer: Any) -> Path:
    output = Path(trainer.output_folder)
    return _work(trainer).training / output.parent.name / output.name


def _name(trainer: Any) -> str:
    """Name of the split, such as `fold 3` or `without CHUM`."""
    work = _work(trainer)
    names = read_splits(work).names if work.splits_json.is_file() else ()
    fold = int(trainer.fold)
    return names[fold] if fold < len(names) else f"fold {fold}"
