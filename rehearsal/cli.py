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
from rehearsal.runners.containers import ContainerRunner, find_engine
from rehearsal.runners.runner import Limits, ProcessRunner, Runner, build_algorithm_command, build_evaluation_command

if TYPE_CHECKING:
    from rehearsal.jobs.execution import JobResult, Rehearsal
    from rehearsal.records import RehearsalResult

_UNITS: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def main(argv: Sequence[str] | None = None) -> int:
    """Rehearse; return 0 if the platform would show a result, 1 otherwise.

    Raises:
        HecktorError: Nothing can be run.
    """
    parser = _build_parser()
    options = parser.parse_args(argv)
    require_folders(options, "--cases", "--ground-truth", "--code")
    require_paths(options, "--model")
    edition = chosen_edition(options.edition, options.model)
    hint = make_edition_hint(edition, options.edition, options.model)
    task = select_algorithm(parser, edition.find_algorithm, options.task, hint)
    # SimpleITK takes a second to import, which --help does not need.
    from rehearsal.jobs.execution import Rehearsal
    from rehearsal.jobs.release import has_release_layout

    has_references = has_release_layout(options.cases, edition)
    if options.ground_truth is None and not has_references and (options.evaluation_image or options.evaluation_command):
        options.ground_truth = options.cases / edition.get_reference_folder(task)
    is_scored = has_references or options.ground_truth is not None
    if options.ground_truth is not None:
        _check_ground_truth(options.ground_truth)
    _refuse_unused(parser, options, is_scored)
    edition = write_edition_file(edition, options.output / "edition.json")
    if options.cpus is None and options.jobs > 1:  # Cases that run at the same time share the CPUs equally.
        options.cpus = max(1.0, count_usable_cpus() / options.jobs)
    rehearsal = Rehearsal(
        edition=edition,
        task=task,
        cohort=options.cases,
        output_dir=options.output,
        algorithm=_make_algorithm_runner(options, edition, task),
        limits=_read_limits(options, task),
        evaluation=_make_evaluation_runner(options, edition, task) if is_scored else None,
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
    return 0 if _run_rehearsal(rehearsal).succeeded else 1


def _check_ground_truth(folder: Path) -> None:
    """Raise `GroundTruthError` for a folder that contains only folders, before cases run for hours."""
    entries = [path for path in list_folder(folder) if not path.name.startswith(".")]
    if any(path.is_file() for path in entries):
        return
    folders = [path for path in entries if path.is_dir()]
    with_files = [path.name for path in folders if any(entry.is_file() for entry in list_folder(path))]
    problem = f"no file in it{f', but in {with_files[0]}/' if with_files else ''}"
    raise GroundTruthError(
        f"ground truth {folder.absolute().name}", problem, "masks <case>.mha or .nii.gz, or a CSV table"
    )


def _read_limits(options: argparse.Namespace, task: Algorithm) -> Limits:
    """Read the limits of a case; the option --time-limit also limits each call of a server."""
    if options.time_limit is None:
        return Limits(options.memory, task.time_limit_s, options.cpus)
    return Limits(options.memory, options.time_limit, options.cpus, invoke_limit_s=options.time_limit)


def _refuse_unused(parser: argparse.ArgumentParser, options: argparse.Namespace, is_scored: bool) -> None:
    """Exit with status 2 if an option has no effect in this rehearsal."""
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


def _run_rehearsal(rehearsal: Rehearsal) -> RehearsalResult:
    from tqdm import tqdm

    from rehearsal.pipeline import rehearse

    with tqdm(
        desc=replace_unprintable(f"{rehearsal.team}, {rehearsal.task.name}"), unit="case", disable=None, leave=False
    ) as bar:

        def show_job(job: JobResult) -> None:
            bar.update()
            if job.failure is not None:
                bar.write(replace_unprintable(f"failed: {job.job.case.case_id}: {job.failure}"), file=sys.stderr)

        result = rehearse(rehearsal, on_start=bar.reset, on_job=show_job)
    _print_result(result, rehearsal.output_dir)
    return result


def _print_line(line: str, file: TextIO | None = None) -> None:
    """Print one line without escape sequences, since its text may come from untrusted programs, images and files."""
    print(replace_unprintable(line), file=file)


def _print_result(result: RehearsalResult, output_dir: Path) -> None:
    from rehearsal.records import REHEARSAL_JSON, collect_records, warn_without_passes

    for warning in result.warnings:
        _print_line(f"warning: {warning}", file=sys.stderr)
    for refusal in result.refusals:
        _print_line(f"refused: {refusal}", file=sys.stderr)
    width = max([40, *map(len, result.ranked)])
    for path, value in result.ranked.items():
        _print_line(f"{path:<{width}} {value:.4f}")
    _print_answers(result)
    peaks = [case.peak_memory_bytes for case in result.cases if case.peak_memory_bytes is not None]
    memory = f", peak memory {max(peaks) / 1024**3:.2f} GiB" if peaks else ""
    _print_line(
        f"{len(result.cases) - len(result.failures)} of {len(result.cases)} jobs succeeded, "
        f"the longest in {max(case.seconds for case in result.cases):.1f} s "
        f"(limit {result.limits.time_limit_s:g} s){memory}"
    )
    if result.startup_s:
        starts = ", ".join(f"{seconds:.1f} s" for seconds in result.startup_s)
        _print_line(f"one server for all cases, ready after {starts}")
    if result.evaluation_api_method == "invoke":
        _print_line("evaluation by one call of a server (invoke)")
    if result.evaluation is None:
        _print_line("not scored: no --ground-truth was given")
    _print_line(f"written: {output_dir / REHEARSAL_JSON}")
    for problem in result.problems or (result.failures[:1] if not result.refusals else ()):
        _print_line(f"error: {problem}", file=sys.stderr)
    warning = warn_without_passes(collect_records(result.cases))
    if warning:
        _print_line(f"{WARNING_MARK} {warning}", file=sys.stderr)


def _print_answers(result: RehearsalResult) -> None:
    """Print the notices, the model package that answered, and the fallbacks and notices of each answer."""
    from rehearsal.records import collect_records, format_notices

    records = collect_records(result.cases)
    for line in format_notices(records):
        _print_line(line, file=sys.stderr)
    if result.package is not None:
        source = "given by --model" if result.package.given else "no --model was given"
        count = f"named in {result.package.recorded} of {len(records)} run records"
        _print_line(f"model package: {result.package} ({source}, {count})")
    for answer in result.answers:
        _print_line(str(answer))


def _make_algorithm_runner(options: argparse.Namespace, edition: Edition, task: Algorithm) -> Runner:
    arguments = tuple(shlex.split(options.arguments))
    if options.algorithm_image is not None:
        return _make_container_runner(options.engine, options.algorithm_image, arguments, options.gpus)
    default = build_algorithm_command(edition, task, options.code)
    return ProcessRunner(default if options.command is None else _parse_command(options.command), arguments)


def _make_evaluation_runner(options: argparse.Namespace, edition: Edition, task: Algorithm) -> Runner:
    arguments = tuple(shlex.split(options.evaluation_arguments))
    if options.evaluation_image is not None:
        return _make_container_runner(options.engine, options.evaluation_image, arguments, with_gpus=False)
    command = options.evaluation_command
    return ProcessRunner(
        build_evaluation_command(edition, task) if command is None else _parse_command(command), arguments
    )


def _make_container_runner(
    engine_client: str | None, image: str, arguments: tuple[str, ...], with_gpus: bool
) -> ContainerRunner:
    """Make a runner of an image, from its name or from a saved archive, which is loaded."""
    engine = find_engine(engine_client)
    path = Path(image)
    identity = engine.load(path) if is_archive(path) else engine.find_image_id(image)
    return ContainerRunner(engine, identity, arguments, with_gpus, title=image)


def _parse_command(text: str) -> tuple[str, ...]:
    """Split a command line; `python` becomes this interpreter, and paths of existing files become absolute."""
    parts = shlex.split(text)
    if not parts:
        raise HecktorError("an empty command, expected a program to run")
    program, *arguments = (str(Path(part).absolute()) if Path(part).is_file() else part for part in parts)
    return (sys.executable if program in {"python", "python3"} else program, *arguments)


def parse_memory_bytes(text: str) -> int:
    """Parse `16g`, `512m` or a plain number as bytes, at least 16 MiB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?", text.strip().lower())
    size = int(float(match.group(1)) * _UNITS[match.group(2)]) if match else 0
    if size < 16 * _UNITS["m"]:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a memory size of at least 16m, such as 16g")
    return size


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hecktor rehearse", description="Run an algorithm and the evaluation as the platform does.")
    add = parser.add_argument
    add_edition_and_task_options(parser, f"the edition of --model, otherwise {DEFAULT_EDITION}")
    cases_help = "cases in the platform's layout, CASES/<ID>/input/, or a release: Task N/<ID>/ or <ID>/<ID>__CT.nii.gz"
    add("--cases", required=True, type=Path, help=cases_help)
    add("--case", action="append", default=[], metavar="ID", help="run and score only this case; may be repeated")
    add("--output", required=True, type=Path, help="folder for predictions, logs, metrics.json and rehearsal.json")
    program = parser.add_mutually_exclusive_group(required=True)
    program.add_argument(
        "--algorithm-image", metavar="IMAGE", help="name of an image, or a saved .tar, .tar.gz or .tar.xz"
    )
    program.add_argument(
        "--process",
        action="store_true",
        help="run `python -m algorithm` as plain processes, without a container engine",
    )
    program.add_argument(
        "--command", help="run this command as plain processes, with --input DIR --output DIR [--model DIR]"
    )
    add_code_option(parser, ", with --process")
    add("--arguments", default="", help="arguments for the algorithm, passed with =: --arguments='--method threshold'")
    add("--model", type=Path, help="model package, a folder or .tar.gz, unpacked and mounted at /opt/ml/model")
    ground_truth_help = (
        "folder of the ground truth (default for a release: its masks and table); without it nothing is scored"
    )
    add("--ground-truth", type=Path, help=ground_truth_help)
    evaluation = parser.add_mutually_exclusive_group()
    evaluation.add_argument(
        "--evaluation-image", metavar="IMAGE", help="evaluation image (default: `python -m evaluation` as a process)"
    )
    evaluation.add_argument(
        "--evaluation-command", help="evaluation command, called with --input, --output and --ground-truth"
    )
    add("--evaluation-arguments", default="", help="arguments for the evaluation, passed with =")
    add("--engine", help="container client: docker, podman or a path (default: the first that responds)")
    add("--gpus", action="store_true", help="give all GPUs of this machine to the algorithm")
    memory_help = (
        "memory of one case (default: 16g, as on the platform, where the algorithm's settings allow up to 32g)"
    )
    add("--memory", type=parse_memory_bytes, default=parse_memory_bytes("16g"), help=memory_help)
    add("--cpus", type=positive_number(), help="CPUs of one case (default: all; the platform gives 4, or 8 with 32g)")
    time_limit_help = "time limit of one case in seconds (default: the task's; at most 300 for a server)"
    add("--time-limit", type=positive_number(), help=time_limit_help)
    method_help = (
        "exec: one process per case; invoke: one server for all cases; auto: as the image's label says (default: auto)"
    )
    add("--api-method", choices=("auto", *API_METHODS), default="auto", help=method_help)
    add("--jobs", type=whole_number(1), default=1, help="number of cases at a time (default: 1)")
    failure_help = (
        "after a failed job: skip the evaluation as the platform does, or score the case as missing (default: abort)"
    )
    add("--on-failure", choices=("abort", "mark-missing"), default="abort", help=failure_help)
    add("--team", default="team", help="name of the team (default: %(default)s)")
    return parser
