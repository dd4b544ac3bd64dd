"""`hecktor rehearse`: run an algorithm and its evaluation as the platform does."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from contract.editions import DEFAULT_EDITION, Algorithm, Edition, write_edition_file
from contract.entry import WARNING_MARK
from contract.errors import GroundTruthError, HecktorError, replace_unprintable
from contract.io.files import list_folder
from contract.options import (
    Parser,
    add_code_option,
    add_edition_and_task_options,
    positive_number,
    require_folders,
    require_paths,
    select_algorithm,
    whole_number,
)
from contract.packages import chosen_edition, make_edition_hint
from contract.platform import API_METHODS
from contract.processes import count_usable_cpus
from rehearsal.platform.images import is_archive
from rehearsal.runners.containers import ContainerRunner
from rehearsal.runners.engines import find_engine
from rehearsal.runners.runner import Limits, ProcessRunner, Runner, algorithm_command, evaluation_command

if TYPE_CHECKING:
    from rehearsal.jobs.execute import JobResult, Rehearsal
    from rehearsal.records import RehearsalResult

_UNITS: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def main(argv: Sequence[str] | None = None) -> int:
    """Rehearse; returns 0 if the platform would show a result, 1 otherwise. HecktorError if nothing can be run."""
    parser = _parser()
    options = parser.parse_args(argv)
    require_folders(options, "--cases", "--ground-truth", "--code")
    require_paths(options, "--model")
    edition = chosen_edition(options.edition, options.model)
    hint = make_edition_hint(edition, options.edition, options.model)
    task = select_algorithm(parser, edition.find_algorithm, options.task, hint)
    from rehearsal.jobs.execute import Rehearsal  # after --help: SimpleITK takes a second
    from rehearsal.jobs.release import has_release_layout

    has_references = has_release_layout(options.cases, edition)
    if options.ground_truth is None and not has_references and (options.evaluation_image or options.evaluation_command):
        options.ground_truth = options.cases / edition.reference_folder(task)
    is_scored = has_references or options.ground_truth is not None
    if options.ground_truth is not None:
        _check_ground_truth(options.ground_truth)
    _refuse_unused(parser, options, is_scored)
    edition = write_edition_file(edition, options.output / "edition.json")
    if options.cpus is None and options.jobs > 1:  # an equal share if several cases run at a time
        options.cpus = max(1.0, count_usable_cpus() / options.jobs)
    rehearsal = Rehearsal(
        edition=edition,
        task=task,
        cohort=options.cases,
        output_dir=options.output,
        algorithm=_algorithm(options, edition, task),
        limits=_limits(options, task),
        evaluation=_evaluation(options, edition, task) if is_scored else None,
        ground_truth_dir=options.ground_truth,
        model=options.model,
        on_failure=options.on_failure,
        team=options.team,
        parallel=options.jobs,
        only=tuple(options.case),
        api_method=options.api_method,
    )
    if not rehearsal.algorithm.is_isolated:
        print("plain processes: user, network and read-only input are not enforced", file=sys.stderr)
    return 0 if _rehearsed(rehearsal).succeeded else 1


def _check_ground_truth(folder: Path) -> None:
    """Refuse a folder that holds only folders, before cases run for hours. Raises `GroundTruthError`."""
    entries = [path for path in list_folder(folder) if not path.name.startswith(".")]
    if any(path.is_file() for path in entries):
        return
    below = [path.name for path in entries if path.is_dir() and any(one.is_file() for one in list_folder(path))]
    found = f"no file in it{f', but in {below[0]}/' if below else ''}"
    raise GroundTruthError(
        f"ground truth {folder.absolute().name}", found, "masks <case>.mha or .nii.gz, or a CSV table"
    )


def _limits(options: argparse.Namespace, task: Algorithm) -> Limits:
    """The limits of a case; a given time limit also holds for each call of a server."""
    if options.time_limit is None:
        return Limits(options.memory, task.time_limit_s, options.cpus)
    return Limits(options.memory, options.time_limit, options.cpus, invoke_limit_s=options.time_limit)


def _refuse_unused(parser: argparse.ArgumentParser, options: argparse.Namespace, is_scored: bool) -> None:
    """End with status 2 for an option that this rehearsal would not use."""
    has_image = bool(options.algorithm_image or options.evaluation_image)
    for option, is_unused, expected in (
        ("--gpus", options.gpus and not options.algorithm_image, "--algorithm-image"),
        ("--engine", options.engine and not has_image, "--algorithm-image or --evaluation-image"),
        ("--evaluation-arguments", options.evaluation_arguments and not is_scored, "--ground-truth"),
        ("--on-failure", options.on_failure != "abort" and not is_scored, "--ground-truth"),
        ("--code", options.code and not options.process, "--process: an image is built with it"),
    ):
        if is_unused:
            parser.error(f"argument {option}: found without {expected}, expected both")


def _rehearsed(rehearsal: Rehearsal) -> RehearsalResult:
    from tqdm import tqdm

    from rehearsal.pipeline import rehearse

    with tqdm(
        desc=replace_unprintable(f"{rehearsal.team}, {rehearsal.task.name}"), unit="case", disable=None, leave=False
    ) as bar:

        def done(job: JobResult) -> None:
            bar.update()
            if job.failure is not None:
                bar.write(replace_unprintable(f"failed: {job.job.case.case_id}: {job.failure}"), file=sys.stderr)

        result = rehearse(rehearsal, on_start=bar.reset, on_job=done)
    _print_result(result, rehearsal.output_dir)
    return result


def _say(line: str, file: TextIO | None = None) -> None:
    """Print one line; programs, images and files of strangers have a part in it, so it holds no escapes."""
    print(replace_unprintable(line), file=file)


def _print_result(result: RehearsalResult, output_dir: Path) -> None:
    from rehearsal.records import REHEARSAL_JSON, records_of, warn_without_passes

    for warning in result.warnings:
        _say(f"warning: {warning}", file=sys.stderr)
    for refusal in result.refusals:
        _say(f"refused: {refusal}", file=sys.stderr)
    width = max([40, *map(len, result.ranked)])
    for path, value in result.ranked.items():
        _say(f"{path:<{width}} {value:.4f}")
    _print_answers(result)
    peaks = [case.peak_memory_bytes for case in result.cases if case.peak_memory_bytes is not None]
    memory = f", peak memory {max(peaks) / 1024**3:.2f} GiB" if peaks else ""
    _say(
        f"{len(result.cases) - len(result.failures)} of {len(result.cases)} jobs succeeded, "
        f"{max(case.seconds for case in result.cases):.1f} s the longest "
        f"(limit {result.limits.time_limit_s:g} s){memory}"
    )
    if result.startup_s:
        starts = ", ".join(f"{seconds:.1f} s" for seconds in result.startup_s)
        _say(f"one server for all cases, ready after {starts}")
    if result.evaluation_api_method == "invoke":
        _say("evaluation by one call of a server (invoke)")
    if result.evaluation is None:
        _say("not scored: no --ground-truth was given")
    _say(f"written: {output_dir / REHEARSAL_JSON}")
    for problem in result.problems or (result.failures[:1] if not result.refusals else ()):
        _say(f"error: {problem}", file=sys.stderr)
    warning = warn_without_passes(records_of(result.cases))
    if warning:
        _say(f"{WARNING_MARK} {warning}", file=sys.stderr)


def _print_answers(result: RehearsalResult) -> None:
    """Print which package answered, each answer's fallbacks and notices, and the notices."""
    from rehearsal.records import notice_lines, records_of

    records = records_of(result.cases)
    for line in notice_lines(records):
        _say(line, file=sys.stderr)
    if result.package is not None:
        source = "given by --model" if result.package.given else "no --model was given"
        named = f"named in {result.package.recorded} of {len(records)} run records"
        _say(f"model package: {result.package} ({source}, {named})")
    for answer in result.answers:
        _say(str(answer))


