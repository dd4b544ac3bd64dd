"""Run one case: better and better segmentations, and the answers that follow from each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from algorithm.answers import answer
from algorithm.case.read import CT_ALONE, Case, air_case, compute_covered_height, read_case
from algorithm.conclude import conclude, log_early_end, reset_peaks
from algorithm.deadline import StoppedError, Termination
from algorithm.masks.segmentation import (
    CaseSegmentation,
    HeadMode,
    MaskSource,
    Segmentation,
    fallback_of,
    segment_by_contours,
    threshold_segmentation,
)
from algorithm.network.resident import LoadedPackage
from algorithm.output import RunContext, watch
from algorithm.prediction import Prediction, PredictRequest
from algorithm.region.localise import Region, localise
from contract import platform
from contract.errors import Finding, HecktorError

LOGGER = logging.getLogger("hecktor")

# Shares of the region's height: a PET that covers less is named, or left out.
COVERED_BY_PET: Final = 0.9
LEAST_COVERED_BY_PET: Final = 0.2
HEAD_OR_NECK: Final = "a head or neck in view, the head up (+z)"
WITHOUT_LANDMARK: Final = "the region is unsure"
WITH_NECK: Final = "the empty mask is kept, because necks have physiologic uptake: check the PET"
WITHOUT_BODY: Final = "the mask stays empty, and image features use their training medians"


def predict(request: PredictRequest, resident: LoadedPackage, termination: Termination | None = None) -> Prediction:
    """Answer one case before its time is up; the probabilities and the run record, if requested, follow the answer.

    Valid answers are written as soon as there are any, and better ones replace them (`segmentations`). One thread does
    all of this but the first ones, and this thread watches the clock and `termination`.

    Raises:
        HecktorError: model or output is unusable; or input is, or the end came before there was an answer. No file is
            left then.
        Exception: a bug, before there was an answer; no file is left then either.
    """
    reset_peaks()
    run = RunContext(request, resident)
    if request.uses_package:
        name_package(run)
    try:
        answer_each(run, write_fallback_answers(run))
        work = partial(answer_each, run, with_heads(run, segmentations(run)))
        answers, reason = watch(work, run.output, run.deadline, termination or Termination())
    except BaseException:
        run.output.remove()
        raise
    return conclude(run, log_early_end(run, answers, reason))


def name_package(run: RunContext) -> None:
    """Check the package's edition and code, and log which one answers. Raises `HecktorError`."""
    for finding in run.resident.check(run.request.edition, run.request.algorithm):
        run.notices.note(finding)
    LOGGER.info("model package: %s", run.resident.describe())
    if run.request.is_shipped:
        found = f"none given and none in {platform.MODEL_DIR}"
        action = f"the shipped package {run.resident.identity.name} answers, which is for rehearsals only"
        run.notices.note(Finding("model package", found, "the package of a submission", action))


def answer_each(run: RunContext, better: Iterable[CaseSegmentation]) -> None:
    """Measure, answer and write each case of `better` in turn; a fault costs one that a better one follows alone.

    Raises:
        HecktorError: package or output is unusable.
        StoppedError: the answers on disk are final.
        Exception: a fault in the last one.
    """
    failed: Exception | None = None
    for segmented in better:
        try:
            run.output.write(answer(run, segmented))
            failed = None
        except (HecktorError, StoppedError):
            raise
        except Exception as problem:  # noqa: BLE001  better answers may follow
            run.trace(f"no answer by {segmented.by} ({type(problem).__name__})", problem)
            failed = problem
    if failed is not None:
        raise failed


def write_fallback_answers(run: RunContext) -> Iterator[CaseSegmentation]:
    """The empty mask on the grid of the CT's header, where the edition declares a value for every other answer."""
    if run.request.algorithm.always_answers:
        case = air_case(run.request.source, run.request.edition)
        yield CaseSegmentation(case, MaskSource.HEADER, heads=HeadMode.DECLARED)


def segmentations(run: RunContext) -> Iterator[CaseSegmentation]:
    """The case with better and better segmentations: the PET threshold, the first pass, all passes that fit the time.

    In place of the PET threshold an edition of MR has the mask of the earlier visit. There is a single one for given
    contours, for a scan without a body, and for methods without a network.
    """
    case, segmenter = read(run), run.request.method.segmenter
    if segmenter is None:
        yield CaseSegmentation(case, MaskSource.NOTHING)
        return
    case, region = find_region(run, case)
    if region.is_empty:
        yield CaseSegmentation(case, MaskSource.NOTHING, threshold_segmentation(case, region), region)
    elif case.contours is not None and segmenter == "network":
        with run.stages("contours"):
            segmentation = segment_by_contours(case, case.contours, region, run.resident.package.spacing_mm)
        yield CaseSegmentation(case, MaskSource.CONTOURS, segmentation, region)
    else:
        threshold: Segmentation | None = None
        try:
            with run.stages("threshold"):
                threshold = threshold_segmentation(case, region)
        except Exception as problem:
            if segmenter == "threshold":
                raise
            run.trace(f"no {fallback_of(case)} ({type(problem).__name__})", problem)
        else:
            yield CaseSegmentation(case, fallback_of(case), threshold, region)
        if segmenter == "network":
            for segmentation in segment_by_networks(run, case, region, threshold):
                yield CaseSegmentation(case, MaskSource.NETWORK, segmentation, region)


