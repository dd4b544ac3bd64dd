"""The edition that `hecktor new edition` writes goes through all commands; once a file knows it, its folder may be gone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from contract.editions import load_edition
from contract.io.files import read_json, write_json
from contract.packages import read_manifest
from hecktor.cli import main
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort
from reporting.viewer.cohort import ViewerRequest, find_cohort

pytestmark = pytest.mark.slow

# Of the first 6 patients of this seed two have each response; the first 2 differ in it and died at different times.
SEED = 29
TITLE = "LARYNX 2027"


def run_hecktor(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


def read_error(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 1
    return capsys.readouterr().err


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, tiny_package: Path) -> Path:
    """Edition, cohorts in both layouts, and a package with heads; then the edition's folder is renamed."""
    root = tmp_path_factory.mktemp("own")
    file = root / "larynx" / "edition.json"
    run_hecktor("new", "edition", file.parent)
    file.write_text(file.read_text().replace("My Edition", TITLE))
    centres = tuple(centre.code for centre in CENTRES)
    for layout, patients in (("release", 6), ("platform", 2)):
        options = CohortOptions(SEED, centres, layout, "head_and_neck", ct_coarsening=8, edition=str(file))
        assert len(list(make_cohort(options, patients, root / layout, 1))) == patients
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("baseline.report.held_out.MAX_WORST_CASES", 1)
        patch.setattr("baseline.heads.cross_validation.OUTER_FOLDS", 2)
        patch.setattr("baseline.heads.models.targets.INNER_FOLDS", 2)
        run_hecktor("train", "all", "--edition", file, "--release", root / "release", "--work", root / "work", "--output",
                root / "package", "--networks", tiny_package, "--spacing-mm", 9, 9, 9, "--folds", 2, "--jobs", 1)  # fmt: skip
    file.parent.rename(root / "elsewhere")
    return root


@pytest.fixture(scope="module")
def results(root: Path) -> Path:
    """Rehearse a team, whose package holds the edition, and rank it against a team with the same answers."""
    run_hecktor("rehearse", "--api-method", "invoke", "--model", root / "package", "--cases", root / "platform",
            "--process", "--arguments=--device cpu --passes 1", "--ground-truth", root / "platform" / "ground_truth",
            "--output", root / "out" / "first", "--team", "first")  # fmt: skip
    shutil.copytree(root / "out" / "first", root / "out" / "second")
    files = [root / "out" / team / "metrics.json" for team in ("first", "second")]
    run_hecktor("rank", *files, "--output", root / "out", "--bootstraps", 20)
    return root / "out"


def test_tables_have_an_outcome_and_a_value_for_each_declared_name(root: Path) -> None:
    table = next((root / "release").glob(f"{TITLE} Training Data/*.csv")).read_text().splitlines()
    assert table[0] == "PatientID,Hospital,Age,Smoking,Weight,Grade,Response,Days,Death"
    assert len(table) == 7
    assert sorted(line.split(",")[6] for line in table[1:]) == [
        name for name in ("complete", "partial", "stable") for _ in range(2)
    ]


def test_package_and_working_directory_carry_the_edition(root: Path) -> None:
    """Both hold the document of the file, which is no longer at its place."""
    content = load_edition(str(root / "elsewhere" / "edition.json")).content
    assert content is not None
    manifest = read_manifest(root / "package")
    assert manifest.edition == "larynx"
    assert manifest.own_edition == content == read_json(root / "work" / "prepare.json")["own_edition"]
    assert {"heads/response.json", "heads/survival.json"} <= set(manifest.files)
    run_hecktor("train", "report", "--work", root / "work")


def test_a_package_predicts_without_the_edition_and_refuses_a_changed_one(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only another ranking changes no answer."""
    (case,) = sorted((root / "platform").glob("*-001/input"))
    command = ["predict", "--input", case, "--device", "cpu", "--passes", 1, "--model", root / "package"]
    run_hecktor(*command, "--output", tmp_path / "out")
    assert read_json(tmp_path / "out" / "response.json") in ("complete", "partial", "stable")
    assert isinstance(read_json(tmp_path / "out" / "survival-risk.json"), float)
    shutil.copytree(root / "elsewhere", tmp_path / "changed")
    replace_text(tmp_path / "changed" / "edition.json", '"ties": "min"', '"ties": "max"')
    run_hecktor(*command, "--output", tmp_path / "out", "--edition", tmp_path / "changed" / "edition.json")
    replace_text(tmp_path / "changed" / "edition.json", '"time_limit_s": 900', '"time_limit_s": 901')
    edition = ["--edition", tmp_path / "changed" / "edition.json"]
    error = read_error(capsys, *command, "--output", tmp_path / "out", *edition)
    assert re.search(
        r"found edition 'larynx' with another declaration \(sha256 \w+\), expected the declaration of --edition", error
    )


def test_results_carry_the_edition_to_board_report_and_viewer(results: Path) -> None:
    content = load_edition(str(results.parent / "elsewhere" / "edition.json")).content
    board = read_json(results / "leaderboard.json")
    assert board["edition"] == "larynx"
    assert board["provenance"]["own_edition"] == content
    assert {team["team"] for team in board["teams"]} == {"first", "second"}
    run_hecktor("report", "--results", results, "--output", results / "report")
    page = (results / "report" / "index.html").read_text()
    assert f"<h1>{TITLE} results</h1>" in page
    assert f"Cite the organisers of {TITLE}" in page
    assert "HECKTOR results" not in page
    cohort = find_cohort(ViewerRequest(results.parent / "platform", results, {}))
    assert cohort.listing["edition"] == TITLE
    assert len(cohort.cases) == 2


def test_an_evaluation_of_plain_files_equals_the_rehearsal(results: Path, tmp_path: Path) -> None:
    edition = results.parent / "elsewhere" / "edition.json"
    rehearsed = read_json(results / "first" / "metrics.json")
    run_hecktor("evaluate", "--edition", edition, "--input", results / "first" / "evaluation" / "input",
            "--ground-truth", results.parent / "platform" / "ground_truth", "--output", tmp_path)  # fmt: skip
    assert read_json(tmp_path / "metrics.json")["aggregates"] == rehearsed["aggregates"]


def test_two_editions_of_one_name_are_distinguished(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their texts differ in the results of two teams, and in the results and `--edition`."""
    files = [results / team / "metrics.json" for team in ("first", "second")]
    shutil.copytree(results.parent / "elsewhere", tmp_path / "changed")
    replace_text(
        tmp_path / "changed" / "edition.json", '"schemes": {"score": "score"}', '"schemes": {"score": "c_index"}'
    )
    board, edition = ["--output", tmp_path / "board"], ["--edition", tmp_path / "changed" / "edition.json"]
    error = read_error(capsys, "rank", *files, *board, *edition)
    assert re.search(r"edition 'larynx' with other contents \(sha256 \w+\) than --edition, expected sha256 \w+,", error)
    changed_file = tmp_path / "other" / "metrics.json"
    metrics: Any = read_json(files[1])
    metrics["provenance"]["own_edition"]["title"] = "Another"
    write_json(changed_file, metrics)
    error = read_error(capsys, "rank", files[0], changed_file, *board)
    assert re.search(
        r"first and other: 'larynx' with different contents \(sha256 \w+ and \w+\), expected the same", error
    )
    replace_text(tmp_path / "changed" / "edition.json", '"name": "larynx"', '"name": "reweighted"')
    run_hecktor("rank", *files, *board, *edition, "--bootstraps", 0)
    assert json.loads((tmp_path / "board" / "leaderboard.json").read_text())["edition"] == "reweighted"


def replace_text(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new))
