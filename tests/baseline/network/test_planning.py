"""Tests when a plan is made again and when it is refused, with stubs of nnU-Net's planner and preprocessor."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.cli import main
from baseline.network import planning
from baseline.network.jobs import list_package_jobs
from baseline.network.patches import set_environment
from baseline.network.planning import plan_networks
from baseline.network.plans import PRESETS, NetworkPlan, read_plan
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.io.files import read_json, write_json, write_text
from tests.baseline.network.conftest import PATIENTS, plan_noise, write_raw
from tests.baseline.prepared import make_planned_work

PLAN = NetworkPlan(spacing_mm=(2.0, 2.0, 4.0))
# B-1 has no reference mask, so it is on neither side of nnU-Net's splits.
NNUNET_SPLITS = [
    {"train": ["A-2"], "val": ["A-1"]},
    {"train": ["A-1"], "val": ["A-2"]},
    {"train": [], "val": ["A-1", "A-2"]},
    {"train": ["A-1", "A-2"], "val": []},
]


@pytest.fixture(autouse=True)
def preprocessed_plans(monkeypatch: pytest.MonkeyPatch) -> list[NetworkPlan]:
    """Replace nnU-Net by a stub that writes an image for each plan, and return the list of its plans."""
    plans: list[NetworkPlan] = []

    def plan_and_preprocess(work: WorkFolders, plan: NetworkPlan, splits: Sequence[Any], jobs: int) -> None:
        print("2D U-Net configuration")
        assert splits == NNUNET_SPLITS
        plans.append(plan)
        write_text(work.preprocessed / f"image_{len(plans)}.b2nd", "preprocessed")

    monkeypatch.setattr(planning, "plan_and_preprocess", plan_and_preprocess)
    return plans


def test_another_plan_replaces_the_images(tmp_path: Path, preprocessed_plans: list[NetworkPlan]) -> None:
    """Repeating the same plan does nothing. `plan.json` is written last: without it nnU-Net was interrupted."""
    work = make_planned_work(tmp_path)
    write_text(work.preprocessed / "half.npz", "half")
    for plan in (PLAN, PLAN, PLAN.with_options(base_features=32)):
        plan_networks(work, plan, 1)
    assert [plan.base_features for plan in preprocessed_plans] == [16, 32]
    assert [path.name for path in work.preprocessed.iterdir()] == ["image_2.b2nd"]
    assert read_plan(work).base_features == 32


def test_other_images_end_a_plan_without_a_network(tmp_path: Path, preprocessed_plans: list[NetworkPlan]) -> None:
    """After `prepare` wrote other images, the plan is made again, or refused if it has a checkpoint."""
    work = make_planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    write_json(work.prepare_json, read_json(work.prepare_json) | {"data": "other images"})
    plan_networks(work, PLAN, 1)
    assert len(preprocessed_plans) == 2
    write_text(work.fold(0) / "checkpoint_latest.pth", "network")
    write_json(work.prepare_json, read_json(work.prepare_json) | {"data": "images again"})
    with pytest.raises(HecktorError, match=r"plan\.json: a network has been trained with other images or splits, exp"):
        plan_networks(work, PLAN, 1)


def read_files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Read every file and folder with its modification time and content."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*")}


@pytest.mark.parametrize("checkpoint", ["latest", "best", "final"])
def test_a_plan_with_a_checkpoint_is_final(
    tmp_path: Path, checkpoint: str, preprocessed_plans: list[NetworkPlan]
) -> None:
    """Refusing another plan names each option with both values, a preset instead of its options, and changes no file."""
    work = make_planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    write_text(work.fold(0) / f"checkpoint_{checkpoint}.pth", "network")
    before = read_files(tmp_path)
    message = r"with --preset short, now nnunet, --memory-gb 0\.3, now 8\.0, --base-features 16, now 32 and 6 more"
    with pytest.raises(HecktorError, match=message):
        plan_networks(work, PRESETS["nnunet"], 1)
    with pytest.raises(HecktorError, match=r"trained with --mirror-axes 2, now 0 1, expected the same"):
        plan_networks(work, PLAN.with_options(mirror_axes=(0, 1)), 1)
    assert plan_networks(work, PLAN, 1) == PLAN
    assert read_files(tmp_path) == before
    assert len(preprocessed_plans) == 1
    splits = read_json(work.splits_json)
    write_json(work.splits_json, splits | {"seed": 3, "folds": [["A-1"], ["A-2"], ["B-1"]]})
    with pytest.raises(HecktorError, match=r"trained with other images or splits"):
        plan_networks(work, PLAN, 1)


def test_starting_weights_after_the_training(tmp_path: Path, preprocessed_plans: list[NetworkPlan]) -> None:
    """Before the last network is trained, copied weights resume the plan under their new path, and missing weights are
    an error. Afterwards they may be missing. Other weights are refused throughout.
    """
    work, weights, other_weights = make_planned_work(tmp_path), tmp_path / "weights.pth", tmp_path / "other.pth"
    weights.write_text("weights")
    other_weights.write_text("other weights")
    plan, other_plan = (PLAN.with_options(starting_weights=str(path)) for path in (weights, other_weights))
    plan_networks(work, plan, 1)
    *finals, last = [work.final(job.fold, job.backbone) for job in list_package_jobs(work)]
    for final in finals:
        write_text(final, "network")
    copied = PLAN.with_options(starting_weights=str(weights.rename(tmp_path / "copy.pth")))
    plan_networks(work, copied, 1)
    assert read_plan(work).starting_weights == copied.starting_weights
    with pytest.raises(HecktorError, match=r"weights\.pth: not found"):
        plan_networks(work, plan, 1)
    write_text(last, "network")
    (tmp_path / "copy.pth").unlink()
    plan_networks(work, copied, 1)
    with pytest.raises(HecktorError, match=r"been trained with --starting-weights \w{12}, now \w{12}, exp"):
        plan_networks(work, other_plan, 1)
    assert len(preprocessed_plans) == 1


def test_a_plan_on_coarser_images_than_its_preset_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Images prepared at 3 mm without a preset cause a warning for `nnunet`, which is for 1 mm, unless the plan states
    the spacing.
    """
    work = make_planned_work(tmp_path)
    plan_networks(work, PRESETS["nnunet"], 1)
    assert caplog.text == ""
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [3.0, 3.0, 3.0]}, "data": "images"})
    plan_networks(work, PRESETS["nnunet"].with_options(spacing_mm=(3.0, 3.0, 3.0)), 1)
    assert caplog.text == ""
    assert plan_networks(work, PRESETS["nnunet"], 1).spacing_mm == (3.0, 3.0, 3.0)
    message = "spacing: found images of 3 3 3 mm for a plan of 1 1 1 mm, expected"
    assert f"{message} `hecktor train prepare --spacing-mm 1 1 1` in a new working directory" in caplog.text


