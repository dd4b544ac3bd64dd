"""Where the files of several plans lie in one working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from baseline.work import WorkFolders, planned
from contract.errors import HecktorError
from contract.files import write_json


def test_the_default_plan_lies_in_the_working_directory_itself(tmp_path: Path) -> None:
    """Working directories of earlier versions keep their layout."""
    work = WorkFolders(tmp_path)
    assert work.plan_json == tmp_path / "plan.json"
    assert work.masks == tmp_path / "out_of_fold" / "masks"
    assert work.plans == tmp_path / "nnunet/preprocessed/Dataset101_HECKTOR/hecktorPlans.json"
    assert work.fold(1) == (
        tmp_path / "nnunet/results/Dataset101_HECKTOR/HecktorTrainer__hecktorPlans__3d_fullres/fold_1"
    )


def test_a_named_plan_shares_patients_and_images_and_owns_the_rest(tmp_path: Path) -> None:
    plain, wide = WorkFolders(tmp_path), WorkFolders(tmp_path, "wide")
    for shared in ("cases_json", "splits_json", "prepare_json", "checks", "raw", "preprocessed"):
        assert getattr(wide, shared) == getattr(plain, shared)
    for own in ("plan_json", "features_json", "heads_json", "masks", "report", "results", "networks"):
        assert getattr(wide, own).is_relative_to(tmp_path / "plans" / "wide")
    assert wide.plans == plain.preprocessed / "hecktorPlans_wide.json"


def test_plans_of_one_spacing_share_its_images(tmp_path: Path) -> None:
    for name in ("fine", "finer"):
        write_json(tmp_path / "plans" / name / "spacing.json", {"spacing_mm": [1.0, 1.0, 1.5]})
    fine, finer = WorkFolders(tmp_path, "fine"), WorkFolders(tmp_path, "finer")
    assert fine.raw == finer.raw == tmp_path / "spacings/1x1x1.5/nnunet/raw/Dataset101_HECKTOR"
    assert fine.prepare_json == tmp_path / "spacings/1x1x1.5/prepare.json"
    assert fine.splits_json == WorkFolders(tmp_path).splits_json


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "a b", "a:b", "-a", "ä", "a+", "x" * 65])
def test_a_name_that_is_no_plain_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HecktorError, match=r"^name of a plan: found '.*'"):
        WorkFolders(tmp_path, name)


def test_the_order_of_an_ensembles_plans_does_not_matter(tmp_path: Path) -> None:
    one, other = WorkFolders(tmp_path, "b+a"), WorkFolders(tmp_path, "a+b+a")
    assert one.root == other.root == tmp_path / "plans" / "a+b"
    assert [member.name for member in one.members] == ["a", "b"]
    assert not WorkFolders(tmp_path, "a").is_ensemble


@pytest.mark.parametrize(("first", "second", "finest"), [((3, 3, 3), (1, 1, 1.5), "b"), ((2, 2, 1), (1, 2, 2), "b")])
def test_an_ensemble_has_the_images_with_the_smallest_voxels(
    tmp_path: Path, first: tuple[float, ...], second: tuple[float, ...], finest: str
) -> None:
    """27 against 1.5 mm3; of two spacings with 4 mm3 the one with the smaller x, which does not depend on names."""
    for name, spacing in (("a", first), ("b", second)):
        write_json(tmp_path / "plans" / name / "spacing.json", {"spacing_mm": list(spacing)})
    assert WorkFolders(tmp_path, "a+b").images == WorkFolders(tmp_path, "a").images
    for name, spacing in (("a", first), ("b", second)):
        write_json(WorkFolders(tmp_path, name).prepare_json, {"options": {"release": "r", "spacing_mm": list(spacing)}})
    assert WorkFolders(tmp_path, "a+b").images == WorkFolders(tmp_path, finest).images
    assert WorkFolders(tmp_path, "a+b").raw == WorkFolders(tmp_path, finest).raw


def test_every_plan_is_found_and_ensembles_are_no_others(tmp_path: Path) -> None:
    for name in ("b", "a", "a+b"):
        write_json(WorkFolders(tmp_path, name).plan_json, {})
    (tmp_path / "plans" / "no plan").mkdir()
    assert [work.name for work in planned(tmp_path)] == ["plan", "a", "a+b", "b"]
    assert [work.name for work in WorkFolders(tmp_path, "b").others()] == ["a"]


def test_an_absent_file_of_a_plan_names_the_command_with_its_name(tmp_path: Path) -> None:
    wide = WorkFolders(tmp_path, "wide")
    with pytest.raises(HecktorError, match="expected `hecktor train heads --name wide` before"):
        wide.read(wide.heads_json)
    with pytest.raises(HecktorError, match="expected `hecktor train prepare` before"):
        wide.read(wide.cases_json)
