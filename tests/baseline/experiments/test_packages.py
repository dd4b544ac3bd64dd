"""Model packages as experiments; the networks of a foreign package are a stub."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from baseline.experiments import packages
from baseline.experiments.packages import experiment_of_package
from baseline.pipeline import package_checksum
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import write_bytes, write_json


def test_a_package_of_this_working_directory_stands_for_its_plan(work: WorkFolders, tmp_path: Path) -> None:
    """Its networks have seen the patients; the plan's own masks are out of fold. So with a folder and an archive."""
    folder, archive = tmp_path / "best", tmp_path / "best.tar.gz"
    write_json(folder / "manifest.json", {"name": "best"})
    write_bytes(archive, b"packed")
    b = WorkFolders(work.shared, "b")
    for package in (folder, archive):
        write_json(b.exported_json, {"package": package.name, "sha256": package_checksum(package)})
        experiment = experiment_of_package(work, package, "cpu")
        assert (experiment.name, experiment.masks) == ("b", b.masks)


def test_another_package_segments_the_patients_under_its_name(
    work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes(tmp_path / "given.tar.gz", b"packed")
    monkeypatch.setattr(packages, "use_networks", lambda *_: None)
    monkeypatch.setattr(packages, "measure_out_of_fold", lambda given, _: shutil.copytree(work.masks, given.masks))
    monkeypatch.setattr(packages, "fit_heads", lambda *_: "")
    experiment = experiment_of_package(work, tmp_path / "given.tar.gz", "cpu")
    assert experiment.name == "given"
    assert experiment.mask("A-1") == work.shared / "plans" / "given" / "out_of_fold" / "masks" / "A-1.nii.gz"


def test_a_package_whose_name_is_no_name_of_a_plan(work: WorkFolders, tmp_path: Path) -> None:
    write_bytes(tmp_path / "my model.tar.gz", b"packed")
    with pytest.raises(HecktorError, match=r"^name of a plan: found 'my model'"):
        experiment_of_package(work, tmp_path / "my model.tar.gz", "cpu")


def test_a_package_does_not_replace_another_experiment(work: WorkFolders, tmp_path: Path) -> None:
    write_bytes(tmp_path / "b.tar.gz", b"packed")
    with pytest.raises(HecktorError, match=r"^b\.tar\.gz: b is another experiment, expected another name"):
        experiment_of_package(work, tmp_path / "b.tar.gz", "cpu")
