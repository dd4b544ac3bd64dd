"""Command line of the algorithm: `python -m algorithm`, `hecktor predict`."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from algorithm.deadline import Termination, process_age_s
from algorithm.heads.methods import METHODS, method_for
from algorithm.network.package import default_package_path
from algorithm.network.resident import Resident
from algorithm.pipeline import predict
from algorithm.prediction import PredictRequest
from algorithm.serve import PORT, serve
from algorithm.uncertainty.record import check_outside_sockets, prepare_folder
from contract import platform
from contract.errors import HecktorError, OutputError
from contract.options import add_edition_options, chosen_algorithm, positive_number, whole_number

LOGGER = logging.getLogger("hecktor")


def main(argv: Sequence[str] | None = None, spent_s: float = 0.0) -> int:
    """Answer one case, or serve; 0 on success. `spent_s` of the time limit are already used.

    SIGTERM writes the best answer so far. Raises `HecktorError` for errors that a user can fix.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    request = _request(parser, arguments, spent_s)
    _prepare_extras(arguments, makes_passes=request.method.segmenter == "network")
    model_dir = arguments.model or default_package_path(request.edition.name)
    if arguments.serve:
        serve(request, model_dir, arguments.port)
        return 0
    with _terminated_by_signal() as termination:
        try:
            record = predict(request, Resident(model_dir, request.device), termination).record
        finally:
            _log_this_thread_only()
    LOGGER.info("%s answered by %s: %s", record.task, record.method, record.summary())
    return 0


def _request(parser: argparse.ArgumentParser, arguments: argparse.Namespace, spent_s: float) -> PredictRequest:
    edition, algorithm = chosen_algorithm(parser, arguments)
    return PredictRequest(
        edition=edition,
        algorithm=algorithm,
        method=method_for(arguments.method, edition, algorithm),
        source=arguments.input,
        output_dir=arguments.output,
        device=arguments.device,
        time_limit_s=algorithm.time_limit_s if arguments.time_limit is None else arguments.time_limit,
        strict=arguments.strict,
        spent_s=spent_s,
        most_passes=arguments.passes,
        uncertainty_dir=arguments.uncertainty,
        record_path=arguments.record,
    )


def program(argv: Sequence[str] | None = None) -> int:
    """`main` of a process that was started to answer one case: its start counts against the time limit."""
    return main(argv, spent_s=process_age_s())


def _log_this_thread_only() -> None:
    """Keep the last line of the log: after an early end another thread may still compute.

    A filter would be too late for a record that has passed the filters but waits for the handler's lock.
    """
    for handler in logging.getLogger().handlers:
        handler.acquire()
        handler.emit = partial(_emit_of_thread, handler.emit, threading.get_ident())  # type: ignore[method-assign]
        handler.release()


def _emit_of_thread(emit: Callable[[logging.LogRecord], None], thread: int, record: logging.LogRecord) -> None:
    if record.thread == thread:
        emit(record)


@contextmanager
def _terminated_by_signal() -> Iterator[Termination]:
    """A termination that SIGTERM requests while the block runs; a SIGTERM held back until now counts too.

    If it was held back, SIGTERM is ignored afterwards: the answer is written, and blocking the signal again would not
    reach the libraries' threads, which began while it was not blocked.
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


def _prepare_extras(arguments: argparse.Namespace, *, makes_passes: bool) -> None:
    """Check `--record` and `--uncertainty` and create the folder, before any work. Raises `HecktorError`."""
    for option, path in (("--record", arguments.record), ("--uncertainty", arguments.uncertainty)):
        if path is not None and arguments.serve:
            raise HecktorError(option, "found with --serve", "one of them: a server writes answers only")
    if arguments.record is not None:
        check_outside_sockets("--record", arguments.record, arguments.input, arguments.output)
        _remove_earlier(arguments.record)
    if arguments.uncertainty is not None:
        if not makes_passes:
            raise HecktorError("--uncertainty", f"method {arguments.method!r} makes no passes", "'baseline'")
        prepare_folder(arguments.uncertainty, arguments.input, arguments.output)


def _remove_earlier(record: Path) -> None:
    """Remove an earlier case's record, which would look like this one's if the case fails."""
    try:
        record.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError("--record", f"{record.name} cannot be replaced ({problem.strerror})", "a file") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor predict", description="Run one patient through the algorithm.")
    add_edition_options(parser)
    parser.add_argument(
        "--input",
        type=Path,
        default=platform.INPUT_DIR,
        help="the case, in the platform's input layout (default: %(default)s)",
    )
    parser.add_argument(
        "--output", type=Path, default=platform.OUTPUT_DIR, help="folder for the answers (default: %(default)s)"
    )
    parser.add_argument(
        "--model",
        type=Path,
        help="folder of a model package (default: /opt/ml/model if it exists, otherwise the edition's shipped package)",
    )
    parser.add_argument("--time-limit", type=positive_number(), help="time limit in seconds (default: the task's)")
    parser.add_argument(
        "--passes", type=whole_number(1), help="maximum number of passes (default: all that fit the time limit)"
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="device of the networks (default: %(default)s)",
    )
    parser.add_argument(
        "--method",
        choices=tuple(METHODS),
        default="baseline",
        help="the model (baseline), or a comparator: PET threshold, clinical variables alone (default: %(default)s)",
    )
    parser.add_argument(
        "--uncertainty",
        type=Path,
        metavar="DIR",
        help="also write uncertainty maps and values to this folder, outside --output",
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="also write a record of the run (JSON), outside --output"
    )
    parser.add_argument("--strict", action="store_true", help="stop on degenerate input instead of warning")
    parser.add_argument(
        "--serve",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="run as an HTTP server that processes one case after another",
    )
    parser.add_argument(
        "--port",
        type=whole_number(0, 65535),
        default=PORT,
        help="port for --serve, 0 for any free port (default: %(default)s)",
    )
    return parser
