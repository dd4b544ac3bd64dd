"""An answer in time, whatever happens: one thread computes, the other watches the clock and the signals."""

from __future__ import annotations

import threading
from typing import Final

from algorithm.network.resident import Resident
from algorithm.pipeline import CaseRun, Request
from algorithm.stages import Stages

POLL_S: Final = 0.05


class Termination:
    """Whether an early end is asked for; may be asked from any thread and from a signal handler."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Ask for an early end."""
        self.requested = True


def answer(request: Request, resident: Resident, termination: Termination) -> Stages:
    """Answer one case before its time is up.

    The case is computed in a thread of its own. When `termination` is requested, or when half of the reserve is gone,
    the best answer so far is written from this thread while the other stops at its next tile; it may still be
    computing when this function returns. When something breaks that is no fault of the case, a bug or a lack of memory,
    the best answer so far is written too. The uncertainty, where it is asked for, is written after the answer.

    Returns:
        The seconds of each stage.

    Raises:
        HecktorError: input, model or output is unusable, or the end came before there was an answer; nothing is
            written then.
        Exception: a bug, before there was an answer; nothing is written then either.
    """
    case_run = CaseRun(request, resident)
    _answer(case_run, termination)
    case_run.write_uncertainty()
    return case_run.stages


def _answer(case_run: CaseRun, termination: Termination) -> None:
    if termination.requested:
        case_run.finish_early("asked to end")
    failure: list[BaseException] = []

    def compute() -> None:
        try:
            case_run.run()
        except BaseException as problem:  # noqa: BLE001  it is raised again in the thread that waits
            failure.append(problem)

    worker = threading.Thread(target=compute, name="case", daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(POLL_S)
        if not worker.is_alive():
            break
        if termination.requested:
            case_run.finish_early("asked to end")
            return
        if case_run.budget.overdue() and case_run.best.in_hand:
            case_run.finish_early("time is nearly up")
            return
    if failure:
        case_run.recover(failure[0])
