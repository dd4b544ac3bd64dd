"""`examples/own_container`: the commands of its README, in their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.files import read_json
from tests.examples.readme import commands, run

PHANTOMS, BY_COMMAND, _BUILD, _BY_IMAGE, RANK, _SAVE = commands("own_container")


def ranks_of_one_score(root: Path) -> list[int]:
    """The ranks on the board of two teams whose metrics are the same."""
    process, image = (read_json(root / team / "metrics.json")["aggregates"] for team in ("process", "image"))
    assert process == image
    assert 0 < process["score"]["value"] < 1
    board = read_json(root / "board" / "leaderboard.json")
    assert {row["team"] for row in board["teams"]} == {"process", "image"}
    return [row["rank"] for row in board["teams"]]


@pytest.mark.slow
def test_the_program_is_rehearsed_scored_and_ranked(tmp_path: Path) -> None:
    """Without an engine: the second team runs the same program as a process, too, so both are first."""
    for command in (PHANTOMS, BY_COMMAND, [part.replace("process", "image") for part in BY_COMMAND], RANK):
        run(command, tmp_path)
    assert ranks_of_one_score(tmp_path) == [1, 1]
