"""Curves, pictures and page after a trainer's epochs, and that the training is not disturbed."""
# ruff: noqa: NPY002 - nnU-Net draws from the global state

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
from nnunetv2.training.logging.nnunet_logger import MetaLogger
from torch import nn

from baseline.network.progress.patients import chosen, cut, dice, fixed_windows, largest_lesion, predicted
from baseline.network.progress.watch import TimeShare, TrainingPage
from contract.errors import InputError
from contract.files import read_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume

SHAPE, PATCH = (6, 8, 10), (4, 4, 12)
DATA_SET, NETWORK = "Dataset101_HECKTOR", "ShortTrainer__hecktorPlans__3d_fullres"


class Restless(nn.Module):
    """Predicts the labels in the second channel, has a dropout and a norm, and draws from every random state."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.norm = nn.Dropout(0.9), nn.BatchNorm3d(2, affine=False)

    def forward(self, data: torch.Tensor) -> list[torch.Tensor]:
        assert not any(module.training for module in self.modules())
        assert not torch.is_grad_enabled()
        torch.rand(1), np.random.rand(), random.random()
        target = self.dropout(self.norm(data))[:, 1]
        return [torch.stack([(target - label).abs().neg() for label in range(3)], 1)]


class FakeTrainer:
    """The part of nnU-Net's trainer that the page uses, with its logger and data sets; an epoch takes one second."""

    def __init__(self, work: Path, order: tuple[int, int, int] = (0, 1, 2), epochs: int = 3) -> None:
        nnunet = work / "nnunet"
        self.output_folder = str(nnunet / "results" / DATA_SET / NETWORK / "fold_0")
        self.preprocessed_dataset_folder_base = str(nnunet / "preprocessed" / DATA_SET)
        self.preprocessed_dataset_folder = f"{self.preprocessed_dataset_folder_base}/hecktorPlans_3d_fullres"
        self.dataset_class, self.dataset_json = nnUNetDatasetBlosc2, {"file_ending": ".nii.gz"}
        self.fold, self.num_epochs, self.current_epoch, self.local_rank = 0, epochs, 0, 0
        self.device, self.network = torch.device("cpu"), Restless()
        self.plans_manager = SimpleNamespace(
            transpose_forward=list(order), transpose_backward=[int(axis) for axis in np.argsort(order)]
        )
        self.configuration_manager = SimpleNamespace(
            spacing=[(3.0, 2.0, 2.0)[axis] for axis in order], patch_size=[PATCH[axis] for axis in order]
        )
        self.logger = MetaLogger(self.output_folder, False)
        self.log_lines: list[str] = []

    def print_to_log_file(self, text: str) -> None:
        self.log_lines.append(text)

    def epoch(self) -> None:
        now = 1000.0 + self.current_epoch
        values = {
            "epoch_start_timestamps": now, "lrs": 0.1, "train_losses": 1.0, "val_losses": 1.0,
            "dice_per_class_or_region": [0.5, float("nan")],
        }  # fmt: skip
        for key, value in values.items():
            self.logger.log(key, value, self.current_epoch)
        self.current_epoch += 1


def reference(size: int) -> np.ndarray:
    """A GTVp of `size` voxels in a row at z = 4, y = 6 and a GTVn of one voxel."""
    mask = np.zeros(SHAPE, dtype=np.int8)
    mask[4, 6, :size] = 1
    mask[0, 0, 9] = 2 if size else 0
    mask[5, 7, 9] = -1  # nnU-Net's mark outside the scan
    return mask


def write_patient(trainer: FakeTrainer, name: str, mask: np.ndarray) -> None:
    """Prepared: CT is ten times x and PET y, x of twice the resolution after a margin of two; nnU-Net cuts that off."""
    wide = (SHAPE[0], SHAPE[1], 2 * SHAPE[2] + 2)
    _, y, x = np.meshgrid(*(np.arange(length, dtype=np.float32) for length in wide), indexing="ij")
    grid = Geometry(
        size=wide[::-1], spacing_mm=(1.0, 2.0, 3.0), origin_mm=(0, 0, 0), direction=(1, 0, 0, 0, 1, 0, 0, 0, 1)
    )
    images = Path(trainer.preprocessed_dataset_folder_base).parents[1] / "raw" / DATA_SET / "imagesTr"
    images.mkdir(parents=True, exist_ok=True)
    for number, scan in enumerate((10 * x, y)):
        write_volume(images / f"{name}_{number:04d}.nii.gz", Volume(scan, grid))
    order = trainer.plans_manager.transpose_forward
    box = [[0, wide[0]], [0, wide[1]], [2, wide[2]]]
    data = np.stack([np.zeros(SHAPE), np.maximum(mask, 0)]).astype(np.float32)
    nnUNetDatasetBlosc2.save_case(
        np.ascontiguousarray(data.transpose(0, *(1 + axis for axis in order))),
        np.ascontiguousarray(mask[None].transpose(0, *(1 + axis for axis in order))),
        {"bbox_used_for_cropping": [box[axis] for axis in order]},
        f"{trainer.preprocessed_dataset_folder}/{name}",
        chunks=(1, 4, 4, 4), blocks=(1, 2, 2, 2),
    )  # fmt: skip


