"""The static folder holds the bytes that the server serves, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest

from contract.errors import HecktorError, OutputError
from evaluation.report.cli import main as report
from evaluation.viewer.case import export_viewer
from evaluation.viewer.cohort import ViewerCohort
from evaluation.viewer.server import serving


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_folder_holds_what_the_server_serves(cohort: ViewerCohort, tmp_path: Path) -> None:
    export_viewer(tmp_path / "viewer", cohort)
    files = files_of(tmp_path / "viewer")
    assert {"cases.json", "viewer.js", "case/C-1/case.json", "case/C-2/mask-1.nii.gz"} <= set(files)
    with serving(cohort) as address:
        for name, content in files.items():
            with urlopen(address + name) as response:
                assert response.read() == content, name


def test_an_earlier_viewer_is_replaced_and_another_folder_is_not(cohort: ViewerCohort, tmp_path: Path) -> None:
    export_viewer(tmp_path / "viewer", cohort)
    export_viewer(tmp_path / "viewer", cohort.worst(1))
    assert [path.name for path in (tmp_path / "viewer" / "case").iterdir()] == ["C-1"]
    with pytest.raises(OutputError, match="cohort: exists and holds no viewer"):
        export_viewer(tmp_path / "cohort", cohort)
    assert (tmp_path / "cohort" / "C-1").is_dir()


def test_a_failed_export_leaves_nothing_or_the_earlier_viewer(cohort: ViewerCohort, tmp_path: Path) -> None:
    cohort.cases["C-2"].files.ct.write_bytes(b"nothing")
    with pytest.raises(HecktorError, match="C-2__CT"):
        export_viewer(tmp_path / "viewer", cohort)
    assert not (tmp_path / "viewer").exists()
    export_viewer(tmp_path / "viewer", cohort.worst(1))
    before = files_of(tmp_path / "viewer")
    with pytest.raises(HecktorError, match="C-2__CT"):
        export_viewer(tmp_path / "viewer", cohort)
    assert files_of(tmp_path / "viewer") == before
    assert not list(tmp_path.glob(".partial*"))


def test_the_report_writes_a_viewer_of_the_worst_cases(ranked: Path) -> None:
    """Mean GTVp DSC: 1 of C-1 and 0.375 of C-2."""
    options = ["--results", str(ranked / "results"), "--output", str(ranked / "report.html"), "--max-patients", "0"]
    scans = ["--cases", "--cohort", str(ranked / "cohort"), "--viewer", str(ranked / "viewer"), "--viewer-cases", "1"]
    assert report([*options, *scans]) == 0
    assert [path.name for path in (ranked / "viewer" / "case").iterdir()] == ["C-2"]
    with pytest.raises(HecktorError, match="--viewer: no cohort"):
        report([*options, "--cases", "--viewer", str(ranked / "viewer")])
