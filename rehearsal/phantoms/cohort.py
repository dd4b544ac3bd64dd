"""Phantom patients before rendering: all parameters of images and tables, with the protocol of the scan.

The upper ends of the scans follow 150 real FDG PET/CTs (MIC-DKFZ/autopet-3-submission), in which the top of the head is
often cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, cycle, islice
from typing import Any, Final

import numpy as np

from contract.editions import DEFAULT_EDITION, Edition, compute_content_digest, load_edition, remove_scoring
from contract.editions.inputs import CT_PLANNING, RT_DOSE
from contract.images.geometry import Geometry
from rehearsal.phantoms.body import BLADDER_BOTTOM, BRAIN_BOTTOM, Body, draw_body, draw_heights
from rehearsal.phantoms.canvas import Axes, Frame
from rehearsal.phantoms.centres import FIELDS_OF_VIEW, Centre, find_centre
from rehearsal.phantoms.lesions import Disease, compute_lesion_extent, draw_disease
from rehearsal.phantoms.outcome import Clinical, Outcome, draw_clinical, draw_outcome, draw_record

# A scan ends at least this far beyond the lesions; radiotherapy images end further below.
BEYOND_LESIONS_MM = 15
PLANNING_BELOW_LESIONS_MM = 30
# A longer scan reaches from the head to the pelvis and has slices of at least this thickness.
LONG_SCAN_MM = 600
LONG_SCAN_SLICE_MM = 2.5
# Smaller CT pixels are doubled for a grid that CT and PET share.
NARROW_PIXEL_MM: Final = 1.1
# Standard deviation and maximum of the distance between the patient and the scanner's axis.
OFF_CENTRE_MM = 22
MAX_OFF_CENTRE_MM = 60
CT_NOISE_HU: Final = (8.0, 20.0)
PADDING_HU: Final = (-1024, -1024, -2000, -3024)
Range = tuple[float, float]

# Upper end of a scan in mm above the brain's lower end: values at these quantiles, linear between them.
_QUANTILES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
_TOPS_MM: Final = (44, 62, 70, 82, 94, 116, 158, 172, 268)
# Range of the upper end of a cut scan, which shows little of the brain.
_CUT_TOP_MM: Final = (6, 66)
# Range of the lower end in anatomical heights.
_BOTTOM: Final = (-230, -120)
_BELOW_BLADDER_MM: Final = 30
# Frequencies of the fields of view.
_VIEWS: Final = dict(zip(FIELDS_OF_VIEW, (0.75, 0.1, 0.15), strict=True))

GENERATOR_VERSION: Final = 3
# Fractions of patients with contrast agent, and with a PET in Bq/ml.
CONTRAST_SHARE = 0.3
ACTIVITY_SHARE = 0.07
# A balanced cohort repeats these eight patients: whether HPV is positive, and whether the patient must have a relapse.
_BALANCED_PATIENTS: Final = (
    (True, False), (False, True), (True, False), (False, False), (True, True), (False, True), (True, False),
    (False, False),
)  # fmt: skip


@dataclass(frozen=True)
class Protocol:
    """Grids in LPS mm and imperfections of the scan.

    Attributes:
        padding_hu: Value of the corners of the CT, outside the scanner's circle.
        suv_factor: Factor by which all SUV are multiplied.
        pet_shift_mm: Movement (x, y, z) of the patient between CT and PET.
        planning, dose: Grids of the planning CT and the dose; None without radiotherapy data.
    """

    field_of_view: str
    ct: Geometry
    pet: Geometry
    psf_fwhm_mm: float
    pet_noise: float
    ct_noise_hu: float
    padding_hu: int
    suv_factor: float
    pet_shift_mm: tuple[float, float, float]
    planning: Geometry | None
    dose: Geometry | None


def make_axes(geometry: Geometry) -> Axes:
    """Make the voxel centres along z, y and x of a grid with identity direction."""
    x, y, z = (
        (origin + spacing * np.arange(size)).astype(np.float32)
        for origin, spacing, size in zip(geometry.origin_mm, geometry.spacing_mm, geometry.size, strict=True)
    )
    return Axes(z, y, x)


def coarsen_protocol(protocol: Protocol, factor: int) -> Protocol:
    """Return the same scan with a CT matrix that is `factor` times smaller in plane, for quick tests."""

    def coarse(geometry: Geometry) -> Geometry:
        columns, rows, slices = geometry.size
        across, along, thickness = geometry.spacing_mm
        size = (columns // factor, rows // factor, slices)
        return replace(geometry, size=size, spacing_mm=(across * factor, along * factor, thickness))

    planning = protocol.planning and coarse(protocol.planning)
    return replace(protocol, ct=coarse(protocol.ct), planning=planning)


def widen_ct_pixels(protocol: Protocol) -> Protocol:
    """Return the same scan with CT pixels of about 1.4 to 2.1 mm, for a release with CT and PET on one grid."""
    columns, rows, slices = protocol.ct.size
    across, along, thickness = protocol.ct.spacing_mm
    factor = 2.0 if across < NARROW_PIXEL_MM else 1.5
    size = (int(columns / factor), int(rows / factor), slices)
    spacing = (across * factor, along * factor, thickness)
    return replace(protocol, ct=replace(protocol.ct, size=size, spacing_mm=spacing))


def draw_protocol(
    rng: np.random.Generator, centre: Centre, frame: Frame, lesions_mm: Range, only: str | None
) -> Protocol:
    """Draw a scan, which reaches at least 15 mm beyond the lesions.

    `lesions_mm` are the lower and the upper end of the lesions in patient mm. `only` is a field of view that replaces
    the drawn one.
    """
    drawn_view = str(rng.choice(FIELDS_OF_VIEW, p=list(_VIEWS.values())))
    view = only or drawn_view
    bottom, top = _draw_extent(rng, view, frame)
    extent = min(bottom, lesions_mm[0] - BEYOND_LESIONS_MM), max(top, lesions_mm[1] + BEYOND_LESIONS_MM)
    offset = float(np.clip(rng.normal(0, OFF_CENTRE_MM), -MAX_OFF_CENTRE_MM, MAX_OFF_CENTRE_MM))
    middle = frame.origin_mm[0], frame.origin_mm[1] + 20 + offset
    radiotherapy = rng.random() < centre.rt_dose_share
    planning, dose = _draw_radiotherapy_grids(rng, frame, min(extent[0], lesions_mm[0] - PLANNING_BELOW_LESIONS_MM))
    return Protocol(
        field_of_view=view,
        ct=_draw_ct_grid(rng, centre, middle, extent),
        pet=_draw_pet_grid(rng, centre, middle, extent),
        psf_fwhm_mm=centre.psf_fwhm_mm * float(rng.uniform(0.9, 1.1)),
        pet_noise=centre.pet_noise * float(rng.uniform(0.75, 1.25)),
        ct_noise_hu=float(rng.uniform(*CT_NOISE_HU)),
        padding_hu=int(rng.choice(PADDING_HU)),
        suv_factor=centre.suv_bias * float(np.exp(rng.normal(0, 0.05))),
        pet_shift_mm=(float(rng.normal(0, 0.7)), float(rng.normal(0, 0.7)), float(rng.normal(0, 0.9))),
        planning=planning if radiotherapy else None,
        dose=dose if radiotherapy else None,
    )


def _draw_extent(rng: np.random.Generator, view: str, frame: Frame) -> Range:
    """Draw the lower and the upper end of a scan in patient z."""
    above_mm = float(np.interp(rng.random(), _QUANTILES, _TOPS_MM))
    bottom = frame.height_mm(float(rng.uniform(*_BOTTOM)))
    if view == "cut":
        above_mm = float(rng.uniform(*_CUT_TOP_MM))
    if view == "whole_body":
        bottom = frame.height_mm(BLADDER_BOTTOM) - _BELOW_BLADDER_MM
    return bottom, frame.height_mm(BRAIN_BOTTOM) + above_mm


def _make_grid(
    size: tuple[int, int, int], spacing: tuple[float, float, float], middle: tuple[float, float], bottom: float
) -> Geometry:
    x, y = (round(middle[axis] - spacing[axis] * (size[axis] - 1) / 2, 3) for axis in (0, 1))
    return Geometry(size, spacing, (x, y, round(bottom, 3)))


def choose_min_slice_mm(length_mm: float) -> float:
    """Choose the minimum slice thickness of a CT of this length."""
    return LONG_SCAN_SLICE_MM if length_mm > LONG_SCAN_MM else 0.0


def _draw_ct_grid(rng: np.random.Generator, centre: Centre, middle: tuple[float, float], extent: Range) -> Geometry:
    pixel, thickness = centre.ct_mm
    thickness = max(thickness, choose_min_slice_mm(extent[1] - extent[0]))
    count = int((extent[1] - extent[0]) / thickness) + 1
    middle = middle[0] + float(rng.normal(0, 5)), middle[1] + float(rng.normal(0, 4))
    return _make_grid((512, 512, count), (pixel, pixel, thickness), middle, extent[0])


def _draw_pet_grid(rng: np.random.Generator, centre: Centre, middle: tuple[float, float], extent: Range) -> Geometry:
    matrix, pixel, thickness = centre.pet
    bottom, top = extent[0] + float(rng.uniform(-18, 8)), extent[1] + float(rng.uniform(-8, 18))
    middle = middle[0] + float(rng.normal(0, 3)), middle[1] + float(rng.normal(0, 4))
    return _make_grid((matrix, matrix, int((top - bottom) / thickness) + 1), (pixel, pixel, thickness), middle, bottom)


def _draw_radiotherapy_grids(rng: np.random.Generator, frame: Frame, bottom: float) -> tuple[Geometry, Geometry]:
    low = max(bottom, frame.origin_mm[2] - 190)
    length = frame.height_mm(150) - low
    middle = frame.origin_mm[0] + float(rng.normal(0, 10)), frame.origin_mm[1] + 25 + float(rng.normal(0, 10))
    planning = _make_grid((512, 512, int(length / 3) + 1), (1.17, 1.17, 3.0), middle, low)
    dose = _make_grid((100, 90, int((length - 20) / 3) + 1), (3.0, 3.0, 3.0), middle, low + 10)
    return planning, dose


@dataclass(frozen=True)
class CohortOptions:
    """Options that determine a cohort's files.

    A `field_of_view` of None is drawn for each patient. `edition` is a name or the path of a declaration. In a
    `balanced` cohort every second patient is HPV negative, while about 15% of all phantoms are, and at least three of
    each eight patients have a relapse.
    """

    seed: int
    centres: tuple[str, ...]
    layout: str
    field_of_view: str | None = None
    ct_coarsening: int = 1
    edition: str = DEFAULT_EDITION
    balanced: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the content of `truth/cohort.json`; a resumed run compares it with its own options."""
        document = {"generator_version": GENERATOR_VERSION, **asdict(self), "centres": list(self.centres)}
        del document["edition"]
        if not self.balanced:
            del document["balanced"]
        edition = load_edition(self.edition)
        if self.edition != DEFAULT_EDITION:
            document["edition"] = edition.name
        if edition.content is not None:
            document["edition_sha256"] = compute_content_digest(remove_scoring(edition.content))
        return document


