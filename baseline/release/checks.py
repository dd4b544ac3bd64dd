"""Checks of a patient's images: geometry, labels and units; scaling of PETs in Bq/ml by a table's factors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import MIN_SIZE_VOXELS, overlap
from algorithm.case.units import (
    MAX_FACTOR_RATIO,
    MAX_PLAUSIBLE_SUV,
    PADDING_HU,
    convert_to_suv,
    describe_factor_error,
    find_missing_intercept,
    measure_tissue_uptake,
)
from baseline.release.cases import Release, ReleaseCase
from baseline.release.folders import ProblemReporter
from contract import labels
from contract.errors import Finding, HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, replace_nonfinite
from contract.release.tables import Problem, ReleaseTable, read_suv_factors

# Ranges of scanners, wide enough for coarse phantoms; a header in centimetres or metres falls outside.
MIN_SPACING_MM, MAX_SPACING_MM = 0.2, 12.0
MIN_EXTENT_MM, MAX_EXTENT_MM = 100.0, 2500.0
# Maximum relative difference of pixel edges: rounding is below this limit, swapped axes exceed it.
_MAX_PIXEL_DIFFERENCE: Final = 0.01
IDENTITY: Final = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
# Minimum fraction of air, and of soft tissue, in a CT.
_MIN_FRACTION: Final = 0.002
# The uptake of a tumour is far above the mean of the body, which is SUV 1.
MIN_PLAUSIBLE_SUV_MAX: Final = 1.0

# Axes (x, y, z) along which a mask may be mirrored by mistake.
_MIRRORED: Final[dict[str, tuple[int, ...]]] = {"x": (0,), "y": (1,), "x and y": (0, 1)}
_MIRRORED_RATIO: Final = 2.0
# Twice a prescribed dose; a dose in cGy reaches thousands.
MAX_DOSE_GY: Final = 200.0

_Array = npt.NDArray[Any]
_Check = Callable[[Volume, ProblemReporter], Iterator[Problem]]


def check_images(case: ReleaseCase, root: Path, estimate_suv: bool = False) -> tuple[Problem, ...]:
    """Read and check all images of a patient; file names in problems are relative to `root`.

    A PET in Bq/ml without a plausible factor is an error. With `estimate_suv` it is scaled by the uptake of muscle and
    fat, with a warning.
    """
    problems: list[Problem] = []
    volumes: dict[str, Volume] = {}
    paths = {
        "MR" if case.is_mr else "CT": case.ct,
        "PET": case.pet,
        "mask": case.mask,
        "planning CT": case.planning_ct,
        "dose": case.dose,
        **case.registered,
    }
    for role, path in paths.items():
        if path is not None:
            reporter = ProblemReporter(case.patient_id, path.relative_to(root).as_posix())
            try:
                volumes[role] = read_volume(path)
            except HecktorError as problem:
                problems.append(reporter.unreadable(problem))
                continue
            volumes[role], not_finite = _replace_nonfinite(role, volumes[role], case, reporter)
            problems += not_finite
            if role == "PET":
                volumes[role], warnings = _scale_pet(volumes[role], volumes.get("CT"), case, estimate_suv, reporter)
                problems += warnings
            check = _CHECKS.get(role) or (_choose_registered_check(case, role) if role in case.registered else None)
            if check is not None and not any(problem.is_error for problem in not_finite):
                problems += check(volumes[role], reporter)
            if role == "mask" and "PET" in volumes:
                problems += check_mirrored(volumes["mask"], volumes["PET"], reporter)
            if scan := volumes.get("MR" if case.is_mr else "CT"):
                problems += _check_position(role, volumes[role].geometry, scan.geometry, reporter)
    return tuple(problems)


def _check_grid(grid: Geometry, report: ProblemReporter) -> Iterator[Problem]:
    if any(size < minimum for size, minimum in zip(grid.size, MIN_SIZE_VOXELS, strict=True)):
        yield report.error("geometry", f"size {grid.size}", f"at least {MIN_SIZE_VOXELS} voxels")
        return
    if not all(MIN_SPACING_MM <= step <= MAX_SPACING_MM for step in grid.spacing_mm):
        expected = f"{MIN_SPACING_MM:g} to {MAX_SPACING_MM:g} mm along each axis"
        yield report.warning("geometry", f"spacing {_format_numbers(grid.spacing_mm)} mm", expected)
        return
    extent = [step * count for step, count in zip(grid.spacing_mm, grid.size, strict=True)]
    if not all(MIN_EXTENT_MM <= length <= MAX_EXTENT_MM for length in extent):
        expected = f"{MIN_EXTENT_MM:g} to {MAX_EXTENT_MM:g} mm along each axis"
        yield report.warning("geometry", f"a field of view of {_format_numbers(extent)} mm", expected)
    across, down, _ = grid.spacing_mm
    if abs(across - down) > _MAX_PIXEL_DIFFERENCE * max(across, down):
        yield report.warning(
            "geometry", f"spacing {_format_numbers(grid.spacing_mm)} mm", "square pixels in the axial plane"
        )
    if np.abs(np.subtract(grid.direction, IDENTITY)).max() > 1e-3:
        yield report.warning(
            "geometry", f"direction {_format_numbers(grid.direction)}", "the identity, as in the release"
        )


def _check_ct(ct: Volume, report: ProblemReporter) -> Iterator[Problem]:
    yield from _check_grid(ct.geometry, report)
    array = ct.array
    expected = "Hounsfield units: air near -1000, soft tissue near 0"
    air, tissue = _find_fraction(array, -np.inf, -700), _find_fraction(array, -150, 250)
    lowest = float(array.min())
    values = f"values from {lowest:g} to {float(array.max()):g}"
    if _find_fraction(array, 700, np.inf) > air and tissue > _MIN_FRACTION and lowest < -200:
        yield report.error("hounsfield", f"air bright and bone dark ({values}): an inverted CT", expected)
    elif missing := find_missing_intercept(array):
        yield report.error("hounsfield", f"{missing[1]}: the rescale intercept is missing", expected)
    elif min(air, tissue) < _MIN_FRACTION:
        yield report.error("hounsfield", f"no air or no soft tissue ({values}): another unit", expected)


def _check_mr(mr: Volume, report: ProblemReporter) -> Iterator[Problem]:
    yield from _check_grid(mr.geometry, report)
    if not mr.array.any():
        yield report.error("intensity", "all voxels are zero", "an MR image")


def _choose_registered_check(case: ReleaseCase, name: str) -> _Check:
    """Choose the check of a registered input; a mask is read as one channel for each structure."""
    return _check_mr if name in case.channels else _check_mask


def _scale_pet(
    pet: Volume, ct: Volume | None, case: ReleaseCase, estimate_suv: bool, report: ProblemReporter
) -> tuple[Volume, list[Problem]]:
    """Scale the PET as preparation does, with warnings; a PET in Bq/ml that cannot be scaled stays as it is."""
    pet, about_factor = scale_by_factor(pet, ct, case.suv_factor, report.file)
    warnings = [] if about_factor is None else [report.finding("suv-factor", about_factor)]
    if estimate_suv and ct is not None and float(pet.array.max()) > MAX_PLAUSIBLE_SUV:
        pet, about_scale = convert_to_suv(pet, ct, report.file)
        warnings += [report.finding("suv", finding) for finding in about_scale]
    return pet, warnings


def _check_pet(pet: Volume, report: ProblemReporter) -> Iterator[Problem]:
    yield from _check_grid(pet.geometry, report)
    array = pet.array
    lowest, highest = float(array.min()), float(array.max())
    negative, positive = int(np.count_nonzero(array < 0)), int(np.count_nonzero(array > 0))
    expected = f"SUV: zero or more, highest above {MIN_PLAUSIBLE_SUV_MAX:g} and up to {MAX_PLAUSIBLE_SUV:g}"
    if not negative and not positive:
        yield report.error("suv", "all voxels are zero", expected)
    elif negative > positive:
        yield report.error("suv", f"{negative} voxels below zero, {positive} above (lowest {lowest:g})", expected)
    elif highest > MAX_PLAUSIBLE_SUV:
        yield report.error(
            "suv",
            f"highest value {highest:g}: an activity concentration (Bq/ml)",
            f"{expected}, or its factor in --suv-factors",
        )
    elif highest <= MIN_PLAUSIBLE_SUV_MAX:
        yield report.error("suv", f"highest value {highest:g}: a normalised image", expected)
    elif negative:
        yield report.warning("suv", f"{negative} voxels below zero (lowest {lowest:g}), read as zero", expected)


def _check_mask(mask: Volume, report: ProblemReporter) -> Iterator[Problem]:
    values = [value for value in np.unique(mask.array) if value != 0]
    unknown = [value for value in values if value not in labels.FOREGROUND]
    if unknown:
        text = ", ".join(f"{value:g}" for value in unknown[:5])
        yield report.error("labels", f"labels {text}", "0 background, 1 GTVp, 2 GTVn")
    elif not values:
        yield report.warning("labels", "an empty mask", "a GTVp or a GTVn")


def check_mirrored(mask: Volume, pet: Volume, report: ProblemReporter) -> Iterator[Problem]:
    """Warn if the mask would cover far more uptake when it is mirrored in its image.

    The z axis is not checked, because brain and bladder are as hot as a lesion. Tumours near the middle give no
    warning.
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
        unchanged = mean_suv(())
        mirrored = {name: mean_suv(axes) for name, axes in _MIRRORED.items()}
        name = max(mirrored, key=mirrored.__getitem__)
        if mirrored[name] >= _MIRRORED_RATIO * max(unchanged, MIN_PLAUSIBLE_SUV_MAX):
            problem = f"mean SUV {unchanged:.3g} inside the mask, {mirrored[name]:.3g} with {name} mirrored"
            yield report.warning("mirrored", problem, "more uptake inside the mask than inside its mirror image")


