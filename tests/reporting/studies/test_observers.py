"""Agreement of annotators, against figures derived by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contract.errors import GroundTruthError
from contract.images.volumes import write_mask
from evaluation.editions.profile import load_profile
from reporting.studies.observers import MEASURES, compare_annotators
from tests.evaluation.tables import read_lines
from tests.reporting.studies.runs import run_study


def draw_rows(blank, gtvp=0, gtvn=0):
    """Draw `gtvp` voxels along x from 0, and `gtvn` voxels elsewhere."""
    mask = blank()
    mask[2, 2, :gtvp] = 1
    mask[5, 5, :gtvn] = 2
    return mask


@pytest.fixture
def folders(tmp_path, blank, grid):
    """Write masks with voxels of 6 mm3. GTVp voxels of (ann, bea, cal): case P 4, 4, 2; case Q 8, 4, and no mask of cal; R only ann.

    GTVn: P 0, 0, 0; Q 2, 2.
    """
    drawn = {"ann": {"P": (4, 0), "Q": (8, 2), "R": (3, 3)}, "bea": {"P": (4, 0), "Q": (4, 2)}, "cal": {"P": (2, 0)}}
    for name, cases in drawn.items():
        for case, sizes in cases.items():
            write_mask(tmp_path / name / f"{case}.mha", draw_rows(blank, *sizes), grid)
    return [f"{name}={tmp_path / name}" for name in drawn]


def study(tmp_path, *arguments):
    return run_study("observers", tmp_path / "out", *arguments, "--workers", 0)


def test_agreement_by_hand(tmp_path, folders):
    """DSC of P: 1 (ann, bea), 4/6 (ann, cal), 4/6 (bea, cal), their median 2/3; of Q 2 x 4 / 12 = 2/3.

    DSCagg of (ann, bea) over P and Q: 2 (4 + 4) / (8 + 12) = 0.8; of the other pairs 2/3 each. Weighed by 2, 1 and 1
    cases: (2 x 0.8 + 2 x 2/3) / 4 = 11/15. Only (ann, bea) draw GTVn: 1. The mean of both labels exists only for
    that pair: 0.9.
    """
    content = study(tmp_path, *folders, "--bootstraps", "50")
    values = {name: figures["value"] for name, figures in content["aggregates"].items()}
    assert values["gtvp_dsc_median"] == pytest.approx(2 / 3)
    assert values["gtvp_dsc_agg"] == pytest.approx(11 / 15)
    assert values["gtvn_dsc_agg"] == 1.0
    assert values["dsc_agg_mean"] == pytest.approx(0.9)
    assert values["gtvn_hd95_median_mm"] == 0.0
    assert content["quartiles"]["gtvn_dsc"] == {"cases": 1, "q1": 1.0, "q3": 1.0}
    assert content["cases_of_one_observer"] == ["R"]
    assert [(entry["observers"], entry["cases"]) for entry in content["pairs"]] == [
        (["ann", "bea"], 2),
        (["ann", "cal"], 1),
        (["bea", "cal"], 1),
    ]
    assert content["pairs"][0]["gtvp_dsc_agg"] == pytest.approx(0.8)
    figures = content["aggregates"]["gtvp_dsc_agg"]
    assert figures["ci95_low"] <= figures["value"] <= figures["ci95_high"]


def test_the_table_holds_every_pair(tmp_path, folders):
    """Q of ann and bea: 8 and 4 voxels of 1 mm along x. Directed distances 1 to 4 and 0, so the HD95 is the 95th
    percentile of (0, 0, 0, 0, 1, 2, 3, 4), 3.65 mm; the ASD (1 + 2 + 3 + 4) / 12; within 2 mm lie 10 of 12."""
    study(tmp_path, *folders, "--bootstraps", "0")
    lines = read_lines(tmp_path / "out" / "observers.csv")
    assert len(lines) == 4
    of_q = next(line for line in lines if line["case"] == "Q")
    assert [float(of_q[f"gtvp_{name}"]) for name in MEASURES] == pytest.approx([2 / 3, 3.65, 10 / 12, 10 / 12])


def test_one_empty_label_has_the_worst_values_and_two_have_no_values(blank):
    rows = compare_annotators(
        "P", {"a": draw_rows(blank, 3), "b": draw_rows(blank, 0)}, (1.0, 1.0, 1.0), load_profile().mask_rules
    )
    assert rows[0].measures["gtvp"] == {"dsc": 0.0, "hd95_mm": np.inf, "asd_mm": np.inf, "surface_dsc": 0.0}
    assert rows[0].measures["gtvn"] == dict.fromkeys(MEASURES)


def test_other_grids_and_unshared_cases_are_named(tmp_path, folders, blank, grid):
    write_mask(tmp_path / "bea" / "P.mha", blank(), replace(grid, origin_mm=(0.0, 0.0, 0.0)))
    with pytest.raises(GroundTruthError, match="P of bea: its grid is"):
        study(tmp_path, *folders)
    write_mask(tmp_path / "dot" / "Z.mha", blank(), grid)
    with pytest.raises(GroundTruthError, match="ann: found cases P, Q, R"):
        study(tmp_path, folders[0], f"dot={tmp_path / 'dot'}")
