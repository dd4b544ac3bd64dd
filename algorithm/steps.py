"""The steps of one case, in the order of `algorithm.pipeline`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from algorithm.case.notices import Notices
from algorithm.case.read import CT_ALONE, Case, covered_height, read_case
from algorithm.deadline import Deadline, Termination
from algorithm.heads.classes import Head
from algorithm.heads.measure import Features, clinical_features, image_features
from algorithm.heads.values import answer_value, check_head
from algorithm.masks.segmentation import Segmentation, Segmented
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.resident import Resident
from algorithm.prediction import HeadValue, Prediction, PredictRequest, RunRecord, SegmentedBy
from algorithm.region.localise import Region
from algorithm.region.localise import localise as head_and_neck
from algorithm.stages import Stages, gpu_peak_memory_mib, peak_memory_mib
from algorithm.uncertainty.disagreement import Disagreement
from algorithm.uncertainty.record import HeadAnswer, answers_over_folds, describe, write_maps, write_record
from contract import platform
from contract.cpus import usable_cpus
from contract.editions import Answer
from contract.errors import Finding, HecktorError, ModelPackageError, OutputError
from contract.files import write_json
from contract.images.volumes import write_mask

LOGGER = logging.getLogger("hecktor")

# Shares of the region's height: a PET that covers less is named, or left out.
COVERED_BY_PET: Final = 0.9
LEAST_COVERED_BY_PET: Final = 0.2
WITHOUT_NECK: Final = "the mask stays empty, and image features take their training medians"


class RunContext:
    """The request with everything that its steps share; the clock starts here."""

    def __init__(self, request: PredictRequest, resident: Resident, termination: Termination | None) -> None:
        threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()  # one for each of the host's cores
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, usable_cpus()))
        self.request, self.resident = request, resident
        self.deadline = Deadline(request.time_limit_s, spent_s=request.spent_s, termination=termination)
        self.stages, self.notices = Stages(), Notices(request.strict)
        self.disagreement = None if request.uncertainty_dir is None else Disagreement()

    def head(self, answer: Answer) -> Head:
        """The head of a risk or class answer. Raises `ModelPackageError` if it is missing or cannot give the answer."""
        name = self.request.method.head_name(answer)
        head = self.resident.package.head(name)
        check_head(answer, head, name)
        return head


@dataclass(frozen=True)
class CaseAnswers:
    """The answers of a case: the mask on the CT's grid, risks and classes by name, and those given by a stand-in."""

    segmented: Segmented
    mask: npt.NDArray[np.uint8] | None
    values: Mapping[str, HeadValue]
    stand_ins: tuple[str, ...]


def read(run: RunContext) -> Case:
    """Read the case. Raises `InputError`."""
    with run.stages("read"):
        return read_case(run.request.source, run.request.edition, run.request.algorithm, run.notices)


def localise(run: RunContext, case: Case) -> tuple[Case, Region]:
    """The case with the region of head and neck; a PET that covers little of its height is left out."""
    with run.stages("localise"):
        region = head_and_neck(case)
        LOGGER.info("region: %s", region.summary())
        if region.no_neck:
            run.notices.warn(Finding("CT", region.no_neck, "a head or neck in view, the head up (+z)", WITHOUT_NECK))
        if case.pet is None or region.no_neck:
            return case, region
        covered = covered_height(case.pet.geometry, region.lower_mm, region.upper_mm)
        if covered < COVERED_BY_PET:
            found = f"covers {covered:.0%} of the height of the head and neck that the CT shows"
            enough = covered >= LEAST_COVERED_BY_PET
            run.notices.warn(Finding("PET", found, action="no uptake beyond" if enough else CT_ALONE))
            case = case if enough else replace(case, pet=None)
        return case, region


