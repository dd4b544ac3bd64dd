"""`hecktor predict` and `python -m algorithm`: checks of the paths, one case or a server, SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import SimpleITK as sitk

from algorithm.case.inputs import LISTING, CaseFiles, plain_case
from algorithm.deadline import Termination
from algorithm.heads.methods import method_for
from algorithm.network.resident import Resident, shipped_package, uploaded_package
from algorithm.output import PROBABILITIES, remove_answers, remove_earlier
from algorithm.pipeline import predict
from algorithm.prediction import PredictRequest
from algorithm.serve import serve
from contract import platform
from contract.editions import DEFAULT_EDITION, Algorithm
from contract.entry import MarkedFormatter
from contract.errors import HecktorError, InputError, ModelPackageError, OutputError
from contract.images.volumes import image_suffix
from contract.options import named_algorithm
from contract.packages import chosen_edition, package_folder
from contract.platform import NAMED_IMAGE_SUFFIXES, TIFF_SUFFIXES
from contract.processes import usable_cpus

LOGGER = logging.getLogger("hecktor")
_IMAGES: Final = "images"
_MASK_SUFFIXES: Final = (".mha", ".nii.gz", ".nii")


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace, spent_s: float) -> int:
    """Answer one case, or serve, as `algorithm.cli` was asked; 0 on success. Raises `HecktorError`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MarkedFormatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()  # SimpleITK takes all of the host
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, usable_cpus()))
    if arguments.record is None and (path := os.environ.get(platform.RUN_RECORD_VARIABLE)):
        arguments.record = Path(path)
    request = _request(parser, arguments, spent_s)
    _check_outputs(arguments, request)
    remove_answers(request)
    start_s = time.monotonic()
    with package_folder(_package(arguments, request)) as model_dir:
        request = replace(request, spent_s=request.spent_s + time.monotonic() - start_s)  # unpacking takes time
        if arguments.serve:
            serve(request, model_dir, platform.INVOKE_PORT if arguments.port is None else arguments.port)
            return 0
        with _terminated_by_signal() as termination:
            try:
                record = predict(request, Resident(model_dir, request.device, request.code), termination).record
            finally:
                _log_this_thread_only()
    LOGGER.info("written: %s", request.mask_path or request.output_dir)
    LOGGER.info("%s", record.summary())
    return 0


def _package(arguments: argparse.Namespace, request: PredictRequest) -> Path:
    """The package that answers. Raises `HecktorError`."""
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
    return shipped_package(request.edition.name if request.uses_package else DEFAULT_EDITION)


def _request(parser: argparse.ArgumentParser, arguments: argparse.Namespace, spent_s: float) -> PredictRequest:
    edition = chosen_edition(arguments.edition, arguments.model)
    if arguments.edition is None and arguments.model is not None:
        LOGGER.info("edition %s: that of the package %s", edition.name, Path(arguments.model).name)
    mask_path = arguments.output if arguments.output is not None and _is_mask_file(arguments.output) else None
    if mask_path is not None and arguments.task is None:
        arguments.task = next((one.name for one in edition.algorithms if one.mask is not None), None)
    plain = arguments.ct is not None and arguments.task is None
    hint = ", or --output MASK.nii.gz for the mask alone" if plain else ""
    algorithm = named_algorithm(parser, edition.algorithm, arguments.task, hint)
    if arguments.output is None:
        arguments.output = _default_output(parser)
    if mask_path is not None:
        algorithm = _mask_alone(algorithm, mask_path)
    return PredictRequest(
        edition=edition,
        algorithm=algorithm,
        method=method_for(arguments.method, edition, algorithm),
        source=_source(parser, arguments, algorithm),
        output_dir=None if mask_path is not None else arguments.output,
        mask_path=mask_path,
        device=arguments.device,
        time_limit_s=algorithm.time_limit_s if arguments.time_limit is None else arguments.time_limit,
        spent_s=spent_s,
        most_passes=arguments.passes,
        probabilities_path=None if arguments.probabilities is None else arguments.probabilities / PROBABILITIES,
        record_path=arguments.record,
        is_shipped=arguments.model is None and uploaded_package() is None,
        code=tuple(arguments.code),
        contours_path=arguments.contours,
        limits_card=True,
    )


def _default_output(parser: argparse.ArgumentParser) -> Path:
    """The platform's output folder, which exists in containers alone; elsewhere a folder must be named."""
    if not platform.OUTPUT_DIR.is_dir():
        parser.error(f"--output not given, and there is no {platform.OUTPUT_DIR}: name a folder for the answers")
    return platform.OUTPUT_DIR


