"""Plausibility of a patient's images: geometry, labels and units; PETs in Bq/ml scaled by a table's factors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import SMALLEST_SIZE, overlap
from algorithm.case.units import (
    LARGEST_PLAUSIBLE_SUV,
    MOST_FACTOR_RATIO,
    PADDING_HU,
    convert_to_suv,
    describe_factor_error,
    find_missing_intercept,
    measure_tissue_uptake,
)
from baseline.release.cases import Release, ReleaseCase
from baseline.release.problems import ProblemReporter
from contract import labels
from contract.errors import Finding, HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, replace_nonfinite
from contract.release.tables import Problem, ReleaseTable, read_suv_factors

# Ranges of scanners, wide enough for coarse phantoms; a header in centimetres or metres falls outside.
LEAST_SPACING_MM, MOST_SPACING_MM = 0.2, 12.0
LEAST_EXTENT_MM, MOST_EXTENT_MM = 100.0, 2500.0
# Relative difference of pixel edges: rounding stays below, swapped axes exceed it.
_SQUARE: Final = 0.01
IDENTITY: Final = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
# Minimum share of air, and of soft tissue, in a CT.
_LEAST_SHARE: Final = 0.002
# A tumour is far above the mean of the body, which is SUV 1.
LOWEST_PLAUSIBLE_SUV_MAX: Final = 1.0

# Axes (x, y, z) about which a mask may be mirrored by mistake.
_MIRRORED: Final[dict[str, tuple[int, ...]]] = {"x": (0,), "y": (1,), "x and y": (0, 1)}
_MIRRORED_RATIO: Final = 2.0
# Twice a prescribed dose; a dose in cGy reaches thousands.
MOST_DOSE_GY: Final = 200.0

_Array = npt.NDArray[Any]
_Check = Callable[[Volume, ProblemReporter], Iterator[Problem]]


def check_images(case: ReleaseCase, root: Path, estimate_suv: bool = False) -> tuple[Problem, ...]:
    """Read all images of a patient and return their problems; file names in them are relative to `root`.

    A PET in Bq/ml without a plausible factor is an error, or with `estimate_suv` scaled by the body with a warning.
    """
    problems: list[Problem] = []
    volumes: dict[str, Volume] = {}
    others = {"PET": case.pet, "mask": case.mask, "planning CT": case.planning_ct, "dose": case.dose}
    paths = {"MR" if case.is_mr else "CT": case.ct, **others, **case.registered}
    for role, path in paths.items():
        if path is not None:
            reporter = ProblemReporter(case.patient_id, path.relative_to(root).as_posix())
            try:
                volumes[role] = read_volume(path)
            except HecktorError as problem:
                problems.append(reporter.unreadable(problem))
                continue
            volumes[role], not_finite = _finite(role, volumes[role], case, reporter)
            problems += not_finite
            if role == "PET":
                volumes[role], warnings = _scaled_pet(volumes[role], volumes.get("CT"), case, estimate_suv, reporter)
                problems += warnings
            check = _CHECKS.get(role) or (_check_registered(case, role) if role in case.registered else None)
            if check is not None and not any(problem.is_error for problem in not_finite):
                problems += check(volumes[role], reporter)
            if role == "mask" and "PET" in volumes:
                problems += check_mirrored(volumes["mask"], volumes["PET"], reporter)
            if scan := volumes.get("MR" if case.is_mr else "CT"):
                problems += _check_position(role, volumes[role].geometry, scan.geometry, reporter)
    return tuple(problems)


def _grid(grid: Geometry, report: ProblemReporter) -> Iterator[Problem]:
    if any(found < least for found, least in zip(grid.size, SMALLEST_SIZE, strict=True)):
        yield report.error("geometry", f"size {grid.size}", f"at least {SMALLEST_SIZE} voxels")
        return
    if not all(LEAST_SPACING_MM <= step <= MOST_SPACING_MM for step in grid.spacing_mm):
        expected = f"{LEAST_SPACING_MM:g} to {MOST_SPACING_MM:g} mm along each axis"
        yield report.warning("geometry", f"spacing {_numbers(grid.spacing_mm)} mm", expected)
        return
    extent = [step * count for step, count in zip(grid.spacing_mm, grid.size, strict=True)]
    if not all(LEAST_EXTENT_MM <= length <= MOST_EXTENT_MM for length in extent):
        expected = f"{LEAST_EXTENT_MM:g} to {MOST_EXTENT_MM:g} mm along each axis"
        yield report.warning("geometry", f"a field of view of {_numbers(extent)} mm", expected)
    across, down, _ = grid.spacing_mm
    if abs(across - down) > _SQUARE * max(across, down):
        yield report.warning("geometry", f"spacing {_numbers(grid.spacing_mm)} mm", "square pixels in the axial plane")
    if np.abs(np.subtract(grid.direction, IDENTITY)).max() > 1e-3:
        yield report.warning("geometry", f"direction {_numbers(grid.direction)}", "the identity, as in the release")


def _check_ct(ct: Volume, report: ProblemReporter) -> Iterator[Problem]:
    yield from _grid(ct.geometry, report)
    array = ct.array
    expected = "Hounsfield units: air near -1000, soft tissue near 0"
    air, tissue = _share(array, -np.inf, -700), _share(array, -150, 250)
    lowest = float(array.min())
    values = f"values from {lowest:g} to {float(array.max()):g}"
    if _share(array, 700, np.inf) > air and tissue > _LEAST_SHARE and lowest < -200:
        yield report.error("hounsfield", f"air bright and bone dark ({values}): an inverted CT", expected)
    elif missing := find_missing_intercept(array):
        yield report.error("hounsfield", f"{missing[1]}: the rescale intercept is missing", expected)
    elif min(air, tissue) < _LEAST_SHARE:
        yield report.error("hounsfield", f"no air or no soft tissue ({values}): another unit", expected)


def _check_mr(mr: Volume, report: ProblemReporter) -> Iterator[Problem]:
    yield from _grid(mr.geometry, report)
    if not mr.array.any():
        yield report.error("intensity", "all voxels are zero", "an MR image")


def _check_registered(case: ReleaseCase, name: str) -> _Check:
    """The check of a registered input: a mask is one channel for each structure."""
    return _check_mr if name in case.channels else _check_mask


def _scaled_pet(
    pet: Volume, ct: Volume | None, case: ReleaseCase, estimate_suv: bool, report: ProblemReporter
) -> tuple[Volume, list[Problem]]:
    """The PET as preparation would scale it, with warnings; one in Bq/ml that cannot be scaled stays as it is."""
    pet, about_factor = scale_by_factor(pet, ct, case.suv_factor, report.file)
    warnings = [] if about_factor is None else [report.finding("suv-factor", about_factor)]
    if estimate_suv and ct is not None and float(pet.array.max()) > LARGEST_PLAUSIBLE_SUV:
        pet, about_scale = convert_to_suv(pet, ct, report.file)
        warnings += [report.finding("suv", finding) for finding in about_scale]
    return pet, warnings


def _check_pet(pet: Volume, report: ProblemReporter) -> Iterator[Problem]:
    yield from _grid(pet.geometry, report)
    array = pet.array
    lowest, highest = float(array.min()), float(array.max())
    negative, positive = int(np.count_nonzero(array < 0)), int(np.count_nonzero(array > 0))
    expected = f"SUV: zero or more, highest above {LOWEST_PLAUSIBLE_SUV_MAX:g} and up to {LARGEST_PLAUSIBLE_SUV:g}"
    if not negative and not positive:
        yield report.error("suv", "all voxels are zero", expected)
    elif negative > positive:
        yield report.error("suv", f"{negative} voxels below zero, {positive} above (lowest {lowest:g})", expected)
    elif highest > LARGEST_PLAUSIBLE_SUV:
        yield report.error(
            "suv",
            f"highest value {highest:g}: an activity concentration (Bq/ml)",
            f"{expected}, or its factor in --suv-factors",
        )
    elif highest <= LOWEST_PLAUSIBLE_SUV_MAX:
        yield report.error("suv", f"highest value {highest:g}: a normalised image", expected)
    elif negative:
        yield report.warning("suv", f"{negative} voxels below zero (lowest {lowest:g}), read as zero", expected)


def _check_mask(mask: Volume, report: ProblemReporter) -> Iterator[Problem]:
    values = [value for value in np.unique(mask.array) if value != 0]
    others = [value for value in values if value not in labels.FOREGROUND]
    if others:
        shown = ", ".join(f"{value:g}" for value in others[:5])
        yield report.error("labels", f"labels {shown}", "0 background, 1 GTVp, 2 GTVn")
    elif not values:
        yield report.warning("labels", "an empty mask", "a GTVp or a GTVn")


def check_mirrored(mask: Volume, pet: Volume, report: ProblemReporter) -> Iterator[Problem]:
    """A warning if the mask, mirrored in its image, would cover far more uptake.

    Not along z, where brain and bladder are as hot as a lesion. Tumours near the middle give no warning.
    """
    voxels = np.argwhere(mask.array > 0)[:, ::-1]
    to_pet = pet.geometry.physical_to_index_matrix() @ mask.geometry.index_to_physical_matrix()

    def mean_suv(axes: tuple[int, ...]) -> float:
        index = voxels.copy()
        for axis in axes:
            index[:, axis] = mask.geometry.size[axis] - 1 - index[:, axis]
        nearest = np.rint(index @ to_pet[:3, :3].T + to_pet[:3, 3]).astype(int)
        inside = ((nearest >= 0) & (nearest < pet.geometry.size)).all(axis=1)
        x, y, z = nearest[inside].T
        return float(pet.array[z, y, x].sum()) / len(voxels)

    if len(voxels):
        as_given, mirrored = mean_suv(()), {along: mean_suv(axes) for along, axes in _MIRRORED.items()}
        along = max(mirrored, key=mirrored.__getitem__)
        if mirrored[along] >= _MIRRORED_RATIO * max(as_given, LOWEST_PLAUSIBLE_SUV_MAX):
            found = f"mean SUV {as_given:.3g} inside the mask, {mirrored[along]:.3g} with {along} mirrored"
            yield report.warning("mirrored", found, "more uptake inside the mask than inside its mirror image")


def _check_dose(dose: Volume, report: ProblemReporter) -> Iterator[Problem]:
    lowest, highest = float(dose.array.min()), float(dose.array.max())
    expected = f"Gy: zero or more, highest above zero and up to {MOST_DOSE_GY:g}"
    if lowest < 0:
        yield report.warning("dose", f"lowest value {lowest:g}: the dose is ignored", expected)
    elif not 0 < highest <= MOST_DOSE_GY:
        yield report.warning("dose", f"highest value {highest:g}: another unit", expected)


def _check_position(role: str, grid: Geometry, ct: Geometry, report: ProblemReporter) -> Iterator[Problem]:
    """The mask is on the scan's grid; other images overlap it, and a dose that does not is ignored."""
    if role == "mask" and (differences := grid.find_differences(ct)):
        yield report.error("geometry", "; ".join(differences), "the CT's grid")
    elif role not in {"CT", "MR", "mask", "planning CT"} and not overlap(grid, ct):
        problem = report.warning if role == "dose" else report.error
        yield problem("geometry", f"no overlap with the CT ({grid.describe()})", f"some ({ct.describe()})")


