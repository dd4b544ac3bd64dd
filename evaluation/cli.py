"""`hecktor evaluate` and `python -m evaluation`: score one submission of one task."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from contract import platform
from contract.errors import HecktorError
from contract.tasks import TASK_CHOICES, task_named
from evaluation.editions.profile import DEFAULT_EDITION, known_editions
from evaluation.execution.options import add_bootstrap, add_workers
from evaluation.pipeline import Request, evaluate
from evaluation.statistics.bootstrap import INTERVAL_METHODS


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate and print the aggregates; raises HecktorError for what a user can mend."""
    options = _parser().parse_args(argv)
    request = Request(
        task=task_named(options.task),
        input_dir=options.input,
        ground_truth_dir=options.ground_truth,
        output_dir=options.output,
        edition=options.edition,
        seed=options.seed,
        bootstraps=options.bootstraps,
        workers=options.workers,
        interval=options.interval,
        scheduler=options.scheduler,
        public=options.public,
        predictions=options.predictions,
        bounding_boxes=options.bounding_boxes,
        options=_named(options.option),
    )
    report = evaluate(request)
    for name, found in report["aggregates"].items():
        print(f"{name:<20} {_shown(found['value'])}  [{_shown(found['ci95_low'])}, {_shown(found['ci95_high'])}]")
    cases = report["cases"]
    print(
        f"{cases['used']} cases used of {cases['in_ground_truth']}, "
        f"{len(cases['missing'])} missing, {len(cases['failed'])} failed"
    )
    for line in _warnings(report):
        print(f"warning: {line}", file=sys.stderr)
    print(f"written: {request.output_dir / platform.METRICS_JSON}")
    return 0


def _warnings(report: dict[str, object]) -> list[str]:
    cases, warnings = report["cases"], report["warnings"]
    if not isinstance(cases, dict) or not isinstance(warnings, list):
        raise TypeError("a report holds `cases` and `warnings`")
    lines = [f"{item['case']} failed: {item['why']}" for item in cases["failed"]]
    lines += [f"{word}: {', '.join(cases[word])}" for word in ("missing", "unknown", "duplicate") if cases[word]]
    return lines + warnings


def _shown(value: float | None) -> str:
    return "  null" if value is None else f"{value:.4f}"


def _named(options: Sequence[tuple[str, str]]) -> dict[str, str]:
    names = [name for name, _ in options]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"--option {twice[0]}", "stands twice", "each option once")
    return dict(options)


def _option(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"{text}: expected name=value")
    return name.strip(), value.strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor evaluate", description="Score predictions against the ground truth.")
    parser.add_argument("--task", required=True, choices=TASK_CHOICES, help="which task")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--predictions", type=Path, help="without the platform: a folder of masks, or a CSV table of tasks 2 and 3"
    )
    source.add_argument(
        "--input", type=Path, default=platform.INPUT_DIR, help="predictions.json and the jobs' outputs (%(default)s)"
    )
    parser.add_argument(
        "--ground-truth", type=Path, default=platform.GROUND_TRUTH_DIR, help="masks, or a CSV file (%(default)s)"
    )
    parser.add_argument("--output", type=Path, default=platform.OUTPUT_DIR, help="metrics.json goes here (%(default)s)")
    parser.add_argument(
        "--edition", default=DEFAULT_EDITION, help=f"{', '.join(known_editions())} or a profile.json (%(default)s)"
    )
    parser.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a rule of the edition (docs/editions.md); may be given several times",
    )
    parser.add_argument("--bounding-boxes", type=Path, help="CSV of PatientID, x1, x2, y1, y2, z1, z2 in mm")
    add_bootstrap(parser)
    parser.add_argument(
        "--interval",
        choices=INTERVAL_METHODS,
        default=INTERVAL_METHODS[0],
        help="how the bootstrap makes its 95%% intervals (%(default)s)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="make the rows on the Dask cluster behind this address (docs/evaluating.md)",
    )
    add_workers(parser)
    parser.add_argument("--public", action="store_true", help="leave the per-case rows out of metrics.json")
    return parser
