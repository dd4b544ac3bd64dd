"""Command line of the algorithm: `python -m algorithm`, `hecktor predict`."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from algorithm.answering import Termination, answer
from algorithm.budget import process_age_s
from algorithm.cpus import limit_itk_threads
from algorithm.heads.methods import METHODS, method_for
from algorithm.network.package import default_package_path
from algorithm.network.resident import Resident
from algorithm.pipeline import Request
from algorithm.serve import PORT, serve
from algorithm.uncertainty.record import prepare_folder
from contract import platform
from contract.errors import HecktorError
from contract.options import positive_number, whole_number
from contract.tasks import TASK_CHOICES, task_named

LOGGER = logging.getLogger("hecktor")


def main(argv: Sequence[str] | None = None, spent_s: float = 0.0) -> int:
    """Answer one case; 0 on success. Raises `HecktorError` for what a user can mend.

    SIGTERM writes the best answer so far. `spent_s` of the time limit are gone already.
    """
    arguments = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    limit_itk_threads()
    task = task_named(arguments.task)
    request = Request(
        task=task,
        method=method_for(arguments.method, task),
        input_dir=arguments.input,
        output_dir=arguments.output,
        model_dir=arguments.model or default_package_path(),
        device=arguments.device,
        time_limit_s=task.time_limit_s if arguments.time_limit is None else arguments.time_limit,
        strict=arguments.strict,
        spent_s=spent_s,
        most_passes=arguments.passes,
        uncertainty_dir=arguments.uncertainty,
    )
    _prepare_uncertainty(request, serving=arguments.serve)
    if arguments.serve:
        serve(request, arguments.port)
        return 0
    with _terminated_by_signal() as termination:
        try:
            stages = answer(request, Resident(request.model_dir, request.device), termination)
        finally:
            _log_this_thread_only()
    LOGGER.info("%s answered by %s: %s", task.name, request.method.name, stages.summary())
    return 0


def program(argv: Sequence[str] | None = None) -> int:
    """`main` of a process that was started to answer one case: its start counts against the time limit."""
    return main(argv, spent_s=process_age_s())


def _log_this_thread_only() -> None:
    """Keep the last line of the log: after an early end another thread may still compute."""
    this_thread = threading.get_ident()
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: record.thread == this_thread)


@contextmanager
def _terminated_by_signal() -> Iterator[Termination]:
    """A termination that SIGTERM requests, as long as the block lasts; one that was held back until now as well.

    Where it was held back it is ignored afterwards: the answer is written, and blocking it again would not reach the
    libraries' threads, which began while it was not blocked.
    """
    termination = Termination()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield termination
        return
    before = signal.signal(signal.SIGTERM, lambda *_: termination.request())
    held_back = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN if signal.SIGTERM in held_back else before)
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)


def _prepare_uncertainty(request: Request, *, serving: bool) -> None:
    """Make the folder, before any work is done. Raises `HecktorError` where none can be had or nothing can be said."""
    if request.uncertainty_dir is None:
        return
    if serving:
        raise HecktorError("--uncertainty", "found with --serve", "one of them: a server writes answers only")
    if request.method.segmenter != "network":
        raise HecktorError("--uncertainty", f"method {request.method.name!r} makes no passes", "'baseline'")
    prepare_folder(request.uncertainty_dir, request.input_dir, request.output_dir)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor predict", description="Answer one patient's case.")
    parser.add_argument("--task", required=True, choices=TASK_CHOICES, help="segmentation, rfs, hpv, or 1, 2, 3")
    parser.add_argument("--input", type=Path, default=platform.INPUT_DIR, help="the platform's /input layout")
    parser.add_argument("--output", type=Path, default=platform.OUTPUT_DIR, help="where the output socket is written")
    parser.add_argument("--model", type=Path, help="model package; default: /opt/ml/model, else the shipped one")
    parser.add_argument("--time-limit", type=positive_number(), help="seconds; default: the task's own limit")
    parser.add_argument(
        "--passes", type=whole_number(1), help="at most so many passes (default: all that fit the time)"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--method", choices=tuple(METHODS), default="baseline", help="baseline or a comparator")
    parser.add_argument(
        "--uncertainty", type=Path, metavar="DIR", help="also write how far the answer can be trusted, outside --output"
    )
    parser.add_argument("--strict", action="store_true", help="degenerate input is an error, not a warning")
    parser.add_argument(
        "--serve", action=argparse.BooleanOptionalAction, default=False, help="answer case after case over HTTP"
    )
    parser.add_argument(
        "--port", type=whole_number(0, 65535), default=PORT, help="of --serve (%(default)s; 0 takes a free one)"
    )
    return parser
