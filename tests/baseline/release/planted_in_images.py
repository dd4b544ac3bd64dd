"""Faults of single images, each planted in one patient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.baseline.release.planted import Expected, Plant, Release, error, image, warning


def ct_cut_off(release: Release, p: str) -> list[Expected]:
    path = release.path(p, "__CT")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return error("unreadable", p, image(p, "__CT"), "truncated")


def mask_on_another_grid(release: Release, p: str) -> list[Expected]:
    release.change(
        p, "", lambda mask: mask[1:], size=(*release.read(p, "").geometry.size[:2], len(release.read(p, "").array) - 1)
    )
    return error("geometry", p, image(p, ""), r"size \(64, 64, \d+\) against \(64, 64, \d+\)")


def pet_elsewhere(release: Release, p: str) -> list[Expected]:
    release.change(p, "__PT", lambda pet: pet, origin_mm=(5000.0, 0.0, 0.0))
    return error("geometry", p, image(p, "__PT"), "no overlap with the CT")


def pet_of_few_voxels(release: Release, p: str) -> list[Expected]:
    grid = release.read(p, "__PT").geometry
    part = grid.crop((28, 28, 0), (8, 8, grid.size[2]))
    release.change(p, "__PT", lambda pet: pet[:, 28:36, 28:36], size=part.size, origin_mm=part.origin_mm)
    return error("geometry", p, image(p, "__PT"), r"size \(8, 8, \d+\)$")


def flipped_axes(release: Release, p: str) -> list[Expected]:
    for role in ("__CT", ""):
        release.change(
            p,
            role,
            lambda array: array,
            direction=(-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0),
            origin_mm=(250.0, 250.0, release.read(p, role).geometry.origin_mm[2]),
        )
    return warning("geometry", p, image(p, "__CT"), r"direction \(-1, 0, 0, 0, -1, 0, 0, 0, 1\)")


def centimetres(release: Release, p: str) -> list[Expected]:
    for role in ("__CT", "__PT", ""):
        grid = release.read(p, role).geometry
        release.change(
            p, role, lambda array: array,
            spacing_mm=tuple(step / 100 for step in grid.spacing_mm), origin_mm=tuple(v / 100 for v in grid.origin_mm),
        )  # fmt: skip
    return [
        ("warning", "geometry", p, image(p, "__CT"), r"spacing \(0\.\d+, 0\.\d+, 0\.0\d+\) mm"),
        ("warning", "geometry", p, image(p, "__PT"), r"spacing \(0\.\d+, 0\.\d+, 0\.05\) mm"),
    ]


def spoiled_image(role: str, spoil: Callable[[np.ndarray], np.ndarray], severity: str, kind: str, found: str) -> Plant:
    """Other voxels on the same grid."""

    def plant(release: Release, p: str) -> list[Expected]:
        release.change(p, role, spoil)
        return [(severity, kind, p, image(p, role), found)]

    return plant


def with_values(first: float, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Set the first `count` voxels of the second slice."""

    def spoil(array: np.ndarray) -> np.ndarray:
        changed = array.astype(np.float32)
        changed[1].flat[:count] = first
        return changed

    return spoil


IMAGE_FAULTS: dict[str, Plant] = {
    "CT cut off": ct_cut_off,
    "mask on another grid": mask_on_another_grid,
    "PET elsewhere": pet_elsewhere,
    "PET of few voxels": pet_of_few_voxels,
    "flipped axes": flipped_axes,
    "centimetres": centimetres,
    "label 3": spoiled_image("", lambda m: np.where(m == 2, 3, m), "error", "labels", "labels 3$"),
    "half a label": spoiled_image("", with_values(0.5, 1), "error", "labels", "labels 0.5$"),
    "mirrored mask": spoiled_image("", lambda m: m[:, ::-1], "warning", "mirrored", "with y mirrored$"),
    "empty mask": spoiled_image("", np.zeros_like, "warning", "labels", "an empty mask"),
    "inverted CT": spoiled_image("__CT", lambda ct: -ct, "error", "hounsfield", "an inverted CT"),
    "rescale forgotten": spoiled_image(
        "__CT", lambda ct: (np.clip(ct, -1024, None) + 1024).astype(np.uint16), "error", "hounsfield", "rescale intercept"
    ),
    "CT from 0 to 1": spoiled_image(
        "__CT", lambda ct: ((ct + 1024.0) / 4096).astype(np.float32), "error", "hounsfield", "another unit"
    ),
    "CT of bytes": spoiled_image(
        "__CT", lambda ct: np.clip((ct + 160) * 0.64, 0, 255).astype(np.uint8), "error", "hounsfield", "another unit"
    ),
    "constant CT": spoiled_image("__CT", np.zeros_like, "error", "hounsfield", "values from 0 to 0"),
    "CT with NaN": spoiled_image("__CT", with_values(np.nan, 3), "warning", "not-finite", "3 voxels are NaN or infinite"),
    "PET of NaN": spoiled_image("__PT", lambda p: p * np.nan, "error", "not-finite", "all voxels are NaN"),
    "PET with infinity": spoiled_image("__PT", with_values(np.inf, 2), "warning", "not-finite", "2 voxels are NaN or"),
    "PET in Bq/ml": spoiled_image("__PT", lambda p: p * 5000, "error", "suv", r"an activity concentration \(Bq/ml\)"),
    "PET of zeros": spoiled_image("__PT", np.zeros_like, "error", "suv", "all voxels are zero"),
    "negated PET": spoiled_image("__PT", np.negative, "error", "suv", "voxels below zero, "),
    "PET with negatives": spoiled_image("__PT", with_values(-0.5, 4), "warning", "suv", r"4 voxels below zero \(lowest -0.5"),
    "PET from 0 to 1": spoiled_image("__PT", lambda p: p / p.max(), "error", "suv", "a normalised image"),
}  # fmt: skip
