"""Command line of `hecktor submission`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contract.editions import Algorithm, Edition
from contract.errors import EngineError, HecktorError, replace_unprintable
from contract.io.locks import lock_output
from contract.options import Parser, add_code_option, add_edition_option, require_folders, require_paths
from contract.packages import chosen_edition, make_edition_hint
from contract.platform import API_METHODS
from rehearsal.phantoms.centres import FIELDS_OF_VIEW

if TYPE_CHECKING:
    from rehearsal.submission.images import ImageBuilder, Torch

_BUILDS: Final = ("cpu", "cuda")
_IMAGE_OPTIONS: Final = ("engine", "revision", "level", "api_method")


def main(argv: Sequence[str] | None = None) -> int:
    """Make and rehearse the files to upload; return 0.

    Raises:
        EngineError: No container engine can build images; the model has been made and rehearsed.
        HecktorError: The package cannot be used, or a check failed.
    """
    parser = _build_parser()
    arguments = parser.parse_args(argv)
    require_paths(arguments, "--package")
    require_folders(arguments, "--code")
    edition = chosen_edition(arguments.edition, arguments.package)
    hint = make_edition_hint(edition, arguments.edition, arguments.package)
    if arguments.model_only:
        refuse_image_options(parser, arguments, "--model-only", "images", "gpus")
    # These imports take seconds, which --help and a wrong package do not need.
    from rehearsal.submission.folder import MODEL, make_missing_images_error
    from rehearsal.submission.pipeline import KINDS, SubmissionOptions, make_submission

    options = SubmissionOptions(
        package=arguments.package.resolve(),
        output=arguments.output.resolve(),
        edition=edition,
        tasks=_select_tasks(parser, edition, arguments.task, hint),
        torch=arguments.images or "cuda",
        with_gpus=arguments.gpus,
        kinds=tuple(arguments.phantom) or KINDS,
        code=tuple(arguments.code),
    )
    images: ImageBuilder | None = None
    missing_engine: EngineError | None = None
    if not arguments.model_only:
        try:
            images = make_image_builder(arguments, options.torch)
            images = replace(images, code=options.code, with_gpus=options.with_gpus)
        except EngineError as error:
            missing_engine = error
    with lock_output(options.output):
        make_submission(options, images, lambda line: print(replace_unprintable(line), flush=True))
    if missing_engine is not None:
        raise make_missing_images_error(missing_engine, MODEL, "--model-only")
    print(f"submission in {options.output}; README.md describes the files", flush=True)
    return 0


def _select_tasks(
    parser: argparse.ArgumentParser, edition: Edition, names: Sequence[str], hint: str
) -> tuple[Algorithm, ...]:
    """Select the named tasks in the edition's order; without names all tasks."""
    try:
        numbers = {edition.find_algorithm(name).number for name in names}
    except HecktorError as error:
        parser.error(f"argument --task: {error.message}{hint}")
    return tuple(task for task in edition.algorithms if not numbers or task.number in numbers)


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor submission", description="Make and rehearse the files to upload from a model package."
    )
    add = parser.add_argument
    add("--package", type=Path, required=True, help="model package, a folder or .tar.gz")
    add("--output", type=Path, required=True, help="folder for model.tar.gz, the image archives and README.md")
    task_help = "make only this task of the edition, by name or number; may be repeated"
    add("--task", action="append", default=[], help=task_help)
    add_edition_option(parser, "the edition of the package")
    images_help = "PyTorch build of the images; the platform's T4 needs cuda (default: cuda)"
    add("--images", choices=_BUILDS, help=images_help)
    add("--model-only", action="store_true", help="make only model.tar.gz and rehearse it with plain processes")
    add_image_options(parser)
    add("--gpus", action="store_true", help="give all GPUs of this machine to the images in the rehearsal")
    add(
        "--phantom",
        action="append",
        default=[],
        choices=sorted(FIELDS_OF_VIEW),
        help="rehearse only this field of view; may be repeated",
    )
    add_code_option(parser, " for the images")
    return parser


def add_image_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of images that are built and saved."""
    add = parser.add_argument
    add("--engine", help="container client: docker, podman or a path (default: the first that can build)")
    revision_help = "label of the images, any new text; the platform refuses an image that it already has"
    add("--revision", default="", metavar="TEXT", help=revision_help)
    method_help = (
        "how the platform calls the images: exec, a new process each time, or invoke, one server (default: exec)"
    )
    add("--api-method", choices=API_METHODS, help=method_help)
    add("--level", type=int, choices=range(1, 10), help="gzip level, 1 (fast) to 9 (small) (default: 5)")


def refuse_image_options(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, option: str, *further: str
) -> None:
    """Exit with status 2 if `option`, which makes no image, is used with an image option or one of `further`."""
    unused = [name.replace("_", "-") for name in (*further, *_IMAGE_OPTIONS) if getattr(arguments, name)]
    if unused:
        parser.error(f"argument --{unused[0]}: found with {option}, expected one of them")


def make_image_builder(arguments: argparse.Namespace, torch: Torch | None) -> ImageBuilder:
    """Make the builder of images from the options.

    `torch` is the algorithms' build of PyTorch; None is for evaluation images.

    Raises:
        EngineError: This machine cannot build images, which is also printed.
    """
    from rehearsal.submission.images import SOURCE, ImageBuilder, find_builder_engine

    try:
        engine = find_builder_engine(arguments.engine)
    except EngineError as error:
        print(f"{error.message}: no image is made; plain processes are used instead", flush=True)
        raise
    return ImageBuilder(
        engine,
        SOURCE,
        torch,
        level=arguments.level or 5,
        revision=arguments.revision,
        api_method=arguments.api_method or "exec",
    )
