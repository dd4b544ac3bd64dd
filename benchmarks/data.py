"""The phantoms that the benchmarks measure, made once in the output folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from contract import files, platform, predictions
from contract.editions import load_edition
from contract.images import volumes as images
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions, cohort_cases
from rehearsal.phantoms.layouts import link_or_copy
from rehearsal.phantoms.make import make_cohort

# The first patient of this seed has 2 mm slices with head and neck in view, and 450 slices of 2.5 mm as whole body.
SEED: Final = 1
SIZES: Final = ("head_and_neck", "whole_body")
DISTINCT_PATIENTS: Final = 5
EDITION: Final = load_edition()
CT, PET = EDITION.inputs["ct"], EDITION.inputs["pet"]
MASK: Final = EDITION.algorithm("segmentation").answers[0].socket
JOB_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "benchmarks.hecktor.invalid")


@dataclass(frozen=True)
class BenchData:
    """Paths of the measured files; `quick` means coarse images and few cases."""

    root: Path
    quick: bool

    @property
    def cases(self) -> int:
        """Number of cases of the evaluated cohort."""
        return 6 if self.quick else 50

    @property
    def evaluation(self) -> Path:
        """The folder of the evaluated cohort, with `input` and `ground_truth`."""
        return self.root / "evaluation"

    def patient(self, size: str) -> str:
        """The patient of this size that goes through the algorithm."""
        return cohort_cases(_options(size, self.quick), 1)[0].patient_id

    def input_dir(self, size: str) -> Path:
        """That patient's `/input`."""
        return self.root / size / self.patient(size) / "input"

    def reference(self, size: str) -> Path:
        """The reference mask of that patient."""
        return self.root / size / "ground_truth" / f"{self.patient(size)}.mha"

    def prediction(self, size: str) -> Path:
        """A mask that differs from the reference."""
        return self.root / size / "predictions" / f"{self.patient(size)}.mha"


def make_data(data: BenchData) -> Iterator[str]:
    """Make missing files; yields a line for each patient and for the evaluated cohort."""
    for size in SIZES:
        for patient in make_cohort(_options(size, data.quick), _patients(size, data.quick), data.root / size, jobs=1):
            yield f"{size} {patient}"
            _make_prediction(data.root / size, patient)
    if not (data.evaluation / "input" / platform.PREDICTIONS_JSON).is_file():
        _make_evaluation(data)
    yield f"{data.cases} cases for the evaluation"


def make_patient(size: str, data: BenchData) -> None:
    """Make the one patient of this size if it is missing."""
    list(make_cohort(_options(size, data.quick), 1, data.root / size, jobs=1))


def _options(size: str, quick: bool) -> CohortOptions:
    return CohortOptions(SEED, tuple(centre.code for centre in CENTRES), "platform", size, 4 if quick else 1)


def _patients(size: str, quick: bool) -> int:
    return (2 if quick else DISTINCT_PATIENTS) if size == "head_and_neck" else 1


def _make_prediction(cohort: Path, patient: str) -> None:
    """Shift the reference by 2 and 3 voxels in plane: overlaps, misses and unmatched lesions."""
    target = cohort / "predictions" / f"{patient}.mha"
    if not target.is_file():
        reference = images.read_volume(cohort / "ground_truth" / f"{patient}.mha")
        images.write_mask(target, np.roll(reference.array, (2, 3), axis=(1, 2)), reference.geometry)


def _make_evaluation(data: BenchData) -> None:
    """Hard-link the distinct masks under many names, in the platform's layout."""
    cohort, jobs = data.root / "head_and_neck", []
    options = _options("head_and_neck", data.quick)
    distinct = [case.patient_id for case in cohort_cases(options, _patients("head_and_neck", data.quick))]
    for number in range(data.cases):
        patient, case = distinct[number % len(distinct)], f"BENCH-{number + 1:03d}"
        relink(cohort / "ground_truth" / f"{patient}.mha", data.evaluation / "ground_truth" / f"{case}.mha")
        job = str(uuid.uuid5(JOB_NAMESPACE, case))
        output = MASK.path_under(data.evaluation / "input" / job / "output")
        relink(cohort / "predictions" / f"{patient}.mha", output / platform.MASK_FILE_NAME)
        inputs = [predictions.socket_entry(CT, 1, image=(job, f"{case}.mha"))]
        outputs = [predictions.socket_entry(MASK, 1)]
        jobs.append(predictions.job_entry(job, inputs, outputs, algorithm_image="benchmarks", exec_duration_s=0.0))
    files.write_json(data.evaluation / "input" / platform.PREDICTIONS_JSON, jobs)


def relink(source: Path, target: Path) -> None:
    """Link `source` as `target`, which may exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    link_or_copy(source, target)