def _check_dose(dose: Volume, report: ProblemReporter) -> Iterator[Problem]:
    lowest, highest = float(dose.array.min()), float(dose.array.max())
    expected = f"Gy: zero or more, highest above zero and up to {MAX_DOSE_GY:g}"
    if lowest < 0:
        yield report.warning("dose", f"lowest value {lowest:g}: the dose is ignored", expected)
    elif not 0 < highest <= MAX_DOSE_GY:
        yield report.warning("dose", f"highest value {highest:g}: another unit", expected)


def _check_position(role: str, grid: Geometry, ct: Geometry, report: ProblemReporter) -> Iterator[Problem]:
    """Check that a mask is on the scan's grid and other images overlap the scan; a dose without overlap is ignored."""
    if role == "mask" and (differences := grid.find_differences(ct)):
        yield report.error("geometry", "; ".join(differences), "the CT's grid")
    elif role not in {"CT", "MR", "mask", "planning CT"} and not overlap(grid, ct):
        problem = report.warning if role == "dose" else report.error
        yield problem("geometry", f"no overlap with the CT ({grid.describe()})", f"some ({ct.describe()})")


def _replace_nonfinite(
    role: str, volume: Volume, case: ReleaseCase, report: ProblemReporter
) -> tuple[Volume, list[Problem]]:
    """Replace NaN and infinities as preparation does, with a problem; the check of labels finds them in a mask."""
    if role == "mask" or (role in case.registered and role not in case.channels):
        return volume, []
    cleaned, count = replace_nonfinite(volume, PADDING_HU if role == "CT" else 0)
    if count == volume.array.size:
        return cleaned, [report.error("not-finite", "all voxels are NaN or infinite", "numbers")]
    if not count:
        return cleaned, []
    problem = f"{count} voxels are NaN or infinite, read as {'air' if role == 'CT' else 'zero'}"
    return cleaned, [report.warning("not-finite", problem, "numbers")]


