"""The phantoms that are measured, made once into the output folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract import files, platform, predictions, sockets
from contract.images import volumes as images
from contract.images.volumes import Volume
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.layouts import csv_name, link_or_copy
from rehearsal.phantoms.make import cohort_cases, make_cohort
from rehearsal.phantoms.truth import CohortOptions

# The first patient of this seed has 2 mm slices with head and neck in view, and 450 slices of 2.5 mm as whole body.
SEED: Final = 1
SIZES: Final = ("head_and_neck", "whole_body")
DISTINCT_PATIENTS: Final = 5
JOB_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "benchmarks.hecktor.invalid")


@dataclass(frozen=True)
class Data:
    """Where the measured files lie; `quick` stands for coarse images and few cases."""

    root: Path
    quick: bool

    @property
    def cases(self) -> int:
        """How many cases the evaluation of a cohort has."""
        return 6 if self.quick else 50

    @property
    def evaluation(self) -> Path:
        """Holds `input` and `ground_truth` of the evaluation of a cohort."""
        return self.root / "evaluation"

    def patient(self, size: str) -> str:
        """The one patient of this size who goes through the algorithm."""
        return cohort_cases(_options(size, self.quick), 1)[0].patient_id

    def input_dir(self, size: str) -> Path:
        """That patient's `/input`."""
        return self.root / size / self.patient(size) / "input"

    def reference(self, size: str) -> Path:
        """That patient's reference mask."""
        return self.root / size / "ground_truth" / f"{self.patient(size)}.mha"

    def prediction(self, size: str) -> Path:
        """A mask that differs from the reference, for the evaluation of one case."""
        return self.root / size / "predictions" / f"{self.patient(size)}.mha"


def make_data(data: Data) -> Iterator[str]:
    """Make what is absent; yields a line for each file or patient that is ready."""
    for size in SIZES:
        for patient in make_cohort(_options(size, data.quick), _patients(size, data.quick), data.root / size, jobs=1):
            yield f"{size} {patient}"
            _make_prediction(data.root / size, patient)
    if not (data.evaluation / "input" / platform.PREDICTIONS_JSON).is_file():
        _make_evaluation(data)
    yield f"{data.cases} cases for the evaluation"


def make_patient_of(size: str, data: Data) -> None:
    """Make the one patient of this size where it is absent, and nothing for the evaluation."""
    for _ in make_cohort(_options(size, data.quick), 1, data.root / size, jobs=1):
        continue


def facts(data: Data) -> dict[str, Any]:
    """Grids of the measured patients, for the report."""
    found: dict[str, Any] = {"generator_seed": SEED, "evaluation_cases": data.cases}
    for size in SIZES:
        headers = {
            socket.slug: images.read_header(images.find_single_image(socket.path_under(data.input_dir(size)))).geometry
            for socket in (sockets.CT, sockets.PET)
        }
        found[size] = {
            "patient": data.patient(size),
            **{slug: {"size": grid.size, "spacing_mm": grid.spacing_mm} for slug, grid in headers.items()},
        }
    found["distinct_evaluation_cases"] = _patients("head_and_neck", data.quick)
    return found


def _options(size: str, quick: bool) -> CohortOptions:
    return CohortOptions(SEED, tuple(centre.code for centre in CENTRES), "platform", size, 4 if quick else 1)


def _patients(size: str, quick: bool) -> int:
    if size != "head_and_neck":
        return 1
    return 2 if quick else DISTINCT_PATIENTS


def _make_prediction(cohort: Path, patient: str) -> None:
    """The reference moved by 2 and 3 voxels in plane: overlaps, misses and lesions that do not match."""
    target = cohort / "predictions" / f"{patient}.mha"
    if target.is_file():
        return
    reference = images.read_volume(cohort / "ground_truth" / f"{patient}.mha")
    moved = Volume(np.roll(reference.array, (2, 3), axis=(1, 2)), reference.geometry)
    images.write_mask(target, moved.array, moved.geometry)


def _make_evaluation(data: Data) -> None:
    """Distinct masks under many names by hard links, with made-up risks, outcomes and HPV states."""
    cohort, rng = data.root / "head_and_neck", np.random.default_rng(SEED)
    options = _options("head_and_neck", data.quick)
    distinct = [case.patient_id for case in cohort_cases(options, _patients("head_and_neck", data.quick))]
    truth, jobs = data.evaluation / "ground_truth", []
    survival: list[dict[str, Any]] = []
    hpv: list[dict[str, Any]] = []
    truth.mkdir(parents=True, exist_ok=True)
    for number in range(data.cases):
        patient, case = distinct[number % len(distinct)], f"BENCH-{number + 1:03d}"
        _relink(cohort / "ground_truth" / f"{patient}.mha", truth / f"{case}.mha")
        job = str(uuid.uuid5(JOB_NAMESPACE, case))
        output = data.evaluation / "input" / job / "output"
        _relink(cohort / "predictions" / f"{patient}.mha", sockets.MASK.path_under(output) / platform.MASK_FILE_NAME)
        positive = bool(number % 5)
        files.write_json(sockets.RFS_RISK.path_under(output), float(rng.normal()))
        files.write_json(sockets.HPV_STATUS.path_under(output), positive == bool(rng.random() < 0.8))
        survival.append({"PatientID": case, "Relapse": int(number % 3 == 0), "RFS": 60 + 40 * number})
        hpv.append({"PatientID": case, "HPV Status": int(positive)})
        jobs.append(_job(job, case))
    files.write_csv(truth / csv_name(2), list(survival[0]), survival)
    files.write_csv(truth / csv_name(3), list(hpv[0]), hpv)
    files.write_json(data.evaluation / "input" / platform.PREDICTIONS_JSON, jobs)


def _job(job: str, case: str) -> dict[str, Any]:
    outputs = [
        predictions.socket_entry(socket, number)
        for number, socket in enumerate((sockets.MASK, sockets.RFS_RISK, sockets.HPV_STATUS), start=1)
    ]
    ct = predictions.socket_entry(sockets.CT, 1, image=(job, f"{case}.mha"))
    return predictions.job_entry(job, [ct], outputs, algorithm_image="benchmarks", exec_duration_s=0.0)


def _relink(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    link_or_copy(source, target)
