"""Answer one case in attempts, from coarse to final; the answers of each attempt replace earlier answers.

One thread makes the attempts. Another thread watches the time and ends the case when the time is up.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from algorithm.answers import compute_answers, declare_answers
from algorithm.case.read import CT_ONLY, Case, compute_covered_height, read_case, read_header_case
from algorithm.deadline import MAX_SILENCE_S, Deadline, StoppedError, Termination
from algorithm.heads.head_hook import NotAskedError
from algorithm.masks.segmentation import CaseSegmentation, MaskSource
from algorithm.network.loaded_package import LoadedPackage, import_network_libraries
from algorithm.output import AnswerFiles, CaseAnswers, RunContext
from algorithm.prediction import Prediction, finish_prediction, log_early_end, reset_peaks
from algorithm.region.localise import Region, cover_scan, localise
from algorithm.request import PredictRequest
from algorithm.segmenter import Segmenter
from contract import platform
from contract.errors import Finding, HecktorError, InputError, OutputError, TimeLimitError

LOGGER = logging.getLogger("hecktor")

# A PET that covers less of the region's height than the first fraction gives a notice. A PET that covers less than the
# second fraction is left out.
MIN_COVERED_FRACTION: Final = 0.9
MIN_USABLE_FRACTION: Final = 0.2
HEAD_OR_NECK: Final = "a head or neck in view, the head up (+z)"
REGION_IS_UNSURE: Final = "the region is unsure"
MASK_STAYS_EMPTY: Final = "the mask stays empty, and image features use their training medians"
POLL_S: Final = 0.05
# Time to wait for better answers after SIGTERM; the platform kills the process 5 s after SIGTERM.
PATIENCE_S: Final = 3.0


@dataclass(frozen=True)
class Attempt:
    """One step of a case.

    Attributes:
        name: Name of the step in the log.
        segment: Returns a segmentation, or None if there is none better than the previous one.
        answer: Computes the answers from the segmentation.
    """

    name: str
    segment: Callable[[], CaseSegmentation | None]
    answer: Callable[[RunContext, CaseSegmentation], CaseAnswers]


def predict(request: PredictRequest, loaded: LoadedPackage, termination: Termination | None = None) -> Prediction:
    """Answer one case before its time is up, and write the run record and the probabilities if they are requested.

    If the edition declares a value for every answer, these values are written first. Then a second thread computes
    better answers attempt by attempt, while this thread watches the clock and `termination`.

    Raises:
        HecktorError: The package, the case or the output cannot be used, or the case ended before it had an answer. No
            file remains.
        Exception: A bug, before the case had an answer. No file remains.
    """
    reset_peaks()
    run = RunContext(request, loaded)
    if request.uses_package:
        check_package(run)
    try:
        if request.algorithm.always_answers:
            write_answers(run, [Attempt("header of the CT", partial(make_empty_case, run), declare_answers)])
        watched = watch(partial(answer_case, run), run.output, run.deadline, termination or Termination())
    except BaseException:
        run.output.remove()
        raise
    if watched.reason:
        log_early_end(run, watched.answers, watched.reason)
    return finish_prediction(run, watched.answers)


def answer_case(run: RunContext) -> None:
    """Read the case, find its region, and answer it attempt by attempt. Raise the errors of `write_answers`."""
    if run.request.method.segmenter == "network":
        import_network_libraries()
    case, region = read(run), None
    if run.request.method.segmenter is not None:
        case, region = find_region(run, case)
    write_answers(run, list_attempts(run, Segmenter(run, case, region)))


def list_attempts(run: RunContext, segmenter: Segmenter) -> list[Attempt]:
    """List the attempts at a case, from coarse to final.

    If the edition declares a value for every answer, the first mask is written with these values before any feature is
    measured, because features or heads may hang. User code for features and heads runs only in the last attempt, when
    the answers without it have been written.
    """
    first, *later = segmenter.list_steps()
    attempts = [Attempt(name, segment, compute_answers) for name, segment in later]
    if run.request.algorithm.always_answers:
        attempts = [
            Attempt(*first, declare_answers),
            Attempt(first[0], segmenter.get_latest, compute_answers),
            *attempts,
        ]
    else:
        attempts = [Attempt(*first, compute_answers), *attempts]
    if run.has_user_code:
        attempts.append(Attempt("user code", partial(find_case_for_user_code, run, segmenter), answer_with_user_code))
    return attempts


def find_case_for_user_code(run: RunContext, segmenter: Segmenter) -> CaseSegmentation | None:
    """Return the latest segmentation, or None if the package's code has only networks."""
    return segmenter.get_latest() if run.asks_user_code() else None