def _algorithm(options: argparse.Namespace, edition: Edition, task: Algorithm) -> Runner:
    default = algorithm_command(edition, task, options.code)
    return _runner(options, options.algorithm_image, options.command, default, options.arguments, options.gpus)


def _evaluation(options: argparse.Namespace, edition: Edition, task: Algorithm) -> Runner:
    default = evaluation_command(edition, task)
    return _runner(options, options.evaluation_image, options.evaluation_command, default, options.evaluation_arguments)


def _runner(
    options: argparse.Namespace,
    image: str | None,
    command: str | None,
    default: tuple[str, ...],
    arguments: str,
    with_gpus: bool = False,
) -> Runner:
    """A runner of the image, or else of the command, or else of the default command."""
    further = tuple(shlex.split(arguments))
    if image is not None:
        engine, path = find_engine(options.engine), Path(image)
        identity = engine.load(path) if is_archive(path) else engine.identity(image)
        return ContainerRunner(engine, identity, further, with_gpus, title=image)
    return ProcessRunner(default if command is None else _command(command), further)


def _command(text: str) -> tuple[str, ...]:
    """A command line in parts; `python` stands for this interpreter, and files are found from every folder."""
    parts = shlex.split(text)
    if not parts:
        raise HecktorError("an empty command, expected a program to run")
    program, *arguments = (str(Path(part).absolute()) if Path(part).is_file() else part for part in parts)
    return (sys.executable if program in {"python", "python3"} else program, *arguments)


