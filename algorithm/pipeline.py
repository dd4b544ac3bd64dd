"""The steps of one case: read, localise, segment, restore, measure, answer, write."""

from __future__ import annotations

from functools import partial

from algorithm.answers import answer, restore
from algorithm.context import CaseAnswers, RunContext
from algorithm.deadline import Termination
from algorithm.masks.segmentation import Segmented
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.resident import Resident
from algorithm.prediction import Prediction, PredictRequest
from algorithm.steps import conclude, last_resort, localise, measure, read, segment, trust, write


def find_lesions(run: RunContext) -> Segmented:
    """Read the case and segment it. The deadline is offered each better segmentation at once."""
    case = read(run)
    if run.request.method.segmenter is None:
        return Segmented(case, None)
    case, region = localise(run, case)
    if region.no_neck:
        return Segmented(case, threshold_segmentation(case, region), region)  # an empty mask
    run.deadline.offer(lambda: Segmented(case, threshold_segmentation(case, region), region))
    return Segmented(case, segment(run, case, region), region)


def restore_and_answer(run: RunContext, segmented: Segmented) -> CaseAnswers:
    """All answers of a case, from the final segmentation or the best one when the time is up."""
    mask = restore(run, segmented)
    return answer(run, mask, measure(run, segmented))


def predict(request: PredictRequest, resident: Resident, termination: Termination | None = None) -> Prediction:
    """Answer one case before its time is up; the uncertainty and the run record, if requested, follow the answer.

    A thread of its own computes; this thread watches the clock and `termination` (`Deadline.answer`). If every answer
    has a stand-in, a case whose CT has a readable header is always answered.

    Raises:
        HecktorError: model or output is unusable; or input is, or the end came before there was an answer. Nothing is
            written then.
        Exception: a bug, before there was an answer; nothing is written then either.
    """
    if request.uses_package:
        resident.check_edition(request.edition.name)
    run = RunContext(request, resident, termination)
    answers = run.deadline.answer(
        partial(find_lesions, run),
        partial(write, run),
        prepare=partial(restore_and_answer, run),
        last_resort=partial(last_resort, run) if request.always_answers else None,
    )
    trust(run, answers)
    return conclude(run, answers)