def prepared(work: Path, **options: Any) -> FakeTrainer:
    """A trainer with four validation patients, one of them without a lesion."""
    trainer = FakeTrainer(work, **options)
    Path(trainer.preprocessed_dataset_folder).mkdir(parents=True)
    sizes = {"CHUM-001": 9, "CHUM-002": 0, "HMR-003": 2, "HMR-004": 5}
    for name, size in sizes.items():
        write_patient(trainer, name, reference(size))
    splits = Path(trainer.preprocessed_dataset_folder_base) / "splits_final.json"
    splits.write_text(json.dumps([{"train": [], "val": list(sizes)}]))
    return trainer


@pytest.fixture(autouse=True)
def random_states() -> Iterator[None]:
    """Restore the random states for the following tests."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def always(page: TrainingPage) -> TrainingPage:
    """The page without a limit of its time."""
    page.curves.share = page.pictures.share = 1e9
    return page


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(1))


def test_smallest_median_and_largest() -> None:
    """Of five sizes above zero the third is the median, of four the second."""
    sizes = {"a": 5, "b": 0, "c": 1, "d": 9, "e": 7, "f": 3}
    assert chosen(sizes) == ["c", "a", "d"]
    del sizes["d"]
    assert chosen(sizes) == ["c", "f", "e"]
    assert chosen({"b": 0, "a": 2}) == ["a"]
    assert chosen({"b": 2, "a": 2}) == ["a", "b"]
    assert chosen({"b": 0}) == chosen({}) == []


def test_largest_lesion_is_of_one_label() -> None:
    """Two GTVp voxels that touch by a corner are larger than one GTVn voxel beside them."""
    mask = np.zeros((3, 4, 4), dtype=np.uint8)
    mask[0, 0, 0] = mask[1, 1, 1] = 1
    mask[1, 1, 2] = mask[2, 3, 3] = 2
    assert np.argwhere(largest_lesion(mask)).tolist() == [[0, 0, 0], [1, 1, 1]]
    with pytest.raises(InputError, match="a reference without GTVp or GTVn"):
        largest_lesion(np.zeros_like(mask))


def test_a_window_beyond_the_image_is_filled_with_zeros() -> None:
    array = np.arange(1, 7).reshape(1, 1, 2, 3)
    assert cut(array, (0, 0, 1), (2, 1, 3)).tolist() == [[[[2, 3, 0]], [[0, 0, 0]]]]


def test_dice_by_hand() -> None:
    """One voxel in common of two and three: 2 / 5."""
    a, b = np.array([1, 1, 0, 0, 2], dtype=np.uint8), np.array([0, 1, 1, 1, 0], dtype=np.uint8)
    assert dice(a, b, 1) == pytest.approx(0.4)
    assert dice(a, b, 2) == 0
    assert dice(b, b, 2) is None


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_windows_for_each_order_of_the_plans_axes(tmp_path: Path, order: tuple[int, int, int]) -> None:
    """The patch of (4, 4, 12) around the row at z = 4, y = 6 lies at (2, 4, 0) and reaches beyond x.

    Preprocessed x = i lies at 2 + 2 i + 0.5 of the prepared image, whose CT is ten times that: 25, 45, ... HU. Its
    PET is y: 4, 5, 6, 7. Voxels of 3 x 2 x 2 mm have 0.012 ml; patients have one voxel more than the row.
    """
    trainer = prepared(tmp_path, order=order)
    windows = fixed_windows(trainer)
    assert [window.patient_id for window in windows] == ["HMR-003", "HMR-004", "CHUM-001"]
    assert [window.volume_ml for window in windows] == pytest.approx([3 * 0.012, 6 * 0.012, 10 * 0.012])
    for window, size in zip(windows, (2, 5, 9), strict=True):
        assert window.plane == 2
        assert window.pixel_mm == (2.0, 2.0)
        assert np.argwhere(window.reference).tolist() == [[2, 2, x] for x in range(size)]
        assert window.patch.shape == (2, *(PATCH[axis] for axis in order))
        assert window.ct_hu.shape == window.pet_suv.shape == PATCH[1:]
        assert window.ct_hu[:, :10] == pytest.approx(np.tile(25 + 20 * np.arange(10.0), (4, 1)))
        assert window.pet_suv[:, :10] == pytest.approx(np.tile(np.arange(4.0, 8)[:, None], (1, 10)))
        assert window.ct_hu[:, 11] == pytest.approx(-1024)
    trainer.network.norm.running_mean, trainer.network.norm.running_var = torch.zeros(2), torch.ones(2)
    for window, mask in zip(windows, predicted(trainer, windows), strict=True):
        assert np.array_equal(mask, window.reference)


def test_epochs_of_a_training(tmp_path: Path) -> None:
    trainer, page = prepared(tmp_path), always(TrainingPage())
    folder = tmp_path / "training"
    for epoch in range(1, 4):
        trainer.epoch()
        page.after_epoch(trainer)
        curves = read_json(folder / NETWORK / "fold_0" / "curves.json")
        assert curves["dice"] == {"GTVp": [0.5] * epoch, "GTVn": [None] * epoch}
        assert f"{epoch} of 3" in (folder / "index.html").read_text()
    assert trainer.log_lines == [f"training page: {folder / 'index.html'}"]
    page = (folder / "index.html").read_text()
    assert "1 started, 1 finished" in page
    assert page.count("<img") == page.count("<svg") == 1
    picture = (folder / NETWORK / "fold_0" / "validation.jpg").read_bytes()
    assert picture[:3] == b"\xff\xd8\xff"
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "curves.json", "curves.svg", "index.html", "validation.jpg"
    ]  # fmt: skip


def test_curves_go_on_after_a_resumption(tmp_path: Path) -> None:
    """Two epochs, then a third by the trainer of another process with the stored logger."""
    first = prepared(tmp_path)
    for _ in range(2):
        first.epoch()
    always(TrainingPage()).after_epoch(first)
    second = FakeTrainer(tmp_path)
    second.logger.load_checkpoint(first.logger.get_checkpoint())
    second.current_epoch = 2
    second.epoch()
    always(TrainingPage()).after_epoch(second)
    curves = read_json(tmp_path / "training" / NETWORK / "fold_0" / "curves.json")
    assert len(curves["training_loss"]) == 3
    assert curves["seconds"][:2] == [1.0, 1.0]


def test_the_training_is_not_disturbed(tmp_path: Path) -> None:
    """Random states, weights, norms and modes are as before, though the network draws from all states."""
    trainer = prepared(tmp_path)
    trainer.network.train()
    trainer.network.norm.eval()  # not all modules need be in one mode
    weights = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    trainer.epoch()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    undisturbed = draws()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    always(TrainingPage()).after_epoch(trainer)
    assert draws() == undisturbed
    assert (tmp_path / "training" / NETWORK / "fold_0" / "validation.jpg").is_file()
    assert trainer.network.training
    assert trainer.network.dropout.training
    assert not trainer.network.norm.training
    after = trainer.network.state_dict()
    assert all(torch.equal(after[name], value) for name, value in weights.items())


def test_a_failure_is_one_line_and_the_rest_is_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without preprocessed data there are no pictures, and one warning says so, not one after every epoch."""
    trainer, page = FakeTrainer(tmp_path, epochs=20), always(TrainingPage())
    with caplog.at_level(logging.WARNING, logger="hecktor"):
        for _ in range(2):
            page.drawn_epoch = None
            trainer.epoch()
            page.after_epoch(trainer)
    (record,) = caplog.records
    assert re.fullmatch(
        r"\*\*\* WARNING \*\*\* training page: no pictures of validation patients \(InputError: "
        r"splits_final\.json: not found .*\); the training continues",
        record.getMessage(),
    )
    assert "2 of 20" in (tmp_path / "training" / "index.html").read_text()


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "training").write_text("in the way")
    trainer = prepared(tmp_path)
    trainer.epoch()
    with caplog.at_level(logging.WARNING, logger="hecktor"):
        always(TrainingPage()).after_epoch(trainer)
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        f"*** WARNING *** training page: no {what}" for what in ("curves", "pictures of validation patients", "page")
    ]


