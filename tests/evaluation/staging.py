"""Write a small cohort of HECKTOR 2026 with values derived by hand, in the platform's layout and as plain files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from contract.predictions import make_job_entry, make_socket_entry

# 12 x 10 x 8 voxels of 1 x 2 x 3 mm.
GRID = Geometry((12, 10, 8), (1.0, 2.0, 3.0), (-5.0, 4.0, 7.0))
EDITION = load_edition("hecktor2026")
COMBINED = EDITION.find_algorithm()
# As spelled in tables of a release. P5 has no mask; P4 has a T stage that does not count; P5's N stage is missing.
TABLE = """PatientID,Center,Age,T_stage,N_stage,RFS,Relapse
P1,A,61,T1,N0,100,1
P2,A,,1.0,N2b,200,1.0
P3,B,55,T2,2,300,0
P4,B,70,T0,N3,400,1
P5,B,48,T4a,,500,0
"""
# P4 has no mask and P5 has no answer at all.
ANSWERS: dict[str, dict[str, Any]] = {
    "P1": {"t_stage": "T1", "n_stage": "N0", "rfs": 400.0},
    "P2": {"t_stage": "T2", "n_stage": "N2", "rfs": 150.0},
    "P3": {"t_stage": "T2", "n_stage": "N1", "rfs": 300.0},
    "P4": {"t_stage": "T4", "n_stage": "N3", "rfs": 500.0},
}
COLUMNS = {"t_stage": "T-stage", "n_stage": "N-stage", "rfs": "RFS"}


def make_mask(grid: Geometry, *, primary: int | None, nodes: bool) -> np.ndarray:
    """Return a mask with a GTVp of 8 voxels from the column `primary`, unless that is None, and a GTVn of 4 voxels."""
    mask = np.zeros(grid.array_shape, dtype=np.uint8)
    if primary is not None:
        mask[2:4, 2:4, primary : primary + 2] = 1
    if nodes:
        mask[6, 6, 4:8] = 2
    return mask


def make_tumour(grid: Geometry = GRID) -> np.ndarray:
    """Return a mask with a GTVp and a GTVn."""
    return make_mask(grid, primary=2, nodes=True)


def make_references(grid: Geometry) -> dict[str, np.ndarray]:
    """Return the references; P2 has no GTVn and P3 no GTVp."""
    return {
        "P1": make_mask(grid, primary=2, nodes=True),
        "P2": make_mask(grid, primary=2, nodes=False),
        "P3": make_mask(grid, primary=None, nodes=True),
        "P4": make_mask(grid, primary=2, nodes=True),
    }


def make_predictions(grid: Geometry) -> dict[str, np.ndarray]:
    """Return the predictions: P1 is right, P2's GTVp is shifted by one of two voxels, P3 is empty, P4 is missing."""
    return {
        "P1": make_mask(grid, primary=2, nodes=True),
        "P2": make_mask(grid, primary=3, nodes=False),
        "P3": make_mask(grid, primary=None, nodes=False),
    }


def write_truth(folder: Path, grid: Geometry, table: str = TABLE) -> Path:
    """Write the reference masks and the table."""
    folder.mkdir(parents=True)
    (folder / "HECKTOR_2026_training_data.csv").write_text(table)
    for case, mask in make_references(grid).items():
        write_mask(folder / f"{case}.nii.gz", mask, grid)
    return folder


def write_jobs(
    root: Path, masks: Mapping[str, np.ndarray], values: Mapping[str, Mapping[str, Any]], grid: Geometry
) -> Path:
    """Write a submission in the platform's layout; its `predictions.json` lists the declared outputs of each job."""
    jobs = []
    for case in sorted({*masks, *values}):
        output = root / f"job-{case}" / "output"
        output.mkdir(parents=True)
        for name, value in values.get(case, {}).items():
            COMBINED.find_answer(name).socket.path_under(output).write_text(json.dumps(value))
        if case in masks:
            write_mask(COMBINED.find_answer("segmentation").socket.path_under(output) / "output.mha", masks[case], grid)
        ct = make_socket_entry(EDITION.inputs["ct"], 1, image=("pk", f"{case}__CT.nii.gz"))
        entries = [make_socket_entry(answer.socket, 2) for answer in COMBINED.answers]
        jobs.append(make_job_entry(f"job-{case}", [ct], entries, algorithm_image="", exec_duration_s=1))
    (root / "predictions.json").write_text(json.dumps(jobs))
    return root


def write_plain(
    folder: Path, masks: Mapping[str, np.ndarray], values: Mapping[str, Mapping[str, Any]], grid: Geometry
) -> Path:
    """Write a folder of masks with one table."""
    folder.mkdir(parents=True)
    lines = [",".join(["PatientID", *COLUMNS.values()])]
    lines += [",".join([case, *(str(answers[name]) for name in COLUMNS)]) for case, answers in values.items()]
    (folder / "predictions.csv").write_text("\n".join(lines) + "\n")
    for number, (case, mask) in enumerate(masks.items()):
        write_mask(folder / f"{case}{('.mha', '.nii.gz')[number % 2]}", mask, grid)
    return folder
