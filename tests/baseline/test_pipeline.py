"""Tests when steps are repeated: a plan can change until a network has a checkpoint, and missing masks are made again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import baseline
from baseline import WorkFolders, measure_out_of_fold, plan_networks
from baseline.network import planning
from baseline.network.plans import NetworkPlan, read_plan, store_plan
from baseline.pipeline import TrainingOptions, describe_next_steps
from baseline.work import PrepareOptions
from contract.errors import HecktorError
from contract.io.files import read_json, write_json, write_text
from tests.baseline.prepared import make_planned_work

PLAN = NetworkPlan(spacing_mm=(2.0, 2.0, 4.0))
OTHER = PLAN.with_options(epochs=7)
# B-1 has no reference mask, so it is on neither side of nnU-Net's splits.
NNUNET_SPLITS = [
    {"train": ["A-2"], "val": ["A-1"]},
    {"train": ["A-1"], "val": ["A-2"]},
    {"train": [], "val": ["A-1", "A-2"]},
    {"train": ["A-1", "A-2"], "val": []},
]
Planned = list[tuple[int, list[dict[str, list[str]]]]]


@pytest.mark.slow
def test_importing_the_package_loads_no_network_library() -> None:
    """`fit_table`, which reads only tables, needs no library of images either."""
    code = """
import sys, baseline
print({'torch', 'nnunetv2', 'monai', 'lifelines'} & set(sys.modules))
baseline.fit_table
print({'torch', 'SimpleITK'} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\nset()\n"
    assert all(hasattr(baseline, name) for name in baseline.__all__)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Replace nnU-Net by a stub that writes a file each time, and record epochs and splits of each plan."""
    plans: Planned = []

    def plan_and_preprocess(
        work: WorkFolders, plan: NetworkPlan, splits: list[dict[str, list[str]]], jobs: int
    ) -> None:
        write_text(work.preprocessed / f"{plan.epochs}.npz", "preprocessed")
        plans.append((plan.epochs, splits))

    monkeypatch.setattr(planning, "plan_and_preprocess", plan_and_preprocess)
    return plans


def start_fold(work: WorkFolders, *files: str) -> None:
    """Write the files of a fold whose training has started."""
    folder = work.fold(0)
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).touch()


def read_files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Read every file and folder with its modification time and content."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*")}


@pytest.mark.parametrize("checkpoint", ["checkpoint_latest.pth", "checkpoint_best.pth", "checkpoint_final.pth"])
def test_a_plan_with_a_checkpoint_is_final(tmp_path: Path, plans: Planned, checkpoint: str) -> None:
    """Refusing another plan changes no file, and the same plan is not made again."""
    work = make_planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    start_fold(work, checkpoint)
    before = read_files(tmp_path)
    message = r"^plan\.json: a network has been trained with --epochs 45, now 7, expected the same \(or a"
    with pytest.raises(HecktorError, match=message):
        plan_networks(work, OTHER, 1)
    assert plan_networks(work, PLAN, 1) == PLAN
    assert read_files(tmp_path) == before
    assert len(plans) == 1


def test_an_interrupted_plan_is_made_again(tmp_path: Path, plans: Planned) -> None:
    """`plan.json` is written last: without it nnU-Net was interrupted."""
    work = make_planned_work(tmp_path)
    write_text(work.preprocessed / "half.npz", "half")
    assert plan_networks(work, PLAN, 1) == read_plan(work)
    assert plans == [(45, NNUNET_SPLITS)]
    assert [path.name for path in work.preprocessed.iterdir()] == ["45.npz"]


@pytest.mark.parametrize("missing", [WorkFolders.raw_mask, WorkFolders.probabilities])
def test_missing_out_of_fold_files_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Any
) -> None:
    """No network is trained: the networks are text files, and a stub of the measurement records the folds."""
    work, calls = make_planned_work(tmp_path), []
    rows = {name: {"volume_ml": float(number)} for number, name in enumerate(("A-1", "A-2", "B-1"))}

    def segment_out_of_fold(work: WorkFolders, cases: Sequence[Any], run: Any, _jobs: int) -> dict[str, Any]:
        calls.append(dict(run.fold_of))
        for case in cases:
            write_text(work.raw_mask(case.patient_id), "mask")
            write_text(work.probabilities(case.patient_id), "probabilities")
        return rows

    monkeypatch.setattr("baseline.network.out_of_fold.segment_out_of_fold", segment_out_of_fold)
    store_plan(work, "any", PLAN)
    for fold in (0, 1):
        write_text(work.final(fold), "network")
    assert measure_out_of_fold(work) == rows
    assert measure_out_of_fold(work) == rows
    assert calls == [{"A-1": 0, "A-2": 1, "B-1": 1}]
    features = work.unfiltered_features_json
    before, path = features.stat().st_mtime_ns, missing(work, "A-2")
    path.unlink()
    assert measure_out_of_fold(work) == rows
    assert path.is_file()
    assert len(calls) == 2
    assert (features.stat().st_mtime_ns, read_json(features)["result"]) == (before, rows)
    write_text(work.final(1), "another network")
    assert measure_out_of_fold(work) == rows
    assert len(calls) == 3
    write_json(work.prepare_json, read_json(work.prepare_json) | {"data": "other images"})
    assert measure_out_of_fold(work) == rows
    assert len(calls) == 4


def test_the_printed_upload_names_the_users_code(tmp_path: Path) -> None:
    """`hecktor submission` refuses a package with code that no option names."""
    options = TrainingOptions(tmp_path, Path("package"), PrepareOptions(Path("release")))
    upload = f"hecktor submission --package package --output {tmp_path / 'submission'}"
    assert describe_next_steps(options, Path("report")).endswith(upload)
    with_code = replace(options, code=(Path("my_model"), Path("examples/mtlr")))
    options = " --code my_model --code examples/mtlr --output"
    assert describe_next_steps(with_code, Path("report")).endswith(upload.replace(" --output", options))
