"""Command line of `hecktor phase`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contract.editions import load_edition
from contract.errors import EngineError, replace_unprintable
from contract.io.locks import lock_output
from contract.options import Parser, add_edition_option, add_task_option, require_files, require_paths
from rehearsal.submission.cli import add_image_options, make_image_builder, refuse_image_options

if TYPE_CHECKING:
    from rehearsal.submission.images import ImageBuilder


def main(argv: Sequence[str] | None = None) -> int:
    """Make and test the files of a phase; without a container engine, make the ground truth and then raise."""
    parser = _build_parser()
    arguments = parser.parse_args(argv)
    require_paths(arguments, "--ground-truth", "--predictions")
    require_files(arguments, "--bounding-boxes")
    if arguments.no_image:
        refuse_image_options(parser, arguments, "--no-image")
    # These imports take seconds, which --help does not need.
    from evaluation.editions.profile import build_profile
    from evaluation.options import find_task
    from hecktor.phase.pipeline import PhaseOptions, make_phase
    from hecktor.phase.settings import GROUND_TRUTH
    from rehearsal.submission.folder import make_missing_images_error

    edition = load_edition(arguments.edition)
    profile = build_profile(edition)
    task = find_task(parser, profile, arguments.task)
    truth, output = arguments.ground_truth.resolve(), arguments.output.resolve()
    predictions = None if arguments.predictions is None else arguments.predictions.resolve()
    boxes = None if arguments.bounding_boxes is None else arguments.bounding_boxes.resolve()
    options = PhaseOptions(edition, profile, task, truth, output, predictions, boxes)
    images: ImageBuilder | None = None
    missing_engine: EngineError | None = None
    if not arguments.no_image:
        try:
            images = make_image_builder(arguments, None)
        except EngineError as error:
            missing_engine = error
    with lock_output(options.output):
        make_phase(options, images, lambda line: print(replace_unprintable(line), flush=True))
    if missing_engine is not None:
        raise make_missing_images_error(missing_engine, GROUND_TRUTH, "--no-image")
    print(f"phase in {options.output}; README.md describes the files and the settings", flush=True)
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor phase", description="Make and test the files of a phase, and write its settings into README.md."
    )
    add = parser.add_argument
    add_task_option(parser)
    add_edition_option(parser)
    truth = "reference as for `hecktor evaluate`: a folder of masks, a CSV table, or a folder with both"
    add("--ground-truth", type=Path, required=True, help=truth)
    add("--output", type=Path, required=True, help="folder for the files to upload, README.md and the test submissions")
    predictions = "also test these predictions: a folder of masks, a CSV table, or a folder with both"
    add("--predictions", type=Path, help=predictions)
    boxes = "CSV table with PatientID, x1, x2, y1, y2, z1, z2 in mm, for an edition that scores inside boxes"
    add("--bounding-boxes", type=Path, help=boxes)
    add("--no-image", action="store_true", help="skip the image and test the evaluation as a plain process")
    add_image_options(parser)
    return parser
