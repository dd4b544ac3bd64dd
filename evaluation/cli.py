"""`hecktor evaluate` and `python -m evaluation`: score one submission of one task."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract import labels, platform
from contract.entry import hold_sigterm, log_to_stderr
from contract.errors import HecktorError
from contract.io.locks import lock_output
from contract.options import (
    Parser,
    add_edition_option,
    add_serve_options,
    add_task_option,
    check_port,
    require_files,
    require_folders,
    require_paths,
)
from evaluation.metrics.rules import DIRECTIONS
from evaluation.options import EvaluationRequest, add_bootstrap_options, add_workers_option, find_task
from evaluation.results.documents import remove_earlier_metrics

if TYPE_CHECKING:
    from evaluation.editions.profile import TaskProfile


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate and print the aggregates, or serve; raise `HecktorError` for errors that the user can fix."""
    parser = _make_parser()
    options = parser.parse_args(argv)
    check_port(options)
    if options.serve:
        hold_sigterm()  # before the imports, which take seconds
    from evaluation.editions.profile import load_profile  # imports NumPy, which `--help` does not need

    task = find_task(parser, load_profile(options.edition), options.task)
    if options.serve:
        return _serve(options, task)
    with lock_output(options.output):
        _evaluate(options, task)
    return 0


def _serve(options: argparse.Namespace, task: TaskProfile) -> int:
    """Evaluate the submission in the input folder at each call, until SIGTERM or SIGINT. Raises `HecktorError`."""
    from contract.servers import run_server

    for option in ("predictions", "teams"):
        if getattr(options, option) is not None:
            expected = "the platform's folders: a server evaluates many submissions"
            raise HecktorError("--serve", f"found with --{option}", expected)
    _require_files(options)
    log_to_stderr()

    def evaluate() -> str:
        with lock_output(options.output):
            report = _evaluate_submission(options, task)
        return f"{task.algorithm.name} evaluated: {', '.join(_describe_counts(report['cases']))}"

    port = platform.INVOKE_PORT if options.port is None else options.port
    # A submission has no score until all of its cases are scored, so nothing ends an evaluation early.
    run_server(evaluate, end_case=lambda: None, load=_import_libraries, port=port)
    return 0


def _import_libraries() -> None:
    importlib.import_module("evaluation.pipeline")


def _evaluate(options: argparse.Namespace, task: TaskProfile) -> None:
    """Evaluate one submission or all teams, and print the aggregates. Raises `HecktorError`."""
    if options.teams is None:
        _evaluate_submission(options, task)
        return
    require_folders(options, "--teams")
    _require_files(options)
    from evaluation.teams import evaluate_team_folder  # loads SimpleITK, so the paths are checked before

    result = evaluate_team_folder(_make_request(options, task), task, options.teams)
    _print_teams(task, {team: report.to_dict() for team, report in result.reports.items()}, options.output)
    result.check()


def _evaluate_submission(options: argparse.Namespace, task: TaskProfile) -> Mapping[str, Any]:
    """Evaluate one submission, print the aggregates, and return the content of metrics.json. Raises `HecktorError`."""
    remove_earlier_metrics(options.output, task.algorithm.name)
    if options.predictions is None:
        require_folders(options, "--input")
    _require_files(options)
    from evaluation.pipeline import evaluate_submission  # loads SimpleITK, so the paths are checked before

    report = evaluate_submission(_make_request(options, task)).to_dict()
    _print_report(report)
    _print_directions(task, report["provenance"]["options"])
    print(f"written: {options.output / platform.METRICS_JSON}")
    return report


def _require_files(options: argparse.Namespace) -> None:
    """Raise `HecktorError` if a path does not exist, or if `--bounding-boxes` is a folder."""
    require_paths(options, "--predictions", "--ground-truth")
    require_files(options, "--bounding-boxes")


def _make_request(options: argparse.Namespace, task: TaskProfile) -> EvaluationRequest:
    return EvaluationRequest(
        task=task.algorithm.name,
        submission=options.input,
        ground_truth=options.ground_truth,
        output_dir=options.output,
        edition=options.edition,
        seed=options.seed,
        bootstraps=options.bootstraps,
        workers=options.scheduler or options.workers,
        rows=not options.no_rows,
        predictions=options.predictions,
        bounding_boxes=options.bounding_boxes,
        options=_join_rules(options.option),
    )


def _print_teams(task: TaskProfile, reports: Mapping[str, Mapping[str, Any]], output: Path) -> None:
    """Print a line for each team with its deciding metrics, and each team's warnings."""
    width = max(map(len, reports), default=0)
    for team, report in reports.items():
        values = [f"{name} {_format(report['aggregates'][name]['value'])}" for name in task.ranking.official_metrics]
        print(f"{team:<{width}} {', '.join([*values, *_describe_counts(report['cases'])])}")
        for line in _list_warnings(report):
            print(f"warning: {team}: {line}", file=sys.stderr)
    skipped = [_describe_skipped(report["cases"]) for report in reports.values()]
    for line in dict.fromkeys(chain.from_iterable(skipped)):
        if all(line in lines for lines in skipped):
            print(line)
    if reports:
        teams = "1 team" if len(reports) == 1 else f"{len(reports)} teams"
        print(f"written: {platform.METRICS_JSON} of {teams} in {output}; `hecktor rank {output}` ranks them")


