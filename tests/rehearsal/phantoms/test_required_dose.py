"""Planning CT and dose of phantoms for an edition that requires them."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from contract.editions import load_edition
from contract.editions.inputs import CT_PLANNING, RT_DOSE
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort


@pytest.mark.parametrize("layout", ["platform", "release"])
def test_every_patient_has_required_radiotherapy_images(tmp_path: Path, layout: str) -> None:
    """For other editions, patients of these two centres have no planning CT and no dose."""
    content = json.loads((files("contract.editions") / "hecktor2025.json").read_text())
    content["name"] = "with_dose"
    rfs = content["algorithms"][1]
    rfs["inputs"] += rfs.pop("optional_inputs")
    edition = tmp_path / "edition.json"
    edition.write_text(json.dumps(content))
    options = CohortOptions(8, ("CHUP", "USZ"), layout, "head_and_neck", ct_coarsening=8, edition=str(edition))
    patients = list(make_cohort(options, 3, tmp_path / "cohort", 1))
    sockets = load_edition(str(edition)).inputs
    for patient in patients:
        folder = tmp_path / "cohort" / ("Task 2" if layout == "release" else "") / patient
        if layout == "release":
            assert {f"{patient}__CTPlanning.nii.gz", f"{patient}__RTDOSE.nii.gz"} <= {p.name for p in folder.iterdir()}
        else:
            for name in (CT_PLANNING, RT_DOSE):
                assert len(list(sockets[name].path_under(folder / "input").iterdir())) == 1
