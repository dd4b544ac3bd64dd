"""The earlier segmentation as the prediction, against figures by hand and the evaluation's own."""

from __future__ import annotations

import csv
import json

import pytest

from contract.errors import HecktorError
from contract.images.volumes import write_mask
from evaluation.cli import main as evaluate
from evaluation.studies.cli import main

CASES = {"P": (4, 2, 2, 2), "Q": (8, 4, 0, 2), "R": (2, 2, 3, 0)}


@pytest.fixture
def folders(tmp_path, blank, grid):
    """GTVp voxels (earlier, now) and GTVn voxels (earlier, now), in rows that begin at the same place."""
    for case, (gtvp, gtvp_now, gtvn, gtvn_now) in CASES.items():
        for name, sizes in (("earlier", (gtvp, gtvn)), ("now", (gtvp_now, gtvn_now))):
            mask = blank()
            mask[2, 2, : sizes[0]] = 1
            mask[5, 5, : sizes[1]] = 2
            write_mask(tmp_path / name / f"{case}.mha", mask, grid)
    return tmp_path / "earlier", tmp_path / "now"


def study(tmp_path, folders, *more):
    options = ["--earlier", str(folders[0]), "--ground-truth", str(folders[1]), "--workers", "0", "--bootstraps", "30"]
    assert main(["null", *options, "--output", str(tmp_path / "out"), *more]) == 0
    return json.loads((tmp_path / "out" / "null.json").read_text())


def test_aggregated_dsc_by_hand(tmp_path, folders):
    """GTVp: 2 (2 + 4 + 2) / (14 + 8) = 8/11; GTVn: 2 (2 + 0 + 0) / (5 + 4) = 4/9; their mean is 58/99."""
    values = {
        name: figures["value"]
        for name, figures in study(tmp_path, folders, "--edition", "hntsmrg2024")["aggregates"].items()
    }
    expected = {"dsc_agg_mean": 58 / 99, "gtvp_dsc_agg": 8 / 11, "gtvn_dsc_agg": 4 / 9}
    assert values == pytest.approx(expected)
    with (tmp_path / "out" / "null.csv").open() as file:
        assert [line["case"] for line in csv.DictReader(file)] == ["P", "Q", "R"]


@pytest.mark.parametrize("edition", ["hntsmrg2024", "hecktor2025"])
def test_figures_equal_those_of_the_evaluation(tmp_path, folders, edition):
    """Values and intervals alike; an earlier mask is missing and counts as the worst one."""
    (folders[0] / "P.mha").unlink()
    content = study(tmp_path, folders, "--edition", edition)
    arguments = ["--task", "1", "--edition", edition, "--predictions", str(folders[0]), "--workers", "0"]
    arguments += ["--bootstraps", "30", "--ground-truth", str(folders[1]), "--output", str(tmp_path / "evaluated")]
    assert evaluate(arguments) == 0
    metrics = json.loads((tmp_path / "evaluated" / "metrics.json").read_text())
    assert content["aggregates"] == {name: metrics["aggregates"][name] for name in content["aggregates"]}
    assert set(content["aggregates"]) >= set(metrics["provenance"]["ranked_metrics"])
    assert content["cases_without_earlier_mask"] == {"P": "no prediction"}


def test_the_weighted_dsc_of_2026_has_no_staging(tmp_path, folders):
    """Of the ranked metrics those of masks: per-case GTVp DSC 2/3, 2/3 and 1; GTVn 1, 0 and 0."""
    figures = study(tmp_path, folders, "--edition", "hecktor2026")["aggregates"]
    values = {name: one["value"] for name, one in figures.items()}
    assert values == pytest.approx({"dsc_mean": 5 / 9, "gtvp_dsc_mean": 7 / 9, "gtvn_dsc_mean": 1 / 3})


def test_folders_that_cannot_be_used(tmp_path, folders):
    with pytest.raises(HecktorError, match="--bounding-boxes: none, but hecktor2021 scores inside"):
        study(tmp_path, folders, "--edition", "hecktor2021")
    for path in folders[0].iterdir():
        path.rename(path.with_name(f"other-{path.name}"))
    with pytest.raises(HecktorError, match="earlier mask of P: no prediction"):
        study(tmp_path, folders, "--edition", "hntsmrg2024")
