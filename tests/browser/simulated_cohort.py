"""A small cohort for the viewer, whose lesions are boxes with known edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from reporting.viewer.cohort import ViewerCohort
from tests.conftest import small_patient
from tests.reporting.viewer.conftest import ToyCohort

SPACING: Final = 3.0
GRID: Final = Geometry((60, 60, 50), (SPACING,) * 3, (-88.5, -88.5, -73.5))
FIRST: Final = "CASE-1"
HOSTILE: Final = "<img src=x onerror=alert(1)>"
BROKEN: Final = "BROKEN"
WITHOUT_PET: Final = "NO-PET"
CASES: Final = (FIRST, "CASE-2", HOSTILE, BROKEN, WITHOUT_PET)
ALPHA: Final = "alpha"
BETA: Final = f"beta {HOSTILE}"
# Boxes (first and last voxel along x, y, z). LPS x grows to the left: below the middle is the patient's right.
Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
PRIMARY: Final[Box] = ((20, 25), (24, 31), (20, 27))
NODE: Final[Box] = ((36, 39), (30, 34), (12, 15))
ALPHA_PRIMARY: Final[Box] = ((19, 26), (24, 31), (19, 28))
ALPHA_FALSE: Final[Box] = ((40, 43), (20, 23), (32, 35))


def write_cohort(root: Path) -> ViewerCohort:
    """Write the cases and masks of two teams; the values of the list are set here, not computed."""
    toy, ct = ToyCohort(root), small_patient(GRID)
    pet = np.where(ct > -500, 1.0, 0.0).astype(np.float32)
    _fill(pet, PRIMARY, 8.0)
    predictions = {ALPHA: _make_mask((1, ALPHA_PRIMARY), (2, ALPHA_FALSE)), BETA: _make_mask((1, PRIMARY))}
    for case in CASES:
        toy.add(case, _make_mask((1, PRIMARY), (2, NODE)), Volume(pet, GRID), Volume(ct, GRID))
        for team, mask in predictions.items():
            toy.predict(team, case, mask, GRID)
    for case, scan in ((BROKEN, "CT"), (WITHOUT_PET, "PT")):
        (root / "cohort" / case / f"{case}__{scan}.nii.gz").write_bytes(b"no image")
    (root / "cohort" / "table.csv").write_text(f"PatientID,Age,Relapse,RFS\n{FIRST},61,1,812\n")
    cohort = toy.find(ALPHA, BETA)
    return replace(cohort, listing={**cohort.listing, **_set_values(cohort)})


def _make_mask(*boxes: tuple[int, Box]) -> np.ndarray:
    mask = np.zeros(GRID.array_shape, np.uint8)
    for label, box in boxes:
        _fill(mask, box, label)
    return mask


def _fill(array: np.ndarray, box: Box, value: float) -> None:
    array[tuple(slice(first, last + 1) for first, last in reversed(box))] = value


def _set_values(cohort: ViewerCohort) -> dict[str, object]:
    dsc = {FIRST: (0.5, 0.9), "CASE-2": (0.8, 0.2), HOSTILE: (None, 0.6), BROKEN: (0.1, 0.3)}
    volume = {FIRST: 4.0, "CASE-2": 2.0, HOSTILE: 3.0, BROKEN: 1.0, WITHOUT_PET: 5.0}
    metrics = [
        {"key": "gtvp_dsc", "title": "GTVp DSC", "higher_is_better": True, "digits": 3},
        {"key": "volume", "title": "GTVp volume (ml)", "higher_is_better": None, "digits": 1},
    ]
    cases = []
    for entry in cohort.listing["cases"]:
        case = entry["case"]
        values: dict[str, object] = {"volume": {"": volume[case]}}
        if case in dsc:
            values["gtvp_dsc"] = dict(zip((ALPHA, BETA), dsc[case], strict=True))
        cases.append({**entry, "values": values})
    return {"metrics": metrics, "cases": cases}


def to_ras_mm(x: float, y: float, z: float) -> list[float]:
    """Return the patient position (right, front, head) in mm of a voxel index, with fractions."""
    origin = GRID.origin_mm
    return [-(origin[0] + SPACING * x), -(origin[1] + SPACING * y), origin[2] + SPACING * z]


def find_middle(box: Box) -> list[float]:
    """Return the centroid of a box in RAS mm."""
    return to_ras_mm(*((first + last) / 2 for first, last in box))
