"""Rows from a Dask cluster of separate processes on this machine, also when one of them is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from contract.errors import HecktorError
from evaluation.execution import map_cases
from tests.evaluation.tasks import SEGMENTATION

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

WORK = """
import os, time
from pathlib import Path

def slow_double(job):
    folder, number = job
    (Path(folder) / f"{number}.{os.getpid()}").touch()
    time.sleep(0.3)
    return 2 * number
"""


class Cluster:
    """A scheduler and two workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(folder)])}
        address_file = folder / "scheduler.json"
        self._start("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", address_file)
        self.address = self._wait_for_address(address_file)
        common = ("--nthreads", "1", "--no-dashboard", "--no-nanny", "--local-directory", folder)
        self.workers = [self._start("distributed.cli.dask_worker", self.address, *common) for _ in range(2)]

    def _start(self, module: str, *arguments: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    @staticmethod
    def _wait_for_address(path: Path) -> str:
        for _ in range(600):
            if path.is_file() and path.read_text():
                return json.loads(path.read_text())["address"]
            time.sleep(0.1)
        raise TimeoutError("the scheduler did not start")

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "work_for_cluster.py").write_text(WORK)
    processes = Cluster(tmp_path)
    yield processes
    processes.stop()


def test_a_worker_killed_in_the_middle_changes_nothing(cluster, tmp_path, monkeypatch):
    """Sixteen jobs; once four have begun, one worker is killed: every row comes all the same, in order."""
    monkeypatch.syspath_prepend(str(tmp_path))
    from work_for_cluster import slow_double

    begun = tmp_path / "begun"
    begun.mkdir()
    killed = []

    def kill_worker():
        while len(list(begun.iterdir())) < 4:
            time.sleep(0.02)
        busy = {int(path.suffix[1:]) for path in begun.iterdir()}
        victim = next(worker for worker in cluster.workers if worker.pid in busy)
        victim.send_signal(signal.SIGKILL)
        killed.append(victim.pid)

    killer = threading.Thread(target=kill_worker)
    killer.start()
    jobs = [(str(begun), number) for number in range(16)]
    rows = map_cases(slow_double, jobs, cluster.address, on_death=lambda _: "lost")
    killer.join()
    assert rows == [2 * number for number in range(16)]
    assert killed


def test_the_cluster_gives_the_table_of_local_processes(cluster, phase_of, blank):
    phase = phase_of(SEGMENTATION)
    for number in range(4):
        reference = blank()
        reference[1:5, 2:5, 2:6] = 1
        reference[2:4, 6:8, 8 - number : 10] = 2
        phase.add_truth_mask(f"P{number}", reference)
        phase.add_mask(f"P{number}", np.roll(reference, number, axis=2))
    here = phase.run()
    assert phase.run(workers=cluster.address) == here


def test_no_scheduler_is_an_error(monkeypatch):
    monkeypatch.setattr("evaluation.execution.CONNECT_TIMEOUT_S", 1)
    with pytest.raises(HecktorError, match="no answer"):
        map_cases(abs, [1], "tcp://127.0.0.1:9", on_death=lambda _: None)
