"""The way of one case: read, localise, segment, restore, measure, answer, write."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial

from algorithm.answers import answer, restore
from algorithm.case.read import air_case
from algorithm.conclude import conclude, explain, reset_peaks, write_uncertainty
from algorithm.deadline import Termination
from algorithm.masks.segmentation import Segmentation, Segmented, by_contours
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.resident import Resident
from algorithm.output import watch
from algorithm.prediction import CaseAnswers, Prediction, PredictRequest
from algorithm.steps import (
    Measured,
    RunContext,
    images_threads,
    localise,
    measure,
    note_empty_mask,
    read,
    segment,
)
from contract import platform
from contract.errors import Finding, HecktorError

LOGGER = logging.getLogger("hecktor")


def predict(request: PredictRequest, resident: Resident, termination: Termination | None = None) -> Prediction:
    """Answer one case before its time is up; the uncertainty and the run record, if requested, follow the answer.

    Valid answers are written as soon as there are any, and better ones replace them: fallbacks from the CT's header, if
    the edition declares one for every answer; those of the PET threshold; of the first pass; of all passes. One thread
    does all of this, and this thread watches the clock and `termination`.

    Raises:
        HecktorError: model or output is unusable; or input is, or the end came before there was an answer. No file is
            left then.
        Exception: a bug, before there was an answer; no file is left then either.
    """
    with images_threads():
        reset_peaks()
        run = RunContext(request, resident)
        if request.uses_package:
            name_package(run)
        try:
            if request.always_answers:
                prepared = Segmented(air_case(request.source, request.edition), None)
                run.output.write(answer(run, restore(run, prepared), Measured()))
            answers, reason = watch(partial(answer_case, run), run.output, run.deadline, termination or Termination())
        except BaseException:
            run.output.remove()
            raise
        answers = explain(run, answers, reason)
        write_uncertainty(run, answers)
        return conclude(run, answers)


def name_package(run: RunContext) -> None:
    """Check the package's edition and code, and log which one answers. Raises `HecktorError`."""
    for finding in run.resident.check(run.request.edition, run.request.algorithm):
        run.notices.note(finding)
    LOGGER.info("model package: %s", run.resident.describe())
    if run.request.is_shipped:
        found = f"none given and none in {platform.MODEL_DIR}"
        action = f"the shipped package {run.resident.identity.name} answers, which is for rehearsals alone"
        run.notices.note(Finding("model package", found, "the package of a submission", action))


def answer_case(run: RunContext) -> None:
    """Write better and better answers to the case, the best ones last."""
    case = read(run)
    if run.request.method.segmenter is None:
        write_best(run, Segmented(case, None))
        return
    case, region = localise(run, case)
    if case.contours is not None and run.request.method.segmenter == "network":
        with run.stages("contours"):
            segmented = by_contours(case, case.contours, region, run.resident.package.spacing_mm)
        write_best(run, segmented)
        return

    @cache
    def by_threshold() -> Segmentation:
        with run.stages("threshold"):
            return threshold_segmentation(case, region)

    if region.is_empty or run.request.method.segmenter == "threshold":
        write_best(run, Segmented(case, by_threshold(), region))
        return
    write_early(run, lambda: Segmented(case, by_threshold(), region))
    segmentation = segment(
        run, case, region, by_threshold, lambda first: write_early(run, lambda: Segmented(case, first, region))
    )
    if case.pet is not None and not segmentation.mask().any() and by_threshold().mask().any():
        note_empty_mask(run, by_threshold())
    written = run.output.answers
    if (
        written is None
        or written.is_prepared
        or written.segmented.segmentation is not segmentation
        or run.calls_own_code
    ):
        write_best(run, Segmented(case, segmentation, region))


def write_early(run: RunContext, make: Callable[[], Segmented]) -> None:
    """Write answers that better ones will replace; a fault costs them alone, unless the package or disk is unusable."""
    try:
        segmented = make()
        mask = restore(run, segmented)
        if run.output.answers is not None and run.output.answers.is_prepared:
            run.output.write(answer(run, mask, Measured()))  # should the features or a head never end
        run.output.write(answer(run, mask, measure(run, segmented, is_early=True)))
    except HecktorError:
        raise
    except Exception as problem:  # noqa: BLE001  better answers follow
        run.trace(f"no early answer ({type(problem).__name__})", problem)


def write_best(run: RunContext, segmented: Segmented) -> None:
    """Write the best answers; after a lack of memory once more, with fallbacks.

    Before entrants' code is called, the answers without it are written.
    """
    if run.calls_own_code:
        write_early(run, lambda: segmented)
    try:
        answers = answers_of(run, segmented)
    except MemoryError as problem:
        run.trace("too little memory for the answers, which are made once more", problem)
        run.out_of_memory = True
    else:
        run.output.write(answers, final=True)
        return
    run.output.write(answers_of(run, segmented), final=True)


def answers_of(run: RunContext, segmented: Segmented) -> CaseAnswers:
    """All answers of a case, from its segmentation."""
    return answer(run, restore(run, segmented), measure(run, segmented))
