"""The exported page is one file with its cases, whole or absent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from contract.errors import HecktorError, OutputError
from reporting.report.cli import main as report
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerCohort
from reporting.viewer.server import export_viewer


def read_cases(page: Path) -> dict[str, dict]:
    """Return the cases of a page in their order."""
    scripts = re.findall(r'<script type="application/json" id="case-(\d+)">(.*?)</script>', page.read_text())
    assert [int(number) for number, _ in scripts] == list(range(len(scripts)))
    return {case["case"]: case for case in (json.loads(text) for _, text in scripts)}


def test_the_page_holds_what_the_server_sends(cohort: ViewerCohort, tmp_path: Path) -> None:
    page = export_viewer(tmp_path / "viewer", cohort)
    assert page == tmp_path / "viewer" / "index.html"
    sent = {name: json.loads(json.dumps(build_case(sources))) for name, sources in cohort.cases.items()}
    assert read_cases(page) == sent
    assert list(page.parent.iterdir()) == [page]
    text = page.read_text()
    assert "Copyright (c) 2021, Niivue" in text
    assert re.findall(r'(?:src|href)="([^"]*)"', text.replace("\\", "")[:3000]) == ["data:,"]


def test_an_earlier_page_is_replaced_and_another_file_is_not(cohort: ViewerCohort, tmp_path: Path) -> None:
    page = tmp_path / "viewer.html"
    export_viewer(page, cohort)
    export_viewer(page, cohort.select_worst(1))
    assert list(read_cases(page)) == ["C-1"]
    page.write_text("<p>mine</p>")
    with pytest.raises(OutputError, match=r"viewer\.html: exists and is not a viewer"):
        export_viewer(page, cohort)
    assert page.read_text() == "<p>mine</p>"


def test_a_failed_export_leaves_the_earlier_page(cohort: ViewerCohort, tmp_path: Path) -> None:
    page = export_viewer(tmp_path / "viewer.html", cohort.select_worst(1))
    before = page.read_bytes()
    cohort.cases["C-2"].files.ct.write_bytes(b"nothing")
    with pytest.raises(HecktorError, match="C-2__CT"):
        export_viewer(page, cohort)
    assert page.read_bytes() == before


def test_the_report_writes_a_page_of_the_worst_cases(ranked_cohort: Path) -> None:
    """Mean GTVp DSC: 1 of C-1 and 0.375 of C-2."""
    options = [
        "--results",
        str(ranked_cohort / "results"),
        "--output",
        str(ranked_cohort / "report.html"),
        "--max-patients",
        "0",
    ]
    scans = [
        "--cases",
        "--cohort",
        str(ranked_cohort / "cohort"),
        "--viewer",
        str(ranked_cohort / "viewer"),
        "--viewer-cases",
        "1",
    ]
    assert report([*options, *scans]) == 0
    assert list(read_cases(ranked_cohort / "viewer" / "index.html")) == ["C-2"]
    with pytest.raises(HecktorError, match="--viewer: found without --cohort, expected both"):
        report([*options, "--cases", "--viewer", str(ranked_cohort / "viewer")])
    assert not (ranked_cohort / "viewer" / "index.html").exists()
