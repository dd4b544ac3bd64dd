"""Command line of the algorithm: `python -m algorithm`, `hecktor predict`.

To keep `--help` fast, this module imports neither NumPy nor any other large library.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from algorithm.deadline import process_age_s
from algorithm.request import METHODS
from contract import platform
from contract.editions import DEFAULT_EDITION
from contract.entry import read_image_arguments
from contract.errors import HecktorError
from contract.io.locks import lock_output
from contract.options import (
    Parser,
    add_code_option,
    add_edition_and_task_options,
    add_serve_options,
    positive_number,
    whole_number,
)


def main(argv: Sequence[str] | None = None, spent_s: float = 0.0, *, on_platform: bool = False) -> int:
    """Answer one case, answer many cases, or serve; return 0 on success and 1 if one of many cases has no answer.

    SIGTERM and Ctrl-C end a single case with the best answers so far.

    Args:
        argv: Arguments; None takes the arguments of the process.
        spent_s: Seconds of the time limit that have already passed.
        on_platform: Whether the task's time limit applies if there is no `--time-limit`.

    Raises:
        HecktorError: An error that the user can correct.
    """
    started_s = time.monotonic() - spent_s
    parser = _build_parser()
    arguments = parser.parse_args(argv)
    if arguments.ct is not None and (arguments.ct.is_dir() or arguments.ct.suffix.lower() == ".csv"):
        return _answer_many_cases(arguments)
    if arguments.resume:
        raise HecktorError("--resume", "found with one case", "a folder or a table of cases as --ct")
    from algorithm.arguments import check_arguments  # imports NumPy

    with lock_output(arguments.output or platform.OUTPUT_DIR):
        checked_arguments = check_arguments(parser, arguments)
        if on_platform and arguments.time_limit is None:
            arguments.time_limit = checked_arguments.algorithm.time_limit_s
        from algorithm.command import run  # imports SimpleITK and scipy

        return run(arguments, checked_arguments, started_s)


def _answer_many_cases(arguments: argparse.Namespace) -> int:
    """Answer the cases of a folder or of a table in `--ct`."""
    from algorithm.arguments import find_many_cases  # imports NumPy

    cases = find_many_cases(arguments)
    with lock_output(arguments.output):
        from algorithm.batch import run_batch  # imports SimpleITK and scipy

        return run_batch(arguments, cases)


def program(argv: Sequence[str] | None = None) -> int:
    """Run `hecktor predict` in a process that was started to answer one case.

    The time since the process started counts against the time limit. Environment variables of an image may set default
    arguments.
    """
    return main(_read_arguments(argv), spent_s=process_age_s())


def platform_program(argv: Sequence[str] | None = None) -> int:
    """Run `python -m algorithm`, the entry point of images and rehearsals: `program` with the task's time limit."""
    return main(_read_arguments(argv), spent_s=process_age_s(), on_platform=True)


def _read_arguments(argv: Sequence[str] | None) -> list[str]:
    return [*read_image_arguments(), *(sys.argv[1:] if argv is None else argv)]


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hecktor predict", description="Run one patient through the algorithm.")
    add_edition_and_task_options(parser, f"the edition of --model, otherwise {DEFAULT_EDITION}")
    _add_files(parser)
    _add_run_options(parser)
    return parser


def _add_files(parser: argparse.ArgumentParser) -> None:
    """Add the case, the output, the model package and the extra files."""
    parser.add_argument(
        "--input",
        type=Path,
        help=f"the case, in the platform's input layout (default: {platform.INPUT_DIR})",
    )
    parser.add_argument(
        "--ct",
        type=Path,
        metavar="PATH",
        help="CT in HU as a plain image, instead of --input; for many cases a folder, or a CSV file with the columns "
        "PatientID, CT, PET and EHR",
    )
    parser.add_argument(
        "--pet",
        type=Path,
        metavar="PATH",
        help="PET in SUV, or a folder of PETs for many cases (default: CASE_0001 next to a CT named CASE_0000)",
    )
    parser.add_argument(
        "--ehr",
        type=Path,
        metavar="PATH",
        help="clinical variables, ehr.json, or a folder of CASE.json for many cases; not needed for a mask",
    )
    parser.add_argument(
        "--contours",
        type=Path,
        metavar="MASK",
        help="use this lesion mask, on the CT's grid, instead of the network's; only for tasks that answer no mask",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"folder for the answers, or a file (.nii.gz, .nii, .mha) for only the mask "
        f"(default: {platform.OUTPUT_DIR}, in containers)",
    )
    parser.add_argument(
        "--model",
        type=Path,
        help="model package, folder or .tar.gz (default: /opt/ml/model if present, else the edition's shipped package)",
    )
    add_code_option(parser, " that the model package names, such as my_model (default: the code in the image)")
    parser.add_argument("--require-model", action="store_true", help="refuse to answer with the shipped model package")
    parser.add_argument(
        "--probabilities",
        type=Path,
        metavar="DIR",
        help="also write the probabilities of GTVp and GTVn in percent, as images, to this folder outside --output",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help=f"also write a record of the run (JSON), outside --output (default: ${platform.RUN_RECORD_VARIABLE})",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the limits, the device, the method and the server."""
    parser.add_argument(
        "--time-limit",
        type=positive_number(),
        help="time limit in seconds (default: none; the task's limit in an image and in a rehearsal)",
    )
    parser.add_argument(
        "--passes",
        type=whole_number(1),
        help="maximum number of passes (default: all, or those that fit the time limit)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="skip the cases of a folder or table that an earlier run answered"
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
        help="the model (baseline), or a comparator: PET threshold, only clinical variables (default: %(default)s)",
    )
    add_serve_options(parser)