def segment(run: RunContext, case: Case, region: Region) -> Segmentation:
    """Segment the region by the method's segmenter. Raises `ModelPackageError`."""
    if run.request.method.segmenter == "threshold":
        with run.stages("segment"):
            return threshold_segmentation(case, region)
    with run.resident.in_use:
        with run.stages("load"):
            from algorithm.network.segment import segment as by_network  # imports torch, which only a network needs

            resident = run.resident.loaded()
            for answer in run.request.algorithm.heads:
                if answer.stand_in is None:
                    run.head(answer)  # a package without the head is refused now, not after the passes
            ensemble = resident.ensemble(run.request.most_passes)
        with run.stages("segment"):
            observer = {} if run.disagreement is None else {"on_pass": run.disagreement.add}
            return by_network(case, region, ensemble, run.deadline, **observer)


def measure(run: RunContext, segmented: Segmented) -> Features | None:
    """Features of lesions and patient for the heads; None without a head, or if all heads have a stand-in for a bug."""
    heads, case, segmentation = run.request.algorithm.heads, segmented.case, segmented.segmentation
    if not heads:
        return None
    clinical = clinical_features(case.patient, run.request.edition.clinical)
    if segmentation is None or segmented.without_neck:
        return clinical
    try:
        with run.stages("measure"):
            mask = segmentation.mask()
            return image_features(mask, segmentation.ct, segmentation.pet, segmentation.grid, case.dose) | clinical
    except Exception as problem:
        if _is_retried(run, problem) or any(answer.stand_in is None for answer in heads):
            raise
        names = ", ".join(answer.name for answer in heads)
        LOGGER.exception("*** STAND-IN *** %s: the stand-ins are written, the features cannot be measured", names)
        return None


def answer(run: RunContext, segmented: Segmented, features: Features | None) -> CaseAnswers:
    """All answers of the algorithm, by their kinds."""
    request, mask = run.request, None
    values: dict[str, HeadValue] = {}
    stand_ins: list[str] = []
    if request.algorithm.mask is not None and segmented.segmentation is not None:
        with run.stages("restore"):
            mask = segmented.segmentation.mask_on(segmented.case.ct.geometry)
        if request.method.segmenter == "network" and not segmented.by_network and not segmented.without_neck:
            stand_ins.append(request.algorithm.mask.name)
    for declared in request.algorithm.heads:
        with run.stages("head"):
            value = _by_head_or_none(run, declared, features, segmented.case.patient.centre)
        if value is None and declared.stand_in is not None:
            value = declared.stand_in
            stand_ins.append(declared.name)
        if value is not None:
            values[declared.name] = value
    return CaseAnswers(segmented, mask, values, tuple(stand_ins))


def _by_head_or_none(
    run: RunContext, declared: Answer, features: Features | None, centre: str | None
) -> HeadValue | None:
    """The head's value; None if the answer's stand-in must be written instead.

    A stand-in replaces the answer of a missing or unsuitable head, and after a bug; a bad case stays an error.
    """
    if features is None:
        return None
    try:
        head = run.head(declared)
        for term in head.missing(features):
            LOGGER.info("%s: %s is missing, its training median %g is used", declared.name, term.feature, term.fill)
        return answer_value(declared, head, features, centre)
    except Exception as problem:
        is_bad_case = isinstance(problem, HecktorError) and not isinstance(problem, ModelPackageError)
        if declared.stand_in is None or is_bad_case or _is_retried(run, problem):
            raise
        what = declared.name, declared.stand_in, problem
        LOGGER.warning("*** STAND-IN *** %s: %r is written (%s)", *what, exc_info=problem)
        return None


def _is_retried(run: RunContext, problem: Exception) -> bool:
    """True for a first lack of memory: the deadline frees what it can and tries the best answer once more."""
    return isinstance(problem, MemoryError) and not run.deadline.stopped()


def write(run: RunContext, answers: CaseAnswers) -> None:
    """Write each answer to its output socket, all or none. Raises `OutputError`."""
    algorithm, output_dir = run.request.algorithm, run.request.output_dir
    if output_dir is None:
        return
    written: list[Path] = []
    try:
        with run.stages("write"):
            if algorithm.mask is not None and answers.mask is not None:
                written.append(algorithm.mask.socket.path_under(output_dir) / platform.MASK_FILE_NAME)
                write_mask(written[-1], answers.mask, answers.segmented.case.ct.geometry)
            for declared in algorithm.heads:
                written.append(declared.socket.path_under(output_dir))
                write_json(written[-1], answers.values[declared.name])
    except BaseException:
        for path in written[:-1]:
            path.unlink(missing_ok=True)
        raise


