"""The arguments of `hecktor predict`, checked before the libraries are imported, which takes seconds."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from algorithm.case.inputs import LISTING, BatchCase, CaseFiles, find_cases, find_pet, make_case_files
from algorithm.request import PROBABILITY_FILES, list_answer_paths, remove_answers, remove_earlier
from contract import platform
from contract.editions import Algorithm, Edition, list_editions, load_edition
from contract.errors import HecktorError, InputError, OutputError
from contract.images.volumes import find_image_suffix
from contract.options import require_files, require_folders, require_paths, select_algorithm
from contract.packages import chosen_edition, make_edition_hint
from contract.platform import NAMED_IMAGE_SUFFIXES, TIFF_SUFFIXES

_IMAGES: Final = "images"
_MASK_SUFFIXES: Final = (".mha", ".nii.gz", ".nii")


@dataclass(frozen=True)
class PredictArguments:
    """A checked command line: task, case, and output folder or mask file."""

    edition: Edition
    algorithm: Algorithm
    source: Path | CaseFiles
    output_dir: Path | None
    mask_path: Path | None


def check_arguments(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> PredictArguments:
    """Remove earlier answers, then check the paths, so that no earlier answer remains if the run is refused.

    Raises:
        HecktorError: A path, the edition or the package is unusable.
    """
    if arguments.output is None:
        arguments.output = _default_output(parser)
    if arguments.record is None and (path := os.environ.get(platform.RUN_RECORD_VARIABLE)):
        arguments.record = Path(path)
    mask_path = arguments.output if _is_mask_file(arguments.output) else None
    output_dir = arguments.output if mask_path is None else None
    _check_outputs(arguments, mask_path)
    edition = _find_edition(arguments)
    _remove_earlier(arguments, edition)
    _require_paths(arguments)
    edition = edition or chosen_edition(arguments.edition, arguments.model)  # raises the error of the package
    algorithm = _find_task(parser, arguments, edition, mask_path)
    source = _find_case(parser, arguments, algorithm)
    return PredictArguments(edition, algorithm, source, output_dir, mask_path)


def _default_output(parser: argparse.ArgumentParser) -> Path:
    """Return the platform's output folder, which exists only in containers; elsewhere a folder must be named."""
    if not platform.OUTPUT_DIR.is_dir():
        parser.error(f"--output not given, and there is no {platform.OUTPUT_DIR}: name a folder for the answers")
    return platform.OUTPUT_DIR


def _is_mask_file(output: Path) -> bool:
    """Return whether the output is a mask's file; raise `OutputError` for an image in another format."""
    suffix = None if output.is_dir() else find_image_suffix(output, (*NAMED_IMAGE_SUFFIXES, *TIFF_SUFFIXES))
    if suffix is not None and suffix not in _MASK_SUFFIXES:
        raise OutputError("--output", output.name, f"a folder, or a mask's file in {', '.join(_MASK_SUFFIXES)}")
    return suffix is not None


def _check_outputs(arguments: argparse.Namespace, mask_path: Path | None) -> None:
    """Raise `OutputError` for an output that is an input, or for an extra file among the answers."""
    inputs = [*_list_inputs(arguments)]
    if mask_path is not None:
        _check_outside("--output", mask_path, inputs)
    roots = (arguments.output, *inputs, platform.OUTPUT_DIR, platform.INPUT_DIR)
    for option, path in _list_extra_files(arguments):
        _check_outside(option, path, roots)


def _check_outside(option: str, path: Path, roots: Iterable[Path]) -> None:
    """Raise `OutputError` if a path is one of the files, or lies in one of the folders, of the case."""
    for root in roots:
        if root.is_file() and path.resolve() == root.resolve():
            raise OutputError(option, f"{path} is a file of the case", "another file")
        if path.resolve().is_relative_to(root.resolve()):
            fault = f"{path} lies within {root}, which may contain only the platform's sockets"
            raise OutputError(option, fault, "a path outside")


