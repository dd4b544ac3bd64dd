"""The scale of a PET, judged by the FDG uptake of muscle and fat, which a CT shows without any landmark.

Expected are SUV 0.7 in muscle and 0.4 in fat, as medians over all blocks of a scan. They are 0.61 and 0.36 in patient
STS_001, and 0.81 and 0.48 in patient STS_035 of the open Soft-tissue-Sarcoma collection (Vallieres et al. 2015,
10.7937/K9/TCIA.2015.7GO2GSKS). Published SUV of normal tissues: Wang et al., Standardized uptake value atlas, Mol
Imaging Biol 2007;9:83-90; Dias et al., Normal values for 18F-FDG uptake in organs and tissues, EJNMMI Research 2022,
10.1186/s13550-022-00884-0. Exercise, food and insulin raise the uptake of muscle, hardly that of fat. The liver (1.9
+/- 0.4, Liu et al., Iran J Radiol 2019;16(2):e84881) is as stable, but cannot be told from muscle by its HU; the brain
(cerebellum 8.0 +/- 2.2, Wang et al.) would dominate a mean over all tissue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract.errors import Finding
from contract.images.volumes import Volume

# The hottest bladder stays below this SUV; activity concentrations in Bq/ml start in the thousands.
LARGEST_PLAUSIBLE_SUV: Final = 500.0
# SUV averages 1 over a body that holds all of the injected activity, so that no scan's highest value is below it.
LEAST_HIGHEST_SUV: Final = 1.0

# Mean HU of a block, above that of the brain and below that of enhanced vessels, and SUV.
TISSUES: Final = {"muscle": (45.0, 75.0, 0.7), "fat": (-125.0, -75.0, 0.4)}
# The true scale lies within this share of the estimate in most patients.
_UNCERTAINTY_OF_BOTH, _UNCERTAINTY_OF_ONE = 0.3, 0.5
_MOST_DISAGREEMENT: Final = 2.0
# A factor from Bq/ml to SUV may differ this many times from the estimate, which is uncertain by up to 50%.
MOST_FACTOR_RATIO: Final = 3.0
# Ranges of both tissues' uptake relative to the expected one that are accepted as SUV.
_LOWEST_RATIO, _HIGHEST_RATIO = 1 / 3, 2.5
_BLOCK_MM: Final = 4.0
_MOST_BLOCK_SD_HU: Final = 40.0
_MOST_SLICES: Final = 40
_LEAST_BLOCKS: Final = 200

# Largest values of 16-bit integers: an image in Bq/ml that was written without a scale ends there.
_LARGEST_INTEGERS: Final = (32767.0, 65535.0)
_FEW_VOXELS: Final = 8

# Air and fat of a CT in HU, and their smallest share of an image.
_AIR_OF_CT_HU: Final = (-1100.0, -900.0)
_FAT_OF_CT_HU: Final = (-200.0, -20.0)
_LEAST_SHARE_OF_CT: Final = 0.005

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TissueUptake:
    """Median uptake of a tissue in the PET's unit, and the SUV expected there."""

    name: str
    median: float
    expected_suv: float

    @property
    def ratio(self) -> float:
        """The ratio to the expected SUV."""
        return self.median / self.expected_suv


def in_suv(pet: Volume, ct: Volume, name: str, factor: float | None = None) -> tuple[Volume, list[Finding]]:
    """The PET, scaled to SUV if its values can only be Bq/ml, and what is odd about its values.

    `factor` is the case's own from Bq/ml to SUV; without one, or if it cannot be right, the scale is estimated. A PET
    that may be in kBq/ml is not scaled: the patient could still be the reason.
    """
    highest = float(pet.array.max())
    clipped = int(np.count_nonzero(pet.array == highest)) if highest in _LARGEST_INTEGERS else 0
    findings = []
    if clipped >= _FEW_VOXELS:
        found = f"{clipped} voxels at {highest:.0f}, the largest value of a 16-bit integer"
        findings.append(Finding(name, found, "SUV", "higher uptake was cut off before"))
    tissues = tissue_uptake(ct, pet)
    if factor is not None and (why := _why_not_applied(factor, highest, tissues)):
        found = f"highest value {highest:.6g} with a factor of {factor:.3g} from Bq/ml to SUV"
        findings.append(Finding(name, found, action=f"the factor is not applied: {why}"))
        factor = None
    if highest > LARGEST_PLAUSIBLE_SUV:
        scale, basis = _scale_and_basis(pet, tissues) if factor is None else (factor, "by the factor of the case")
        action = f"taken for Bq/ml and scaled by {scale:.3g} {basis}"
        findings.append(Finding(name, f"highest value {highest:.6g}", "SUV", action))
        return Volume(pet.array * np.float32(scale), pet.geometry), findings
    if is_implausible_suv(tissues):
        found = "median uptake of " + ", ".join(f"{tissue.name} {tissue.median:.3g}" for tissue in tissues)
        expected = "SUV of about " + ", ".join(f"{tissue.name} {tissue.expected_suv:g}" for tissue in tissues)
        unit = "possibly kBq/ml; " if tissues[0].ratio > 1 else ""
        findings.append(Finding(name, found, expected, f"{unit}not scaled"))
    return pet, findings