def trust(run: RunContext, answers: CaseAnswers) -> None:
    """Write the uncertainty, if requested, as far as the time allows. A failure goes to the log: the answer stands."""
    folder, disagreement, segmentation = run.request.uncertainty_dir, run.disagreement, answers.segmented.segmentation
    if folder is None or disagreement is None or segmentation is None:
        return
    disagreement.close()
    try:
        with run.stages("uncertainty"):
            record = describe(segmentation, disagreement)
            if answers.segmented.without_neck:
                record["segmented_by"] = None
            by_passes = record["why_not"] is None
            if by_passes:
                record |= _over_folds(run, answers, segmentation, disagreement)
            write_record(folder, record)
            if by_passes and not run.deadline.overdue():
                write_maps(folder, segmentation.grid, answers.segmented.case.ct.geometry, disagreement)
            elif by_passes:
                LOGGER.warning("*** WARNING *** no time for the maps of the uncertainty")
    except Exception as problem:
        LOGGER.warning("*** WARNING *** the uncertainty is incomplete: %s", problem, exc_info=problem)


def _over_folds(
    run: RunContext, answers: CaseAnswers, segmentation: Segmentation, disagreement: Disagreement
) -> dict[str, object]:
    """The answers of each fold: `answer` for an algorithm with one answer, `answers` by name for several."""
    algorithm = run.request.algorithm
    declared = [one for one in algorithm.heads if one.name not in answers.stand_ins]
    heads = [HeadAnswer(one, run.head(one), answers.values[one.name]) for one in declared]
    if not heads:
        return {}
    case, clinical = answers.segmented.case, run.request.edition.clinical
    by_name = answers_over_folds(heads, case, clinical, segmentation, disagreement, run.deadline)
    if len(algorithm.answers) > 1:
        return {"answers": by_name}
    return {"answer": {"task": algorithm.name, **by_name[declared[0].name]}}


def conclude(run: RunContext, answers: CaseAnswers) -> Prediction:
    """The prediction with its run record, which is written if requested; a failure to write it goes to the log."""
    record = _record(run, answers)
    if run.request.record_path is not None:
        try:
            write_json(run.request.record_path, record.as_json())
        except OutputError as problem:
            LOGGER.warning("*** WARNING *** the record of the run is not written: %s", problem)
    kinds = {declared.name: declared.kind for declared in run.request.algorithm.heads}
    return Prediction(
        answers.mask,
        answers.segmented.case.ct.geometry,
        {name: float(value) for name, value in answers.values.items() if kinds[name] == "risk"},
        {name: value for name, value in answers.values.items() if kinds[name] == "class"},
        record,
    )


def _record(run: RunContext, answers: CaseAnswers) -> RunRecord:
    request, segmented = run.request, answers.segmented
    network = segmented.segmentation if segmented.by_network else None
    return RunRecord(
        edition=request.edition.name,
        task=request.algorithm.name,
        method=request.method.name,
        device=None if network is None else network.device,
        region=None if segmented.region is None else segmented.region.as_json(),
        segmented_by=_segmented_by(segmented),
        passes_done=0 if network is None else network.passes_done,
        passes_planned=0 if network is None else network.passes_planned,
        plan=None if network is None else network.plan,
        answers={declared.name: answers.values.get(declared.name) for declared in request.algorithm.answers},
        stand_ins=answers.stand_ins,
        notices=tuple(run.notices.findings),
        seconds=dict(list(run.stages.seconds.items())),
        peak_memory_mib=peak_memory_mib(),
        gpu_peak_memory_mib=gpu_peak_memory_mib(),
        time_limit_s=run.deadline.time_limit_s,
        left_s=run.deadline.margin_s(),
        unfinished=run.stages.unfinished(),
    )


def _segmented_by(segmented: Segmented) -> SegmentedBy | None:
    if segmented.by_network:
        return "network"
    return None if segmented.segmentation is None or segmented.without_neck else "PET threshold"
