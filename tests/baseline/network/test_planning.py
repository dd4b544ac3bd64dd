"""Plans that share preprocessed images; the planner and preprocessor of nnU-Net are stubs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from baseline.cli import main
from baseline.network import planning
from baseline.network.jobs import package_jobs
from baseline.network.planning import data_identifier, plan_networks, share_preprocessed, with_spacing
from baseline.network.plans import PRESETS, NetworkPlan, read_plan
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_json, write_text
from tests.baseline.prepared import planned_work

PLAN = NetworkPlan(spacing_mm=(2.0, 2.0, 4.0))
Z_SCORE, FIXED = "ZScoreNormalization", "CTNormalization"


@pytest.fixture(autouse=True)
def preprocessed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the data that a stub of nnU-Net preprocessed; AdamW stands for the same normalisation, SGD for another."""
    written: list[str] = []

    def plan_and_preprocess(work: WorkFolders, plan: NetworkPlan, splits: Sequence[Any], jobs: int) -> None:
        print("2D U-Net configuration")
        del splits, jobs
        schemes = [FIXED, Z_SCORE if plan.optimiser == "adamw" else FIXED]
        own = {"spacing": list(plan.spacing_mm), "normalization_schemes": schemes, "data_identifier": "nnU-Net's"}
        write_json(work.plans, {"configurations": {"3d_fullres": own}})
        if not share_preprocessed(work):
            name = data_identifier(work)
            write_text(work.preprocessed / name / "image.b2nd", "preprocessed")
            written.append(name)

    monkeypatch.setattr(planning, "plan_and_preprocess", plan_and_preprocess)
    return written


def named(work: WorkFolders, name: str, **changes: Any) -> WorkFolders:
    """Another plan of the same working directory, planned."""
    other = WorkFolders(work.shared, name)
    plan_networks(other, PLAN.changed(**changes), 1)
    return other


def test_plans_share_images_if_spacing_and_normalisation_agree(tmp_path: Path, preprocessed: list[str]) -> None:
    work = planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    wide, other = named(work, "wide", base_features=32), named(work, "other", optimiser="sgd")
    assert preprocessed == ["hecktorPlans_3d_fullres", "hecktorPlans_other_3d_fullres"]
    assert data_identifier(wide) == data_identifier(work) == "hecktorPlans_3d_fullres"
    assert data_identifier(other) == "hecktorPlans_other_3d_fullres"
    assert read_plan(wide).base_features == 32
    assert read_plan(work).base_features == 16


def test_a_changed_plan_leaves_the_images_of_other_plans(tmp_path: Path, preprocessed: list[str]) -> None:
    """The default plan gets another normalisation; its former images, which `wide` uses, keep their name."""
    work = planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    wide = named(work, "wide", base_features=32)
    plan_networks(work, PLAN.changed(optimiser="sgd"), 1)
    assert preprocessed == ["hecktorPlans_3d_fullres", "hecktorPlans_3d_fullres_2"]
    assert (wide.preprocessed / data_identifier(wide) / "image.b2nd").is_file()
    plan_networks(work, PLAN, 1)
    assert data_identifier(work) == "hecktorPlans_3d_fullres"
    assert not (work.preprocessed / "hecktorPlans_3d_fullres_2").exists()


def write_note(work: WorkFolders, sha256: str) -> None:
    """The record of a prepared patient whose PET has this digest."""
    write_json(work.raw / "notes" / "A-1.json", {"key": sha256, "result": {"made_from": {"A-1__PT.nii.gz": sha256}}})


def test_other_images_end_the_plans_without_a_network(tmp_path: Path) -> None:
    """After `prepare` wrote other images, a plan without checkpoints is dropped, one with a checkpoint refuses and names
    the file.
    """
    work = planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    wide = named(work, "wide")
    write_json(work.prepare_json, read_json(work.prepare_json) | {"data": "other images"})
    write_note(work, "3fa4")
    plan_networks(work, PLAN, 1)
    assert not wide.plan_json.exists()
    (work.fold(0)).mkdir(parents=True)
    (work.fold(0) / "checkpoint_latest.pth").touch()
    write_json(work.prepare_json, read_json(work.prepare_json) | {"data": "images again"})
    write_note(work, "77ab")
    found = (
        r"plan\.json: its networks \(plan plan\) were trained with A-1__PT\.nii\.gz 3fa4, now 77ab, expected the same"
    )
    with pytest.raises(HecktorError, match=found):
        plan_networks(wide, PLAN, 1)
    found = r"plan\.json: a network has been trained with A-1__PT\.nii\.gz 3fa4, now 77ab, expected the same"
    with pytest.raises(HecktorError, match=found):
        plan_networks(work, PLAN, 1)
    (work.raw / "notes" / "A-1.json").unlink()
    with pytest.raises(HecktorError, match=r"trained with A-1__PT\.nii\.gz 3fa4, now absent, expected"):
        plan_networks(work, PLAN, 1)


