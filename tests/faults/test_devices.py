"""A card that runs out of memory or is lost, RAM that runs out, and bugs: simulated, since no test may need a card."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from contract.io.files import read_json
from tests.algorithm.edition import COMBINED, RFS
from tests.faults.conftest import Runs

# The small case has 8 tiles a pass. What the card is asked to do the CPU does.
CARD: Final = "return algorithm.network.passes:list_backends 1 three_backends()"
TILE: Final = "algorithm.network.tiles:_compute_tile_logits"


ALL: Final = ["segmentation", "t_stage", "rfs"]


@pytest.mark.parametrize(
    ("faults", "fallbacks"),
    [
        pytest.param([f"raise {TILE} 3 out-of-memory"], [], id="out of memory"),
        pytest.param([f"raise {TILE} {call} lost" for call in (3, 4, 5)], ["segmentation"], id="all lost"),
        pytest.param(["raise algorithm.network.networks:_allocate 1 lost"], [], id="lost while loading"),
        pytest.param(
            ["raise algorithm.network.passes:list_backends 1 lost"], ["segmentation"], id="lost before the first pass"
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
    """N0 needs a mask without GTVn, so the fallback of the N stage depends on the masks of the tiny network."""
    record = tmp_path / "record.json"
    ended = run(COMBINED, CARD, *faults, options=["--record", str(record)]).complete()
    assert ended.status == 0, ended.stderr
    assert "combined answered by package tiny: " in ended.stderr
    assert [name for name in read_json(record)["fallbacks"] if name != "n_stage"] == fallbacks


@pytest.mark.parametrize("at", ["algorithm.pipeline:find_region", "algorithm.answers:measure"])
def test_a_bug_that_leaves_no_answer(run: Runs, at: str) -> None:
    """Fail before the region is known, and where every answer is measured."""
    ended = run(RFS, f"raise {at} 0 bug").complete()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last_line == "ZeroDivisionError: a bug"
