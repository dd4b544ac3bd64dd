"""The way of one case: read, localise, segment, measure, answer, write."""

from __future__ import annotations

from functools import partial

from algorithm.deadline import Termination
from algorithm.masks.segmentation import Segmented
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.resident import Resident
from algorithm.prediction import Prediction, PredictRequest
from algorithm.steps import CaseAnswers, RunContext, answer, conclude, localise, measure, read, segment, trust, write


def find_lesions(run: RunContext) -> Segmented:
    """First half of the way. Each better segmentation is offered to the deadline as soon as it is there."""
    case = read(run)
    if run.request.method.segmenter is None:
        return Segmented(case, None)
    case, region = localise(run, case)
    if region.no_neck:
        return Segmented(case, threshold_segmentation(case, region), region)  # an empty mask
    run.deadline.offer(lambda: Segmented(case, threshold_segmentation(case, region), region))
    return Segmented(case, segment(run, case, region), region)


def answer_and_write(run: RunContext, segmented: Segmented) -> CaseAnswers:
    """Second half of the way, from the final segmentation or the best one when the time is up."""
    features = measure(run, segmented)
    answers = answer(run, segmented, features)
    write(run, answers)
    return answers


def predict(request: PredictRequest, resident: Resident, termination: Termination | None = None) -> Prediction:
    """Answer one case before its time is up; the uncertainty and the run record, if requested, follow the answer.

    A thread of its own computes; this thread watches the clock and `termination` (`Deadline.answer`).

    Raises:
        HecktorError: input, model or output is unusable, or the end came before there was an answer; nothing is
            written then.
        Exception: a bug, before there was an answer; nothing is written then either.
    """
    run = RunContext(request, resident, termination)
    answers = run.deadline.answer(partial(find_lesions, run), partial(answer_and_write, run))
    trust(run, answers)
    return conclude(run, answers)
