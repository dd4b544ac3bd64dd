"""The numbers behind the page of a training."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baseline.network.progress.curves import Curves, curves_of, moving_average, read_curves, write_curves
from contract.errors import InputError


def curves(seconds: tuple[float, ...] = (30.0, 10.0, 12.0, 11.0), epochs: int = 10, **changes: Any) -> Curves:
    some = (0.5,) * len(seconds)
    values: dict[str, Any] = {
        "network": "Trainer__plans__3d", "name": "fold 0", "fold": 0, "epochs": epochs, "written": 1000.0,
        "seconds": seconds, "learning_rate": some, "training_loss": some, "validation_loss": some,
        "dice": {"GTVp": some, "GTVn": some},
    }  # fmt: skip
    return Curves(**values | changes)


def test_moving_average_by_hand() -> None:
    """0.9 x 0.5 + 0.1 x 1 = 0.55; 0.9 x 0.55 + 0.1 x 0 = 0.495; a gap changes nothing."""
    assert moving_average([None, 0.5, None, 1.0, 0.0]) == pytest.approx((None, 0.5, 0.5, 0.55, 0.495))
    assert moving_average([None, None]) == (None, None)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_moving_average_stays_between_lowest_and_highest(values: list[float]) -> None:
    for place, average in enumerate(moving_average(values)):
        assert average is not None
        assert min(values[: place + 1]) - 1e-12 <= average <= max(values[: place + 1]) + 1e-12


def test_moving_average_is_nnunets() -> None:
    from nnunetv2.training.logging.nnunet_logger import MetaLogger

    values, logger = [0.1, 0.9, 0.4, 0.7], MetaLogger("", False)
    for epoch, value in enumerate(values):
        logger.log("mean_fg_dice", value, epoch)
    assert moving_average(values) == pytest.approx(logger.get_value("ema_fg_dice", None))


def test_estimated_end_by_hand() -> None:
    """Of 30, 10, 12 and 11 s the lower median is 11 s; six of ten epochs are left, 66 s after 1000."""
    running = curves()
    assert running.epoch_seconds == 11.0
    assert running.estimated_end == 1066.0
    assert not running.finished


def test_estimated_end_counts_the_latest_ten_epochs_and_no_pause() -> None:
    assert curves((99.0,) * 20 + (2.0,) * 10, epochs=31).estimated_end == 1002.0
    assert curves((10.0, 3600.0), epochs=3).estimated_end == 1010.0
    done = curves((10.0, 10.0), epochs=2)
    assert done.finished
    assert done.estimated_end == 1000.0


def test_curves_of_a_trainer(tmp_path: Path) -> None:
    """Epochs begun at 0, 10 and 25 s and looked at after 40 s took 10, 15 and 15 s; NaN is no value. The third label is
    an organ.
    """
    logged: dict[str, list[Any]] = {
        "epoch_start_timestamps": [0.0, 10.0, 25.0],
        "lrs": [0.1, 0.05, 0.01],
        "train_losses": [1.0, 0.5, float("inf")],
        "val_losses": [2.0, 1.0, 0.5],
        "dice_per_class_or_region": [[0.1, float("nan"), 0.9], [0.2, 0.3, 0.9], [0.4, 0.5, 0.9]],
    }
    trainer = SimpleNamespace(
        output_folder=str(tmp_path / "Trainer__plans__3d" / "fold_1"), fold=1, num_epochs=5,
        logger=SimpleNamespace(get_value=lambda key, step: logged[key]),
    )  # fmt: skip
    found = curves_of(trainer, "fold 1", 40.0)
    assert found == Curves(
        network="Trainer__plans__3d", name="fold 1", fold=1, epochs=5, written=40.0, seconds=(10.0, 15.0, 15.0),
        learning_rate=(0.1, 0.05, 0.01), training_loss=(1.0, 0.5, None), validation_loss=(2.0, 1.0, 0.5),
        dice={"GTVp": (0.1, 0.2, 0.4), "GTVn": (None, 0.3, 0.5)},
    )  # fmt: skip
    path = tmp_path / "kept" / "curves.json"
    write_curves(path, found)
    assert read_curves(path) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, r"fold_0/curves\.json: format version 2, expected 1"),
        ({"seconds": [1.0]}, r"fold_0/curves\.json: lists of \[1, 4\] epochs, expected one value per epoch in each"),
        ({"surprise": 1}, r"fold_0/curves\.json: .*surprise.*, expected the curves of a fold"),
        ({"dice": None}, r"fold_0/curves\.json: .*, expected the curves of a fold"),
    ],
)
def test_other_content_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "fold_0" / "curves.json"
    write_curves(path, curves())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=message):
        read_curves(path)


def test_a_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    path.write_text("[]")
    with pytest.raises(InputError, match="format version None, expected 1"):
        read_curves(path)