def answer_with_user_code(run: RunContext, segmentation: CaseSegmentation) -> CaseAnswers:
    """Compute all answers with custom features and heads; `run.awaits_user_code` is True in the meantime."""
    run.awaits_user_code = True
    answers = compute_answers(run, segmentation, with_user_code=True)
    run.awaits_user_code = False
    return answers


def write_answers(run: RunContext, attempts: Sequence[Attempt]) -> None:
    """Run each attempt and write its answers, which replace the answers of the attempt before.

    An attempt that fails is logged. An attempt whose answers need user code is skipped, because user code runs in the
    last attempt. The exception of a failed or skipped attempt is raised only if no later attempt succeeds.

    Raises:
        HecktorError: The package or the output cannot be used.
        StoppedError: The time is up; the answers written so far are final.
    """
    error: Exception | None = None
    for attempt in attempts:
        try:
            segmentation = attempt.segment()
            if segmentation is not None:
                run.output.write(attempt.answer(run, segmentation))
                error = None
        except NotAskedError as problem:
            error = problem
        except (HecktorError, StoppedError):
            raise
        except Exception as problem:  # noqa: BLE001  a later attempt may succeed
            run.log_once(f"no answer from the {attempt.name} ({type(problem).__name__})", problem)
            error = problem
    if error is not None:
        raise error


def check_package(run: RunContext) -> None:
    """Check the package's edition and code, and log which package answers. Raises `HecktorError`."""
    for finding in run.loaded.check(run.request.edition, run.request.algorithm):
        run.notices.note(finding)
    LOGGER.info("model package: %s", run.loaded.describe())
    if run.request.is_shipped:
        actual = f"none given and none in {platform.MODEL_DIR}"
        action = f"the shipped package {run.loaded.identity.name} answers, which is for rehearsals only"
        run.notices.note(Finding("model package", actual, "the package of a submission", action))


def make_empty_case(run: RunContext) -> CaseSegmentation:
    """Read only the header of the CT and return a case without a segmentation."""
    return CaseSegmentation(read_header_case(run.request.source, run.request.edition), MaskSource.HEADER)


def read(run: RunContext) -> Case:
    """Read the case; raise `InputError` if it cannot be used.

    If the edition declares a value for every answer, a PET and clinical variables that cannot be used are left out.
    """
    request = run.request
    with run.stages("read"):
        case = read_case(
            request.source,
            request.edition,
            request.algorithm,
            run.notices,
            tolerant=request.algorithm.always_answers,
            contours=request.contours_path,
        )
    for name, scan in case.scans.items():
        LOGGER.info("%s: %s", name, "no usable image" if scan is None else scan.geometry.describe())
    return case


