"""`examples/own_container`: the commands of its README, in their order, for each task of 2025."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from contract.io.files import read_json
from tests.examples.readme import make_coarse_phantoms, read_commands, run

PHANTOMS, *_ = read_commands("own_container")
# For these metrics the program's answers to the three phantoms are not all wrong.
METRICS = {"segmentation": "gtvn_dsc_agg", "rfs": "c_index", "hpv": "balanced_accuracy"}


def read_task_commands(task: str) -> list[list[str]]:
    """Return the README's commands after the phantoms, with the task for `rfs`; its folders are `out/own/TASK/...`."""
    changed = [[part.replace("rfs", task) for part in command] for command in read_commands("own_container")[1:]]
    return [
        [part.replace("own/teams", f"own/{task}").replace("own/board", f"own/board-{task}") for part in command]
        for command in changed
    ]


def check_board(root: Path, task: str) -> None:
    """Check that both teams have the same metrics and the first rank."""
    process, image = (read_json(root / task / team / "metrics.json")["aggregates"] for team in ("process", "image"))
    assert process == image
    assert 0 < process[METRICS[task]]["value"] <= 1
    board = read_json(root / f"board-{task}" / "leaderboard.json")
    assert [(row["team"], row["rank"]) for row in board["teams"]] == [("image", 1), ("process", 1)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder, used for `out/own`, with its phantoms."""
    folder = tmp_path_factory.mktemp("own")
    make_coarse_phantoms(PHANTOMS, folder / "cases")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("task", METRICS)
def test_the_program_is_rehearsed_scored_and_ranked(root: Path, task: str) -> None:
    """Without an engine the image's results are a copy of the process's."""
    by_command, _build, _by_image, rank, _save = read_task_commands(task)
    run(by_command, root)
    shutil.copytree(root / task / "process", root / task / "image")
    run(rank, root)
    check_board(root, task)