def _is_mask_file(output: Path) -> bool:
    """True for the name of an image: only the mask is written, to this file. Raises `OutputError`."""
    suffix = None if output.is_dir() else image_suffix(output, (*NAMED_IMAGE_SUFFIXES, *TIFF_SUFFIXES))
    if suffix is not None and suffix not in _MASK_SUFFIXES:
        raise OutputError("--output", output.name, f"a folder, or a mask's file in {', '.join(_MASK_SUFFIXES)}")
    return suffix is not None


def _mask_alone(algorithm: Algorithm, mask_path: Path) -> Algorithm:
    if algorithm.mask is None:
        raise HecktorError("--output", f"the image {mask_path.name}", f"a folder: task {algorithm.name} has no mask")
    return algorithm.model_copy(update={"answers": (algorithm.mask,)})


def _source(parser: argparse.ArgumentParser, arguments: argparse.Namespace, algorithm: Algorithm) -> Path | CaseFiles:
    """The case's folder, or its plain files. Raises `InputError`."""
    if arguments.ct is None:
        if arguments.pet is not None or arguments.ehr is not None:
            parser.error("--pet and --ehr need --ct")
        if arguments.input is not None and not arguments.serve:  # a server's cases come later
            _check_case_folder(arguments.input)
        return arguments.input or platform.INPUT_DIR
    if arguments.input is not None:
        parser.error("found --input and --ct, expected one of them")
    if algorithm.heads and arguments.ehr is None:
        names = ", ".join(answer.name for answer in algorithm.heads)
        raise InputError("--ehr", "not given", f"the clinical variables for {names}, or a mask's file as --output")
    return plain_case(arguments.ct, arguments.pet, arguments.ehr)


def _check_case_folder(folder: Path) -> None:
    """Raise `InputError` for a folder without a case, with the place of one in the folders below."""
    if any((folder / name).exists() for name in (_IMAGES, LISTING)):
        return
    name = platform.INPUT_DIR.name
    within = next((path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.is_dir()), None)
    expected = "the folder of a case (of a release: --ct FILE --pet FILE)"
    if within is not None:
        expected = f"--input {within.absolute()}"
    raise InputError("--input", f"no {_IMAGES} in {folder.absolute()}", expected)


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


def _check_outputs(arguments: argparse.Namespace, request: PredictRequest) -> None:
    """Check the paths to write, before any work. Raises `HecktorError`."""
    source = request.source
    inputs = source.paths if isinstance(source, CaseFiles) else [source] if isinstance(source, Path) else []
    if arguments.serve and (request.mask_path is not None or isinstance(source, CaseFiles)):
        raise HecktorError("--serve", "found with plain files", "the platform's folders: a server answers many cases")
    if request.mask_path is not None:
        _check_outside("--output", request.mask_path, inputs)
    _check_contours(arguments, request)
    if arguments.probabilities is not None and arguments.serve:
        raise HecktorError("--probabilities", "found with --serve", "one of them: a server answers many cases")
    if arguments.port is not None and not arguments.serve:
        raise HecktorError("--port", "found without --serve", "both")
    for name in () if request.method.segmenter == "network" else ("passes", "probabilities"):
        if getattr(arguments, name) is not None:
            raise HecktorError(f"--{name}", f"method {arguments.method!r} makes no passes", "'baseline'")
    roots = (arguments.output, *inputs, platform.OUTPUT_DIR, platform.INPUT_DIR)
    for option, path in (("--probabilities", request.probabilities_path), ("--record", arguments.record)):
        if path is not None:
            _check_outside(option, path, roots)
            remove_earlier(option, path)


def _check_outside(option: str, path: Path, roots: Sequence[Path]) -> None:
    """Raise `OutputError` if a path is one of the files, or lies in one of the folders, of the case."""
    for root in roots:
        if root.is_file() and path.resolve() == root.resolve():
            raise OutputError(option, f"{path} is a file of the case", "another file")
        if path.resolve().is_relative_to(root.resolve()):
            fault = f"{path} lies within {root}, which may hold the platform's sockets only"
            raise OutputError(option, fault, "a path outside")


def _check_contours(arguments: argparse.Namespace, request: PredictRequest) -> None:
    """Refuse absent or unused `--contours`, and options that have no effect with them."""
    if arguments.contours is None:
        return
    if request.algorithm.mask is not None:
        expected = "a task without a mask as answer"
        raise HecktorError("--contours", f"found with task {request.algorithm.name}, which answers a mask", expected)
    if request.method.segmenter != "network":
        raise HecktorError("--contours", f"found with method {request.method.name!r}", "'baseline'")
    for option in ("serve", "passes", "probabilities"):
        if getattr(arguments, option):
            raise HecktorError(f"--{option}", "found with --contours", "one of them")
