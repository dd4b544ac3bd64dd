"""Release cases and working directories for tests, and heads of existing masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baseline.cli import main
from baseline.heads.fitting import OUT_OF_FOLD_MASKS, HeadRecord
from baseline.heads.models.targets import make_targets
from baseline.heads.record import FORMAT_VERSION, KINDS
from baseline.network.plans import NetworkPlan, store_plan
from baseline.release.cases import ReleaseCase, list_head_specs, write_cases
from baseline.work import WorkFolders
from contract.documents import parse_document
from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.images.volumes import read_header
from contract.io.files import write_json
from contract.packages import DEFAULT_MIN_LESION_SIZES
from contract.patient import Patient

EDITION = load_edition()
ANSWERS = list_head_specs(EDITION)
RFS, HPV = make_targets(EDITION)
# Two balanced folds, two centres; B-1 belongs to the second centre.
FOLDS = (("A-1",), ("A-2", "B-1"))
CENTRES = {"A": ("A-1", "A-2"), "B": ("B-1",)}


def outcomes(relapse: bool | None = None, days: float | None = None, hpv: bool | None = None) -> dict[str, Any]:
    """Return outcomes of HECKTOR 2025 by column, without missing outcomes."""
    values = {"Relapse": relapse, "RFS": days, "HPV Status": hpv}
    return {column: value for column, value in values.items() if value is not None}


def cross_validation_json(targets: Mapping[str, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a complete `cross_validation.json` of records that hold only what a test needs; patients have numbers as
    IDs.
    """
    defaults = {
        target.name: target.metric
        for edition in ("hecktor2025", "hecktor2026")
        for target in make_targets(load_edition(edition))
    }
    records = {}
    for name, target in targets.items():
        kinds = {kind: dict(target.get(kind, {"why_not": "left out"})) for kind in KINDS}
        for kind in kinds.values():
            if "why_not" not in kind:
                kind |= {"fold_of_patient": [], "folds": [], "comparators": kind.get("comparators", {})}
        patients = [{"id": str(number), "centre": "A", **row} for number, row in enumerate(target["patients"])]
        records[name] = {"metric": defaults[name], "patients": patients, **kinds}
    return {"format_version": FORMAT_VERSION, "seed": 0, "no_head": {}, **records, **more}


def head_record(head: Mapping[str, Any], **more: Any) -> HeadRecord:
    """Return a record of `heads.json` for a head, as JSON, with only what a test needs."""
    record = {"model": "Cox, few features", "setting": {}, "tried": {}, "metric": "c_index", "out_of_fold": 1.0}
    record |= {
        "fallback": None,
        "experts": [],
        "smallest_lesions": DEFAULT_MIN_LESION_SIZES.model_dump(),
        "masks": OUT_OF_FOLD_MASKS,
    }
    return parse_document(record | {"head": head} | more, HeadRecord, "heads.json")


def make_planned_work(
    root: Path,
    with_mask: Sequence[str] = ("A-1", "A-2"),
    plan: NetworkPlan | None = None,
    folds: Sequence[Sequence[str]] = FOLDS,
) -> WorkFolders:
    """Write a working directory with three prepared patients of two centres, with a plan if `plan` is not None."""
    work, image = WorkFolders(root), Path("image")
    cases = [
        ReleaseCase(name, name[0], image, image, image if name in with_mask else None, Patient())
        for name in ("A-1", "A-2", "B-1")
    ]
    write_cases(work, cases)
    splits = {
        "folds": [list(fold) for fold in folds],
        "centres": {centre: list(patients) for centre, patients in CENTRES.items()},
    }
    write_json(work.splits_json, {"format_version": 1, "seed": 0, **splits})
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [2.0, 2.0, 4.0]}, "data": "images"})
    if plan is not None:
        store_plan(work, "any", plan)
        write_json(work.plans, {"configurations": {"2d": {"batch_size": 90}, "3d_fullres": {"batch_size": 2}}})
    return work


def make_block(case: ReleaseCase, side: int = 8) -> tuple[np.ndarray, Geometry]:
    """Return a primary tumour of `side` cubed voxels in the middle of the CT, and a node next to it."""
    grid = read_header(case.ct).geometry
    mask = np.zeros(grid.array_shape, dtype=np.uint8)
    z, y, x = (size // 2 for size in mask.shape)
    mask[z : z + side, y : y + side, x : x + side] = 1
    mask[z : z + side, y : y + side, x - 2 * side : x - side] = 2
    return mask, grid


def run_heads(work: WorkFolders, masks: Path | str, *options: str) -> None:
    """Fit heads of existing masks."""
    assert main(["heads", "--work", str(work.root), "--masks", str(masks), "--jobs", "1", *options]) == 0
