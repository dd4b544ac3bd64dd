"""Volume and SUVmax of the reference as risks."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from contract.errors import GroundTruthError
from tests.evaluation.tables import read_lines
from tests.evaluation.tasks import RFS
from tests.reporting.studies.runs import run_study


def draw_lesions(blank, gtvp, gtvn=0):
    mask = blank()
    mask[2, 2, :gtvp] = 1
    mask[5, 5, :gtvn] = 2
    return mask


@pytest.fixture
def cohort(add_case, blank, grid):
    """Write six cases: GTVp of 1 to 6 voxels of 6 mm3 with SUVmax 9 down to 4; case P6 has GTVn, at SUV 12."""
    for number in range(1, 7):
        suv = np.full(grid.array_shape, 20.0)
        mask = draw_lesions(blank, number, gtvn=3 if number == 6 else 0)
        suv[mask == 1] = 3
        suv[2, 2, 0] = 10 - number
        suv[mask == 2] = 12
        folder = add_case(f"P{number}", mask, suv)
    return folder


def study(cohort, out):
    return run_study("baselines", out, "--cohort", cohort, "--workers", 0)


def test_volume_and_suv_max_as_risks(cohort, add_case, blank, grid, phase_of, tmp_path):
    """P0 without a tumour has zeros. Risks are scored: of the others the smaller tumours recur later, so that volume
    orders every pair correctly and SUVmax every pair wrongly.
    """
    add_case("P0", blank(), np.ones(grid.array_shape))
    out = tmp_path / "out"
    study(cohort, out)
    risks = {
        name: [float(row["risk"]) for row in read_lines(out / f"{name}.csv")]
        for name in ("gtvp_volume_ml", "gtvp_suv_max", "tumour_volume_ml", "tumour_suv_max")
    }
    assert risks["gtvp_volume_ml"] == pytest.approx([0.006 * number for number in range(7)])
    assert risks["gtvp_suv_max"] == [0, 9, 8, 7, 6, 5, 4]
    assert risks["tumour_volume_ml"][-1] == pytest.approx(0.006 * 9)
    assert risks["tumour_suv_max"] == [0, 9, 8, 7, 6, 5, 12]
    phase = phase_of(RFS)
    phase.add_truth_table("PatientID,Relapse,RFS\n" + "".join(f"P{number},1,{10 - number}\n" for number in range(1, 7)))
    for name, expected in (("gtvp_volume_ml", 1.0), ("gtvp_suv_max", 0.0)):
        report = phase.run(predictions=out / f"{name}.csv", bootstraps=0)
        assert report["aggregates"]["c_index"]["value"] == expected


def test_the_layout_of_a_release_gives_the_same_result(cohort, tmp_path):
    out = tmp_path / "out"
    here = study(cohort, out)
    table = (out / "baselines.csv").read_text()
    released = tmp_path / "released"
    for case in (f"P{number}" for number in range(1, 7)):
        (released / case).mkdir(parents=True)
        shutil.copy(cohort / "ground_truth" / f"{case}.mha", released / case / f"{case}.mha")
        for kind, mark in (("ct", "CT"), ("pet", "PT")):
            scan = cohort / case / "input" / "images" / kind / f"{kind}.mha"
            shutil.copy(scan, released / case / f"{case}__{mark}.mha")
    assert study(released, out) == here
    assert (out / "baselines.csv").read_text() == table
    (released / "P3" / "P3__PT.mha").unlink()
    with pytest.raises(GroundTruthError, match="P3: no pet"):
        study(released, out)
