"""Command line: `hecktor submission`, `python -m rehearsal.submission`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from contract.errors import EngineError
from contract.tasks import TASK_CHOICES, TASKS, task_named
from rehearsal.phantoms.protocol import HEIGHTS
from rehearsal.submission.images import TAGS, BuiltImages, find_images
from rehearsal.submission.phantoms import KINDS
from rehearsal.submission.submission import Request, make_submission, without_archives


def main(argv: Sequence[str] | None = None) -> int:
    """Make and rehearse the files to upload.

    Raises:
        HecktorError: something is missing or did not pass. Where only the engine is missing, the model is made first.
    """
    options = _parser().parse_args(argv)
    request = Request(
        package=options.package.resolve(),
        output=options.output.resolve(),
        tasks=tuple(task for task in TASKS if task in {task_named(name) for name in options.task}) or TASKS,
        torch=options.images,
        with_gpus=options.gpus,
        kinds=tuple(options.phantom) or KINDS,
    )
    images: BuiltImages | None = None
    missing: EngineError | None = None
    if not options.model_only:
        try:
            images = find_images(options.engine, options.images, options.gpus, options.level)
        except EngineError as problem:
            missing = problem
            print(f"{problem.message}: the model alone is made, and rehearsed with plain processes", flush=True)
    make_submission(request, images, lambda line: print(line, flush=True))
    if missing is not None:
        raise without_archives(missing)
    print(f"submission in {request.output}; README.md says what goes where", flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hecktor submission", description="Make the files to upload from a model package, and rehearse each."
    )
    add = parser.add_argument
    add("--package", type=Path, required=True, help="folder of a model package")
    add("--output", type=Path, required=True, help="folder for model.tar.gz, the image archives and README.md")
    add("--task", action="append", default=[], choices=TASK_CHOICES, help="only this one; may be repeated")
    add("--images", choices=sorted(TAGS), default="cuda", help="PyTorch in the images; cuda is for the platform's T4")
    add("--model-only", action="store_true", help="no images: model.tar.gz alone, rehearsed with plain processes")
    add("--engine", help="container client: docker, podman or a path (default: the first that can build)")
    add("--gpus", action="store_true", help="hand all GPUs of this machine to the images in the rehearsal")
    add("--phantom", action="append", default=[], choices=sorted(HEIGHTS), help="fields of view to rehearse on")
    add("--level", type=int, choices=range(1, 10), default=5, help="of gzip, 1 fast to 9 small (5)")
    return parser
