"""The centres of the phantom cohort with their scanners and records.

Codes are those of the challenge's release, so that file names look the same; grids, slice thickness and
protocols follow the ranges published in the HECKTOR 2020 and 2021 overviews (Andrearczyk et al. 2020, 2023).
Everything else about them is invented.
"""

from __future__ import annotations

from dataclasses import dataclass

from contract.errors import InputError


@dataclass(frozen=True)
class MissingRates:
    """Share of patients (0 to 1) for whom a clinical variable was not recorded."""

    tobacco: float = 0.3
    alcohol: float = 0.4
    performance_status: float = 0.3
    treatment: float = 0.0
    m_stage: float = 0.05
    gender: float = 0.01
    age_years: float = 0.005


@dataclass(frozen=True)
class Centre:
    """One centre. Ranges are (low, high), sizes in mm, shares 0 to 1; one of several values is drawn uniformly.

    ``psf_fwhm_mm`` is the PET point spread's full width at half maximum; ``pet_noise`` the standard deviation
    of the PET at SUV 1 after reconstruction; ``ct_noise_hu`` that of the CT at the neck; ``padding_hu`` the
    values outside the scanner's circle; ``suv_bias`` the
    factor by which all SUV are too high; ``weight`` the relative frequency of its patients; ``never_recorded`` the
    clinical variables that the centre's records lack altogether, in editions that declare stages by a rule (``missing``
    holds for the others).
    """

    code: str
    scanner: str
    ct_pixel_mm: tuple[float, ...]
    ct_slice_mm: tuple[float, ...]
    padding_hu: tuple[int, ...]
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
    never_recorded: tuple[str, ...] = ()


