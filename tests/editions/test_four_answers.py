"""An edition is one file: a made-up edition with four answers goes the whole way without code.

`four_answers.json` declares other sockets and other clinical keys than the challenge, and one algorithm with a mask,
two stages of four classes and a survival written as a time. No line of the product knows of it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from algorithm.network.loaded_package import DEFAULT_PACKAGE
from contract.io.files import read_json, write_json
from hecktor.cli import main
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort
from tests.conftest import head_json, stage_head, write_manifest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
EDITION = HERE / "four_answers.json"
PATIENTS = 3
CODES = tuple(centre.code for centre in CENTRES)


def run_hecktor(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Copy the shipped networks, with simple heads for the edition's answers."""
    root = tmp_path / "package"
    shutil.copytree(DEFAULT_PACKAGE, root)
    shutil.rmtree(root / "heads")
    write_json(root / "heads" / "t_stage.json", stage_head(("T1", "T2", "T3", "T4"), "gtvp_diameter_mm", 1 / 20))
    write_json(root / "heads" / "n_stage.json", stage_head(("N0", "N1", "N2", "N3"), "gtvn_count", 1.0))
    survival = head_json(("total_volume_ml", 0.02), ("hpv_status", -0.5))
    write_json(
        root / "heads" / "survival.json", survival | {"survival": {"days": [1000.0], "cumulative_hazard": [1.0]}}
    )
    manifest = read_json(root / "manifest.json") | {"edition": "four-answers"}
    write_manifest(root, **{name: value for name, value in manifest.items() if name != "files"})
    return root


def test_rehearse_evaluate_and_rank(package: Path, tmp_path: Path) -> None:
    """Voxels of the phantoms are four times as wide as usual. The first team has a process for each case, the second a server."""
    cohort = tmp_path / "cohort"
    options = CohortOptions(7, CODES, "platform", "head_and_neck", ct_coarsening=4, edition=str(EDITION))
    case, *_ = make_cohort(options, PATIENTS, cohort, 1)
    entries = read_json(cohort / case / "input" / "inputs.json")
    assert [entry["socket"]["slug"] for entry in entries] == ["ct-volume", "pet-volume", "health-record"]
    for team, passes, way in (("careful", 2, ("--jobs", 2)), ("quick", 1, ("--api-method", "invoke"))):
        run_hecktor("rehearse", "--edition", EDITION, "--cases", cohort, "--process", "--model", package,
                "--ground-truth", cohort / "ground_truth", "--output", tmp_path / team, "--team", team,
                f"--arguments=--device cpu --passes {passes}", *way)  # fmt: skip
        report = read_json(tmp_path / team / "metrics.json")
        check_metrics(report)
    files = [tmp_path / team / "metrics.json" for team in ("careful", "quick")]
    run_hecktor("rank", "--edition", EDITION, "--task", "everything", *files, "--output", tmp_path / "board")
    board = read_json(tmp_path / "board" / "leaderboard.json")
    assert {row["team"] for row in board["teams"]} == {"careful", "quick"}


def check_metrics(report: dict[str, Any]) -> None:
    """Compute the metrics of each answer from the rows."""
    values = {name: figures["value"] for name, figures in report["aggregates"].items()}
    assert values["mask_gtvp_dsc_mean"] > 0.5
    rows = report["results"]
    assert len(rows) == PATIENTS
    for stage in ("t_stage", "n_stage"):
        pairs = [(row[stage][stage], row[stage][f"predicted_{stage}"]) for row in rows]
        recalls = [
            sum(predicted == actual for actual, predicted in pairs if actual == value)
            / sum(actual == value for actual, _ in pairs)
            for value in sorted({actual for actual, _ in pairs})
        ]
        assert values[f"{stage}_balanced_accuracy"] == pytest.approx(sum(recalls) / len(recalls))
    times = [(row["survival"]["rfs_days"], row["survival"]["relapse"], row["survival"]["risk"]) for row in rows]
    comparable = [(a, b) for a in times for b in times if a[1] and (a[0] < b[0] or (a[0] == b[0] and not b[1]))]
    concordant = sum(1.0 if a[2] < b[2] else 0.5 * (a[2] == b[2]) for a, b in comparable)
    assert values["survival_c_index"] == pytest.approx(concordant / len(comparable))