def test_only_the_first_of_several_processes_writes(tmp_path: Path) -> None:
    trainer = prepared(tmp_path)
    trainer.local_rank = 1
    trainer.epoch()
    always(TrainingPage()).after_epoch(trainer)
    assert not (tmp_path / "training").exists()


def test_an_allowance_by_hand() -> None:
    """3 s spent are 1% of 300 s."""
    now = [1000.0]
    share = TimeShare(0.01, lambda: now[0])
    assert share.due
    with share.spending():
        now[0] += 3
    for passed, due in ((10, False), (299.9, False), (300, True)):
        now[0] = 1000.0 + passed
        assert share.due == due


def test_pictures_come_every_five_epochs_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, page = FakeTrainer(tmp_path, epochs=9), always(TrainingPage())
    drawn = []

    def draw(trainer: Any) -> None:
        page.drawn_epoch = trainer.current_epoch
        drawn.append(trainer.current_epoch)

    monkeypatch.setattr(page, "_draw_pictures", draw)
    monkeypatch.setattr(page, "_write_page", lambda trainer: None)
    for _ in range(9):
        trainer.epoch()
        page.after_epoch(trainer)
    assert drawn == [1, 6, 9]


def test_no_page_beyond_the_allowance_but_first_and_last(tmp_path: Path) -> None:
    """The curves are written anyway, so that other folds' pages have them."""
    trainer, page = FakeTrainer(tmp_path, epochs=4), TrainingPage()
    page.curves = TimeShare(0.0)
    epochs, shown = [], []
    for _ in range(4):
        trainer.epoch()
        page.after_epoch(trainer)
        epochs.append(len(read_json(tmp_path / "training" / NETWORK / "fold_0" / "curves.json")["seconds"]))
        shown += re.findall(r"(\d) of 4<", (tmp_path / "training" / "index.html").read_text())
    assert epochs == [1, 2, 3, 4]
    assert shown == ["1", "1", "1", "4"]
