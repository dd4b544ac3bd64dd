"""Phantom patients before rendering: all parameters of the images and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, cycle, islice
from typing import Any, Final

import numpy as np

from contract.editions import DEFAULT_EDITION, content_digest, load_edition, remove_scoring
from rehearsal.phantoms.anatomy.body import Body, draw_body, draw_heights
from rehearsal.phantoms.anatomy.canvas import Frame
from rehearsal.phantoms.anatomy.lesions import Disease, compute_lesion_extent, draw_disease
from rehearsal.phantoms.centres import Centre, find_centre
from rehearsal.phantoms.outcome import Clinical, Outcome, draw_clinical, draw_outcome, draw_record
from rehearsal.phantoms.protocol import Protocol, draw_protocol

GENERATOR_VERSION: Final = 3
# Fractions of patients with contrast agent, and with a PET in Bq/ml.
CONTRAST_SHARE = 0.3
ACTIVITY_SHARE = 0.07
# The places of a balanced cohort in turn: HPV positive or not, and whether a relapse is needed.
_BALANCED_PLACES: Final = (
    (True, False), (False, True), (True, False), (False, False), (True, True), (False, True), (True, False),
    (False, False),
)  # fmt: skip


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
            document["edition_sha256"] = content_digest(remove_scoring(edition.content))
        return document


@dataclass(frozen=True)
class Activity:
    """A PET in Bq/ml: the patient's weight, and the activity at the time of the scan."""

    weight_kg: float
    dose_bq: float

    @property
    def suv_factor(self) -> float:
        """SUV of 1 Bq/ml, by body weight."""
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
    pick, who, ill, look, scan, fate, record = (np.random.default_rng(stream) for stream in streams)
    weights = np.array([centre.weight for centre in centres])
    centre = centres[int(pick.choice(len(centres), p=weights / weights.sum()))]
    noise_seed = int(pick.integers(2**62))
    clinical = draw_clinical(who)
    contrast = bool(scan.random() < CONTRAST_SHARE)
    body = draw_body(look, contrast)
    frame = _draw_frame(look, clinical.gender == 1)
    disease = draw_disease(ill, contrast, frame)
    outcome = draw_outcome(fate, clinical, disease)
    return PhantomCase(
        patient_id=f"{centre.code}-{index + 1:03d}",
        index=index,
        centre=centre,
        clinical=clinical,
        record=draw_record(record, clinical, outcome.hpv_positive, centre),
        disease=disease,
        body=body,
        frame=frame,
        protocol=draw_protocol(scan, centre, frame, compute_lesion_extent(disease, frame), only),
        outcome=outcome,
        activity=_draw_activity(record),
        noise_seed=noise_seed,
    )


def draw_cases(options: CohortOptions, patients: int) -> list[PhantomCase]:
    """Draw the first `patients` patients of a cohort, without rendering them."""
    centres = [find_centre(code) for code in options.centres]
    cases = (make_case(options.seed, index, centres, options.field_of_view) for index in count())
    return list(islice(_balance(cases) if options.balanced else cases, patients))


def _balance(cases: Iterator[PhantomCase]) -> Iterator[PhantomCase]:
    """Yield the first waiting patient that fits each place of a balanced cohort."""
    waiting: list[PhantomCase] = []
    for positive, needs_relapse in cycle(_BALANCED_PLACES):
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
