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
from contract.platform import API_METHODS, ApiMethod
from rehearsal.phantoms.centres import FIELDS_OF_VIEW

if TYPE_CHECKING:
    from rehearsal.submission.images import BuiltImages, Torch

_BUILDS: Final = ("cpu", "cuda")
_IMAGE_OPTIONS: Final = ("engine", "revision", "level", "api_method")


def main(argv: Sequence[str] | None = None) -> int:
    """Make and rehearse the files to upload; if only the engine is missing, the model is made before the error."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    require_paths(arguments, "--package")
    require_folders(arguments, "--code")
    edition = chosen_edition(arguments.edition, arguments.package)
    if arguments.model_only:
        refuse_image_options(parser, arguments, "--model-only", "images", "gpus")
    from rehearsal.submission.folder import MODEL, without_archives  # after --help and a wrong package: takes seconds
    from rehearsal.submission.pipeline import SubmissionOptions, make_submission
    from rehearsal.submission.tries import KINDS

    options = SubmissionOptions(
        package=arguments.package.resolve(),
        output=arguments.output.resolve(),
        edition=edition,
        tasks=_tasks(parser, edition, arguments.task, make_edition_hint(edition, arguments.edition, arguments.package)),
        torch=arguments.images or "cuda",
        with_gpus=arguments.gpus,
        kinds=tuple(arguments.phantom) or KINDS,
        code=tuple(arguments.code),
    )
    images, missing = None, None
    if not arguments.model_only:
        images, missing = images_or_reason(arguments, options.torch, with_gpus=arguments.gpus)
    if images is not None:
        images = replace(images, code=options.code)
    with lock_output(options.output):
        make_submission(options, images, lambda line: print(replace_unprintable(line), flush=True))
    if missing is not None:
        raise without_archives(missing, MODEL, "--model-only")
    print(f"submission in {options.output}; README.md describes the files", flush=True)
    return 0


def _tasks(parser: argparse.ArgumentParser, edition: Edition, names: Sequence[str], hint: str) -> tuple[Algorithm, ...]:
    """The named tasks in the edition's order; all if none is named."""
    try:
        named = {edition.find_algorithm(name).number for name in names}
    except HecktorError as error:
        parser.error(f"argument --task: {error.message}{hint}")
    return tuple(task for task in edition.algorithms if not named or task.number in named)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor submission", description="Make and rehearse the files to upload from a model package."
    )
    add = parser.add_argument
    add("--package", type=Path, required=True, help="model package, a folder or .tar.gz")
    add("--output", type=Path, required=True, help="folder for model.tar.gz, the image archives and README.md")
    only = "make only this task of the edition, by name or number; may be repeated"
    add("--task", action="append", default=[], help=only)
    add_edition_option(parser, "that of the package")
    build = "PyTorch build of the images; the platform's T4 needs cuda (default: cuda)"
    add("--images", choices=_BUILDS, help=build)
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
    label = "label of the images, any new text; the platform refuses an image that it already has"
    add("--revision", default="", metavar="TEXT", help=label)
    way = "how the platform calls the images: a new process each time (exec), or one server (invoke) (default: exec)"
    add("--api-method", choices=API_METHODS, help=way)
    add("--level", type=int, choices=range(1, 10), help="gzip level, 1 (fast) to 9 (small) (default: 5)")


def refuse_image_options(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, option: str, *further: str
) -> None:
    """End with status 2 if `option`, which makes no image, is given with an image option or one of `further`."""
    unused = [name.replace("_", "-") for name in (*further, *_IMAGE_OPTIONS) if getattr(arguments, name)]
    if unused:
        parser.error(f"argument --{unused[0]}: found with {option}, expected one of them")


def images_or_reason(
    arguments: argparse.Namespace, torch: Torch | None, *, with_gpus: bool = False
) -> tuple[BuiltImages | None, EngineError | None]:
    """The builder of images, or the reason why this machine has none, which is printed.

    `torch` is the algorithms' build of PyTorch; None is for evaluation images.
    """
    from rehearsal.submission.images import find_images

    level = arguments.level or 5
    api_method: ApiMethod = arguments.api_method or "exec"
    try:
        return find_images(arguments.engine, torch, with_gpus, level, arguments.revision, api_method=api_method), None
    except EngineError as problem:
        print(f"{problem.message}: no image is made; plain processes are used instead", flush=True)
        return None, problem
