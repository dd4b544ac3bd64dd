"""A card that runs out of memory or is lost, RAM that runs out, and bugs: simulated, since no test may need a card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from contract.editions import Algorithm
from contract.io.files import read_json
from tests.algorithm.edition import COMBINED, HPV, RFS, SEGMENTATION

# The small case has 8 tiles a pass. What the card is asked to do the CPU does.
CARD: Final = "return algorithm.network.passes:backends 1 three_backends()"
TILE: Final = "algorithm.network.tiles:_tile_logits"
NEXT: Final = "going on with cpu"
Runs = Callable[..., Any]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "faults", "lines", "passes"),
    [
        pytest.param(
            HPV,
            [f"raise {TILE} {call} lost" for call in (3, 4, 5)],
            [(NEXT, 2), ("*** FALLBACK *** no pass of the network (cpu", 1)],
            "no pass, by PET threshold",
            id="all lost",
        ),
        pytest.param(
            SEGMENTATION,
            [f"raise {TILE} {call} out-of-memory" for call in (11, 12, 13)],
            [(NEXT, 2), ("left out: cpu", 1)],
            "1 of 4 passes",
            id="all out of memory in a later pass",
        ),
        pytest.param(
            HPV,
            [f"raise {TILE} 11 bug"],
            [("*** EARLY END *** ZeroDivisionError: the best answer so far", 1), ("Traceback", 1)],
            "1 of 4 passes",
            id="a bug in a later pass",
        ),
    ],
)
def test_there_is_an_answer_all_the_same(
    run: Runs, task: Algorithm, faults: list[str], lines: list[tuple[str, int]], passes: str
) -> None:
    ended = run(task, CARD, *faults).whole()
    assert ended.status == 0, ended.said
    assert f"{task.name} answered by package tiny: " in ended.said
    assert passes in ended.said
    for text, count in lines:
        assert ended.said.count(text) == count, ended.said


ALL: Final = ["segmentation", "t_stage", "rfs"]


@pytest.mark.parametrize(
    ("faults", "fallbacks"),
    [
        pytest.param([f"raise {TILE} 3 out-of-memory"], [], id="out of memory"),
        pytest.param([f"raise {TILE} {call} lost" for call in (3, 4, 5)], ["segmentation"], id="all lost"),
        pytest.param(["raise algorithm.network.networks:_allocate 1 lost"], [], id="lost while loading"),
        pytest.param(
            ["raise algorithm.network.passes:backends 1 lost"], ["segmentation"], id="lost before the first pass"
        ),
        pytest.param(["raise algorithm.network.preprocessing:normalise 1 no-memory"], [], id="no memory for a moment"),
        pytest.param(["raise algorithm.network.preprocessing:normalise 0 no-memory"], ["segmentation"], id="no memory"),
        pytest.param([f"raise {TILE} 11 bug"], [], id="a bug in a later pass"),
        pytest.param(["raise algorithm.pipeline:read_case 0 no-memory"], ALL, id="no memory while reading"),
        pytest.param(["raise algorithm.pipeline:find_region 0 bug"], ALL, id="a bug while localising"),
        pytest.param(["raise algorithm.region.grids:restore_labels 0 no-memory"], ["segmentation"], id="no mask"),
        pytest.param(["raise algorithm.answers:image_features 0 no-memory"], ["t_stage", "rfs"], id="no features"),
        pytest.param(["raise threading:Thread.start 1 lost"], ALL, id="no thread"),
    ],
)
def test_four_answers_are_written_all_the_same(
    run: Runs, tmp_path: Path, faults: list[str], fallbacks: list[str]
) -> None:
    """N0 goes with a mask without GTVn; in masks of the tiny network and of the threshold its fallback may be wanted."""
    record = tmp_path / "record.json"
    ended = run(COMBINED, CARD, *faults, options=["--record", str(record)]).whole()
    assert ended.status == 0, ended.said
    assert "combined answered by package tiny: " in ended.said
    assert [name for name in read_json(record)["fallbacks"] if name != "n_stage"] == fallbacks


@pytest.mark.parametrize("at", ["algorithm.pipeline:find_region", "algorithm.answers:measure"])
def test_a_bug_that_leaves_no_answer(run: Runs, at: str) -> None:
    """Before the region is known, and where every answer would go through it."""
    ended = run(RFS, f"raise {at} 0 bug").whole()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last == "ZeroDivisionError: a bug"
