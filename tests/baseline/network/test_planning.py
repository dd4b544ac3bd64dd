"""When a plan is made anew and when it is refused; the planner and preprocessor of nnU-Net are stubs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from baseline.cli import main
from baseline.network import planning
from baseline.network.jobs import package_jobs
from baseline.network.planning import plan_networks
from baseline.network.plans import PRESETS, NetworkPlan, read_plan
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_json, write_text
from tests.baseline.prepared import planned_work

PLAN = NetworkPlan(spacing_mm=(2.0, 2.0, 4.0))


@pytest.fixture(autouse=True)
def preprocessed(monkeypatch: pytest.MonkeyPatch) -> list[NetworkPlan]:
    """The plans that a stub of nnU-Net made; each leaves an image of its own."""
    plans: list[NetworkPlan] = []

    def plan_and_preprocess(work: WorkFolders, plan: NetworkPlan, splits: Sequence[Any], jobs: int) -> None:
        print("2D U-Net configuration")
        del splits, jobs
        plans.append(plan)
        write_text(work.preprocessed / f"image_{len(plans)}.b2nd", "preprocessed")

    monkeypatch.setattr(planning, "plan_and_preprocess", plan_and_preprocess)
    return plans


def test_another_plan_replaces_the_images(tmp_path: Path, preprocessed: list[NetworkPlan]) -> None:
    """The same plan once more does nothing."""
    work = planned_work(tmp_path)
    for plan in (PLAN, PLAN, PLAN.changed(base_features=32)):
        plan_networks(work, plan, 1)
    assert [plan.base_features for plan in preprocessed] == [16, 32]
    assert [path.name for path in work.preprocessed.iterdir()] == ["image_2.b2nd"]
    assert read_plan(work).base_features == 32


def test_other_images_end_a_plan_without_a_network(tmp_path: Path, preprocessed: list[NetworkPlan]) -> None:
    """After `prepare` wrote other images, the plan is made again, unless it has a checkpoint."""
    work = planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    write_json(work.prepare_json, read_json(work.prepare_json) | {"data": "other images"})
    plan_networks(work, PLAN, 1)
    assert len(preprocessed) == 2
    write_text(work.fold(0) / "checkpoint_latest.pth", "network")
    write_json(work.prepare_json, read_json(work.prepare_json) | {"data": "images again"})
    with pytest.raises(HecktorError, match=r"plan\.json: a network has been trained with other images or splits, exp"):
        plan_networks(work, PLAN, 1)


def test_a_refusal_names_each_option_with_both_values(tmp_path: Path) -> None:
    """Of presets their names."""
    work = planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    write_text(work.fold(0) / "checkpoint_latest.pth", "network")
    found = (
        r"trained with --preset short, now nnunet, --memory-gb 0\.3, now 8\.0, --base-features 16, now 32 and 5 more"
    )
    with pytest.raises(HecktorError, match=found):
        plan_networks(work, PRESETS["nnunet"], 1)
    with pytest.raises(HecktorError, match=r"trained with --mirror-axes 2, now 0 1, expected the same"):
        plan_networks(work, PLAN.changed(mirror_axes=(0, 1)), 1)
    splits = read_json(work.splits_json)
    write_json(work.splits_json, splits | {"seed": 3, "folds": [["A-1"], ["A-2"], ["B-1"]]})
    with pytest.raises(HecktorError, match=r"trained with other images or splits"):
        plan_networks(work, PLAN, 1)


def test_starting_weights_after_the_training(tmp_path: Path, preprocessed: list[NetworkPlan]) -> None:
    """Before the last network is trained, copied weights resume the plan under their new path, and absent ones end it;
    afterwards they may be absent. Other weights are refused throughout.
    """
    work, weights, other = planned_work(tmp_path), tmp_path / "weights.pth", tmp_path / "other.pth"
    weights.write_text("weights")
    other.write_text("other weights")
    plan, others = (PLAN.changed(starting_weights=str(path)) for path in (weights, other))
    plan_networks(work, plan, 1)
    *finals, last = [work.final(job.fold, job.backbone) for job in package_jobs(work)]
    for final in finals:
        write_text(final, "network")
    copied = PLAN.changed(starting_weights=str(weights.rename(tmp_path / "copy.pth")))
    plan_networks(work, copied, 1)
    assert read_plan(work).starting_weights == copied.starting_weights
    with pytest.raises(HecktorError, match=r"weights\.pth: not found"):
        plan_networks(work, plan, 1)
    write_text(last, "network")
    (tmp_path / "copy.pth").unlink()
    plan_networks(work, copied, 1)
    with pytest.raises(
        HecktorError, match=r"a network has been trained with --starting-weights \w{12}, now \w{12}, exp"
    ):
        plan_networks(work, others, 1)
    assert len(preprocessed) == 1


def test_a_plan_on_coarser_images_than_its_preset_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The images were prepared without a preset, at 3 mm; `nnunet` is for 1 mm. A spacing that was chosen is silent."""
    work = planned_work(tmp_path)
    plan_networks(work, PRESETS["nnunet"], 1)
    assert caplog.text == ""
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [3.0, 3.0, 3.0]}, "data": "images"})
    plan_networks(work, PRESETS["nnunet"].changed(spacing_mm=(3.0, 3.0, 3.0)), 1)
    assert caplog.text == ""
    assert plan_networks(work, PRESETS["nnunet"], 1).spacing_mm == (3.0, 3.0, 3.0)
    found = "spacing: found images of 3 3 3 mm for a plan of 1 1 1 mm, expected"
    assert f"{found} `hecktor train prepare --spacing-mm 1 1 1` in a new working directory" in caplog.text


def test_the_step_prints_where_the_plans_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = planned_work(tmp_path)
    assert main(["plan", "--work", str(tmp_path), "--preset", "nnunet", "--jobs", "1"]) == 0
    assert capsys.readouterr().out == f"plans in {work.plans}\n"
    assert work.plan_log.read_text() == "2D U-Net configuration\n"