@dataclass(frozen=True)
class Activity:
    """A PET in Bq/ml: the patient's weight, and the activity at the time of the scan."""

    weight_kg: float
    dose_bq: float

    @property
    def suv_factor(self) -> float:
        """Return the SUV of 1 Bq/ml, by body weight."""
        return 1000 * self.weight_kg / self.dose_bq


@dataclass(frozen=True)
class PhantomCase:
    """All parameters of a patient.

    Attributes:
        record: Clinical variables that the centre recorded, by name; None is missing.
        activity: Activity of a PET that is exported in Bq/ml if the edition has a key for the factor to SUV; None for
            a PET in SUV.
        noise_seed: Seed of all image noise.
    """

    patient_id: str
    index: int
    centre: Centre
    clinical: Clinical
    record: dict[str, int | str | None]
    disease: Disease
    body: Body
    frame: Frame
    protocol: Protocol
    outcome: Outcome
    activity: Activity | None
    noise_seed: int


def make_case(seed: int, index: int, centres: Sequence[Centre], only: str | None = None) -> PhantomCase:
    """Draw patient `index` of the cohort `seed`, both 0 or more; the number of patients has no influence.

    Centres are drawn by weight, and their order matters. `only` is a field of view ("head_and_neck", "cut",
    "whole_body") for all patients; if it is None, the field of view is drawn.
    """
    streams = np.random.SeedSequence(seed, spawn_key=(index,)).spawn(7)
    centre_rng, clinical_rng, disease_rng, body_rng, scan_rng, outcome_rng, record_rng = map(
        np.random.default_rng, streams
    )
    weights = np.array([centre.weight for centre in centres])
    centre = centres[int(centre_rng.choice(len(centres), p=weights / weights.sum()))]
    noise_seed = int(centre_rng.integers(2**62))
    clinical = draw_clinical(clinical_rng)
    contrast = bool(scan_rng.random() < CONTRAST_SHARE)
    body = draw_body(body_rng, contrast)
    frame = _draw_frame(body_rng, clinical.gender == 1)
    disease = draw_disease(disease_rng, contrast, frame)
    outcome = draw_outcome(outcome_rng, clinical, disease)
    return PhantomCase(
        patient_id=f"{centre.code}-{index + 1:03d}",
        index=index,
        centre=centre,
        clinical=clinical,
        record=draw_record(record_rng, clinical, outcome.hpv_positive, centre),
        disease=disease,
        body=body,
        frame=frame,
        protocol=draw_protocol(scan_rng, centre, frame, compute_lesion_extent(disease, frame), only),
        outcome=outcome,
        activity=_draw_activity(record_rng),
        noise_seed=noise_seed,
    )


