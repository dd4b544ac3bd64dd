"""One patient with the four answers of HECKTOR 2026: the heads and the writing, beside the whole segmentation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from algorithm.context import RunContext
from algorithm.deadline import Deadline
from algorithm.heads.methods import METHODS
from algorithm.masks.segmentation import Segmented
from algorithm.network.package import default_package_path
from algorithm.network.resident import Resident
from algorithm.pipeline import restore_and_answer
from algorithm.prediction import PredictRequest
from algorithm.region.localise import localise
from algorithm.steps import write
from benchmarks.cases.algorithm import PatientStages, algorithm_command
from benchmarks.cases.data import SIZES, BenchData
from benchmarks.cases.patient import patient_case
from benchmarks.harness.bounds import TIME_RATIO, Bound
from benchmarks.harness.measurement import ONCE, PROCESS, Measurement, Work
from benchmarks.harness.timing import Command
from contract.editions import load_edition

EDITION: Final = load_edition("hecktor2026")
TASK: Final = EDITION.algorithm()
# Share of the segmentation's time that heads and writing may take.
LARGEST_SHARE: Final = 0.1


def measurements(data: BenchData) -> Iterator[Measurement]:
    """The segmentation, what follows it, and the whole process, at each size."""
    model = default_package_path(EDITION.name)
    for size in SIZES:
        group, patient = f"four answers, {size}", PatientStages(data, model, size)
        yield Measurement(group, "segmentation, all passes", partial(_segment, patient), repeats=PROCESS, quick=False)
        yield Measurement(
            group,
            "heads and writing",
            partial(_heads_and_writing, patient),
            (f"{group}/segmentation, all passes",),
            (Bound(TIME_RATIO, "at most", LARGEST_SHARE),),
        )
        yield Measurement(group, "process, default limit", partial(_process, patient), repeats=ONCE, quick=False)


def _segment(patient: PatientStages, _: Path) -> Work:
    from algorithm.network.segment import segment

    case = patient_case(patient.data.input_dir(patient.size))
    region, ensemble = localise(case), Resident(patient.model, "cpu").ensemble(None)
    return lambda: segment(case, region, ensemble, Deadline(TASK.time_limit_s))


def _heads_and_writing(patient: PatientStages, scratch: Path) -> Work:
    """Everything after the segmentation, on the reference mask: features, heads, the CT's grid, four files."""
    folder = patient.data.input_dir(patient.size)
    case, (segmentation, _) = patient_case(folder), patient.reference_segmentation()
    request = PredictRequest(EDITION, TASK, METHODS["baseline"], folder, scratch, "cpu", TASK.time_limit_s)
    resident, segmented = Resident(patient.model, "cpu"), Segmented(case, segmentation)

    def restore_answer_and_write() -> object:
        run = RunContext(request, resident, None)  # a new one each time, since it keeps the restored mask
        return write(run, restore_and_answer(run, segmented))

    return restore_answer_and_write


def _process(patient: PatientStages, scratch: Path) -> Work:
    extra = ("--edition", EDITION.name, "--device", "cpu")
    return Command(algorithm_command(TASK.name, patient.model, patient.data.input_dir(patient.size), scratch, *extra))
