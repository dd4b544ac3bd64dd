"""Phantom patients before rendering: all parameters of the images and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from contract.editions import DEFAULT_EDITION, Edition, content_digest, declared_part, load_edition
from rehearsal.phantoms.anatomy.body import Body, random_arms, random_body
from rehearsal.phantoms.anatomy.canvas import Frame
from rehearsal.phantoms.anatomy.heights import random_heights
from rehearsal.phantoms.anatomy.lesions import Disease, lesion_extent, random_disease
from rehearsal.phantoms.anatomy.staged import random_staged_disease, staged_extent
from rehearsal.phantoms.centres import Centre, centre_named
from rehearsal.phantoms.outcome import (
    STAGED_SCALE_DAYS,
    Clinical,
    Outcome,
    random_clinical,
    random_outcome,
    recorded,
)
from rehearsal.phantoms.protocol import Protocol, random_protocol
from rehearsal.phantoms.records import Record, random_record

GENERATOR_VERSION: Final = 2


@dataclass(frozen=True)
class CohortOptions:
    """Options that determine a cohort's files.

    ``field_of_view`` None is each centre's own mixture; ``edition`` is a name or the path of a declaration.
    """

    seed: int
    centres: tuple[str, ...]
    layout: str
    field_of_view: str | None = None
    ct_coarsening: int = 1
    edition: str = DEFAULT_EDITION

    def as_json(self) -> dict[str, Any]:
        """The content of `truth/cohort.json`, by which a resumed run recognises its cohort."""
        document = {"generator_version": GENERATOR_VERSION, **asdict(self), "centres": list(self.centres)}
        del document["edition"]
        edition = load_edition(self.edition)
        if self.edition != DEFAULT_EDITION:
            document["edition"] = edition.name
        if edition.content is not None:
            document["edition_sha256"] = content_digest(declared_part(edition.content))
        return document


@dataclass(frozen=True)
class PhantomCase:
    """A patient's centre, clinical variables, disease, scan and outcome; ``noise_seed`` determines all image noise.

    ``record`` holds the clinical variables that the centre recorded, by name; None is missing. ``staging`` is the
    record of a patient whose stages were drawn (`has_staged_patients`), None for other patients.
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
    noise_seed: int
    staging: Record | None = None


def has_staged_patients(edition: Edition) -> bool:
    """Whether the edition declares a stage by a rule, which the patients' anatomy then follows."""
    return any(answer.rule for algorithm in edition.algorithms for answer in algorithm.answers)


def make_case(
    seed: int, index: int, centres: Sequence[Centre], only: str | None = None, *, staged: bool = False
) -> PhantomCase:
    """Draw patient ``index`` of the cohort ``seed``, both 0 or more, independent of the number of other patients.

    Centres are drawn by weight, and their order matters. ``only`` is a field of view ("head_and_neck", "head", "cut",
    "whole_body") for all patients instead of the centre's own mixture. ``staged`` draws all T and N stages in
    sufficient shares, and no radiotherapy images.
    """
    case = _unstaged_case(seed, index, centres, only)
    return _staged_case(seed, case, only) if staged else case


def _unstaged_case(seed: int, index: int, centres: Sequence[Centre], only: str | None) -> PhantomCase:
    streams = np.random.SeedSequence(seed, spawn_key=(index,)).spawn(7)
    pick, who, ill, look, scan, fate, record = (np.random.default_rng(stream) for stream in streams)
    weights = np.array([centre.weight for centre in centres])
    centre = centres[int(pick.choice(len(centres), p=weights / weights.sum()))]
    noise_seed = int(pick.integers(2**62))
    clinical = random_clinical(who)
    contrast = bool(scan.random() < centre.contrast_share)
    body = random_body(look, contrast, random_arms(scan, centre.arms_up_share))
    frame = _random_frame(look, clinical.gender == 1)
    disease = random_disease(ill, contrast, frame)
    return PhantomCase(
        patient_id=f"{centre.code}-{index + 1:03d}",
        index=index,
        centre=centre,
        clinical=clinical,
        record=recorded(clinical, centre, record),
        disease=disease,
        body=body,
        frame=frame,
        protocol=random_protocol(scan, centre, frame, lesion_extent(disease, frame), only),
        outcome=random_outcome(fate, clinical, disease),
        noise_seed=noise_seed,
    )


def _staged_case(seed: int, case: PhantomCase, only: str | None) -> PhantomCase:
    """The same patient with another disease, and the scan and the outcome that belong to it."""
    streams = np.random.SeedSequence(seed, spawn_key=(case.index,)).spawn(11)[7:]
    ill, scan, fate, record = (np.random.default_rng(stream) for stream in streams)
    disease = random_staged_disease(ill, case.body.contrast_hu > 0, case.frame, case.body)
    protocol = random_protocol(scan, case.centre, case.frame, staged_extent(disease, case.frame), only)
    outcome = random_outcome(fate, case.clinical, disease, STAGED_SCALE_DAYS)
    staging = random_record(record, case.clinical, case.centre, disease, outcome.hpv_positive)
    return replace(
        case,
        record=dict(staging.variables),
        disease=disease,
        protocol=replace(protocol, planning=None, dose=None),
        outcome=outcome,
        staging=staging,
    )


def cohort_cases(options: CohortOptions, patients: int) -> list[PhantomCase]:
    """The first ``patients`` patients of a cohort, drawn but not rendered."""
    centres = [centre_named(code) for code in options.centres]
    staged = has_staged_patients(load_edition(options.edition))
    return [make_case(options.seed, index, centres, options.field_of_view, staged=staged) for index in range(patients)]


def _random_frame(rng: np.random.Generator, male: bool) -> Frame:
    size = (1.0 if male else 0.94) * float(np.clip(rng.normal(1, 0.035), 0.92, 1.08))
    stretch = rng.normal(1, 0.03, 2)
    return Frame(
        scale=(size * float(stretch[0]), size * float(stretch[1])),
        heights=random_heights(rng, size),
        origin_mm=(float(rng.normal(0, 8)), float(rng.normal(-20, 12)), float(rng.uniform(-800, 200))),
        lean=(float(rng.normal(0, 0.02)), float(rng.normal(0, 0.06))),
        sway_mm=(float(rng.normal(0, 1.5)), float(rng.normal(0, 2))),
        sway_phase=float(rng.uniform(0, 2 * np.pi)),
    )