def find_region(run: RunContext, case: Case) -> tuple[Case, Region]:
    """Find the region of head and neck; return it with the case, without a PET that covers too little of its height."""
    with run.stages("localise"):
        region = cover_scan(case.scan) if run.request.whole_scan else localise(case)
        LOGGER.info("region: %s", region.summary())
        scan = next(iter(case.scans))
        if region.is_empty:
            run.notices.note(Finding(scan, "neither a body nor uptake", HEAD_OR_NECK, MASK_STAYS_EMPTY))
        elif region.has_no_landmark:
            run.notices.note(Finding(scan, "neither a brain nor lungs", HEAD_OR_NECK, REGION_IS_UNSURE))
        if case.pet is None or region.is_empty:
            return case, region
        covered = compute_covered_height(case.pet.geometry, region.lower_mm, region.upper_mm)
        if covered >= MIN_COVERED_FRACTION:
            return case, region
        is_usable = covered >= MIN_USABLE_FRACTION
        actual = f"covers {covered:.0%} of the height of the head and neck that the CT shows"
        run.notices.note(Finding("PET", actual, action="no uptake beyond" if is_usable else CT_ONLY))
        return case if is_usable else replace(case, pet=None), region


@dataclass(frozen=True)
class WatchedAnswers:
    """The final answers, and the reason for an early end, which is empty if the case ended as planned."""

    answers: CaseAnswers
    reason: str


def watch(
    compute: Callable[[], None], output: AnswerFiles, deadline: Deadline, termination: Termination
) -> WatchedAnswers:
    """Run `compute`, which writes answers from coarse to final, in a thread, and end it when the time is up.

    When `termination` is requested or the deadline is overdue, the thread is asked to stop after its current tile. If
    it does not end within a few seconds, because native code hangs or is slow, the answers written so far are final.

    Raises:
        HecktorError: The package cannot be used. Or, before there was an answer, the case or the output could not be
            used, or the time was up.
        Exception: A bug, before there was an answer.
    """
    problems: list[BaseException] = []

    def work() -> None:
        try:
            compute()
        except BaseException as error:  # noqa: BLE001  the watching thread handles it
            problems.append(error)

    reason = ""
    try:
        reason = _wait(work, output, deadline, termination)
    except RuntimeError as error:  # too little memory for a thread
        problems.append(error)
    except BaseException:  # Ctrl-C in a notebook, whose process continues
        deadline.stop()
        raise
    finally:
        answers = output.close()
    problem = next(iter(problems), None)
    if problem is None or isinstance(problem, StoppedError):
        if answers is None:
            raise TimeLimitError(f"{reason}: no answer yet after {deadline.elapsed_s():.1f} s, nothing is written")
        return WatchedAnswers(answers, reason)
    if answers is None or (isinstance(problem, HecktorError) and not isinstance(problem, InputError | OutputError)):
        raise problem
    if isinstance(problem, HecktorError):
        return WatchedAnswers(answers, problem.message)
    LOGGER.error("a bug or too little memory, not an error in the case", exc_info=problem)
    return WatchedAnswers(answers, type(problem).__name__)


def _wait(work: Callable[[], None], output: AnswerFiles, deadline: Deadline, termination: Termination) -> str:
    """Run `work` in a thread until it ends, or until some seconds after it was asked to end.

    Returns:
        The reason for an early end; empty if `work` ended by itself.
    """
    reason = _find_reason_to_end(output, deadline, termination)
    if reason:
        return reason
    thread = threading.Thread(target=work, name="case", daemon=True)
    thread.start()
    give_up_s = math.inf
    while thread.is_alive() and deadline.clock() < give_up_s:
        thread.join(POLL_S)
        if not reason:
            reason = _find_reason_to_end(output, deadline, termination)
            if reason:
                deadline.stop()
                has_limit = deadline.time_limit_s is not None and not termination.requested
                patience_s = max(0.0, 0.5 * deadline.margin_s()) if has_limit else PATIENCE_S
                give_up_s = deadline.clock() + patience_s
    return reason


def _find_reason_to_end(output: AnswerFiles, deadline: Deadline, termination: Termination) -> str:
    """Return why the computation has to end now; empty if it may continue."""
    if termination.requested:
        return "asked to end"
    if output.answers is None or not deadline.is_overdue():
        return ""
    if deadline.time_limit_s is None:
        return f"no sign of life for {MAX_SILENCE_S / 60:.0f} min"
    return "time is nearly up"