def test_a_refusal_names_each_option_with_both_values(tmp_path: Path) -> None:
    """Of presets their names, of splits their number and seed."""
    work = planned_work(tmp_path)
    plan_networks(work, PLAN, 1)
    write_text(work.fold(0) / "checkpoint_latest.pth", "network")
    found = (
        r"trained with --preset short, now nnunet, --memory-gb 0\.3, now 8\.0, --base-features 16, now 32 and 7 more"
    )
    with pytest.raises(HecktorError, match=found):
        plan_networks(work, PRESETS["nnunet"], 1)
    with pytest.raises(HecktorError, match=r"trained with --mirror-axes 2, now 0 1, expected the same"):
        plan_networks(work, PLAN.changed(mirror_axes=(0, 1)), 1)
    splits = read_json(work.splits_json)
    write_json(work.splits_json, splits | {"seed": 3, "folds": [["A-1"], ["A-2"], ["B-1"]]})
    with pytest.raises(HecktorError, match=r"trained with --folds 2, now 3, --seed 0, now 3, splits\.json \w+, now"):
        plan_networks(work, PLAN, 1)


def test_starting_weights_after_the_training(tmp_path: Path, preprocessed: list[str]) -> None:
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


def test_the_default_plan_has_the_spacing_of_prepare(tmp_path: Path) -> None:
    work = planned_work(tmp_path)
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [2.0, 2.0, 4.0]}, "data": "images"})
    with pytest.raises(HecktorError, match=r"^--spacing-mm: found with the default plan"):
        with_spacing(work, (1.0, 1.0, 1.0), 1)
    assert with_spacing(work, (2.0, 2.0, 4.0), 1).images == tmp_path


def test_another_spacing_prepares_images_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = planned_work(tmp_path)
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [2.0, 2.0, 4.0]}, "data": "images"})
    (tmp_path / "r").mkdir()
    monkeypatch.chdir(tmp_path)
    prepared: list[tuple[Any, Path]] = []
    monkeypatch.setattr(planning, "check_release", lambda *_: None)
    monkeypatch.setattr(planning, "prepare_release", lambda options, _, to, __: prepared.append((options, to.raw)))
    fine = with_spacing(WorkFolders(tmp_path, "fine"), (1.0, 1.0, 1.5), 1)
    ((options, raw),) = prepared
    assert (options.release, options.spacing_mm) == ("r", (1.0, 1.0, 1.5))
    assert raw == fine.raw == tmp_path / "spacings/1x1x1.5/nnunet/raw/Dataset101_HECKTOR"
    assert WorkFolders(tmp_path, "fine").images == fine.images


def test_a_trained_plan_keeps_its_spacing(tmp_path: Path) -> None:
    work = planned_work(tmp_path)
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [2.0, 2.0, 4.0]}, "data": "images"})
    wide = named(work, "wide")
    wide.fold(0).mkdir(parents=True)
    (wide.fold(0) / "checkpoint_latest.pth").touch()
    with pytest.raises(HecktorError, match=r"^--spacing-mm: wide has networks of another spacing"):
        with_spacing(wide, (1.0, 1.0, 1.5), 1)
    assert not wide.spacing_json.exists()


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
    assert f"{found} `hecktor train plan --name NAME --spacing-mm 1 1 1`, or a new working directory" in caplog.text


def test_the_step_prints_where_the_plans_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = planned_work(tmp_path)
    assert main(["plan", "--work", str(tmp_path), "--preset", "nnunet", "--jobs", "1"]) == 0
    assert capsys.readouterr().out == f"plans in {work.plans}\n"
    assert work.plan_log.read_text() == "2D U-Net configuration\n"