def draw_cases(options: CohortOptions, patients: int) -> list[PhantomCase]:
    """Draw the first `patients` patients of a cohort, without rendering them."""
    centres = adapt_centres([find_centre(code) for code in options.centres], load_edition(options.edition))
    cases = (make_case(options.seed, index, centres, options.field_of_view) for index in count())
    return list(islice(_balance(cases) if options.balanced else cases, patients))


def adapt_centres(centres: Sequence[Centre], edition: Edition) -> list[Centre]:
    """Return the centres with radiotherapy data of all patients if an algorithm of the edition requires them."""
    required = {name for algorithm in edition.algorithms for name in algorithm.inputs}
    if required.isdisjoint((CT_PLANNING, RT_DOSE)):
        return list(centres)
    return [replace(centre, rt_dose_share=1.0) for centre in centres]


def _balance(cases: Iterator[PhantomCase]) -> Iterator[PhantomCase]:
    """Yield patients in the order of `_BALANCED_PATIENTS`; for each, the first drawn patient that fits."""
    waiting: list[PhantomCase] = []
    for positive, needs_relapse in cycle(_BALANCED_PATIENTS):
        index = 0
        while True:
            if index == len(waiting):
                waiting.append(next(cases))
            outcome = waiting[index].outcome
            if outcome.hpv_positive == positive and (outcome.relapse or not needs_relapse):
                break
            index += 1
        yield waiting.pop(index)