def test_the_step_prints_where_the_plans_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = make_planned_work(tmp_path)
    assert main(["plan", "--work", str(tmp_path), "--preset", "nnunet", "--jobs", "1"]) == 0
    assert capsys.readouterr().out == f"plans in {work.plans}\n"
    assert work.plan_log.read_text() == "2D U-Net configuration\n"


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def list_files(work: WorkFolders) -> list[str]:
    return sorted(path.relative_to(work.root).as_posix() for path in work.root.rglob("*"))


def load_images(work: WorkFolders) -> list[Any]:
    """Load the preprocessed channels and labels of both patients."""
    from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2

    set_environment(work, augmentation_workers=1)
    data = nnUNetDatasetBlosc2(str(work.preprocessed / "hecktorPlans_3d_fullres"))
    return [np.asarray(array) for patient in PATIENTS for array in data.load_case(patient)[:2]]


def test_one_job_starts_no_process(noise_work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned a second time, the noise has the same fingerprint, plans and images."""

    def refuse_start(_: BaseProcess) -> None:
        raise AssertionError("a process")

    monkeypatch.setattr(BaseProcess, "start", refuse_start)
    work = WorkFolders(tmp_path)
    write_raw(work)
    plan_noise(work, jobs=1)
    check_equal(work, noise_work)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_processes")
def test_process_pools_do_not_change_the_result(noise_work: WorkFolders, tmp_path: Path) -> None:
    work = WorkFolders(tmp_path)
    write_raw(work)
    plan_noise(work, jobs=2)
    check_equal(work, noise_work)


def check_equal(work: WorkFolders, expected: WorkFolders) -> None:
    for name in ("dataset_fingerprint.json", "hecktorPlans.json"):
        assert read_json(work.preprocessed / name) == read_json(expected.preprocessed / name)
    assert list_files(work) == [name for name in list_files(expected) if "results/" not in name]
    for actual_image, expected_image in zip(load_images(work), load_images(expected), strict=True):
        np.testing.assert_array_equal(actual_image, expected_image)