def _list_extra_files(arguments: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Iterate over the options and paths of the files next to the answers."""
    if arguments.probabilities is not None:
        yield from (("--probabilities", arguments.probabilities / name) for name in PROBABILITY_FILES)
    if arguments.record is not None:
        yield "--record", arguments.record


def _list_inputs(arguments: argparse.Namespace) -> Iterator[Path]:
    """Iterate over the files or the folder of the case, whether they exist or not."""
    if arguments.ct is None:
        yield arguments.input or platform.INPUT_DIR
    else:
        yield arguments.ct
        with suppress(InputError):
            yield find_pet(arguments.ct)
    yield from (path for path in (arguments.pet, arguments.ehr, arguments.contours) if path is not None)


def _find_edition(arguments: argparse.Namespace) -> Edition | None:
    """Return the edition of `--edition` or of the package; None if neither can be read."""
    with suppress(HecktorError):
        return chosen_edition(arguments.edition, arguments.model)
    return None


def _remove_earlier(arguments: argparse.Namespace, edition: Edition | None) -> None:
    """Remove the files that an earlier run of the task wrote; if the edition is unknown, the files of every edition."""
    for option, path in _list_extra_files(arguments):
        remove_earlier(option, path)
    if _is_mask_file(arguments.output):
        remove_answers([arguments.output])
        return
    paths: list[Path] = []
    for candidate in [edition] if edition is not None else [load_edition(name) for name in list_editions()]:
        with suppress(HecktorError):  # a task that this edition does not have
            paths += list_answer_paths(candidate.find_algorithm(arguments.task), arguments.output).values()
    inputs = [path.resolve() for path in _list_inputs(arguments)]
    remove_answers([path for path in paths if path.resolve() not in inputs], arguments.output)


def _require_paths(arguments: argparse.Namespace) -> None:
    require_files(arguments, "--ct", "--pet", "--ehr", "--contours")
    require_folders(arguments, "--code")
    require_paths(arguments, "--model")
    if not arguments.serve:  # a server's cases come later
        require_folders(arguments, "--input")


def _find_task(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, edition: Edition, mask_path: Path | None
) -> Algorithm:
    """Return the task of `--task`, reduced to its mask if the output is a mask file."""
    task = arguments.task
    if mask_path is not None and task is None:
        task = next((algorithm.name for algorithm in edition.algorithms if algorithm.mask_spec is not None), None)
    plain = arguments.ct is not None and task is None
    hint = ", or --output MASK.nii.gz for only the mask" if plain else ""
    hint += make_edition_hint(edition, arguments.edition, arguments.model)
    algorithm = select_algorithm(parser, edition.find_algorithm, task, hint)
    if mask_path is None:
        return algorithm
    if algorithm.mask_spec is None:
        raise HecktorError("--output", f"the image {mask_path.name}", f"a folder: task {algorithm.name} has no mask")
    return algorithm.model_copy(update={"answers": (algorithm.mask_spec,)})


def _find_case(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, algorithm: Algorithm
) -> Path | CaseFiles:
    """Return the case's folder, or its plain files. Raises `InputError`."""
    if arguments.ct is None:
        if arguments.pet is not None or arguments.ehr is not None:
            parser.error("--pet and --ehr need --ct")
        if arguments.input is not None and not arguments.serve:  # a server's cases come later
            check_case_folder(arguments.input)
        return arguments.input or platform.INPUT_DIR
    if arguments.input is not None:
        parser.error("found --input and --ct, expected one of them")
    if algorithm.head_specs and arguments.ehr is None:
        names = ", ".join(answer.name for answer in algorithm.head_specs)
        raise InputError("--ehr", "not given", f"the clinical variables for {names}, or a mask's file as --output")
    return make_case_files(arguments.ct, arguments.pet, arguments.ehr)


def check_case_folder(folder: Path) -> None:
    """Raise `InputError` for a folder without a case; the message names a subfolder that contains a case."""
    if any((folder / name).exists() for name in (_IMAGES, LISTING)):
        return
    name = platform.INPUT_DIR.name
    nested = next((path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.is_dir()), None)
    expected = "the folder of a case (of a release: --ct FILE --pet FILE)"
    if nested is not None:
        expected = f"--input {nested.absolute()}"
    raise InputError("--input", f"no {_IMAGES} in {folder.absolute()}", expected)


def find_many_cases(arguments: argparse.Namespace) -> tuple[BatchCase, ...]:
    """Check the options of many cases, and find the cases of the folder or table in `--ct`.

    Raises:
        HecktorError: A path or an option cannot be used, or there is no case.
    """
    require_paths(arguments, "--ct", "--pet", "--ehr", "--model")
    require_folders(arguments, "--code")
    _check_options_of_many(arguments)
    edition = chosen_edition(arguments.edition, arguments.model)
    algorithm = edition.algorithms[0] if arguments.task is None else edition.find_algorithm(arguments.task)
    return find_cases(arguments.ct, arguments.pet, arguments.ehr, edition, algorithm)


def _check_options_of_many(arguments: argparse.Namespace) -> None:
    """Raise `HecktorError` for an option that does not apply to many cases."""
    for name in ("input", "serve", "contours", "record"):
        if getattr(arguments, name):
            raise HecktorError(f"--{name}", "found with many cases in --ct", "one of them")
    if arguments.method != "baseline":
        raise HecktorError("--method", f"found {arguments.method!r} with many cases in --ct", "'baseline'")
    if arguments.output is None:
        raise OutputError("--output", "not given", "a folder for masks, records and the table of answers")
    if arguments.output.is_file() or _is_mask_file(arguments.output):
        raise OutputError("--output", f"the file {arguments.output.name}", "a folder, since --ct has many cases")
    for option in ("ct", "pet", "ehr"):
        path = getattr(arguments, option)
        if path is not None and path.is_dir() and path.resolve() == arguments.output.resolve():
            raise OutputError("--output", f"the folder of --{option}", "another folder")
