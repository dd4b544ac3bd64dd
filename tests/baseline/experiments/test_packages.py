"""Model packages as experiments; the networks of a foreign package are a stub."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from algorithm.decisions.rules import Decisions
from algorithm.heads.measure import Features
from baseline.cache import cache
from baseline.experiments import packages
from baseline.experiments.packages import experiment_of_package
from baseline.package.exported import package_checksum, record_export
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_bytes, write_json
from contract.images.volumes import write_mask
from tests.baseline.experiments.conftest import GRID, PATIENTS, blocks


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


def test_an_earlier_package_of_a_plan_is_refused(work: WorkFolders, tmp_path: Path) -> None:
    """Its networks have seen the patients, whom they would segment too well; its masks and heads are gone."""
    archive = tmp_path / "best.tar.gz"
    for content in (b"first", b"second", b"second"):
        write_bytes(archive, content)
        record_export(WorkFolders(work.shared, "b"), archive)
    assert len(read_json(WorkFolders(work.shared, "b").exported_json)["earlier"]) == 1
    assert experiment_of_package(work, archive, "cpu").name == "b"
    write_bytes(archive, b"first")
    with pytest.raises(HecktorError, match=r"^best\.tar\.gz: an earlier package of b, whose networks have seen the"):
        experiment_of_package(work, archive, "cpu")


def segmented(given: WorkFolders, _: str) -> dict[str, Features]:
    """The files of `measure_out_of_fold`: undecided masks with their features."""
    rows: dict[str, Features] = {name: {"gtvn_count": 1.0} for name in PATIENTS}
    for name in PATIENTS:
        write_mask(given.undecided_mask(name), blocks(), GRID)
    cache(given.undecided_features_json, "networks", rows)
    return rows


def test_another_package_segments_the_patients_under_its_name(
    work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without rules in the package the measured masks and features are those of the comparison and of the heads."""
    write_bytes(tmp_path / "given.tar.gz", b"packed")
    fitted: list[Any] = []
    monkeypatch.setattr(packages, "use_networks", lambda *_: None)
    monkeypatch.setattr(packages, "load_package", lambda _: SimpleNamespace(decisions=None))
    monkeypatch.setattr(packages, "measure_out_of_fold", segmented)
    monkeypatch.setattr(packages, "fit_heads", lambda given, rows, jobs: fitted.append((given.name, rows, jobs)))
    experiment = experiment_of_package(work, tmp_path / "given.tar.gz", "cpu", 3)
    rows = {name: {"gtvn_count": 1.0} for name in PATIENTS}
    assert fitted == [("given", rows, 3)]
    assert experiment.name == "given"
    assert experiment.mask("A-1") == work.shared / "plans" / "given" / "out_of_fold" / "masks" / "A-1.nii.gz"
    assert all(experiment.mask(name).is_file() for name in PATIENTS)
    assert read_json(experiment.work.features_json)["result"] == rows


def test_the_rules_of_another_package_decide_on_its_lesions(
    work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes(tmp_path / "given.tar.gz", b"packed")
    rules, applied = Decisions(largest_gtvp_only=True), []

    def apply_rules(given: WorkFolders, rows: dict[str, Features], found: Decisions, _: int) -> dict[str, Features]:
        applied.append(found)
        given.masks.mkdir(parents=True)
        return rows

    monkeypatch.setattr(packages, "use_networks", lambda *_: None)
    monkeypatch.setattr(packages, "load_package", lambda _: SimpleNamespace(decisions=rules))
    monkeypatch.setattr(packages, "measure_out_of_fold", segmented)
    monkeypatch.setattr(packages, "fit_heads", lambda *_: "")
    monkeypatch.setattr(packages, "apply_rules", apply_rules)
    experiment_of_package(work, tmp_path / "given.tar.gz", "cpu")
    assert applied == [rules]


def test_a_package_whose_name_is_no_name_of_a_plan(work: WorkFolders, tmp_path: Path) -> None:
    write_bytes(tmp_path / "my model.tar.gz", b"packed")
    with pytest.raises(HecktorError, match=r"^name of a plan: found 'my model'"):
        experiment_of_package(work, tmp_path / "my model.tar.gz", "cpu")


def test_a_package_does_not_replace_another_experiment(work: WorkFolders, tmp_path: Path) -> None:
    """Not even the default plan with the networks of a package, which another package would replace."""
    work.networks.mkdir()
    for name in ("b", "plan"):
        write_bytes(tmp_path / f"{name}.tar.gz", b"packed")
        with pytest.raises(
            HecktorError, match=rf"^{name}\.tar\.gz: {name} is another experiment, expected another name"
        ):
            experiment_of_package(work, tmp_path / f"{name}.tar.gz", "cpu")
