"""The steps of one case, in the order of `algorithm.pipeline`."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from algorithm.case.read import AIR_HU, CT_ALONE, Case, covered_height, ct_geometry, read_case
from algorithm.context import CaseAnswers, RunContext
from algorithm.heads.documents import Features
from algorithm.heads.measure import clinical_features, image_features
from algorithm.masks.segmentation import Segmentation, Segmented
from algorithm.masks.threshold import threshold_segmentation
from algorithm.prediction import Prediction, RunRecord, SegmentedBy
from algorithm.region.alignment import pet_shift_mm
from algorithm.region.localise import Region
from algorithm.region.localise import localise as head_and_neck
from algorithm.stages import gpu_peak_memory_mib, peak_memory_mib
from algorithm.uncertainty.disagreement import Disagreement
from algorithm.uncertainty.record import HeadAnswer, answers_over_folds, describe, write_maps, write_record
from contract import platform
from contract.errors import Finding, OutputError
from contract.files import write_json
from contract.images.volumes import Volume, write_mask
from contract.patient import Patient

LOGGER = logging.getLogger("hecktor")

# Shares of the region's height: a PET that covers less is named, or left out.
COVERED_BY_PET: Final = 0.9
LEAST_COVERED_BY_PET: Final = 0.2
WITHOUT_NECK: Final = "the mask stays empty, and image features take their training medians"


def read(run: RunContext) -> Case:
    """Read the case; without a PET or clinical variables if it must be answered anyway. Raises `InputError`."""
    with run.stages("read"):
        request = run.request
        if request.always_answers:
            run.ct_grid = ct_geometry(request.source, request.edition)
        return read_case(
            request.source, request.edition, request.algorithm, run.notices, tolerant=request.always_answers
        )


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
        if shift := pet_shift_mm(case, region):
            x, y, z = shift
            far = f"{math.hypot(x, y, z):.0f} mm (x {x:.0f}, y {y:.0f}, z {z:.0f})"
            found = f"the outline of the body is shifted by about {far}"
            run.notices.warn(
                Finding("PET", found, "the CT's position", "not corrected; the mask may lie beside the lesions")
            )
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
            if resident.package.outcome is not None and run.request.algorithm.heads:
                from algorithm.outcome.measure import check_outcome

                check_outcome(resident.package.outcome)
            ensemble = resident.ensemble(run.request.most_passes)
        with run.stages("segment"):
            observer = {} if run.disagreement is None else {"on_pass": run.disagreement.add}
            return by_network(case, region, ensemble, run.deadline, **observer)


def measure(run: RunContext, segmented: Segmented) -> Features | None:
    """Features of lesions and patient for the heads; None without a head, or if a fault left no image to measure.

    A bug counts as such a fault if all heads have a stand-in.
    """
    heads, case, segmentation = run.request.algorithm.heads, segmented.case, segmented.segmentation
    if not heads or run.fault:
        return None
    clinical = clinical_features(case.patient, run.request.edition.clinical)
    if segmentation is None or segmented.without_neck:
        return clinical
    if segmented.by_network:  # otherwise the package may still be loading, or unusable
        _measure_outcome(run, segmentation, clinical)
    try:
        with run.stages("measure"):
            mask, known = segmentation.mask(), {**clinical, **run.outcome}
            return image_features(mask, segmentation.ct, segmentation.pet, segmentation.grid, case.dose) | known
    except Exception as problem:
        if run.is_retried(problem) or any(answer.stand_in is None for answer in heads):
            raise
        run.fault = f"the features cannot be measured ({type(problem).__name__})"
        LOGGER.exception("*** WARNING *** %s", run.fault)
        return None


def _measure_outcome(run: RunContext, segmentation: Segmentation, clinical: Features) -> None:
    """Let the package's outcome network answer, if it has one; it was trained on masks of the network."""
    if (folds := run.resident.package.outcome) is None:
        return
    from algorithm.outcome.measure import outcome_features

    with run.stages("outcome network"):
        run.outcome = outcome_features(folds, segmentation, clinical, run.deadline, run.resident.device)


def last_resort(run: RunContext, reason: str) -> Segmented:
    """A mask that is restored already, or else the grid of the case's CT alone; other answers become stand-ins.

    Raises:
        InputError: not even the grid can be read.
    """
    run.fault = reason
    if run.restored is not None:
        run.notices.warn(Finding("answers", reason, action="stand-ins are written"))
        return run.restored.segmented
    grid = run.ct_grid or ct_geometry(run.request.source, run.request.edition)
    run.notices.warn(Finding("answers", reason, action="an empty mask and stand-ins are written"))
    air = np.broadcast_to(np.int16(AIR_HU), grid.array_shape)  # takes no memory
    return Segmented(Case(Volume(air, grid), None, Patient()), None)


def write(run: RunContext, answers: CaseAnswers) -> CaseAnswers:
    """Write each answer to its output socket, all or none, or the mask to its file. Raises `OutputError`."""
    algorithm, output_dir, mask_path = run.request.algorithm, run.request.output_dir, run.request.mask_path
    if mask_path is not None and answers.mask is not None:
        with run.stages("write"):
            write_mask(mask_path, answers.mask, answers.segmented.case.ct.geometry)
    if output_dir is None:
        return answers
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
    return answers


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
    declared = [one for one in algorithm.heads if one.name in answers.by_head]
    heads = [HeadAnswer(one, run.head(one), answers.values[one.name]) for one in declared]
    if not heads:
        return {}
    case, clinical = answers.segmented.case, run.request.edition.clinical
    by_name = answers_over_folds(heads, case, clinical, segmentation, disagreement, run.deadline, run.outcome)
    if len(algorithm.answers) > 1:
        return {"answers": by_name}
    return {"answer": {"task": algorithm.name, **by_name[declared[0].name]}}


def conclude(run: RunContext, answers: CaseAnswers) -> Prediction:
    """The prediction with its run record, which is written if requested; a failure to write it goes to the log."""
    record = _record(run, answers)
    _log_risks(run, answers)
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


def _log_risks(run: RunContext, answers: CaseAnswers) -> None:
    """One line for each risk, with the direction in which it is written."""
    for declared in run.request.algorithm.heads:
        if declared.kind == "risk" and declared.name in answers.values:
            value, is_time = float(answers.values[declared.name]), declared.direction == "time"
            shown, when = (f"{value:.0f} days", "later") if is_time else (f"{value:.3g}", "earlier")
            LOGGER.info("%s: %s, higher means %s recurrence", declared.name, shown, when)


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
        stand_ins=tuple(answers.stand_ins),
        notices=tuple(run.notices.findings),
        seconds=dict(list(run.stages.seconds.items())),
        peak_memory_mib=peak_memory_mib(),
        gpu_peak_memory_mib=gpu_peak_memory_mib(),
        time_limit_s=run.deadline.time_limit_s,
        left_s=run.deadline.margin_s(),
        unfinished=run.stages.unfinished(),
        stand_in_by={name: stand_in.by for name, stand_in in answers.stand_ins.items()},
        stand_in_why={name: stand_in.why for name, stand_in in answers.stand_ins.items()},
    )


def _segmented_by(segmented: Segmented) -> SegmentedBy | None:
    if segmented.by_network:
        return "network"
    return None if segmented.segmentation is None or segmented.without_neck else "PET threshold"
