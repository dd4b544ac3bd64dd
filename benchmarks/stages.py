"""`scripts/bench`: the stages of the algorithm and of the evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from algorithm.network.package import DEFAULT_PACKAGE, load_package
from benchmarks.cases import algorithm, evaluation, four_answers
from benchmarks.cases.challenge import measurements as challenge
from benchmarks.cases.data import bench_data, describe, facts, make_data
from benchmarks.harness.suite import progress, run_suite, suite_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Make the data, measure, report.

    Raises:
        HecktorError: a measurement failed.
    """
    parser = suite_parser("scripts/bench", "Measure seconds and memory of the algorithm's and the evaluation's stages.")
    parser.add_argument("--model", type=Path, default=DEFAULT_PACKAGE, help="model package (default: the shipped one)")
    options = parser.parse_args(argv)
    model, data = load_package(options.model), bench_data(options)
    for line in make_data(data):
        progress(f"data: {line}")
    inputs = facts(data, model)
    measurements = [
        *algorithm.measurements(data, options.model),
        *four_answers.measurements(data),
        *evaluation.measurements(data),
        *challenge.measurements(data),
    ]
    run_suite("bench", measurements, options, inputs, describe(inputs))
    return 0
