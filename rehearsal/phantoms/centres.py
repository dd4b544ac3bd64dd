"""The centres of the phantom cohort: what their scanners and their records are like.

Codes are those of the challenge's release, so that file names look alike; grids, slice thickness and
protocols follow the ranges published in the HECKTOR 2020 and 2021 overviews (Andrearczyk et al. 2020, 2023).
Everything else about them is invented.
"""

from __future__ import annotations

from dataclasses import dataclass

from contract.errors import InputError


@dataclass(frozen=True)
class MissingRates:
    """Share of patients, 0 to 1, for whom a clinical variable was not recorded."""

    tobacco: float = 0.3
    alcohol: float = 0.4
    performance_status: float = 0.3
    treatment: float = 0.0
    m_stage: float = 0.05
    gender: float = 0.01
    age: float = 0.005


@dataclass(frozen=True)
class Centre:
    """One centre: ranges are (low, high), sizes in mm, shares 0 to 1.

    ``psf_fwhm_mm`` is the PET point spread's full width at half maximum; ``pet_noise`` the standard deviation
    of the PET at SUV 1 after reconstruction; ``ct_noise_hu`` that of the CT at the neck; ``suv_bias`` the
    factor by which all SUV are read too high.
    """

    code: str
    scanner: str
    ct_pixel_mm: tuple[float, ...]
    ct_slice_mm: tuple[float, ...]
    pet_matrix: tuple[int, ...]
    pet_pixel_mm: tuple[float, ...]
    pet_slice_mm: tuple[float, ...]
    psf_fwhm_mm: tuple[float, float]
    pet_noise: tuple[float, float]
    ct_noise_hu: tuple[float, float]
    suv_bias: float
    contrast_share: float
    whole_body_share: float
    head_only_share: float
    cut_share: float
    arms_up_share: float
    rt_dose_share: float
    missing: MissingRates
    weight: float = 1.0


CENTRES: tuple[Centre, ...] = (
    Centre("CHB", "TOF, point spread modelled", (0.98,), (2.0, 2.5), (200,), (4.07,), (3.0, 5.0), (5.0, 6.0),
           (0.10, 0.18), (8, 14), 1.05, 0.4, 0.15, 0.05, 0.10, 0.3, 0.1, MissingRates(1.0, 1.0, 0.6)),
    Centre("CHUM", "OSEM", (0.98, 0.98, 1.37), (1.5, 2.5, 3.75), (128, 144), (4.0, 5.47), (3.27, 4.0), (6.0, 7.5),
           (0.14, 0.24), (8, 14), 1.00, 0.5, 0.10, 0.05, 0.10, 0.1, 0.4, MissingRates(0.6, 0.8, 0.9)),
    Centre("CHUP", "TOF, point spread modelled", (0.853, 0.977), (5.0, 3.0), (168, 200), (4.0,), (4.0,), (5.5, 7.0),
           (0.10, 0.20), (10, 16), 1.10, 0.0, 0.30, 0.00, 0.10, 0.5, 0.0, MissingRates(0.5, 0.6, 0.4)),
    Centre("CHUS", "LOR-RAMLA", (1.17, 1.17, 0.68), (2.0, 3.0, 5.0), (144,), (4.0,), (4.0,), (6.0, 7.5),
           (0.16, 0.28), (8, 14), 0.95, 0.3, 0.10, 0.10, 0.10, 0.1, 0.4, MissingRates(0.3, 0.4, 0.5)),
    Centre("HGJ", "OSEM", (0.98,), (3.75,), (128, 144), (3.52, 4.69), (3.27,), (6.5, 8.0),
           (0.14, 0.26), (16, 24), 0.92, 0.0, 0.05, 0.10, 0.15, 0.0, 0.4, MissingRates(0.7, 0.8, 0.9)),
    Centre("HMR", "OSEM", (0.98, 1.37), (3.75,), (128, 192), (3.52, 5.47), (3.27,), (6.5, 8.0),
           (0.18, 0.30), (16, 26), 1.00, 0.0, 0.05, 0.05, 0.15, 0.0, 0.4, MissingRates(0.7, 0.8, 0.9), 0.4),
    Centre("MDA", "mixed vendors", (0.98, 1.17, 1.37), (2.0, 3.27, 3.75), (128, 192), (3.52, 4.06, 5.47), (3.27,),
           (5.5, 8.0), (0.12, 0.26), (10, 20), 1.00, 0.3, 0.20, 0.03, 0.10, 0.3, 0.3,
           MissingRates(0.1, 0.2, 0.4), 2.0),
    Centre("USZ", "TOF", (0.98, 0.70), (3.27, 2.5), (128, 192), (5.47, 3.65), (3.27,), (5.0, 7.0),
           (0.12, 0.24), (10, 18), 1.08, 0.5, 0.25, 0.02, 0.10, 0.3, 0.0, MissingRates(0.2, 0.6, 0.9)),
    Centre("CHUB", "TOF, sharp and noisy", (0.90, 1.10), (2.0, 3.0), (200,), (3.5, 4.07), (3.0, 5.0), (4.5, 5.5),
           (0.22, 0.34), (12, 22), 1.12, 0.2, 0.15, 0.05, 0.15, 0.4, 0.2, MissingRates(0.5, 0.7, 0.3)),
    Centre("CHUN", "older OSEM, blurred", (1.17, 0.98), (4.0, 5.0), (128,), (5.31,), (5.0,), (7.5, 8.5),
           (0.14, 0.22), (12, 20), 0.88, 0.0, 0.10, 0.10, 0.15, 0.1, 0.2, MissingRates(0.4, 0.5, 0.6)),
)

TRAINING_CENTRES = ("CHB", "CHUM", "CHUP", "CHUS", "HGJ", "HMR", "MDA")
UNSEEN_CENTRES = ("USZ", "CHUB", "CHUN")


def centre_named(code: str) -> Centre:
    """The centre with this code, case-insensitive.

    Raises:
        InputError: if there is no such centre.
    """
    for centre in CENTRES:
        if centre.code == code.strip().upper():
            return centre
    known = ", ".join(centre.code for centre in CENTRES)
    raise InputError(f"--centres: found {code!r}, expected centres among {known}")
