"""Prepared patients with random lesions, similar references and stored probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from baseline.network.out_of_fold import write_probabilities
from baseline.postprocessing.record import FORMAT_VERSION
from baseline.release.cases import ReleaseCase, image_path, label_path
from baseline.work import WorkFolders
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask, write_volume
from contract.patient import Patient

GRID = Geometry((22, 20, 18), (4.0, 4.0, 4.0), (-44.0, -40.0, -36.0))


def make_record_json(rules: dict[str, Any], why_not: str = "", **content: Any) -> dict[str, Any]:
    """Return the smallest valid `postprocessing.json`."""
    content = {"edition": "hecktor2025", "patients": 36, "made_from": "key", **content}
    return {"format_version": FORMAT_VERSION, "rules": rules, "why_not": why_not, **content}


def make_smooth_field(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draw a random field with blobs of a few voxels and a standard deviation of 1."""
    field = ndimage.gaussian_filter(rng.normal(size=GRID.array_shape), 1.3)
    return np.asarray(field / field.std())


def remove_small_lesions(mask: npt.NDArray[np.uint8], smallest: int) -> npt.NDArray[np.uint8]:
    """Return the mask without lesions of fewer than `smallest` voxels."""
    result = mask.copy()
    for label in (1, 2):
        parts, count = ndimage.label(mask == label, structure=np.ones((3, 3, 3)))
        sizes = np.bincount(parts.ravel(), minlength=count + 1)
        result[(parts > 0) & (sizes[parts] < smallest)] = 0
    return result


def write_patients(
    root: Path, centres: Sequence[str], rng: np.random.Generator, noise: float = 0.35, smallest: int = 0
) -> tuple[list[ReleaseCase], WorkFolders]:
    """Write a patient for each item of `centres`, whose probabilities are the reference with `noise`.

    References have no lesion of fewer than `smallest` voxels, but predictions may have one.
    """
    work, cases = WorkFolders(root), []
    for number, centre in enumerate(centres):
        name = f"{centre}-{number:03d}"
        ct = root / f"{name}__CT.nii.gz"
        case = ReleaseCase(name, centre, ct, ct, root / f"{name}.nii.gz", Patient())
        write_volume(ct, Volume(np.zeros(GRID.array_shape, np.int16), GRID))
        truth = np.stack([np.full(GRID.array_shape, 1.6), make_smooth_field(rng), make_smooth_field(rng)])
        reference = remove_small_lesions(truth.argmax(0).astype(np.uint8), smallest)
        noisy = truth + noise * np.stack([make_smooth_field(rng) for _ in range(3)])
        logits = (3 * noisy).astype(np.float32)
        powers = np.exp(logits - logits.max(0))
        mask = logits.argmax(0).astype(np.uint8)
        write_probabilities(work.probabilities(name), powers / powers.sum(0), mask)
        write_volume(image_path(work.raw, case, 0), Volume(np.zeros(GRID.array_shape, np.float32), GRID))
        uptake = (3 + make_smooth_field(rng)).clip(0).astype(np.float32)
        write_volume(image_path(work.raw, case, 1), Volume(uptake, GRID))
        write_mask(label_path(work.raw, case), reference, GRID)
        write_mask(root / f"{name}.nii.gz", reference, GRID)
        write_mask(work.raw_mask(name), mask, GRID)
        cases.append(case)
    return cases, work
