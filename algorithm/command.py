"""`hecktor predict` and `python -m algorithm`: checks of the options, one case or a server, SIGTERM."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from algorithm.arguments import PredictArguments
from algorithm.case.inputs import CaseFiles
from algorithm.deadline import Termination
from algorithm.network.loaded_package import LoadedPackage, find_shipped_package, find_uploaded_package
from algorithm.pipeline import predict
from algorithm.request import PredictRequest, find_method, remove_earlier, remove_earlier_answers
from contract import platform
from contract.editions import DEFAULT_EDITION
from contract.entry import log_to_stderr
from contract.errors import HecktorError, ModelPackageError
from contract.images.volumes import limit_simpleitk_threads
from contract.options import check_port
from contract.packages import open_package
from contract.servers import run_server

LOGGER = logging.getLogger("hecktor")


def run(arguments: argparse.Namespace, checked: PredictArguments, started_s: float) -> int:
    """Answer one case, or serve; return 0 on success.

    Args:
        arguments: Options of `algorithm.cli`.
        checked: Task, case and outputs, as `check_arguments` returns them.
        started_s: Time at which the time limit starts to run, on the clock of `time.monotonic`.

    Raises:
        HecktorError: An error that the user can correct.
    """
    if arguments.device == "cuda":
        from algorithm.network.devices import find_device  # torch takes seconds

        find_device("cuda")
    log_to_stderr()
    limit_simpleitk_threads()
    if arguments.edition is None and arguments.model is not None:
        LOGGER.info("edition %s: the edition of the package %s", checked.edition.name, Path(arguments.model).name)
    request = _make_request(arguments, checked)
    _check_options(arguments, request)
    with open_package(_find_package(arguments, request)) as model_dir:
        if arguments.serve:
            serve(request, model_dir, platform.INVOKE_PORT if arguments.port is None else arguments.port)
            return 0
        # The imports and the unpacking of the package have taken time.
        request = replace(request, spent_s=time.monotonic() - started_s)
        with _end_by_signal() as termination:
            record = predict(request, LoadedPackage(model_dir, request.device, request.code), termination).record
    LOGGER.info("written: %s", request.mask_path or request.output_dir)
    LOGGER.info("%s", record.summary())
    return 0


def serve(request: PredictRequest, model_dir: Path, port: int = platform.INVOKE_PORT) -> None:
    """Answer cases until SIGTERM or SIGINT, with the model loaded once.

    SIGTERM ends the current case with its best answer so far.

    Args:
        request: Task, method, folders, device and time limit of every case.
        model_dir: Folder of the model package.
        port: Port to listen on; 0 chooses a free port.

    Raises:
        HecktorError: The port is not available, or the model or the device is unusable.
    """
    package = LoadedPackage(model_dir, request.device, request.code)
    termination = Termination()

    def load() -> None:
        if request.uses_package:
            package.check(request.edition, request.algorithm)
            LOGGER.info("model package: %s", package.describe())
        if request.method.segmenter == "network":
            package.load()

    def answer_case() -> str:
        # If this case fails, the answers and the record of the previous case must not remain.
        if request.record_path is not None:
            remove_earlier("--record", request.record_path)
        remove_earlier_answers(request)
        return predict(replace(request, spent_s=0.0), package, termination).record.summary()

    run_server(answer_case, termination.request, load, port)


def _find_package(arguments: argparse.Namespace, request: PredictRequest) -> Path:
    """Return the folder or archive of the model package; raise `HecktorError` if the options do not fit it."""
    if arguments.model is not None and not request.uses_package:
        raise HecktorError("--model", f"found with method {request.method.name!r}", "a method that uses a package")
    if request.code and not request.uses_package:
        raise HecktorError("--code", f"found with method {request.method.name!r}", "a method that uses a package")
    if not request.is_shipped:
        package: Path = arguments.model or platform.MODEL_DIR
        return package
    if arguments.require_model:
        expected = "the uploaded package: --require-model refuses the shipped one"
        raise ModelPackageError("model package", f"none in {platform.MODEL_DIR}", expected)
    return find_shipped_package(request.edition.name if request.uses_package else DEFAULT_EDITION)


def _make_request(arguments: argparse.Namespace, checked: PredictArguments) -> PredictRequest:
    algorithm = checked.algorithm
    return PredictRequest(
        edition=checked.edition,
        algorithm=algorithm,
        method=find_method(arguments.method, checked.edition, algorithm),
        source=checked.source,
        output_dir=checked.output_dir,
        mask_path=checked.mask_path,
        device=arguments.device,
        time_limit_s=arguments.time_limit,
        max_passes=arguments.passes,
        probabilities_dir=arguments.probabilities,
        record_path=arguments.record,
        is_shipped=arguments.model is None and find_uploaded_package() is None,
        code=tuple(arguments.code),
        contours_path=arguments.contours,
        limits_gpu_memory=True,
    )


@contextmanager
def _end_by_signal() -> Iterator[Termination]:
    """Yield a termination that SIGTERM or the first Ctrl-C requests, including a SIGTERM that was blocked until now.

    If SIGTERM was blocked before, it is ignored after the block, because the answers have been written by then.
    """
    termination = Termination()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield termination
        return
    on_interrupt = signal.getsignal(signal.SIGINT)

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, on_interrupt)  # a second Ctrl-C ends at once
        termination.request()

    if on_interrupt is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    on_sigterm = signal.signal(signal.SIGTERM, lambda *_: termination.request())
    held_back = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN if signal.SIGTERM in held_back else on_sigterm)
        signal.signal(signal.SIGINT, on_interrupt)


def _check_options(arguments: argparse.Namespace, request: PredictRequest) -> None:
    """Refuse options that exclude each other, before any work. Raises `HecktorError`."""
    if arguments.serve and (request.mask_path is not None or isinstance(request.source, CaseFiles)):
        raise HecktorError("--serve", "found with plain files", "the platform's folders: a server answers many cases")
    _check_contours(arguments, request)
    if arguments.probabilities is not None and arguments.serve:
        raise HecktorError("--probabilities", "found with --serve", "one of them: a server answers many cases")
    check_port(arguments)
    for name in () if request.method.segmenter == "network" else ("passes", "probabilities"):
        if getattr(arguments, name) is not None:
            raise HecktorError(f"--{name}", f"method {arguments.method!r} makes no passes", "'baseline'")


def _check_contours(arguments: argparse.Namespace, request: PredictRequest) -> None:
    """Refuse `--contours` where they have no effect, and options that have no effect with them."""
    if arguments.contours is None:
        return
    if request.algorithm.mask_spec is not None:
        expected = "a task without a mask as answer"
        raise HecktorError("--contours", f"found with task {request.algorithm.name}, which answers a mask", expected)
    if request.method.segmenter != "network":
        raise HecktorError("--contours", f"found with method {request.method.name!r}", "'baseline'")
    for option in ("serve", "passes", "probabilities"):
        if getattr(arguments, option):
            raise HecktorError(f"--{option}", "found with --contours", "one of them")