# fmt: off
CENTRES: tuple[Centre, ...] = (
    Centre(
        code="CHB", scanner="TOF, point spread modelled",
        ct_pixel_mm=(0.98,), ct_slice_mm=(2.0, 2.5), ct_noise_hu=(8, 14), contrast_share=0.4,
        padding_hu=(-1024,),
        pet_matrix=(200,), pet_pixel_mm=(4.07,), pet_slice_mm=(3.0, 5.0),
        psf_fwhm_mm=(5.0, 6.0), pet_noise=(0.1, 0.18), suv_bias=1.05,
        whole_body_share=0.15, head_only_share=0.05, cut_share=0.1, arms_up_share=0.3, rt_dose_share=0.1,
        missing=MissingRates(tobacco=1.0, alcohol=1.0, performance_status=0.6),
        never_recorded=("tobacco", "alcohol"),
    ),
    Centre(
        code="CHUM", scanner="OSEM",
        ct_pixel_mm=(0.98, 0.98, 1.37), ct_slice_mm=(1.5, 2.5, 3.75), ct_noise_hu=(8, 14), contrast_share=0.5,
        padding_hu=(-1024, -3024),
        pet_matrix=(128, 144), pet_pixel_mm=(4.0, 5.47), pet_slice_mm=(3.27, 4.0),
        psf_fwhm_mm=(6.0, 7.5), pet_noise=(0.14, 0.24), suv_bias=1.0,
        whole_body_share=0.1, head_only_share=0.05, cut_share=0.1, arms_up_share=0.1, rt_dose_share=0.4,
        missing=MissingRates(tobacco=0.6, alcohol=0.8, performance_status=0.9),
        never_recorded=("performance_status", "hpv_status"),
    ),
    Centre(
        code="CHUP", scanner="TOF, point spread modelled",
        ct_pixel_mm=(0.853, 0.977), ct_slice_mm=(5.0, 3.0), ct_noise_hu=(10, 16), contrast_share=0.0,
        padding_hu=(-1024,),
        pet_matrix=(168, 200), pet_pixel_mm=(4.0,), pet_slice_mm=(4.0,),
        psf_fwhm_mm=(5.5, 7.0), pet_noise=(0.1, 0.2), suv_bias=1.1,
        whole_body_share=0.3, head_only_share=0.0, cut_share=0.1, arms_up_share=0.5, rt_dose_share=0.0,
        missing=MissingRates(tobacco=0.5, alcohol=0.6, performance_status=0.4),
        never_recorded=("alcohol",),
    ),
    Centre(
        code="CHUS", scanner="LOR-RAMLA",
        ct_pixel_mm=(1.17, 1.17, 0.68), ct_slice_mm=(2.0, 3.0, 5.0), ct_noise_hu=(8, 14), contrast_share=0.3,
        padding_hu=(-1024,),
        pet_matrix=(144,), pet_pixel_mm=(4.0,), pet_slice_mm=(4.0,),
        psf_fwhm_mm=(6.0, 7.5), pet_noise=(0.16, 0.28), suv_bias=0.95,
        whole_body_share=0.1, head_only_share=0.1, cut_share=0.1, arms_up_share=0.1, rt_dose_share=0.4,
        missing=MissingRates(performance_status=0.5),
        never_recorded=("performance_status",),
    ),
    Centre(
        code="HGJ", scanner="OSEM",
        ct_pixel_mm=(0.98,), ct_slice_mm=(3.75,), ct_noise_hu=(16, 24), contrast_share=0.0,
        padding_hu=(-3024,),
        pet_matrix=(128, 144), pet_pixel_mm=(3.52, 4.69), pet_slice_mm=(3.27,),
        psf_fwhm_mm=(6.5, 8.0), pet_noise=(0.14, 0.26), suv_bias=0.92,
        whole_body_share=0.05, head_only_share=0.1, cut_share=0.15, arms_up_share=0.0, rt_dose_share=0.4,
        missing=MissingRates(tobacco=0.7, alcohol=0.8, performance_status=0.9),
        never_recorded=("tobacco", "alcohol", "performance_status", "hpv_status"),
    ),
    Centre(
        code="HMR", scanner="OSEM",
        ct_pixel_mm=(0.98, 1.37), ct_slice_mm=(3.75,), ct_noise_hu=(16, 26), contrast_share=0.0,
        padding_hu=(-1024,),
        pet_matrix=(128, 192), pet_pixel_mm=(3.52, 5.47), pet_slice_mm=(3.27,),
        psf_fwhm_mm=(6.5, 8.0), pet_noise=(0.18, 0.3), suv_bias=1.0,
        whole_body_share=0.05, head_only_share=0.05, cut_share=0.15, arms_up_share=0.0, rt_dose_share=0.4,
        missing=MissingRates(tobacco=0.7, alcohol=0.8, performance_status=0.9), weight=0.4,
        never_recorded=("hpv_status",),
    ),
    Centre(
        code="MDA", scanner="mixed vendors",
        ct_pixel_mm=(0.98, 1.17, 1.37), ct_slice_mm=(2.0, 3.27, 3.75), ct_noise_hu=(10, 20), contrast_share=0.3,
        padding_hu=(-1024, -1024, -2000, -3024),
        pet_matrix=(128, 192), pet_pixel_mm=(3.52, 4.06, 5.47), pet_slice_mm=(3.27,),
        psf_fwhm_mm=(5.5, 8.0), pet_noise=(0.12, 0.26), suv_bias=1.0,
        whole_body_share=0.2, head_only_share=0.03, cut_share=0.1, arms_up_share=0.3, rt_dose_share=0.3,
        missing=MissingRates(tobacco=0.1, alcohol=0.2, performance_status=0.4), weight=2.0,
    ),
    Centre(
        code="USZ", scanner="TOF",
        ct_pixel_mm=(0.98, 0.7), ct_slice_mm=(3.27, 2.5), ct_noise_hu=(10, 18), contrast_share=0.5,
        padding_hu=(-1024,),
        pet_matrix=(128, 192), pet_pixel_mm=(5.47, 3.65), pet_slice_mm=(3.27,),
        psf_fwhm_mm=(5.0, 7.0), pet_noise=(0.12, 0.24), suv_bias=1.08,
        whole_body_share=0.25, head_only_share=0.02, cut_share=0.1, arms_up_share=0.3, rt_dose_share=0.0,
        missing=MissingRates(tobacco=0.2, alcohol=0.6, performance_status=0.9),
        never_recorded=("performance_status", "hpv_status"),
    ),
    Centre(
        code="CHUB", scanner="TOF, sharp and noisy",
        ct_pixel_mm=(0.9, 1.1), ct_slice_mm=(2.0, 3.0), ct_noise_hu=(12, 22), contrast_share=0.2,
        padding_hu=(-1024,),
        pet_matrix=(200,), pet_pixel_mm=(3.5, 4.07), pet_slice_mm=(3.0, 5.0),
        psf_fwhm_mm=(4.5, 5.5), pet_noise=(0.22, 0.34), suv_bias=1.12,
        whole_body_share=0.15, head_only_share=0.05, cut_share=0.15, arms_up_share=0.4, rt_dose_share=0.2,
        missing=MissingRates(tobacco=0.5, alcohol=0.7),
        never_recorded=("tobacco", "alcohol"),
    ),
    Centre(
        code="CHUN", scanner="older OSEM, blurred",
        ct_pixel_mm=(1.17, 0.98), ct_slice_mm=(4.0, 5.0), ct_noise_hu=(12, 20), contrast_share=0.0,
        padding_hu=(-1024, -2000),
        pet_matrix=(128,), pet_pixel_mm=(5.31,), pet_slice_mm=(5.0,),
        psf_fwhm_mm=(7.5, 8.5), pet_noise=(0.14, 0.22), suv_bias=0.88,
        whole_body_share=0.1, head_only_share=0.1, cut_share=0.15, arms_up_share=0.1, rt_dose_share=0.2,
        missing=MissingRates(tobacco=0.4, alcohol=0.5, performance_status=0.6),
        never_recorded=("hpv_status",),
    ),
)
# fmt: on

FIELDS_OF_VIEW = ("head_and_neck", "head", "cut", "whole_body")
TRAINING_CENTRES = ("CHB", "CHUM", "CHUP", "CHUS", "HGJ", "HMR", "MDA")
UNSEEN_CENTRES = ("USZ", "CHUB", "CHUN")


def centre_named(code: str) -> Centre:
    """The centre with this code, case-insensitive. Raises InputError if there is none."""
    centres = {centre.code: centre for centre in CENTRES}
    if code.strip().upper() not in centres:
        raise InputError("--centres", f"found {code!r}", f"centres among {', '.join(centres)}")
    return centres[code.strip().upper()]
