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
from baseline.experiments.packages import chosen_experiments, given_packages
from baseline.package.exported import record_export
from baseline.work import WorkFolders
from contract.archives import pack
from contract.errors import HecktorError
from contract.files import read_json, write_json
from contract.images.volumes import write_mask
from tests.baseline.experiments.conftest import GRID, PATIENTS, blocks


def packed(folder: Path, name: str) -> Path:
    """An archive `folder/NAME.tar.gz` whose manifest holds the name."""
    write_json(folder / name / "manifest.json", {"name": name})
    pack(folder / name, folder / f"{name}.tar.gz")
    return folder / f"{name}.tar.gz"


@pytest.mark.parametrize("exported_as", ["best", "best.tar.gz"])
def test_a_package_of_this_working_directory_stands_for_its_plan(
    work: WorkFolders, tmp_path: Path, exported_as: str
) -> None:
    """Its networks have seen the patients; the plan's own masks are out of fold.

    `hecktor submission` packs an exported folder, so folder and archive are the same package.
    """
    packed(tmp_path, "best")
    b = WorkFolders(work.shared, "b")
    record_export(b, tmp_path / exported_as)
    for name in ("best", "best.tar.gz"):
        experiment = chosen_experiments(work, [str(tmp_path / name)], "cpu")[0]
        assert (experiment.name, experiment.masks) == ("b", b.masks)


def test_an_earlier_package_of_a_plan_is_refused(work: WorkFolders, tmp_path: Path) -> None:
    """Its networks have seen the patients, whom they would segment too well; its masks and heads are gone."""
    b = WorkFolders(work.shared, "b")
    for name in ("first", "second", "second"):
        record_export(b, packed(tmp_path, name))
    assert len(read_json(b.exported_json)["earlier"]) == 1
    assert chosen_experiments(work, [str(tmp_path / "second.tar.gz")], "cpu")[0].name == "b"
    with pytest.raises(HecktorError, match=r"^first\.tar\.gz: an earlier package of b, whose networks have seen the"):
        given_packages(work, [tmp_path / "first.tar.gz"])


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
    packed(tmp_path, "given")
    fitted: list[Any] = []
    monkeypatch.setattr(packages, "use_networks", lambda *_: None)
    monkeypatch.setattr(packages, "load_package", lambda _: SimpleNamespace(decisions=None))
    monkeypatch.setattr(packages, "measure_out_of_fold", segmented)
    monkeypatch.setattr(packages, "fit_heads", lambda given, rows, jobs: fitted.append((given.name, rows, jobs)))
    experiment = chosen_experiments(work, [str(tmp_path / "given.tar.gz")], "cpu", 3)[0]
    rows = {name: {"gtvn_count": 1.0} for name in PATIENTS}
    assert fitted == [("given", rows, 3)]
    assert experiment.name == "given"
    assert experiment.mask("A-1") == work.shared / "plans" / "given" / "out_of_fold" / "masks" / "A-1.nii.gz"
    assert all(experiment.mask(name).is_file() for name in PATIENTS)
    assert read_json(experiment.work.features_json)["result"] == rows


def test_the_rules_of_another_package_decide_on_its_lesions(
    work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path, "given")
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
    chosen_experiments(work, [str(tmp_path / "given.tar.gz")], "cpu")
    assert applied == [rules]


def test_packages_of_one_file_name_are_told_apart_by_their_folders(work: WorkFolders, tmp_path: Path) -> None:
    """`model.tar.gz` is the usual name; each package keeps masks of its own."""
    packages = [packed(tmp_path / name, "model") for name in ("a", "b")]
    assert [one.plan.name for one in given_packages(work, packages)] == ["a-model", "b-model"]
    assert [one.plan.name for one in given_packages(work, packages[1:])] == ["model"]


def test_equal_names_are_refused_before_a_network_runs(
    work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "use_networks", lambda *_: pytest.fail("a network was prepared"))
    names = [str(packed(tmp_path / name / "a", "model")) for name in ("first", "second")]
    with pytest.raises(HecktorError, match=r"^compare: found a-model, a-model, expected different experiments"):
        chosen_experiments(work, names, "cpu")
    record_export(WorkFolders(work.shared, "b"), Path(names[0]))
    with pytest.raises(HecktorError, match=r"^compare: found b, b, expected different experiments"):
        chosen_experiments(work, ["b", names[0]], "cpu")


def test_a_folder_without_a_manifest(work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the current folder its name could be that of a plan."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").mkdir()
    with pytest.raises(HecktorError, match=r"^given: no manifest\.json, expected a model package$"):
        chosen_experiments(work, ["plan", "given"], "cpu")
    (tmp_path / "b").mkdir()
    assert [one.name for one in chosen_experiments(work, ["plan", "b"], "cpu")] == ["plan", "b"]


def test_a_package_whose_name_is_no_name_of_a_plan(work: WorkFolders, tmp_path: Path) -> None:
    packed(tmp_path, "my model")
    with pytest.raises(HecktorError, match=r"^name of a plan: found 'my model'"):
        given_packages(work, [tmp_path / "my model.tar.gz"])


def test_a_package_does_not_replace_another_experiment(work: WorkFolders, tmp_path: Path) -> None:
    """Not even the default plan with the networks of a package, which another package would replace."""
    work.networks.mkdir()
    for name in ("b", "plan"):
        packed(tmp_path, name)
        with pytest.raises(
            HecktorError, match=rf"^{name}\.tar\.gz: {name} is another experiment, expected another name"
        ):
            given_packages(work, [tmp_path / f"{name}.tar.gz"])
