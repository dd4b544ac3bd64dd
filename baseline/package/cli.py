"""Command line of packaging: `hecktor package`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from baseline.package.numbering import parse_lesion_numbers, parse_named_numbers
from baseline.work import require_nnunet_results
from contract.code import Code
from contract.editions import DEFAULT_EDITION
from contract.errors import HecktorError
from contract.io.locks import lock_output
from contract.options import (
    Parser,
    add_code_option,
    add_edition_option,
    require_files,
    require_folders,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Make a model package from nnU-Net's results, a custom network, or both; return the exit status."""
    parser = _make_parser()
    arguments = parser.parse_args(argv)
    if not arguments.nnunet and not arguments.weights:
        parser.error("found no network, expected --nnunet, or --code and --weights, or all three")
    if arguments.network is not None and not arguments.weights:
        raise HecktorError("--network", "found without --weights", "both")
    require_folders(arguments, "--nnunet", "--weights", "--code")
    _require_heads(arguments.heads)
    require_files(arguments, "--heads", "--postprocessing")
    for folder in arguments.nnunet:
        require_nnunet_results(folder)
    Code.from_folders(arguments.code)
    from baseline.package.assemble import PackageRequest, package_training  # torch takes seconds

    options: dict[str, Any] = {}
    for field in fields(PackageRequest):
        value = getattr(arguments, field.name)
        options[field.name] = tuple(value) if isinstance(value, list) else value  # a repeated option is a list
    with lock_output(arguments.output):
        packaged = package_training(PackageRequest(**options))
    for note in packaged.notes:
        sys.stdout.write(f"note: {note}\n")
    sys.stdout.write(f"model package in {packaged.path}, loaded and verified\n")
    return 0


def _require_heads(path: Path | None) -> None:
    """Raise `HecktorError` if there are only heads for the reference masks (`train heads --masks reference`)."""
    if path is None or path.exists():
        return
    reference_heads = path.parent / "reference_masks" / path.name
    if reference_heads.is_file():
        expected = f"{reference_heads}, fitted on the reference masks"
        raise HecktorError("--heads", f"no such file: {path.absolute()}", expected)


def parse_package_output(text: str) -> Path:
    """Parse the path of a new model package; raise `argparse.ArgumentTypeError` for an archive other than `.tar.gz`."""
    if text.lower().endswith((".tgz", ".tar", ".zip")):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME.tar.gz, or the name of a folder")
    return Path(text)


def _parse_fold(text: str) -> str:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number or all")
    return text if text == "all" else str(int(text))


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor package",
        description="Make a model package from a finished nnU-Net v2 training, a custom network, or both.",
    )
    parser.add_argument(
        "--nnunet",
        type=Path,
        action="append",
        default=[],
        help="results folder DatasetXXX/Trainer__Plans__3d_fullres; may be repeated for an ensemble",
    )
    add_code_option(parser, " with the network of --weights, or for --heads")
    parser.add_argument(
        "--weights",
        type=Path,
        action="append",
        metavar="DIR",
        help="folder with the weights of the network in --code; may be repeated, once for each fold",
    )
    parser.add_argument(
        "--network", metavar="FOLDER:NAME", help="class of the network in --code (default: Network of the folder)"
    )
    parser.add_argument(
        "--output", type=parse_package_output, required=True, help="model.tar.gz for upload, or a folder"
    )
    heads = parser.add_mutually_exclusive_group(required=True)
    heads.add_argument("--heads", type=Path, help="JSON file with heads, such as heads.json of `hecktor train`")
    heads.add_argument(
        "--without-heads",
        action="store_true",
        help="pack only the segmentation; other tasks are refused, or answered by fallbacks if the edition has them",
    )
    parser.add_argument(
        "--postprocessing",
        type=Path,
        help="JSON file with postprocessing rules, such as postprocessing.json of `hecktor train`",
    )
    _add_training_options(parser)
    parser.add_argument("--name", help="name of the package (default: names of the data set and of the folder)")
    add_edition_option(parser, f"edition of the training of --heads, else {DEFAULT_EDITION}")
    parser.add_argument(
        "--task",
        help="task that the networks are for, in an edition whose tasks have different channels, such as mid-rt",
    )
    return parser


def _add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a finished nnU-Net training."""
    parser.add_argument(
        "--folds", type=_parse_fold, nargs="+", help="fold numbers, or all (default: every numbered fold)"
    )
    parser.add_argument(
        "--checkpoint",
        choices=("final", "best"),
        default="final",
        help="checkpoint of each fold (default: %(default)s)",
    )
    parser.add_argument(
        "--normalised-over",
        choices=("scan", "region"),
        default="scan",
        help="training images: whole scans, or head and neck as cropped by `hecktor train` (default: scan)",
    )
    parser.add_argument(
        "--channels",
        type=parse_named_numbers,
        action="append",
        metavar="CT=0,PET=1",
        help="numbers of the channels in the training, if dataset.json has other names; once "
        "for all --nnunet, or once for each in the same order",
    )
    parser.add_argument(
        "--trust-checkpoint",
        action="store_true",
        help="accept checkpoints that can run code, such as checkpoints of custom trainers",
    )
    parser.add_argument(
        "--labels",
        type=parse_lesion_numbers,
        action="append",
        metavar="GTVp=1,GTVn=2",
        help="numbers of the labels in the training, if dataset.json has other names; may be repeated like --channels",
    )
