"""The state of one case: its answers on disk, always whole, and the watchdog over the thread that improves them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from algorithm.case.inputs import Notices
from algorithm.deadline import Deadline, StoppedError, Termination
from algorithm.destination import answer_paths, remove_answers
from algorithm.heads.documents import Head
from algorithm.heads.values import check_head
from algorithm.network.resident import LoadedPackage
from algorithm.prediction import CaseAnswers, PredictRequest, Stages
from contract import platform
from contract.editions import AnswerSpec
from contract.errors import HecktorError, InputError, OutputError, TimeLimitError
from contract.images.metaimage import unpack_mask
from contract.images.volumes import encode_mask, write_mask
from contract.io.files import format_json, write_files
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes

LOGGER = logging.getLogger("hecktor")
POLL_S: Final = 0.05
# Seconds to wait for better answers after SIGTERM; the platform kills 5 s after it.
PATIENCE_S: Final = 3.0


class RunContext:
    """The request with everything that its steps share; the clock starts here."""

    def __init__(self, request: PredictRequest, resident: LoadedPackage) -> None:
        self.request, self.resident = request, resident
        self.deadline = Deadline(request.time_limit_s, spent_s=request.spent_s)
        self.stages, self.notices = Stages(), Notices()
        self.output = AnswerFiles(request, self.stages)
        self.has_measured = False  # features, of which answers are on disk
        self._traced: set[str] = set()

    @property
    def smallest_lesions(self) -> MinLesionSizes:
        """Volumes below which a part of the mask is no lesion: the package's, or the defaults without one."""
        return self.resident.manifest.smallest_lesions if self.request.uses_package else DEFAULT_MIN_LESION_SIZES

    def head(self, answer: AnswerSpec) -> Head:
        """The head of a risk or class answer. Raises `ModelPackageError` if it is missing or cannot give the answer."""
        name = self.request.method.head_name(answer)
        head = self.resident.package.head(name)
        check_head(answer, head, name)
        return head

    @property
    def asks_code(self) -> bool:
        """True if an entrant's code answers or measures, which it does after all others."""
        if not (self.request.uses_package and self.request.algorithm.head_specs):
            return False
        return bool(self.resident.manifest.code)  # which tells even if the rest of the package cannot be read

    def trace(self, message: str, problem: BaseException | None = None) -> None:
        """Log a warning with the trace of an exception; once, although the answers of a case are made several times."""
        if message not in self._traced:
            self._traced.add(message)
            LOGGER.warning("%s", message, exc_info=problem)


class AnswerFiles:
    """The answers of a case so far: each better one replaces all files of the one before it.

    Every file is valid at any moment, even if the process is killed. A request without an output keeps its answers in
    memory alone.
    """

    def __init__(self, request: PredictRequest, stages: Stages) -> None:
        self._request, self._stages, self._lock = request, stages, threading.Lock()
        self._answers: CaseAnswers | None = None
        self._packed_mask: bytes | None = None
        self._closed = self._touched = False

    @property
    def answers(self) -> CaseAnswers | None:
        """The answers on disk, None before the first ones."""
        return self._answers

    def write(self, answers: CaseAnswers) -> None:
        """Write answers, all or none; the mask is compressed in memory until they are final.

        Raises:
            OutputError: a file cannot be written.
            StoppedError: the output is closed.
        """
        with self._lock:
            if self._closed:
                raise StoppedError("the answers are final")
            self._touched = True
            with self._stages("write"):
                self._packed_mask = self._write(answers)
            self._answers = replace(answers, mask=None)

    def close(self) -> CaseAnswers | None:
        """The answers on disk, which no thread replaces from now on; waits for a write in progress."""
        with self._lock:
            self._closed = True
            if self._answers is not None and self._packed_mask is not None:
                mask = unpack_mask(self._packed_mask, self._answers.geometry)
                self._answers, self._packed_mask = replace(self._answers, mask=mask), None
            return self._answers

    def remove(self) -> None:
        """Close, and remove the files of a case that failed."""
        self.close()
        if self._touched:
            with suppress(OutputError):  # the failure itself is reported
                remove_earlier_answers(self._request)

    def _write(self, answers: CaseAnswers) -> bytes | None:
        """Write the files; the packed mask."""
        request, contents = self._request, {}
        packed = None if answers.mask is None else encode_mask(platform.MASK_FILE_NAME, answers.mask, answers.geometry)
        if request.mask_path is not None and answers.mask is not None:
            write_mask(request.mask_path, answers.mask, answers.geometry)
        if request.output_dir is not None:
            paths = answer_paths(request.algorithm, request.output_dir)
            if request.algorithm.mask_spec is not None and packed is not None:
                contents[paths[request.algorithm.mask_spec.name]] = packed
            contents |= {paths[name]: format_json(value).encode() for name, value in answers.values.items()}
        write_files(contents, partials=request.output_dir)  # in the folders of answers the platform expects no others
        return packed