def _draw_activity(rng: np.random.Generator) -> Activity | None:
    """Draw weight and activity of a patient who got 3 to 5.5 MBq/kg of FDG 60 to 100 minutes before the scan."""
    in_bq = rng.random() < ACTIVITY_SHARE
    weight_kg = round(float(np.clip(rng.normal(79, 14), 45, 130)), 1)
    decay = 0.5 ** (float(rng.uniform(60, 100)) / 109.8)
    dose_bq = round(weight_kg * float(rng.uniform(3.0e6, 5.5e6)) * decay)
    return Activity(weight_kg, float(dose_bq)) if in_bq else None


def _draw_frame(rng: np.random.Generator, male: bool) -> Frame:
    size = (1.0 if male else 0.94) * float(np.clip(rng.normal(1, 0.035), 0.92, 1.08))
    stretch = rng.normal(1, 0.03, 2)
    return Frame(
        scale=(size * float(stretch[0]), size * float(stretch[1])),
        heights=draw_heights(rng, size),
        origin_mm=(float(rng.normal(0, 8)), float(rng.normal(-20, 12)), float(rng.uniform(-800, 200))),
        lean=(float(rng.normal(0, 0.02)), float(rng.normal(0, 0.06))),
        sway_mm=(float(rng.normal(0, 1.5)), float(rng.normal(0, 2))),
        sway_phase=float(rng.uniform(0, 2 * np.pi)),
    )
