"""Measurements run in processes of their own."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

from benchmarks.cases import algorithm, evaluation, four_answers
from benchmarks.cases.data import BenchData
from benchmarks.harness.measurement import Measurement, Work, run, run_all
from benchmarks.harness.timing import Command, Timing
from benchmarks.peers.evaluation import measurements as peer_measurements
from contract.errors import HecktorError


def call(_: Path) -> Work:
    return os.getpid


def process_id(_: Path) -> Work:
    return Timing((1.0,), 1.0, {"process": float(os.getpid())})


def die(_: Path) -> Work:
    os._exit(9)


def test_run_takes_calls_commands_and_timings(tmp_path: Path) -> None:
    timing = Timing((2.0,), 1.0)
    for prepare in (call, lambda _: Command((sys.executable, "-c", "")), lambda _: timing):
        result = run(Measurement("group", "name", prepare), tmp_path, quick=True)
        assert len(result.seconds) == 1
    assert result is timing


def test_each_measurement_has_its_own_process(tmp_path: Path) -> None:
    measurements = [Measurement("group", name, process_id) for name in ("first", "second")]
    processes = [timing.figures["process"] for _, timing in run_all(measurements, tmp_path, quick=True)]
    assert len({*processes, float(os.getpid())}) == 3
    assert not list(tmp_path.iterdir())


def test_a_process_that_dies_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match="group/name: its process died"):
        list(run_all([Measurement("group", "name", die)], tmp_path, quick=True))


def test_declarations_are_unique_picklable_and_come_after_their_partners(tmp_path: Path) -> None:
    data = BenchData(tmp_path, quick=True)
    stages = [
        *algorithm.measurements(data, tmp_path),
        *four_answers.measurements(data),
        *evaluation.measurements(data),
    ]
    for declared in (stages, list(peer_measurements(tmp_path))):
        keys = [measurement.key for measurement in declared]
        assert len(set(keys)) == len(keys)
        for place, measurement in enumerate(declared):
            assert set(measurement.against) <= set(keys[:place])
            assert pickle.loads(pickle.dumps(measurement)).key == keys[place]