def is_a_ct(array: _Array) -> bool:
    """True for the values of a CT, with air near -1000 and fat; a PET may be padded with -1024, but has no fat."""
    sample = array[tuple(slice(None, None, max(1, size // 64)) for size in array.shape)]
    shares = (np.mean((sample > low) & (sample < high)) for low, high in (_AIR_OF_CT_HU, _FAT_OF_CT_HU))
    return all(share >= _LEAST_SHARE_OF_CT for share in shares)


def factor_fault(factor: float, highest: float, tissues: tuple[TissueUptake, ...]) -> str:
    """The reason why a factor from Bq/ml to SUV cannot be right for a PET with this highest value; empty if it can."""
    estimate = suv_scale(tissues)
    if estimate and not 1 / MOST_FACTOR_RATIO <= factor / estimate[0] <= MOST_FACTOR_RATIO:
        return f"is {factor / estimate[0]:.3g} times the scale that muscle and fat suggest ({estimate[0]:.4g})"
    is_plausible = LEAST_HIGHEST_SUV <= highest * factor <= LARGEST_PLAUSIBLE_SUV
    return "" if is_plausible else f"gives a highest SUV of {highest * factor:.4g}"


def _why_not_applied(factor: float, highest: float, tissues: tuple[TissueUptake, ...]) -> str:
    if highest <= LARGEST_PLAUSIBLE_SUV:
        return "the PET is in SUV already"
    fault = factor_fault(factor, highest, tissues)
    return f"it {fault}" if fault else ""


def tissue_uptake(ct: Volume, pet: Volume) -> tuple[TissueUptake, ...]:
    """Uptake of those of muscle and fat that both images show enough of; `ct` in HU, `pet` on its own grid.

    Blocks of 4 mm are classified by their mean, which parts muscle from brain despite the noise, and left out if
    they are not homogeneous. Voxels of the PET without uptake do not count: the PET may be cropped.
    """
    sx, sy = (max(round(_BLOCK_MM / spacing), 1) for spacing in ct.geometry.spacing_mm[:2])
    sz = max(-(-ct.array.shape[0] // _MOST_SLICES), 1)
    slices = ct.array[::sz]
    depth, height, width = slices.shape[0], slices.shape[1] // sy, slices.shape[2] // sx
    blocks = slices[:, : height * sy, : width * sx].reshape(depth, height, sy, width, sx).astype(np.float32)
    means, deviations = blocks.mean((2, 4)), blocks.std((2, 4))
    tissues = []
    for name, (low, high, expected_suv) in TISSUES.items():
        chosen = np.argwhere((means > low) & (means < high) & (deviations < _MOST_BLOCK_SD_HU))[:, ::-1]
        uptake = _nearest(pet, ct, chosen * (sx, sy, sz) + ((sx - 1) / 2, (sy - 1) / 2, 0))
        uptake = uptake[uptake > 0]
        if uptake.size >= _LEAST_BLOCKS:
            tissues.append(TissueUptake(name, float(np.median(uptake)), expected_suv))
    return tuple(tissues)


def suv_scale(tissues: tuple[TissueUptake, ...]) -> tuple[float, float] | None:
    """Factor from the PET's unit to SUV, and its relative uncertainty; None without muscle and fat.

    Two tissues that disagree by more than a factor of 2 are not averaged: the lower one counts, which has no uptake
    from exercise, insulin or the brain beside it.
    """
    ratios = [tissue.ratio for tissue in tissues]
    if not ratios:
        return None
    if len(ratios) < len(TISSUES) or max(ratios) > _MOST_DISAGREEMENT * min(ratios):
        return 1.0 / min(ratios), _UNCERTAINTY_OF_ONE
    return float(1.0 / np.exp(np.mean(np.log(ratios)))), _UNCERTAINTY_OF_BOTH


def is_implausible_suv(tissues: tuple[TissueUptake, ...]) -> bool:
    """True if muscle and fat are both more than 2.5 times, or both less than a third of the expected SUV.

    One of them alone never is: muscle can be hot after exercise or insulin, and a head has brain beside its muscles.
    """
    ratios = [tissue.ratio for tissue in tissues]
    return len(ratios) == len(TISSUES) and (min(ratios) > _HIGHEST_RATIO or max(ratios) < _LOWEST_RATIO)


def _scale_and_basis(pet: Volume, tissues: tuple[TissueUptake, ...]) -> tuple[float, str]:
    """Factor to SUV, and how it was estimated.

    Without muscle and fat the mean over the warm voxels (above a hundredth of the 99.9th percentile) is set to 1:
    SUV averages 1 over a body that holds all of the injected activity.
    """
    if estimate := suv_scale(tissues):
        names = " and ".join(tissue.name for tissue in tissues)
        return estimate[0], f"by the uptake of {names}, uncertain by about {estimate[1]:.0%}"
    high = float(np.percentile(pet.array, 99.9))
    warm = pet.array[pet.array > high / 100]
    scale = 1.0 / float(warm.mean()) if warm.size else 1.0 / high
    return scale, "to a mean of 1, because neither muscle nor fat was found: uncertain by a factor of 5"


def _nearest(pet: Volume, ct: Volume, index: _Array) -> _Array:
    """Values of the PET at indices (x, y, z) of the CT, by nearest neighbour; those outside are left out."""
    matrix = pet.geometry.physical_to_index_matrix() @ ct.geometry.index_to_physical_matrix()
    there = np.rint(index @ matrix[:3, :3].T + matrix[:3, 3]).astype(np.int64)
    x, y, z = there[((there >= 0) & (there < pet.geometry.size)).all(axis=1)].T
    return np.asarray(pet.array[z, y, x])
