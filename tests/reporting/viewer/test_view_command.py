"""`hecktor view` as a process prints an address, answers, and ends on a signal."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from reporting.viewer.cohort import ViewerCohort
from tests.signals import reset_signals


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(cohort: ViewerCohort, tmp_path: Path, end: signal.Signals) -> None:
    options = ["view", "--cohort", str(tmp_path / "cohort"), "--masks", f"A={tmp_path / 'A'}"]
    command = [sys.executable, "-c", "from hecktor.cli import entry; entry()", *options]
    with subprocess.Popen(reset_signals(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "Reading the cohort and the results ...\n"
        line = process.stdout.readline()
        address = re.fullmatch(r"2 cases at (http://127\.0\.0\.1:\d+/[\w-]{32}/)\n", line)
        assert address is not None, line
        with urlopen(address[1] + "case/C-1") as response:
            assert response.status == 200
        process.send_signal(end)
        assert process.wait(timeout=20) == 0
