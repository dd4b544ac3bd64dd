"""The centres of the phantom cohort.

Codes are those of the challenge's release, so that file names look the same; grids follow the ranges published in the
HECKTOR 2020 and 2021 overviews (Andrearczyk et al. 2020, 2023). Everything else about them is invented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from contract.errors import InputError

Grid = tuple[int, float, float]
FIELDS_OF_VIEW: Final = ("head_and_neck", "cut", "whole_body")


@dataclass(frozen=True)
class Centre:
    """One centre.

    ``ct_mm`` is its CT's pixel and slice, ``pet`` its PET's matrix, pixel and slice; ``psf_fwhm_mm`` the PET point
    spread's full width at half maximum; ``pet_noise`` the standard deviation of the PET at SUV 1; ``suv_bias`` the
    factor by which all SUV are too high; ``rt_dose_share`` the share of patients with a planning CT and a dose;
    ``never_recorded`` the clinical variables that its records lack; ``weight`` the relative number of its patients.
    """

    code: str
    ct_mm: tuple[float, float]
    pet: Grid
    psf_fwhm_mm: float
    pet_noise: float
    suv_bias: float
    rt_dose_share: float
    never_recorded: tuple[str, ...] = ()
    weight: float = 1.0


CENTRES: tuple[Centre, ...] = (
    Centre("CHB", (0.98, 2.5), (200, 4.07, 3.0), 5.5, 0.14, 1.05, 0.1, ("tobacco", "alcohol")),
    Centre("CHUM", (0.98, 2.5), (144, 4.0, 4.0), 6.8, 0.19, 1.0, 0.4, ("performance_status", "hpv_status")),
    Centre("CHUP", (0.853, 3.0), (168, 4.0, 4.0), 6.2, 0.15, 1.1, 0.0, ("alcohol",)),
    Centre("CHUS", (1.17, 3.0), (144, 4.0, 4.0), 6.8, 0.22, 0.95, 0.4, ("performance_status",)),
    Centre("HGJ", (0.98, 3.75), (144, 4.69, 3.27), 7.2, 0.2, 0.92, 0.4, ("tobacco", "alcohol", "hpv_status")),
    Centre("HMR", (1.37, 3.75), (128, 5.47, 3.27), 7.2, 0.24, 1.0, 0.4, ("hpv_status",), 0.4),
    Centre("MDA", (1.17, 3.27), (192, 3.52, 3.27), 6.8, 0.19, 1.0, 0.3, (), 2.0),
    Centre("USZ", (0.7, 2.5), (192, 3.65, 3.27), 6.0, 0.18, 1.08, 0.0, ("performance_status", "hpv_status")),
    Centre("CHUB", (0.9, 2.0), (200, 3.5, 3.0), 5.0, 0.28, 1.12, 0.2, ("tobacco", "alcohol")),
    Centre("CHUN", (1.17, 5.0), (128, 5.31, 5.0), 8.0, 0.18, 0.88, 0.2, ("hpv_status",)),
)
TRAINING_CENTRES = ("CHB", "CHUM", "CHUP", "CHUS", "HGJ", "HMR", "MDA")
UNSEEN_CENTRES = ("USZ", "CHUB", "CHUN")


def centre_named(code: str) -> Centre:
    """The centre with this code, case-insensitive. Raises InputError if there is none."""
    centres = {centre.code: centre for centre in CENTRES}
    if code.strip().upper() not in centres:
        raise InputError("--centres", f"found {code!r}", f"centres among {', '.join(centres)}")
    return centres[code.strip().upper()]
