"""The centres of the phantom cohort.

The codes come from the challenge's release, so that file names look the same. The grids follow the ranges published in
the HECKTOR 2020 and 2021 overviews (Andrearczyk et al. 2020, 2023). All other properties of the centres are invented.
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

    Attributes:
        ct_mm: Pixel and slice of the CT.
        pet: Matrix, pixel and slice of the PET.
        psf_fwhm_mm: Full width at half maximum of the PET's point spread function.
        pet_noise: Standard deviation of the PET at SUV 1.
        suv_bias: Factor by which all SUV are multiplied.
        rt_dose_share: Fraction of patients with a planning CT and a dose.
        never_recorded: Clinical variables that the centre does not record.
        weight: Relative number of patients.
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


def find_centre(code: str) -> Centre:
    """Find the centre with this code, in upper or lower case; raise `InputError` if it does not exist."""
    centres = {centre.code: centre for centre in CENTRES}
    if code.strip().upper() not in centres:
        raise InputError("--centres", f"found {code!r}", f"centres among {', '.join(centres)}")
    return centres[code.strip().upper()]
