"""A package from several plans: which ones fit each other, and the order of their networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.network.plans import NetworkPlan, store_plan
from baseline.package.joined_plans import (
    described_plans,
    ensemble_members,
    mean_dsc,
    order_of_plans,
    shared_mirror_axes,
)
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import write_json
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from tests.baseline.prepared import planned_work

PLAN = NetworkPlan(spacing_mm=(2.0, 2.0, 4.0))
# Ten voxels in a row: GTVp in the first four, GTVn in the next two.
REFERENCE = np.array([1, 1, 1, 1, 2, 2, 0, 0, 0, 0], np.uint8).reshape(1, 1, 10)


def write_plan(shared: Path, name: str, **changes: Any) -> WorkFolders:
    work = WorkFolders(shared, name)
    plan = PLAN.changed(**changes)
    store_plan(work, "any", plan)
    own = {"spacing": list(plan.spacing_mm), "normalization_schemes": ["CTNormalization", "ZScoreNormalization"]}
    write_json(work.plans, {"configurations": {"3d_fullres": own}})
    return work


def write_probabilities(work: WorkFolders, gtvp: list[float], gtvn: list[float]) -> None:
    """The same probabilities for both patients with a reference, as `postprocess` stores them."""
    for name in ("A-1", "A-2"):
        path = work.root / "out_of_fold" / "probabilities" / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {"gtvp": gtvp, "gtvn": gtvn}
        stored = {key: np.round(255 * np.array(row).reshape(1, 1, -1)).astype(np.uint8) for key, row in rows.items()}
        np.savez_compressed(path, **stored)


def test_mean_dsc_of_both_labels() -> None:
    """GTVp in voxels 0 to 2: 2 * 3 / (3 + 4) = 6/7. GTVn in voxels 4 to 7: 2 * 2 / (4 + 2) = 2/3. Mean 16/21."""
    gtvp = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], np.float32).reshape(1, 1, 10)
    gtvn = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0, 0], np.float32).reshape(1, 1, 10)
    assert mean_dsc(np.stack([gtvp, gtvn, 1 - gtvp - gtvn]), REFERENCE) == pytest.approx(16 / 21)
    empty = np.zeros_like(gtvp)
    assert mean_dsc(np.stack([empty, empty, 1 - empty]), np.zeros_like(REFERENCE)) == 1.0


def test_the_next_plan_is_the_one_that_adds_most(tmp_path: Path) -> None:
    """`c` alone is best: GTVp exact, GTVn 1 of 2 voxels (DSC 2/3). `a` alone: GTVp 3 of 4 (6/7), GTVn 1 of 2.

    Added to `c`, `a` changes no voxel: 0.4 + 0.6 of voxel 5 is not above half of two. `b` has no GTVp, and is worst
    alone, but is certain of voxel 5 and unsure of GTVp (0.4): with it the average is exact. So `b` follows `c`.
    """
    work = planned_work(tmp_path, plan=PLAN)
    for name in ("A-1", "A-2"):
        grid = Geometry((10, 1, 1), (2.0, 2.0, 4.0), (0.0, 0.0, 0.0))
        write_mask(work.raw / "labelsTr" / f"{name}.nii.gz", REFERENCE, grid)
    a, b, c = (write_plan(tmp_path, name) for name in "abc")
    write_probabilities(a, [1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0.4, 0, 0, 0, 0])
    write_probabilities(b, [0.4, 0.4, 0.4, 0.4, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0, 0, 0])
    write_probabilities(c, [1, 1, 1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0.4, 0, 0, 0, 0])
    assert [plan.name for plan in order_of_plans(WorkFolders(tmp_path, "a+b+c"))] == ["c", "b", "a"]
    (b.root / "out_of_fold" / "probabilities" / "A-1.npz").unlink()
    assert [plan.name for plan in order_of_plans(WorkFolders(tmp_path, "a+b+c"))] == ["a", "b", "c"]


def test_plans_of_two_spacings_are_compared_on_the_finer_grid(tmp_path: Path) -> None:
    """`plan` at 4 mm holds the same ten voxels of 2 mm as `fine` in five, so its borders lie between fine voxels.

    Its GTVp in coarse voxels 0 and 1 is 1, 1, 1, 0.75 and 0.25 in fine ones 0 to 4, so 0 to 3 by majority, as in the
    reference; GTVn in coarse voxel 2 is 0.25, 0.75, 0.75, 0.25 in fine ones 3 to 6, so 4 and 5. Its masks are exact.
    `fine` lacks one voxel of GTVp.
    """
    plain = planned_work(tmp_path, plan=PLAN.changed(spacing_mm=(4.0, 2.0, 4.0)))
    write_json(plain.prepare_json, {"options": {"release": "r", "spacing_mm": [4.0, 2.0, 4.0]}})
    write_json(tmp_path / "plans" / "fine" / "spacing.json", {"spacing_mm": [2.0, 2.0, 4.0]})
    fine = WorkFolders(tmp_path, "fine")
    write_json(fine.prepare_json, {"options": {"release": "r", "spacing_mm": [2.0, 2.0, 4.0]}})
    for name in ("A-1", "A-2"):
        write_mask(
            fine.raw / "labelsTr" / f"{name}.nii.gz", REFERENCE, Geometry((10, 1, 1), (2.0, 2.0, 4.0), (0, 0, 0))
        )
        coarse = Geometry((5, 1, 1), (4.0, 2.0, 4.0), (1.0, 0, 0))
        write_mask(plain.raw / "labelsTr" / f"{name}.nii.gz", REFERENCE[..., ::2], coarse)
    write_probabilities(fine, [1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0, 0, 0])
    write_probabilities(plain, [1, 1, 0, 0, 0], [0, 0, 1, 0, 0])
    assert [plan.name for plan in order_of_plans(WorkFolders(tmp_path, "fine+plan"))] == ["plan", "fine"]
    write_probabilities(fine, [1, 1, 1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0, 0, 0])
    write_probabilities(plain, [1, 0, 0, 0, 0], [0, 0, 1, 0, 0])
    assert [plan.name for plan in order_of_plans(WorkFolders(tmp_path, "fine+plan"))] == ["fine", "plan"]


def test_an_untrained_network_of_an_ensemble_is_named(tmp_path: Path) -> None:
    planned_work(tmp_path)
    plans = [write_plan(tmp_path, name) for name in ("a", "b")]
    with pytest.raises(HecktorError, match="expected `hecktor train fold --fold 0 --backbone unet --name a` before"):
        ensemble_members(plans)


def test_an_ensemble_is_mirrored_as_all_plans_are_and_describes_each(tmp_path: Path) -> None:
    planned_work(tmp_path)
    write_plan(tmp_path, "a", mirror_axes=(0, 1, 2))
    write_plan(tmp_path, "b", mirror_axes=(2,))
    both = WorkFolders(tmp_path, "a+b")
    assert shared_mirror_axes(both) == (2,)
    assert list(described_plans(both)["plans"]) == ["a", "b"]
    assert described_plans(WorkFolders(tmp_path, "b"))["plan"]["mirror_axes"] == [2]