def memory_bytes(text: str) -> int:
    """Bytes of `16g`, `512m` or a plain number; at least 16 MiB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?", text.strip().lower())
    size = int(float(match.group(1)) * _UNITS[match.group(2)]) if match else 0
    if size < 16 * _UNITS["m"]:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a memory size of at least 16m, such as 16g")
    return size


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hecktor rehearse", description="Run an algorithm and the evaluation as the platform does.")
    add = parser.add_argument
    add_edition_and_task_options(parser, f"that of --model, else {DEFAULT_EDITION}")
    layouts = "cases in the platform's layout, CASES/<ID>/input/, or a release: Task N/<ID>/ or <ID>/<ID>__CT.nii.gz"
    add("--cases", required=True, type=Path, help=layouts)
    add("--case", action="append", default=[], metavar="ID", help="run only this case; may be repeated")
    add("--output", required=True, type=Path, help="folder for predictions, logs, metrics.json and rehearsal.json")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--algorithm-image", metavar="IMAGE", help="name of an image, or a saved .tar, .tar.gz or .tar.xz")
    how.add_argument(
        "--process",
        action="store_true",
        help="run `python -m algorithm` as plain processes, without a container engine",
    )
    how.add_argument(
        "--command", help="run this command as plain processes, with --input DIR --output DIR [--model DIR]"
    )
    add_code_option(parser, ", with --process")
    add("--arguments", default="", help="arguments for the algorithm, given with =: --arguments='--method threshold'")
    add("--model", type=Path, help="model package, a folder or .tar.gz, unpacked and mounted at /opt/ml/model")
    truth = "folder of the ground truth (default for a release: its masks and table); without one nothing is scored"
    add("--ground-truth", type=Path, help=truth)
    scored = parser.add_mutually_exclusive_group()
    scored.add_argument(
        "--evaluation-image", metavar="IMAGE", help="evaluation image (default: `python -m evaluation` as a process)"
    )
    scored.add_argument(
        "--evaluation-command", help="evaluation command, called with --input, --output and --ground-truth"
    )
    add("--evaluation-arguments", default="", help="arguments for the evaluation, given with =")
    add("--engine", help="container client: docker, podman or a path (default: the first that answers)")
    add("--gpus", action="store_true", help="give all GPUs of this machine to the algorithm")
    memory = "memory of one case (default: 16g, as on the platform, where the algorithm's settings allow up to 32g)"
    add("--memory", type=memory_bytes, default=memory_bytes("16g"), help=memory)
    add("--cpus", type=positive_number(), help="CPUs of one case (default: all; the platform gives 4, or 8 with 32g)")
    limit = "time limit of one case in seconds (default: the task's; at most 300 for a server)"
    add("--time-limit", type=positive_number(), help=limit)
    ways = "one process per case (exec), one server for all cases (invoke), or the image's label (default: auto)"
    add("--api-method", choices=("auto", *API_METHODS), default="auto", help=ways)
    add("--jobs", type=whole_number(1), default=1, help="number of cases at a time (default: 1)")
    after = (
        "after a failed job: skip the evaluation as the platform does, or score the case as missing (default: abort)"
    )
    add("--on-failure", choices=("abort", "mark-missing"), default="abort", help=after)
    add("--team", default="team", help="name of the team (default: %(default)s)")
    return parser
