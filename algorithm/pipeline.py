"""The way of one case: better and better segmentations, and the answers by each of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from algorithm.answers import answer, restore
from algorithm.case.read import air_case
from algorithm.conclude import conclude, log_early_end, reset_peaks
from algorithm.deadline import StoppedError, Termination
from algorithm.masks.segmentation import Heads, Segmentation, Segmented, SegmentedBy, by_contours
from algorithm.masks.threshold import stand_in_of, threshold_segmentation
from algorithm.network.resident import Resident
from algorithm.output import watch
from algorithm.prediction import Prediction, PredictRequest
from algorithm.steps import RunContext, by_networks, find_region, measure, read
from contract import platform
from contract.errors import Finding, HecktorError

LOGGER = logging.getLogger("hecktor")


def predict(request: PredictRequest, resident: Resident, termination: Termination | None = None) -> Prediction:
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
        answer_each(run, before_reading(run))
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


def answer_each(run: RunContext, better: Iterable[Segmented]) -> None:
    """Measure, answer and write each case of `better` in turn; a fault costs one that a better one follows alone.

    Raises:
        HecktorError: package or output is unusable.
        StoppedError: the answers on disk are final.
        Exception: a fault in the last one.
    """
    failed: Exception | None = None
    for segmented in better:
        try:
            mask = restore(run, segmented)
            features = measure(run, segmented)
            run.output.write(answer(run, segmented, mask, features))
            failed = None
        except (HecktorError, StoppedError):
            raise
        except Exception as problem:  # noqa: BLE001  better answers may follow
            run.trace(f"no answer by {segmented.by} ({type(problem).__name__})", problem)
            failed = problem
    if failed is not None:
        raise failed


def before_reading(run: RunContext) -> Iterator[Segmented]:
    """The empty mask on the grid of the CT's header, where the edition declares a value for every other answer."""
    if run.request.always_answers:
        case = air_case(run.request.source, run.request.edition)
        yield Segmented(case, SegmentedBy.HEADER, heads=Heads.DECLARED)


def segmentations(run: RunContext) -> Iterator[Segmented]:
    """The case with better and better segmentations: the PET threshold, the first pass, all passes that fit the time.

    In place of the PET threshold an edition of MR has the mask of the earlier visit. There is a single one for given
    contours, for a scan without a body, and for methods without a network.
    """
    case, segmenter = read(run), run.request.method.segmenter
    if segmenter is None:
        yield Segmented(case, SegmentedBy.NOTHING)
        return
    case, region = find_region(run, case)
    if region.is_empty:
        yield Segmented(case, SegmentedBy.NOTHING, threshold_segmentation(case, region), region)
    elif case.contours is not None and segmenter == "network":
        with run.stages("contours"):
            segmentation = by_contours(case, case.contours, region, run.resident.package.spacing_mm)
        yield Segmented(case, SegmentedBy.CONTOURS, segmentation, region)
    else:
        threshold: Segmentation | None = None
        try:
            with run.stages("threshold"):
                threshold = threshold_segmentation(case, region)
        except Exception as problem:
            if segmenter == "threshold":
                raise
            run.trace(f"no {stand_in_of(case)} ({type(problem).__name__})", problem)
        else:
            yield Segmented(case, stand_in_of(case), threshold, region)
        if segmenter == "network":
            for segmentation in by_networks(run, case, region, threshold):
                yield Segmented(case, SegmentedBy.NETWORK, segmentation, region)


def with_heads(run: RunContext, better: Iterable[Segmented]) -> Iterator[Segmented]:
    """Each of `better`, the first one with declared values before, and the last one with an entrant's code after it."""
    segmented: Segmented | None = None
    for number, segmented in enumerate(better):
        if number == 0 and run.request.always_answers:  # should the features or a head never end
            yield replace(segmented, heads=Heads.DECLARED)
        yield segmented
    if segmented is not None and run.asks_code:
        yield replace(segmented, heads=Heads.ALL)
