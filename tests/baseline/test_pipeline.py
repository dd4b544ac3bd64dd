"""The steps' rules of what is done again: a plan until a network has a checkpoint, a mask that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from baseline.network.out_of_fold_files import OutOfFold

from baseline import pipeline
from baseline.network.nnunet import Folders
from baseline.network.plans import Plan
from baseline.pipeline import out_of_fold_features, plan_network
from baseline.release.data_set import DATASET_NAME
from baseline.release.splits import Splits
from baseline.work import Work
from contract.errors import HecktorError
from contract.files import read_json, write_json, write_text

PLAN = Plan(spacing_mm=(2.0, 2.0, 4.0))
OTHER = replace(PLAN, epochs=7)
# B-1 has no reference mask, so it is in neither side of nnU-Net's splits.
NNUNET_SPLITS = [
    {"train": ["A-2"], "val": ["A-1"]},
    {"train": ["A-1"], "val": ["A-2"]},
    {"train": [], "val": ["A-1", "A-2"]},
    {"train": ["A-1", "A-2"], "val": []},
]


@dataclass(frozen=True)
class _Case:
    patient_id: str
    mask: Path | None
    dose: None = None


@dataclass(frozen=True)
class Prepared(Work):
    """A working directory in which three patients of two centres were prepared."""

    def prepared(self) -> dict[str, Any]:
        return {"options": {"spacing_mm": [2.0, 2.0, 4.0]}, "data": "images"}

    def splits(self) -> Splits:
        return Splits(0, (("A-1",), ("A-2", "B-1")), {"A": ("A-1", "A-2"), "B": ("B-1",)})

    def cases(self) -> Any:
        return [_Case("A-1", Path("mask")), _Case("A-2", Path("mask")), _Case("B-1", None)]


Planned = list[tuple[int, list[dict[str, list[str]]]]]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Epochs and splits of each plan that nnU-Net, which is not asked, would have made; it leaves a file each time."""
    made: Planned = []

    def plan_and_preprocess(folders: Folders, plan: Plan, splits: list[dict[str, list[str]]], jobs: int) -> None:
        write_text(folders.preprocessed / DATASET_NAME / f"{plan.epochs}.npz", "preprocessed")
        made.append((plan.epochs, splits))

    monkeypatch.setattr(pipeline, "plan_and_preprocess", plan_and_preprocess)
    return made


def begun(work: Work, *files: str) -> None:
    """A fold of the plan that was begun, and what it has left in its folder."""
    folder = work.folders.fold(0)
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).touch()
    write_text(work.training / folder.parent.name / folder.name / "curves.json", "of a first epoch")


def found_in(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file and folder with its time of change and content."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*")}


@pytest.mark.parametrize("files", [(), ("training_log.txt", "checkpoint.txt")])
def test_a_plan_may_change_until_a_network_has_a_checkpoint(
    tmp_path: Path, planned: Planned, files: tuple[str, ...]
) -> None:
    """Nothing of the plan before is left, nor the curves of who trained by it."""
    work = Prepared(tmp_path)
    assert plan_network(work, replace(PLAN, spacing_mm=Plan.spacing_mm), 1) == PLAN
    begun(work, *files)
    assert plan_network(work, OTHER, 1) == OTHER == work.plan()
    assert planned == [(45, NNUNET_SPLITS), (7, NNUNET_SPLITS)]
    assert [path.name for path in (work.folders.preprocessed / DATASET_NAME).iterdir()] == ["7.npz"]
    assert not work.training.exists()


@pytest.mark.parametrize("checkpoint", ["checkpoint_latest.pth", "checkpoint_best.pth", "checkpoint_final.pth"])
def test_a_plan_with_a_checkpoint_is_the_plan(tmp_path: Path, planned: Planned, checkpoint: str) -> None:
    """Another plan is refused and changes nothing on disk; the same plan is not made again."""
    work = Prepared(tmp_path)
    plan_network(work, PLAN, 1)
    begun(work, checkpoint)
    before = found_in(tmp_path)
    message = r"^plan\.json: a fold was begun with other options, images or splits, expected the same \(or a new worki"
    with pytest.raises(HecktorError, match=message):
        plan_network(work, OTHER, 1)
    assert plan_network(work, PLAN, 1) == PLAN
    assert found_in(tmp_path) == before
    assert len(planned) == 1


def test_half_a_plan_is_made_again(tmp_path: Path, planned: Planned) -> None:
    """`plan.json` is written last: without it nnU-Net was interrupted."""
    work = Prepared(tmp_path)
    write_text(work.folders.preprocessed / DATASET_NAME / "half.npz", "half")
    assert plan_network(work, PLAN, 1) == work.plan()
    assert [path.name for path in (work.folders.preprocessed / DATASET_NAME).iterdir()] == ["45.npz"]


@pytest.mark.parametrize("gone", [OutOfFold.mask, OutOfFold.uncertainty])
def test_what_is_gone_of_the_out_of_fold_files_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: Any
) -> None:
    """Nothing is trained: two networks that are text, and a measurement that notes for which folds it was asked."""
    work, asked = Prepared(tmp_path), []
    rows = {case.patient_id: {"volume_ml": float(number)} for number, case in enumerate(work.cases())}

    def measure_out_of_fold(
        cases: Sequence[Any], fold_of: Mapping[str, int], *others: Any
    ) -> dict[str, dict[str, float]]:
        asked.append(dict(fold_of))
        for case in cases:
            write_text(work.out_of_fold.mask(case.patient_id), "mask")
            write_text(work.out_of_fold.uncertainty(case.patient_id), "{}")
        return rows

    monkeypatch.setattr("baseline.network.out_of_fold.measure_out_of_fold", measure_out_of_fold)
    write_json(work.plan_json, {"key": "any", "options": asdict(PLAN)})
    for fold in (0, 1):
        write_text(work.folders.final(fold), "network")
    assert out_of_fold_features(work, work.cases(), "cpu") == rows
    assert out_of_fold_features(work, work.cases(), "cpu") == rows
    assert asked == [{"A-1": 0, "A-2": 1, "B-1": 1}]
    before, path = work.features_json.stat().st_mtime_ns, gone(work.out_of_fold, "A-2")
    path.unlink()
    assert out_of_fold_features(work, work.cases(), "cpu") == rows
    assert path.is_file()
    assert len(asked) == 2
    assert (work.features_json.stat().st_mtime_ns, read_json(work.features_json)["result"]) == (before, rows)
    write_text(work.folders.final(1), "another network")
    assert out_of_fold_features(work, work.cases(), "cpu") == rows
    assert len(asked) == 3
