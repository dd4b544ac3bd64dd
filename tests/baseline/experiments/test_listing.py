"""The table of plans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from baseline.experiments.listing import as_table, listed
from baseline.network.plans import NetworkPlan, store_plan
from baseline.work import TRAINING_TIME, WorkFolders
from contract.errors import HecktorError
from contract.files import write_json


def train(work: WorkFolders, fold: int, seconds: tuple[float, ...]) -> None:
    """A network of one fold with the times of its epochs; it is finished."""
    work.final(fold).parent.mkdir(parents=True)
    work.final(fold).touch()
    write_json(work.fold(fold) / TRAINING_TIME, {"seconds": sum(seconds)})


def test_folds_hours_figures_and_package(work: WorkFolders) -> None:
    """Of two folds one is trained, in 1.5 hours; an ensemble counts the networks and hours of its plans."""
    b = WorkFolders(work.shared, "b")
    for one in (work, b):
        store_plan(one, "any", NetworkPlan())
    train(work, 0, (3600.0, 1800.0))
    train(b, 0, (3600.0,))
    train(b, 1, (3600.0,))
    write_json(work.report_json, {"segmentation": {"gtvp_dsc_mean": {"value": 0.8125}}})
    write_json(b.exported_json, {"package": "best.tar.gz", "sha256": "any"})
    write_json(WorkFolders(work.shared, "b+plan").heads_json, {})
    plan, other, both = listed(work.shared)
    assert [[row[name] for name in ("plan", "networks", "hours")] for row in (plan, other, both)] == [
        ["plan", "1 of 2", 1.5],
        ["b", "2 of 2", 2.0],
        ["b+plan", "3 of 4", 3.5],
    ]
    assert [row["GTVp mean DSC"] for row in (plan, other)] == [0.8125, None]
    assert [other[name] for name in ("RFS C-index", "HPV balanced accuracy", "package")] == [1.0, 1.0, "best.tar.gz"]
    header, first, second, third = as_table([plan, other, both]).splitlines()
    assert header.split()[:3] == ["plan", "networks", "hours"]
    assert first.split()[:6] == ["plan", "1", "of", "2", "1.5", "0.812"]
    assert second.split()[-1] == "best.tar.gz"
    assert third.split()[-1] == "-"


def test_no_plan(tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match="no plan, expected `hecktor train plan` before"):
        listed(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loaded", "libraries"),
    [("baseline.steps", "torch nnunetv2 monai"), ("baseline.cli", "torch nnunetv2 monai scipy SimpleITK matplotlib")],
)
def test_the_list_and_the_help_load_no_heavy_library(loaded: str, libraries: str) -> None:
    code = f"import sys, {loaded}; print(set({libraries!r}.split()) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