def _finite(role: str, volume: Volume, case: ReleaseCase, report: ProblemReporter) -> tuple[Volume, list[Problem]]:
    """An image as preparation reads it, with a problem for NaN and infinities; of a mask they are labels."""
    if role == "mask" or (role in case.registered and role not in case.channels):
        return volume, []
    cleaned, count = replace_nonfinite(volume, PADDING_HU if role == "CT" else 0)
    if count == volume.array.size:
        return cleaned, [report.error("not-finite", "all voxels are NaN or infinite", "numbers")]
    found = f"{count} voxels are NaN or infinite, read as {'air' if role == 'CT' else 'zero'}"
    return cleaned, [report.warning("not-finite", found, "numbers")] if count else []


def _share(array: _Array, low: float, high: float) -> float:
    return float(np.count_nonzero((array >= low) & (array <= high))) / array.size


def _numbers(values: Any) -> str:
    return "(" + ", ".join(f"{round(value, 6) + 0:.4g}" for value in values) + ")"


# The planning CT is not measured, it only has to be readable.
_CHECKS: Final[dict[str, _Check]] = {
    "CT": _check_ct,
    "PET": _check_pet,
    "MR": _check_mr,
    "mask": _check_mask,
    "dose": _check_dose,
}


def with_suv_factors(release: Release, path: Path) -> Release:
    """The release with the table's factor in each case, and with the table's problems."""
    table = ReleaseTable(path.name)
    factors = read_suv_factors(path, table, {case.patient_id for case in release.cases})
    cases = tuple(replace(case, suv_factor=factors.get(case.patient_id)) for case in release.cases)
    return replace(release, cases=cases, problems=(*release.problems, *table.problems))


def scale_by_factor(pet: Volume, ct: Volume | None, factor: float | None, name: str) -> tuple[Volume, Finding | None]:
    """The PET in SUV if its values can only be Bq/ml and the factor is plausible; and what was done with the factor.

    The finding is None without a factor. `ct`, in HU, gives the scale that muscle and fat suggest.
    """
    if factor is None:
        return pet, None
    known = replace_nonfinite(pet, 0.0)[0]
    highest = float(known.array.max())
    if highest <= LARGEST_PLAUSIBLE_SUV:
        return pet, Finding(
            name, f"highest value {highest:.6g}, already SUV", "Bq/ml", f"factor {factor:.4g} not applied"
        )
    fault = describe_factor_error(factor, highest, () if ct is None else measure_tissue_uptake(ct, known))
    if fault:
        expected = f"at most {MOST_FACTOR_RATIO:g} times more or less"
        return pet, Finding(name, f"factor {factor:.4g} {fault}", expected, "not applied")
    found = f"highest value {highest:.6g}: an activity concentration (Bq/ml)"
    scaled = Volume(pet.array * np.float32(factor), pet.geometry)
    return scaled, Finding(name, found, "SUV", f"scaled by its factor {factor:.4g}")
