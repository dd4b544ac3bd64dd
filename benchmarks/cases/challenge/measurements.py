"""Ranking and report of a whole challenge."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases.challenge.writing import ChallengeSize, write_challenge
from benchmarks.cases.data import BenchData
from benchmarks.harness.bounds import MEDIAN_S, Bound
from benchmarks.harness.measurement import PROCESS, Measurement, Work
from benchmarks.harness.timing import Command
from contract.editions import DEFAULT_EDITION
from contract.platform import METRICS_JSON
from evaluation.results.layout import LEADERBOARD_JSON

FULL: Final = ChallengeSize()
QUICK: Final = ChallengeSize(teams=3, cases=60, bootstraps=20, rankings=20)
GROUP: Final = f"a challenge of {FULL.teams} teams and {FULL.cases} cases"
PAGE_MB: Final = "page (MB)"
LONGEST_REPORT_S: Final = 5.0
LARGEST_PAGE_MB: Final = 3.0


def measurements(data: BenchData) -> Iterator[Measurement]:
    """The ranking of the first task with masks, and the report of all tasks, as processes."""
    yield Measurement(GROUP, "process: rank", partial(_rank, data), repeats=PROCESS)
    bounds = (Bound(MEDIAN_S, "at most", LONGEST_REPORT_S), Bound(PAGE_MB, "at most", LARGEST_PAGE_MB))
    yield Measurement(GROUP, "process: report", partial(_report, data), bounds=bounds, repeats=PROCESS)


def _rank(data: BenchData, scratch: Path) -> Work:
    files = [str(path) for path in sorted((_results(data) / "task1").glob(f"*/{METRICS_JSON}"))]
    return Command((sys.executable, "-m", "hecktor", "rank", "--task", "1", *files, "--output", str(scratch)))


def _report(data: BenchData, scratch: Path) -> Work:
    page = scratch / "report.html"
    command = (sys.executable, "-m", "hecktor", "report", "--results", str(_results(data)), "--output", str(page))
    return Command(command, figures=partial(_page_size, page))


def _page_size(page: Path) -> Mapping[str, float]:
    return {PAGE_MB: page.stat().st_size / 1e6}


def _results(data: BenchData) -> Path:
    """The results folder, made if its last leaderboard is missing."""
    folder = data.root / "challenge"
    if not (folder / "task3" / LEADERBOARD_JSON).is_file():
        write_challenge(folder, DEFAULT_EDITION, QUICK if data.quick else FULL)
    return folder
