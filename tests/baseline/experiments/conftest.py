"""A working directory of four patients with out-of-fold masks and answers of two plans, without any network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.release.cases import ReleaseCase, read_cases, write_cases
from baseline.report.report import heads_key
from baseline.work import WorkFolders
from contract.files import write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask, write_volume
from contract.patient import Patient
from tests.baseline.prepared import cross_validation_json, outcomes

GRID = Geometry((24, 20, 16), (2.0, 2.0, 3.0), (-24.0, -20.0, 0.0))
PATIENTS = ("A-1", "A-2", "B-1", "B-2")
DAYS = (100.0, 200.0, 300.0, 400.0)
HPV = (True, False, True, False)


def blocks(shift: int = 0) -> np.ndarray:
    """A GTVp of 4 x 4 x 4 voxels, moved along x by `shift`, and a GTVn of the same size."""
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[3:7, 4:8, 4 + shift : 8 + shift] = 1
    mask[9:13, 10:14, 14:18] = 2
    return mask


def answers(risks: tuple[float, ...], hpv: tuple[bool, ...] | None) -> dict[str, Any]:
    """`cross_validation.json` with nested answers; everyone relapses."""
    people = [{"id": name, "centre": name[0]} for name in PATIENTS]
    rfs = [{**row, "rfs_days": days, "relapse": True} for row, days in zip(people, DAYS, strict=True)]
    status: dict[str, Any] = {"why_not": "too few"}
    if hpv is not None:
        probability = [0.9 if one else 0.1 for one in hpv]
        status = {"positive": list(hpv), "probability": probability, "balanced_accuracy": 1.0}
    rfs_record = {"patients": rfs, "nested": {"score": list(risks), "c_index": 1.0}}
    return cross_validation_json({"rfs": rfs_record, "hpv": {"patients": people, "nested": status}})


def write_heads(work: WorkFolders, content: dict[str, Any]) -> None:
    """Write the out-of-fold answers of heads that were fitted on the present masks."""
    write_json(work.heads_json, {})
    made_from = heads_key(work, read_cases(work))
    write_json(work.cross_validation_json, content | {"made_from": made_from})


@pytest.fixture
def work(tmp_path: Path) -> WorkFolders:
    """`plan` finds the first patient's GTVp half a lesion off; `b` finds all exactly, and its risks are reversed."""
    plan, b, cases = WorkFolders(tmp_path / "work"), WorkFolders(tmp_path / "work", "b"), []
    for place, name in enumerate(PATIENTS):
        ct, pet, mask = (tmp_path / f"{name}{role}.nii.gz" for role in ("__CT", "__PT", ""))
        write_volume(ct, Volume(np.full(GRID.array_shape, 40, np.int16), GRID))
        write_volume(pet, Volume(blocks().astype(np.float32) * 4, GRID))
        write_mask(mask, blocks(), GRID)
        write_mask(plan.mask(name), blocks(2 * (place == 0)), GRID)
        write_mask(b.mask(name), blocks(), GRID)
        known = outcomes(relapse=True, days=DAYS[place], hpv=HPV[place])
        cases.append(ReleaseCase(name, name[0], ct, pet, mask, Patient(), known))
    write_cases(plan, cases)
    centres = {"A": list(PATIENTS[:2]), "B": list(PATIENTS[2:])}
    folds = [list(PATIENTS[::2]), list(PATIENTS[1::2])]
    write_json(plan.splits_json, {"format_version": 1, "seed": 0, "folds": folds, "centres": centres})
    write_json(plan.prepare_json, {"options": {"release": "r", "spacing_mm": [2.0, 2.0, 3.0]}, "data": "images"})
    for one, risks in ((plan, (4.0, 3.0, 2.0, 1.0)), (b, (1.0, 2.0, 3.0, 4.0))):
        write_json(one.features_json, {})
        write_heads(one, answers(risks, HPV))
    return plan
