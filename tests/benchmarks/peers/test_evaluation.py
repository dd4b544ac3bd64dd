"""The peers of the evaluation run in another environment, and their values are compared with ours first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.harness.measurement import run
from benchmarks.harness.timing import Timing
from benchmarks.peers.evaluation import measurements
from contract.errors import HecktorError

PANOPTICA = """
from types import SimpleNamespace
ConnectedComponentsInstanceApproximator = NaiveThresholdMatching = dict
InputType = SimpleNamespace(SEMANTIC=0)
Metric = SimpleNamespace(IOU=0)
class Panoptica_Evaluator:
    def __init__(self, **options): pass
    def evaluate(self, predicted, reference, verbose):
        return {"all": SimpleNamespace(tp=TP, fp=0, fn=0)}
"""
SURFACE_DISTANCE = """
def compute_surface_distances(reference, predicted, spacing): return int(reference.sum())
def compute_robust_hausdorff(distances, percent): return HD95 if distances == 60**3 else 1.0
def compute_surface_dice_at_tolerance(distances, tolerance): return 1.0
"""


def peer_timing(key: str, module: str, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Timing:
    """Measure a peer that `code` stands in for."""
    packages, scratch = folder / "packages", folder / "scratch"
    packages.mkdir(), scratch.mkdir()
    (packages / f"{module}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", f"{packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    (measurement,) = (m for m in measurements(Path(sys.executable)) if m.key == key)
    return run(measurement, scratch, quick=True)


def test_panoptica_must_count_the_same_lesions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least node has a radius of 6 mm and is shifted by sqrt(13) mm: 0.56 of it overlaps, the IoU is 0.39.

    All six nodes match at an IoU of 0.3.
    """
    (tmp_path / "same").mkdir(), (tmp_path / "other").mkdir()
    code = PANOPTICA.replace("TP", "6")
    assert len(peer_timing("lesions/panoptica", "panoptica", code, tmp_path / "same", monkeypatch).seconds) == 5
    with pytest.raises(HecktorError, match=r"'tp': 5.*expected our counts .*'tp': 6"):
        peer_timing("lesions/panoptica", "panoptica", PANOPTICA.replace("TP", "5"), tmp_path / "other", monkeypatch)


def test_surface_distance_must_agree_on_cubes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cube of 60 mm is shifted by 3 mm: HD95 is 3 mm; in and around the other, 1 mm."""
    (tmp_path / "same").mkdir(), (tmp_path / "other").mkdir()
    key, module = "surfaces/surface-distance", "surface_distance"
    code = SURFACE_DISTANCE.replace("HD95", "3.0")
    assert len(peer_timing(key, module, code, tmp_path / "same", monkeypatch).seconds) == 5
    with pytest.raises(HecktorError, match=r"gtvn_hd95_mm: found 3\.0 and 2\.0"):
        peer_timing(key, module, SURFACE_DISTANCE.replace("HD95", "2.0"), tmp_path / "other", monkeypatch)