def remove_earlier_answers(request: PredictRequest) -> None:
    """Remove the files that the request's task writes. Raises `OutputError`."""
    folder = request.output_dir
    paths = [] if folder is None else [*answer_paths(request.algorithm, folder).values()]
    remove_answers([*paths, *([] if request.mask_path is None else [request.mask_path])], folder)


def watch(
    compute: Callable[[], None], output: AnswerFiles, deadline: Deadline, termination: Termination
) -> tuple[CaseAnswers, str]:
    """Run `compute`, which writes better and better answers, in a thread, and end it when the time is up.

    The thread is asked to stop, at its next tile, when `termination` is requested or when half of the reserve is used
    up. If it does not end within a few seconds, since native code hangs or is slow, the answers on disk are final.

    Returns:
        The answers on disk, and why they are not the planned ones; empty if nothing went wrong.

    Raises:
        HecktorError: model or output is unusable; or input is, or the end came before there was an answer.
        Exception: a bug, before there was an answer.
    """
    failures: list[BaseException] = []

    def work() -> None:
        try:
            compute()
        except BaseException as problem:  # noqa: BLE001  this thread handles it
            failures.append(problem)

    reason = ""
    try:
        reason = _watched(work, output, deadline, termination)
    except RuntimeError as no_thread:  # too little memory for one
        failures.append(no_thread)
    except BaseException:  # Ctrl-C in a notebook, whose process lives on
        deadline.stop()
        raise
    finally:
        answers = output.close()
    problem = next(iter(failures), None)
    if problem is None or isinstance(problem, StoppedError):
        if answers is None:
            raise TimeLimitError(f"{reason}: no answer yet after {deadline.elapsed_s():.1f} s, nothing is written")
        return answers, reason
    if answers is None or (isinstance(problem, HecktorError) and not isinstance(problem, InputError | OutputError)):
        raise problem
    if isinstance(problem, HecktorError):
        return answers, problem.message
    LOGGER.error("a bug or too little memory; the case is not at fault", exc_info=problem)
    return answers, type(problem).__name__


def _watched(work: Callable[[], None], output: AnswerFiles, deadline: Deadline, termination: Termination) -> str:
    """Run `work` in a thread until it ends, or until a few seconds after it should; the reason for an early end."""
    reason = _reason_to_end(output, deadline, termination)
    if reason:
        return reason
    thread = threading.Thread(target=work, name="case", daemon=True)
    thread.start()
    give_up_s = math.inf
    while thread.is_alive() and deadline.clock() < give_up_s:
        thread.join(POLL_S)
        if not reason:
            reason = _reason_to_end(output, deadline, termination)
            if reason:
                deadline.stop()
                patience_s = PATIENCE_S if termination.requested else max(0.0, 0.5 * deadline.margin_s())
                give_up_s = deadline.clock() + patience_s
    return reason


def _reason_to_end(output: AnswerFiles, deadline: Deadline, termination: Termination) -> str:
    if termination.requested:
        return "asked to end"
    return "time is nearly up" if output.answers is not None and deadline.overdue() else ""