def _find_fraction(array: _Array, low: float, high: float) -> float:
    return float(np.count_nonzero((array >= low) & (array <= high))) / array.size


def _format_numbers(values: Any) -> str:
    return "(" + ", ".join(f"{round(value, 6) + 0:.4g}" for value in values) + ")"


# A planning CT has no check: it is not measured and only has to be readable.
_CHECKS: Final[dict[str, _Check]] = {
    "CT": _check_ct,
    "PET": _check_pet,
    "MR": _check_mr,
    "mask": _check_mask,
    "dose": _check_dose,
}


def with_suv_factors(release: Release, path: Path) -> Release:
    """Return the release with the table's factor in each case, and with the table's problems."""
    table = ReleaseTable(path.name)
    factors = read_suv_factors(path, table, {case.patient_id for case in release.cases})
    cases = tuple(replace(case, suv_factor=factors.get(case.patient_id)) for case in release.cases)
    return replace(release, cases=cases, problems=(*release.problems, *table.problems))


def scale_by_factor(pet: Volume, ct: Volume | None, factor: float | None, name: str) -> tuple[Volume, Finding | None]:
    """Scale a PET by its factor, if its values can only be Bq/ml and the factor is plausible.

    Args:
        pet: PET in Bq/ml or SUV.
        ct: CT in HU, which shows the muscle and fat whose uptake suggests a scale; None if there is no CT.
        factor: Factor from Bq/ml to SUV; None if it is unknown.
        name: Name of the file in the finding.

    Returns:
        The PET, and a finding that says whether the factor was applied; None without a factor.
    """
    if factor is None:
        return pet, None
    known = replace_nonfinite(pet, 0.0)[0]
    highest = float(known.array.max())
    if highest <= MAX_PLAUSIBLE_SUV:
        return pet, Finding(
            name, f"highest value {highest:.6g}, already SUV", "Bq/ml", f"factor {factor:.4g} not applied"
        )
    fault = describe_factor_error(factor, highest, () if ct is None else measure_tissue_uptake(ct, known))
    if fault:
        expected = f"at most {MAX_FACTOR_RATIO:g} times more or less"
        return pet, Finding(name, f"factor {factor:.4g} {fault}", expected, "not applied")
    problem = f"highest value {highest:.6g}: an activity concentration (Bq/ml)"
    scaled = Volume(pet.array * np.float32(factor), pet.geometry)
    return scaled, Finding(name, problem, "SUV", f"scaled by its factor {factor:.4g}")
