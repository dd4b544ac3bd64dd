"""The steps of one case, in the order of `algorithm.pipeline`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from algorithm.case.read import AIR_HU, CT_ALONE, Case, covered_height, ct_geometry, read_case
from algorithm.context import RunContext
from algorithm.heads.cube import absent_cube
from algorithm.heads.documents import Features
from algorithm.heads.feature_hook import FeatureHook, FeatureImages
from algorithm.heads.measure import clinical_features, image_features
from algorithm.heads.own import Cubes
from algorithm.masks.segmentation import Segmentation, Segmented
from algorithm.prediction import CaseAnswers
from algorithm.region.localise import Region
from algorithm.region.localise import localise as head_and_neck
from algorithm.uncertainty.disagreement import Disagreement
from algorithm.uncertainty.record import WrittenAnswer, answers_over_folds, describe, write_maps, write_record
from contract.errors import Finding, ModelPackageError
from contract.images.volumes import Volume
from contract.patient import Patient

LOGGER = logging.getLogger("hecktor")

# Shares of the region's height: a PET that covers less is named, or left out.
COVERED_BY_PET: Final = 0.9
LEAST_COVERED_BY_PET: Final = 0.2
WITHOUT_NECK: Final = "a wider region is searched"
WITH_NECK: Final = "the empty mask is kept, since a neck has physiologic uptake: look at the PET"
WITHOUT_BODY: Final = "the mask stays empty, and image features take their training medians"


def read(run: RunContext) -> Case:
    """Read the case; without a PET or clinical variables if it must be answered anyway. Raises `InputError`."""
    with run.stages("read"):
        request = run.request
        case = read_case(
            request.source,
            request.edition,
            request.algorithm,
            run.notices,
            tolerant=request.always_answers,
            contours=request.contours_path,
        )
    for name, scan in scans_of(case).items():
        LOGGER.info("%s: %s", name, "none that can be used" if scan is None else scan.geometry.describe())
    return case


def scans_of(case: Case) -> dict[str, Volume | None]:
    """CT and PET by their names; None without a PET that can be used."""
    return {"CT": case.ct, "PET": case.pet}


def localise(run: RunContext, case: Case) -> tuple[Case, Region]:
    """The case with the region of head and neck; a PET that covers little of its height is left out."""
    with run.stages("localise"):
        region = head_and_neck(case)
        LOGGER.info("region: %s", region.summary())
        if region.no_neck:
            action = WITHOUT_BODY if region.is_empty else WITHOUT_NECK
            run.notices.warn(Finding("CT", region.no_neck, "a head or neck in view, the head up (+z)", action))
        if case.pet is None or region.no_neck:
            return case, region
        covered = covered_height(case.pet.geometry, region.lower_mm, region.upper_mm)
        if covered < COVERED_BY_PET:
            found = f"covers {covered:.0%} of the height of the head and neck that the CT shows"
            enough = covered >= LEAST_COVERED_BY_PET
            run.notices.warn(Finding("PET", found, action="no uptake beyond" if enough else CT_ALONE))
            case = case if enough else replace(case, pet=None)
        return case, region


def segment(
    run: RunContext,
    case: Case,
    region: Region,
    by_threshold: Callable[[], Segmentation],
    on_first_pass: Callable[[Segmentation], None],
) -> Segmentation:
    """Segment the region by the package's networks; `by_threshold` answers if no pass of them fits the time.

    Raises:
        ModelPackageError: the package cannot be used.
        StoppedError: the watchdog stopped the passes before the first one was complete.
    """
    run.deadline.check()
    with run.resident.in_use:
        with run.stages("load"):
            from algorithm.network.segment import segment as by_network  # imports torch, which only a network needs

            resident = run.resident
            resident.load()
            for hook in resident.package.features if run.request.algorithm.heads else ():
                hook.prepare()
            ensemble = resident.ensemble(run.request.most_passes)
        with run.stages("segment"):
            observer = {} if run.disagreement is None else {"on_pass": run.disagreement.add}
            return by_network(
                case, region, ensemble, run.deadline, on_first_pass, **observer, by_threshold=by_threshold
            )


def note_empty_mask(run: RunContext, by_threshold: Segmentation) -> None:
    """Note that the network finds nothing in a neck, with the uptake that the PET threshold finds there."""
    hot = by_threshold.mask() > 0
    volume_ml = np.count_nonzero(hot) * by_threshold.grid.voxel_volume_mm3 / 1000
    suv_max = 0.0 if by_threshold.pet is None else float(by_threshold.pet[hot].max())
    found = f"empty, though the PET shows {volume_ml:.1f} ml of uptake up to SUV {suv_max:.1f}"
    run.notices.note(Finding("mask", found, "a lesion", WITH_NECK))


@dataclass(frozen=True)
class Measured:
    """Features of a case for the heads; None if a fault, `fault`, left nothing to measure. `cubes` are its images.

    An early answer goes without entrants' code, which may never end.
    """

    features: Features | None = None
    fault: str = ""
    is_early: bool = False
    cubes: Cubes | None = None


def measure(run: RunContext, segmented: Segmented, *, is_early: bool = False) -> Measured:
    """Features of lesions and patient for the heads; a bug leaves none if all heads have a fallback.

    Features of hooks are measured only for the best answers, because they take time.
    """
    heads, case, segmentation = run.request.algorithm.heads, segmented.case, segmented.segmentation
    if not heads:
        return Measured()
    clinical = clinical_features(case.patient, run.request.edition.clinical)
    if segmentation is None or segmented.without_body:
        return Measured(clinical, is_early=is_early, cubes=absent_cube)
    try:
        images = segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid, case.dose
        seen = FeatureImages(*images, clinical)
        by_threshold = not segmented.by_network and not segmented.by_contours
        for hook in [] if is_early else run.feature_hooks(by_threshold=by_threshold):
            with run.stages(hook.title):
                run.hooked = {**run.hooked, **_hooked(run, hook, seen)}
        with run.stages("measure"):
            measured = image_features(*images, run.smallest_lesions)
            return Measured({**measured, **clinical, **run.hooked}, is_early=is_early, cubes=seen.cubes)
    except Exception as problem:
        if run.is_retried(problem) or any(answer.fallback is None for answer in heads):
            raise
        fault = f"the features cannot be measured ({type(problem).__name__})"
        run.trace(fault, problem)
        return Measured(fault=fault)


def _hooked(run: RunContext, hook: FeatureHook, images: FeatureImages) -> Features:
    """The features of a hook, measured on the CPU if the GPU fails; if that fails too, empty with a notice."""
    try:
        device = str(run.resident.device) if hook.folds else "cpu"
        try:
            return hook.measured(images, run.deadline, device)
        except (RuntimeError, MemoryError) as problem:
            if device == "cpu":
                raise
            LOGGER.warning("*** WARNING *** %s: %s failed (%s), going on with the CPU", hook.title, device, problem)
        return hook.measured(images, run.deadline)
    except (RuntimeError, MemoryError, ModelPackageError) as problem:
        if run.is_retried(problem):
            raise
        found = "too little memory" if isinstance(problem, MemoryError) else str(problem)
        run.notices.note(Finding(hook.title, found, action="the heads take their training medians"))
        return {}


def grid_alone(run: RunContext) -> Segmented:
    """The grid of the case's CT, without its pixels: air that takes no memory. Raises `InputError`."""
    grid = ct_geometry(run.request.source, run.request.edition)
    air = np.broadcast_to(np.int16(AIR_HU), grid.array_shape)
    return Segmented(Case(Volume(air, grid), None, Patient()), None)


def write_uncertainty(run: RunContext, answers: CaseAnswers) -> None:
    """Write the uncertainty, if requested, as far as the time allows. A failure goes to the log: the answer stands."""
    folder, disagreement, segmentation = run.request.uncertainty_dir, run.disagreement, answers.segmented.segmentation
    if folder is None or disagreement is None or segmentation is None:
        return
    disagreement.close()
    try:
        with run.stages("uncertainty"):
            record = describe(segmentation, disagreement)
            if answers.segmented.without_body:
                record["segmented_by"] = None
            elif answers.segmented.by_contours:
                record["segmented_by"] = "contours"
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
    heads = [WrittenAnswer(one, run.head(one), answers.values[one.name]) for one in declared]
    if not heads:
        return {}
    case, clinical = answers.segmented.case, run.request.edition.clinical
    by_name = answers_over_folds(
        heads, case, clinical, segmentation, disagreement, run.deadline, run.hooked, run.smallest_lesions
    )
    if len(algorithm.answers) > 1:
        return {"answers": by_name}
    return {"answer": {"task": algorithm.name, **by_name[declared[0].name]}}
