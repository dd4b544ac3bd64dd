"""A new metric is one record and an edition that ranks by it: the surface DSC at 1 mm, as in CONTRIBUTING.md."""

from __future__ import annotations

import json

import numpy as np
import pytest

from contract.images.volumes import write_mask
from evaluation import evaluate, rank
from evaluation.metrics import surface
from evaluation.metrics.overlap import mean_metric
from tests.evaluation.builders import read_edition

AT_1_MM = surface.SurfaceMetric(
    "surface_dsc_1mm",
    "surface_dsc_1mm_mean",
    "mean surface DSC at 1 mm",
    lambda surfaces, _: surfaces.fraction_within(1.0),
    mean_metric,
)
METRICS = ("gtvp_surface_dsc_mean", "gtvp_surface_dsc_1mm_mean")


@pytest.fixture
def edition(tmp_path):
    """Write HECKTOR 2025 with surfaces of the GTVp, which decide the ranking."""
    content = read_edition("hecktor2025")
    content["scoring"] = {"segmentation": content["scoring"]["segmentation"]}
    task = content["scoring"]["segmentation"]
    task["metrics"] = {name: {"title": name, "higher_is_better": True} for name in METRICS}
    task["answers"]["segmentation"]["rules"]["surfaces"] = "gtvp"
    task["ranking"] = {"official": "at_1_mm", "ties": "min", "schemes": {"at_1_mm": METRICS[1], "at_2_mm": METRICS[0]}}
    (tmp_path / "mine.json").write_text(json.dumps(content))
    return str(tmp_path / "mine.json")


@pytest.fixture
def ground_truth(tmp_path, grid):
    """Write two cases with one plane of GTVp and one voxel of GTVn, and predictions shifted by 1 mm and by 2 mm."""
    for team, (rows, columns) in {"truth": (4, 3), "near": (4, 4), "far": (5, 3)}.items():
        mask = np.zeros(grid.array_shape, dtype=np.uint8)
        mask[2:6, rows, columns : columns + 4] = 1
        mask[0, 0, 0] = 2
        for case in ("A", "B"):
            (tmp_path / team).mkdir(exist_ok=True)
            write_mask(tmp_path / team / f"{case}.mha", mask, grid)
    return tmp_path / "truth"


def test_surface_dsc_at_1_mm_ranks(ground_truth, edition, monkeypatch):
    """Within 2 mm both teams are perfect. Within 1 mm only `near` is; every voxel of `far` is 2 mm away."""
    monkeypatch.setattr(surface, "SURFACE_METRICS", (*surface.SURFACE_METRICS, AT_1_MM))
    results = {
        team: evaluate(
            ground_truth, task="segmentation", predictions=ground_truth.parent / team, edition=edition, bootstraps=20
        )
        for team in ("far", "near")
    }
    values = {team: [result.aggregates[name].value for name in METRICS] for team, result in results.items()}
    assert values == {"far": [1.0, 0.0], "near": [1.0, 1.0]}
    assert [row["gtvp"]["surface"]["values"]["surface_dsc_1mm"] for row in results["far"].results] == [0.0, 0.0]
    board = rank(results, edition=edition, bootstraps=20)
    assert board.ranks == {"near": 1.0, "far": 2.0}
    assert "wilcoxon_signed_rank" in board.to_dict()["comparisons"][METRICS[1]]["other_tests"]
