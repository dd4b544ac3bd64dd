"""Watch the thread that computes the answers of a case, and end it when the time is up."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from algorithm.deadline import MAX_SILENCE_S, Deadline, StoppedError, Termination
from algorithm.output import AnswerFiles
from algorithm.prediction import CaseAnswers
from contract.errors import HecktorError, InputError, OutputError, TimeLimitError

LOGGER = logging.getLogger("hecktor")
POLL_S: Final = 0.05
# Time to wait for better answers after SIGTERM; the platform kills 5 s after it.
PATIENCE_S: Final = 3.0


@dataclass(frozen=True)
class WatchedAnswers:
    """The answers on disk, and the reason why they are not the planned answers; empty if they are."""

    answers: CaseAnswers
    reason: str


def watch(
    compute: Callable[[], None], output: AnswerFiles, deadline: Deadline, termination: Termination
) -> WatchedAnswers:
    """Run `compute`, which writes answers that become better and better, in a thread, and end it when the time is up.

    When `termination` is requested or the deadline is overdue, the thread is asked to stop after its present tile. If
    it does not end within a few seconds, because native code hangs or is slow, the answers on disk are final.

    Raises:
        HecktorError: The package cannot be used; or the case or the output cannot be used, or the end came, before
            there was an answer.
        Exception: A bug came before there was an answer.
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
    except BaseException:  # Ctrl-C in a notebook, whose process lives on
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
    LOGGER.error("a bug or too little memory; the case is not at fault", exc_info=problem)
    return WatchedAnswers(answers, type(problem).__name__)


def _wait(work: Callable[[], None], output: AnswerFiles, deadline: Deadline, termination: Termination) -> str:
    """Run `work` in a thread until it ends, or until a few seconds after it should; return why it had to end early."""
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
    """Return why the computation has to end now; empty if it may go on."""
    if termination.requested:
        return "asked to end"
    if output.answers is None or not deadline.is_overdue():
        return ""
    if deadline.time_limit_s is None:
        return f"no sign of life for {MAX_SILENCE_S / 60:.0f} min"
    return "time is nearly up"
