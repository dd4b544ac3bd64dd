"""Analyses as files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from reporting.analyses.analysis import Analysis, write_analyses


def test_json_holds_all_and_csv_the_rows(tmp_path: Path) -> None:
    rows = [{"team": "ann", "value": 0.5}, {"team": "bea, b", "value": None}, {"team": "cid"}]
    analysis = Analysis("metrics", "Metrics", "About.", {"team": "Team", "value": "Value"}, rows, {"kind": "bars"})
    written = write_analyses(tmp_path, {"task1": [analysis], "challenge": [analysis]})
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "task1/metrics.json",
        "task1/metrics.csv",
        "challenge/metrics.json",
        "challenge/metrics.csv",
    ]
    content = json.loads(written[0].read_text())
    assert (content["title"], content["rows"], content["chart"]) == ("Metrics", rows, {"kind": "bars"})
    with written[1].open() as lines:
        assert list(csv.DictReader(lines)) == [
            {"team": "ann", "value": "0.5"},
            {"team": "bea, b", "value": ""},
            {"team": "cid", "value": ""},
        ]