def read(run: RunContext) -> Case:
    """Read the case; without a PET or clinical variables if it must be answered anyway. Raises `InputError`."""
    with run.stages("read"):
        request = run.request
        case = read_case(
            request.source,
            request.edition,
            request.algorithm,
            run.notices,
            tolerant=request.algorithm.always_answers,
            contours=request.contours_path,
        )
    for name, scan in case.scans.items():
        LOGGER.info("%s: %s", name, "none that can be used" if scan is None else scan.geometry.describe())
    return case


def find_region(run: RunContext, case: Case) -> tuple[Case, Region]:
    """The case with the region of head and neck; a PET that covers little of its height is left out."""
    with run.stages("localise"):
        region = localise(case)
        LOGGER.info("region: %s", region.summary())
        name = next(iter(case.scans))
        if region.is_empty:
            run.notices.note(Finding(name, "neither a body nor uptake", HEAD_OR_NECK, WITHOUT_BODY))
        elif region.has_no_landmark:
            run.notices.note(Finding(name, "neither a brain nor lungs", HEAD_OR_NECK, WITHOUT_LANDMARK))
        if case.pet is None or region.is_empty:
            return case, region
        covered = compute_covered_height(case.pet.geometry, region.lower_mm, region.upper_mm)
        if covered < COVERED_BY_PET:
            found = f"covers {covered:.0%} of the height of the head and neck that the CT shows"
            enough = covered >= LEAST_COVERED_BY_PET
            run.notices.note(Finding("PET", found, action="no uptake beyond" if enough else CT_ALONE))
            case = case if enough else replace(case, pet=None)
        return case, region


def segment_by_networks(
    run: RunContext, case: Case, region: Region, threshold: Segmentation | None
) -> Iterator[Segmentation]:
    """Segmentations of the region by the package's networks: of the first pass, and of all that fit the time.

    There is none if no pass fits, or no network sees a case without a PET: `threshold` stands, and the log says so.

    Raises:
        ModelPackageError: the package cannot be used.
        NoPassFitsError: no pass fits, and there is no `threshold`.
        StoppedError: the watchdog stopped the passes before the first one was complete.
    """
    run.deadline.check()
    resident, segmentation = run.resident, None
    with resident.in_use, ExitStack() as settings:
        with run.stages("load"):
            from algorithm.network import passes  # imports torch, which only a network needs
            from algorithm.network.devices import as_inference

            settings.enter_context(as_inference(resident.device, limited=run.request.limits_card))
            resident.load()
            for finding in resident.findings:
                run.notices.note(finding)
            networks, device = resident.networks, resident.device
        with run.stages("segment"):
            try:
                given = case, region, networks, device, run.deadline, run.notices, threshold, run.request.most_passes
                for segmentation in passes.segment(*given):
                    if segmentation.is_first_of_several:
                        yield segmentation
            except passes.NoPassFitsError as reason:
                if threshold is None:
                    raise
                fallback = fallback_of(case)
                LOGGER.warning("*** FALLBACK *** no pass of the network (%s): the %s answers", reason, fallback)
    if segmentation is None:
        return
    if case.pet is not None and threshold is not None and not segmentation.mask().any():
        _note_uptake(run, threshold)
    if not segmentation.is_first_of_several:
        yield segmentation


def _note_uptake(run: RunContext, threshold: Segmentation) -> None:
    """Note that the network finds nothing where the PET threshold finds uptake, if it does."""
    if (hot := threshold.mask() > 0).any():
        volume_ml = np.count_nonzero(hot) * threshold.grid.voxel_volume_mm3 / 1000
        suv_max = 0.0 if threshold.pet is None else float(threshold.pet[hot].max())
        found = f"empty, though the PET shows {volume_ml:.1f} ml of uptake up to SUV {suv_max:.1f}"
        run.notices.note(Finding("mask", found, "a lesion", WITH_NECK))


def with_heads(run: RunContext, better: Iterable[CaseSegmentation]) -> Iterator[CaseSegmentation]:
    """Each of `better`, the first one with declared values before, and the last one with an entrant's code after it."""
    segmented: CaseSegmentation | None = None
    for number, segmented in enumerate(better):
        if number == 0 and run.request.algorithm.always_answers:  # should the features or a head never end
            yield replace(segmented, heads=HeadMode.DECLARED)
        yield segmented
    if segmented is not None and run.asks_code:
        yield replace(segmented, heads=HeadMode.ALL)
