"""Command line of packaging: `hecktor package`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from baseline.package.assemble import Request, package_training


def main(argv: Sequence[str] | None = None) -> int:
    """Put nnU-Net's results into a model package."""
    arguments = _parser().parse_args(argv)
    request = Request(
        nnunet=tuple(arguments.nnunet),
        heads=arguments.heads,
        output=arguments.output,
        folds=None if arguments.folds is None else tuple(arguments.folds),
        checkpoint=arguments.checkpoint,
        name=arguments.name,
        trust_checkpoint=arguments.trust_checkpoint,
        normalised_over=arguments.normalised_over,
    )
    packaged = package_training(request)
    for note in packaged.notes:
        sys.stdout.write(f"note: {note}\n")
    sys.stdout.write(f"model package in {packaged.path}, loaded and verified\n")
    return 0


def _fold(text: str) -> str:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number or all")
    return text if text == "all" else str(int(text))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hecktor package", description="Put a finished nnU-Net v2 training into a model package."
    )
    parser.add_argument(
        "--nnunet",
        type=Path,
        action="append",
        required=True,
        help="results: DatasetXXX/Trainer__Plans__3d_fullres; given again, both make one ensemble",
    )
    parser.add_argument("--output", type=Path, required=True, help="model.tar.gz for upload, or a folder")
    heads = parser.add_mutually_exclusive_group(required=True)
    heads.add_argument("--heads", type=Path, help="JSON of the heads `rfs` and `hpv`, for tasks 2 and 3")
    heads.add_argument("--without-heads", action="store_true", help="segment only; tasks 2 and 3 will be refused")
    parser.add_argument("--folds", type=_fold, nargs="+", help="numbers or all; default: every numbered fold")
    parser.add_argument("--checkpoint", choices=("final", "best"), default="final")
    parser.add_argument(
        "--normalised-over",
        choices=("scan", "region"),
        default="scan",
        help="what the training images were: whole scans, or cut to the head and neck as `hecktor train` cuts them",
    )
    parser.add_argument("--name", help="the package's name; default: the folder's")
    parser.add_argument(
        "--trust-checkpoint", action="store_true", help="read checkpoints that may run code, as those of own trainers"
    )
    return parser
