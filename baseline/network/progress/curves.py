"""Learning curves of a fold, epoch by epoch, stored as `curves.json`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from contract import labels
from contract.errors import InputError
from contract.files import read_json, write_json

FORMAT_VERSION: Final = 1
CURVES: Final = "curves.json"
# Weight of earlier epochs in nnU-Net's moving average.
DECAY: Final = 0.9
# Number of epochs from which the time of one is estimated.
_RECENT: Final = 10

Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Curves:
    """Finished epochs of one fold.

    Every tuple has one value per epoch; None is a value that is not finite, such as the Dice of a structure that is
    absent from patches and prediction. `seconds` run from the start of an epoch to the start of the next. `written` is
    the end of the latest epoch in seconds since 1970. `network` is the folder of nnU-Net's results, `name` the name of
    the split, `epochs` the number of planned epochs.
    """

    network: str
    name: str
    fold: int
    epochs: int
    written: float
    seconds: tuple[float, ...]
    learning_rate: Values
    training_loss: Values
    validation_loss: Values
    dice: Mapping[str, Values]

    @property
    def done(self) -> int:
        return len(self.seconds)

    @property
    def finished(self) -> bool:
        return self.done >= self.epochs

    @property
    def epoch_seconds(self) -> float:
        """Lower median of the latest ten epochs, which a pause before a resumption does not affect."""
        return statistics.median_low(self.seconds[-_RECENT:])

    @property
    def estimated_end(self) -> float:
        """Expected end of the last epoch in seconds since 1970, at the speed of the latest ones."""
        return self.written + max(0, self.epochs - self.done) * self.epoch_seconds


def moving_average(values: Iterable[float | None]) -> Values:
    """nnU-Net's exponential moving average: 0.9 of the previous average plus 0.1 of the value.

    It starts at the first value, is None before, and stays the same at a missing value.
    """
    average: float | None = None
    averages = []
    for value in values:
        if value is not None:
            average = value if average is None else DECAY * average + (1 - DECAY) * value
        averages.append(average)
    return tuple(averages)


def curves_of(trainer: Any, name: str, now: float) -> Curves:
    """Curves of all finished epochs in the log of nnU-Net's trainer, including those before a resumption.

    `trainer` is an `nnUNetTrainer` at the end of an epoch, `name` the name of the split, `now` in seconds since 1970.
    """
    logged = partial(trainer.logger.get_value, step=None)
    starts = [float(start) for start in logged("epoch_start_timestamps")]
    each_structure = zip(*logged("dice_per_class_or_region"), strict=True)  # organs follow the tumours
    structures = [labels.NAMES[value] for value in labels.FOREGROUND]
    return Curves(
        network=Path(trainer.output_folder).parent.name,
        name=name,
        fold=int(trainer.fold),
        epochs=int(trainer.num_epochs),
        written=now,
        seconds=tuple(end - start for start, end in zip(starts, [*starts[1:], now], strict=True)),
        learning_rate=_finite(logged("lrs")),
        training_loss=_finite(logged("train_losses")),
        validation_loss=_finite(logged("val_losses")),
        dice={label: _finite(values) for label, values in zip(structures, each_structure, strict=False)},
    )


def write_curves(path: Path, curves: Curves) -> None:
    """Write `curves.json`."""
    write_json(path, {"format_version": FORMAT_VERSION, **asdict(curves)}, indent=None)


def read_curves(path: Path) -> Curves:
    """Read `curves.json`.

    Raises:
        InputError: another format version, or lists of different length.
    """
    record = read_json(path)
    version = record.pop("format_version", None) if isinstance(record, dict) else None
    where = f"{path.parent.name}/{path.name}"
    if version != FORMAT_VERSION:
        raise InputError(where, f"format version {version}", f"{FORMAT_VERSION}")
    try:
        dice = {label: tuple(values) for label, values in record.pop("dice").items()}
        rest: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in record.items()}
        curves = Curves(dice=dice, **rest)
    except (AttributeError, KeyError, TypeError) as problem:
        raise InputError(where, f"{problem}", "the curves of a fold") from None
    lists = (curves.learning_rate, curves.training_loss, curves.validation_loss, *dice.values())
    lengths = {len(values) for values in (curves.seconds, *lists)}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(where, f"lists of {sorted(lengths)} epochs", "one value per epoch in each")
    return curves


def _finite(values: Iterable[Any]) -> Values:
    return tuple(float(value) if math.isfinite(value) else None for value in values)
