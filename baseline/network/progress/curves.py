"""How the training of a fold goes, epoch by epoch, as the page shows it: `curves.json`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from contract import labels
from contract.errors import InputError
from contract.files import read_json, write_json

FORMAT_VERSION: Final = 1
# What nnU-Net's own moving average keeps of the epochs before.
KEPT: Final = 0.9
# So many epochs tell how long one takes.
_RECENT: Final = 10

Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Curves:
    """The epochs of one fold so far.

    Every tuple has one value an epoch, None where it was no finite number: the Dice of a structure that neither
    the patches nor the prediction had. `seconds` last from one epoch's begin to the next one's; `written` is when the
    latest epoch ended, in seconds since 1970. `network` is the folder of nnU-Net's results, `name` what the split is
    called, `epochs` how many are planned.
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
        """How many epochs have ended."""
        return len(self.seconds)

    @property
    def finished(self) -> bool:
        """Whether the last of the planned epochs has ended."""
        return self.done >= self.epochs

    @property
    def epoch_seconds(self) -> float:
        """What one of the latest ten epochs took: the lower median, which a pause before a resumption cannot move."""
        return statistics.median_low(self.seconds[-_RECENT:])

    @property
    def estimated_end(self) -> float:
        """When the last epoch will have ended, in seconds since 1970, if the others take as long as the latest."""
        return self.written + max(0, self.epochs - self.done) * self.epoch_seconds


def moving_average(values: Iterable[float | None]) -> Values:
    """nnU-Net's exponential moving average: 0.9 of the one before and 0.1 of the value, from the first value on.

    Where there is no value, the average stays what it was: None before the first.
    """
    average: float | None = None
    averages = []
    for value in values:
        if value is not None:
            average = value if average is None else KEPT * average + (1 - KEPT) * value
        averages.append(average)
    return tuple(averages)


def curves_of(trainer: Any, name: str, now: float) -> Curves:
    """What nnU-Net's trainer has logged of the epochs that have ended, those before a resumption among them.

    Args:
        trainer: an `nnUNetTrainer` at the end of an epoch.
        name: what the split is called.
        now: seconds since 1970.
    """

    def logged(key: str) -> Sequence[Any]:
        values: Sequence[Any] = trainer.logger.get_value(key, step=None)
        return values

    begins = [float(begin) for begin in logged("epoch_start_timestamps")]
    each_structure = zip(*logged("dice_per_class_or_region"), strict=True)
    structures = [labels.NAMES[value] for value in labels.FOREGROUND]
    return Curves(
        network=Path(trainer.output_folder).parent.name,
        name=name,
        fold=int(trainer.fold),
        epochs=int(trainer.num_epochs),
        written=now,
        seconds=tuple(end - begin for begin, end in zip(begins, [*begins[1:], now], strict=True)),
        learning_rate=_finite(logged("lrs")),
        training_loss=_finite(logged("train_losses")),
        validation_loss=_finite(logged("val_losses")),
        dice={label: _finite(values) for label, values in zip(structures, each_structure, strict=True)},
    )


def write_curves(path: Path, curves: Curves) -> None:
    """Keep the curves, whole or not at all."""
    write_json(path, {"format_version": FORMAT_VERSION, **asdict(curves)}, indent=None)


def read_curves(path: Path) -> Curves:
    """Read what `write_curves` wrote.

    Raises:
        InputError: the file is of another version, or its lists differ in length.
    """
    record = read_json(path)
    version = record.pop("format_version", None) if isinstance(record, dict) else None
    where = f"{path.parent.name}/{path.name}"
    if version != FORMAT_VERSION:
        raise InputError(where, f"format version {version}", f"{FORMAT_VERSION}")
    try:
        dice = {label: tuple(values) for label, values in record.pop("dice").items()}
        rest: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in record.items()
        }
        curves = Curves(dice=dice, **rest)
    except (AttributeError, KeyError, TypeError) as problem:
        raise InputError(where, f"{problem}", "the curves of a fold") from None
    lists = (curves.learning_rate, curves.training_loss, curves.validation_loss, *dice.values())
    lengths = {len(values) for values in (curves.seconds, *lists)}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(where, f"lists of {sorted(lengths)} epochs", "one value an epoch in each")
    return curves


def _finite(values: Iterable[Any]) -> Values:
    return tuple(float(value) if math.isfinite(value) else None for value in values)
