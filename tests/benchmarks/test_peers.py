"""Peers of the evaluation run in another environment, and their values are compared with ours first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.peers import CUBES, QUICK_SLICES, check_values, compute_distances, make_cubes
from contract.errors import HecktorError

PANOPTICA = """
from types import SimpleNamespace
ConnectedComponentsInstanceApproximator = NaiveThresholdMatching = dict
InputType = SimpleNamespace(SEMANTIC=0)
Metric = SimpleNamespace(IOU=0)
class Panoptica_Evaluator:
    def __init__(self, **options): pass
    def evaluate(self, predicted, reference, verbose):
        print("a banner, as version 2.1 prints at its first call")
        return {"all": SimpleNamespace(tp=TP, fp=0, fn=0)}
"""
SURFACE_DISTANCE = """
def compute_surface_distances(reference, predicted, spacing): return int(reference.sum())
def compute_robust_hausdorff(distances, percent): return HD95 if distances == 60**3 else 1.0
def compute_surface_dice_at_tolerance(distances, tolerance): return 1.0
"""


@pytest.mark.parametrize(
    ("lesions", "hd95", "message"),
    [
        ("6", "3.0", ""),
        ("5", "3.0", r"'tp': 5.*expected our counts .*'tp': 6"),
        ("6", "2.0", r"gtvn_hd95_mm: found 3\.0 and 2\.0"),
    ],
)
def test_peers_must_agree(
    lesions: str, hd95: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes: the smallest has a radius of 6 mm and is shifted by sqrt(13) mm, so 0.56 of it overlaps and its IoU is 0.39.

    All six match at an IoU of 0.3. The cube of 60 mm is shifted by 3 mm: its HD95 is 3 mm; the other cube's is 1 mm.
    """
    (tmp_path / "panoptica.py").write_text(PANOPTICA.replace("TP", lesions))
    (tmp_path / "surface_distance.py").write_text(SURFACE_DISTANCE.replace("HD95", hd95))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    if not message:
        check_values(Path(sys.executable), tmp_path, QUICK_SLICES)
        return
    with pytest.raises(HecktorError, match=message):
        check_values(Path(sys.executable), tmp_path, QUICK_SLICES)


def test_a_peer_that_cannot_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "panoptica.py").write_text("raise SystemExit(4)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(HecktorError, match="panoptica: exit status 4"):
        check_values(Path(sys.executable), tmp_path, QUICK_SLICES)


def test_distances_on_cubes() -> None:
    assert {name: value for name, value in compute_distances(make_cubes()).items() if name in CUBES} == CUBES
