"""Faults of single images, each planted in one patient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.baseline.release.planted import Expected, Plant, Release, expect_error, expect_warning, format_image_path


def truncate_ct(release: Release, p: str) -> list[Expected]:
    path = release.path(p, "__CT")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return expect_error("unreadable", p, format_image_path(p, "__CT"), "truncated")


def crop_mask(release: Release, p: str) -> list[Expected]:
    release.change(
        p, "", lambda mask: mask[1:], size=(*release.read(p, "").geometry.size[:2], len(release.read(p, "").array) - 1)
    )
    return expect_error("geometry", p, format_image_path(p, ""), r"size \(64, 64, \d+\) against \(64, 64, \d+\)")


def move_pet(release: Release, p: str) -> list[Expected]:
    release.change(p, "__PT", lambda pet: pet, origin_mm=(5000.0, 0.0, 0.0))
    return expect_error("geometry", p, format_image_path(p, "__PT"), "no overlap with the CT")


def crop_pet(release: Release, p: str) -> list[Expected]:
    grid = release.read(p, "__PT").geometry
    part = grid.crop((28, 28, 0), (8, 8, grid.size[2]))
    release.change(p, "__PT", lambda pet: pet[:, 28:36, 28:36], size=part.size, origin_mm=part.origin_mm)
    return expect_error("geometry", p, format_image_path(p, "__PT"), r"size \(8, 8, \d+\)$")


def flip_axes(release: Release, p: str) -> list[Expected]:
    for role in ("__CT", ""):
        release.change(
            p,
            role,
            lambda array: array,
            direction=(-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0),
            origin_mm=(250.0, 250.0, release.read(p, role).geometry.origin_mm[2]),
        )
    return expect_warning("geometry", p, format_image_path(p, "__CT"), r"direction \(-1, 0, 0, 0, -1, 0, 0, 0, 1\)")


def divide_lengths_by_100(release: Release, p: str) -> list[Expected]:
    for role in ("__CT", "__PT", ""):
        grid = release.read(p, role).geometry
        release.change(
            p, role, lambda array: array,
            spacing_mm=tuple(step / 100 for step in grid.spacing_mm), origin_mm=tuple(v / 100 for v in grid.origin_mm),
        )  # fmt: skip
    return [
        ("warning", "geometry", p, format_image_path(p, "__CT"), r"spacing \(0\.\d+, 0\.\d+, 0\.0\d+\) mm"),
        ("warning", "geometry", p, format_image_path(p, "__PT"), r"spacing \(0\.\d+, 0\.\d+, 0\.05\) mm"),
    ]


def make_voxel_fault(
    role: str, spoil: Callable[[np.ndarray], np.ndarray], severity: str, kind: str, finding: str
) -> Plant:
    """Return a fault that changes the voxels of an image on the same grid."""

    def plant(release: Release, p: str) -> list[Expected]:
        release.change(p, role, spoil)
        return [(severity, kind, p, format_image_path(p, role), finding)]

    return plant


def make_setter(value: float, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that sets the first `count` voxels of the second slice to a value."""

    def spoil(array: np.ndarray) -> np.ndarray:
        changed = array.astype(np.float32)
        changed[1].flat[:count] = value
        return changed

    return spoil


IMAGE_FAULTS: dict[str, Plant] = {
    "CT cut off": truncate_ct,
    "mask on another grid": crop_mask,
    "PET elsewhere": move_pet,
    "PET of few voxels": crop_pet,
    "flipped axes": flip_axes,
    "centimetres": divide_lengths_by_100,
    "label 3": make_voxel_fault("", lambda m: np.where(m == 2, 3, m), "error", "labels", "labels 3$"),
    "half a label": make_voxel_fault("", make_setter(0.5, 1), "error", "labels", "labels 0.5$"),
    "mirrored mask": make_voxel_fault("", lambda m: m[:, ::-1], "warning", "mirrored", "with y mirrored$"),
    "empty mask": make_voxel_fault("", np.zeros_like, "warning", "labels", "an empty mask"),
    "inverted CT": make_voxel_fault("__CT", lambda ct: -ct, "error", "hounsfield", "an inverted CT"),
    "rescale forgotten": make_voxel_fault(
        "__CT", lambda ct: (np.clip(ct, -1024, None) + 1024).astype(np.uint16), "error", "hounsfield", "rescale intercept"
    ),
    "CT from 0 to 1": make_voxel_fault(
        "__CT", lambda ct: ((ct + 1024.0) / 4096).astype(np.float32), "error", "hounsfield", "another unit"
    ),
    "CT of bytes": make_voxel_fault(
        "__CT", lambda ct: np.clip((ct + 160) * 0.64, 0, 255).astype(np.uint8), "error", "hounsfield", "another unit"
    ),
    "constant CT": make_voxel_fault("__CT", np.zeros_like, "error", "hounsfield", "values from 0 to 0"),
    "CT with NaN": make_voxel_fault("__CT", make_setter(np.nan, 3), "warning", "not-finite", "3 voxels are NaN or infinite"),
    "PET of NaN": make_voxel_fault("__PT", lambda p: p * np.nan, "error", "not-finite", "all voxels are NaN"),
    "PET with infinity": make_voxel_fault("__PT", make_setter(np.inf, 2), "warning", "not-finite", "2 voxels are NaN or"),
    "PET in Bq/ml": make_voxel_fault("__PT", lambda p: p * 5000, "error", "suv", r"an activity concentration \(Bq/ml\)"),
    "PET of zeros": make_voxel_fault("__PT", np.zeros_like, "error", "suv", "all voxels are zero"),
    "negated PET": make_voxel_fault("__PT", np.negative, "error", "suv", "voxels below zero, "),
    "PET with negatives": make_voxel_fault("__PT", make_setter(-0.5, 4), "warning", "suv", r"4 voxels below zero \(lowest -0.5"),
    "PET from 0 to 1": make_voxel_fault("__PT", lambda p: p / p.max(), "error", "suv", "a normalised image"),
}  # fmt: skip