def _print_report(report: Mapping[str, Any]) -> None:
    width = max(20, *map(len, report["aggregates"]))
    for name, figures in report["aggregates"].items():
        value, low, high = (_format(figures[key]) for key in ("value", "ci95_low", "ci95_high"))
        print(f"{name:<{width}} {value}  [{low}, {high}]")
    print(", ".join(_describe_counts(report["cases"])))
    for line in _describe_skipped(report["cases"]):
        print(line)
    for line in _list_warnings(report):
        print(f"warning: {line}", file=sys.stderr)


def _describe_counts(cases: Mapping[str, Any]) -> list[str]:
    used = f"{cases['used']} of {cases['in_ground_truth']} cases count"
    if "missing" not in cases:  # The result has no rows.
        return [used, f"{cases['used'] - cases['answered']} without a usable prediction"]
    failed = {failure["case"] for failure in cases["failed"]}  # Several answers of a case may be unusable.
    return [used, f"{len(cases['missing'])} without a prediction", f"{len(failed)} with an unusable one"]


def _list_warnings(report: Mapping[str, Any]) -> list[str]:
    cases = report["cases"]
    lines = [f"{failure['case']} failed: {failure['why']}" for failure in cases.get("failed", ())]
    explanations = {"missing": "", "unknown": "", "duplicate": ", several answers, so none counts"}
    for key, explanation in explanations.items():
        if cases.get(key):
            lines.append(f"{key}{explanation}: {', '.join(cases[key])}")
    return [*lines, *report["warnings"]]


def _describe_skipped(cases: Mapping[str, Any]) -> list[str]:
    """Return a line for each reason why cases do not count; results without rows do not name these cases."""
    reasons = {why: names for why, names in cases.get("skipped", {}).items() if isinstance(names, list)}
    texts = {why: f"left out, {why.replace('_', ' ')}" for why in reasons}
    for name in labels.NAMES.values():
        texts[f"{name.lower()}_empty_not_in_mean_dsc"] = f"not in the mean DSC, no {name} in the reference"
    return [f"{texts[why]}: {', '.join(names)}" for why, names in reasons.items()]


def _print_directions(task: TaskProfile, rules: Mapping[str, Any]) -> None:
    for name in task.answers:
        direction = (rules[name] if task.has_several_answers else rules).get("direction")
        if direction is not None:
            print(f"{name} is read as {DIRECTIONS[direction]}")


def _format(value: float | None) -> str:
    return "  null" if value is None else f"{value:z.4f}"


def _join_rules(rules: Sequence[tuple[str, str]]) -> dict[str, str]:
    names = [name for name, _ in rules]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise HecktorError(f"--option {repeated[0]}", "appears twice", "each option once")
    return dict(rules)


def _parse_rule(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"{text}: expected name=value")
    return name.strip(), value.strip()


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hecktor evaluate", description="Score predictions against the ground truth.")
    add_task_option(parser)
    source = parser.add_mutually_exclusive_group()
    predictions = "folder of masks, CSV table of risks or classes, or for several answers a folder with both"
    source.add_argument("--predictions", type=Path, help=predictions)
    entries = "a folder or table as for --predictions, or a zip file of masks"
    teams = f"folder with one entry per team: {entries}; writes TEAM/metrics.json"
    source.add_argument("--teams", type=Path, metavar="DIR", help=teams)
    platform_layout = "submission in the platform's layout (default: %(default)s)"
    source.add_argument("--input", type=Path, default=platform.INPUT_DIR, help=platform_layout)
    add = parser.add_argument
    truth = "folder of masks, or a CSV table (default: %(default)s)"
    add("--ground-truth", type=Path, default=platform.GROUND_TRUTH_DIR, help=truth)
    add("--output", type=Path, default=platform.OUTPUT_DIR, help="folder for metrics.json (default: %(default)s)")
    add_edition_option(parser)
    rule = "change a rule of the edition (docs/editions.md); may be repeated"
    add("--option", type=_parse_rule, action="append", default=[], metavar="NAME=VALUE", help=rule)
    add("--bounding-boxes", type=Path, help="CSV table with PatientID, x1, x2, y1, y2, z1, z2 in mm")
    add_bootstrap_options(parser)
    cluster = "score cases on the Dask cluster at this address (docs/metrics.md)"
    add("--scheduler", metavar="ADDRESS", help=cluster)
    add_workers_option(parser)
    no_rows = "write the aggregates without rows, names and centres, for files that submitters see (docs/metrics.md)"
    add("--no-rows", action="store_true", help=no_rows)
    add_serve_options(parser)
    return parser
