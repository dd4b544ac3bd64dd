"""Measure phantom patients on coarse reference masks without rendering whole scans.

Lesions are painted with their own surfaces on a grid of 4 mm, in soft tissue, and with the blur and bias of the
centre's PET; the rest of the body, noise and artefacts are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.heads.documents import Features
from algorithm.heads.measure import clinical_features, image_features
from baseline.heads.cohort import HeadCohort, Outcomes, make_feature_table
from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.patient import Patient
from rehearsal.phantoms.centres import CENTRES, UNSEEN_CENTRES, Centre
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.lesions import Surface
from rehearsal.phantoms.rendering import CORE_HU, CORE_SUV_SHARE, FWHM_TO_SIGMA

SPACING_MM: Final = 4.0
MARGIN_MM: Final = 15.0
TISSUE_HU, TISSUE_SUV = 45.0, 1.5
TRAINING_CENTRES: Final = tuple(centre for centre in CENTRES if centre.code not in UNSEEN_CENTRES)

_Float = npt.NDArray[np.float32]

CLINICAL: Final = load_edition().clinical


def draw_cases(patients: int, seed: int, centres: Sequence[Centre] = TRAINING_CENTRES) -> list[PhantomCase]:
    """Draw the first patients of a phantom cohort."""
    return [make_case(seed, index, centres) for index in range(patients)]


def measure_cohorts(cases: Sequence[PhantomCase], complete: bool) -> dict[str, HeadCohort]:
    """Measure image features and clinical variables of phantoms, with the outcomes of "rfs" and "hpv".

    `complete` uses the true clinical variables, otherwise the variables that the centre recorded are used.
    """
    results = [case.outcome for case in cases]
    days = np.array([float(result.rfs_days) for result in results])
    rfs = HeadCohort(
        tuple(case.patient_id for case in cases),
        tuple(case.centre.code for case in cases),
        make_feature_table(
            [{**measure_reference(case), **_compute_clinical_features(case, complete)} for case in cases]
        ),
        Outcomes(np.array([int(result.relapse) for result in results]), days),
    )
    hpv = Outcomes(np.array([int(result.hpv_positive) for result in results]))
    return {"rfs": rfs, "hpv": replace(rfs, outcomes=hpv)}


def collect_true_risks(cases: Sequence[PhantomCase]) -> npt.NDArray[np.float64]:
    """Return the generator's linear predictor of each case."""
    return np.array([case.outcome.linear_predictor for case in cases])


def collect_true_logits(cases: Sequence[PhantomCase]) -> npt.NDArray[np.float64]:
    """Return the generator's HPV logit of each case."""
    return np.array([case.outcome.hpv_logit for case in cases])


def measure_reference(case: PhantomCase) -> Features:
    """Measure `image_features` of the true lesions on a coarse grid."""
    lesions = [lesion for lesion in case.disease.lesions if lesion.label]
    surfaces = [Surface(lesion, case.frame.to_patient(lesion.place)) for lesion in lesions]
    corners = np.array([surface.corners() for surface in surfaces])
    low, high = corners[:, 0].min(0) - MARGIN_MM, corners[:, 1].max(0) + MARGIN_MM
    # The grid is symmetric, so that its middle is the middle of the patient.
    half = max(abs(low[0] - case.frame.origin_mm[0]), abs(high[0] - case.frame.origin_mm[0]))
    low[0], high[0] = case.frame.origin_mm[0] - half, case.frame.origin_mm[0] + half
    size = np.ceil((high - low) / SPACING_MM).astype(int) + 1
    grid = Geometry((int(size[0]), int(size[1]), int(size[2])), (SPACING_MM,) * 3, (low[0], low[1], low[2]))
    x, y, z = ((low[axis] + SPACING_MM * np.arange(size[axis])).astype(np.float32) for axis in range(3))
    mask = np.zeros(grid.array_shape, np.uint8)
    ct, pet = np.full(mask.shape, TISSUE_HU, np.float32), np.full(mask.shape, TISSUE_SUV, np.float32)
    for lesion, surface in zip(reversed(lesions), reversed(surfaces), strict=True):
        place = x[None, None, :], y[None, :, None], z[:, None, None]
        level = surface.level(*place)
        inside, core = level < 1, level < lesion.core_share
        mask[inside] = lesion.label
        ct[inside] = lesion.hu
        ct[core] = CORE_HU
        pet[inside] = lesion.suv * surface.texture(*place)[inside]
        pet[core] *= CORE_SUV_SHARE
    return image_features(mask, ct, _simulate_pet(pet, case), grid)


def _simulate_pet(pet: _Float, case: PhantomCase) -> _Float:
    sigma = case.protocol.psf_fwhm_mm * FWHM_TO_SIGMA / SPACING_MM
    return np.asarray(ndimage.gaussian_filter(pet, sigma) * np.float32(case.protocol.suv_factor), dtype=np.float32)


def _compute_clinical_features(case: PhantomCase, complete: bool) -> Features:
    values = asdict(case.clinical) if complete else case.record
    return clinical_features(Patient(values), load_edition().clinical)
