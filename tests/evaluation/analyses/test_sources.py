"""Results and masks of a report's teams, in the folders that a rehearsal writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from contract.editions import load_edition
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from evaluation.analyses.sources import find_masks, find_results


def mask(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_mask(path, np.zeros((4, 4, 4), np.uint8), Geometry((4, 4, 4), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)))
    return path


@pytest.mark.parametrize(
    ("edition", "folder"), [("hecktor2025", "predictions"), ("hecktor2026", "predictions/segmentation")]
)
def test_masks_of_one_answer_and_of_several(edition: str, folder: str, tmp_path: Path) -> None:
    path = mask(tmp_path / "task1" / "a" / folder / "CHUM-001.mha")
    found = find_masks(tmp_path, load_edition(edition), ["a", "without-masks"], {})
    assert found == {"a": {"CHUM-001": path}}


def test_a_folder_that_is_given(tmp_path: Path) -> None:
    path = mask(tmp_path / "mine" / "CHUM-001.mha")
    edition = load_edition("hecktor2026")
    assert find_masks(tmp_path, edition, ["a"], {"a": path.parent}) == {"a": {"CHUM-001": path}}
    with pytest.raises(HecktorError, match="no folder 'absent' for team 'a'"):
        find_masks(tmp_path, edition, ["a"], {"a": tmp_path / "absent"})
    with pytest.raises(HecktorError, match="unknown team 'b', expected one of a"):
        find_masks(tmp_path, edition, ["a"], {"b": path.parent})


@pytest.mark.parametrize(("kind", "edition"), [("risks", "hecktor2025"), ("four_answers", "hecktor2026")])
def test_results_are_counted_again(valid_metrics, tmp_path: Path, kind: str, edition: str) -> None:
    """A report shows rows and values beside each other, so they must agree as in a ranking."""
    declared = load_edition(edition)
    content = valid_metrics(kind)
    (number,) = (task.number for task in declared.algorithms if task.name == content["provenance"]["task"])
    folder = tmp_path / f"task{number}" / "a"
    folder.mkdir(parents=True)
    (folder.parent / "leaderboard.json").write_text(json.dumps({"teams": [{"team": "a"}], "unranked": []}))
    (folder / "metrics.json").write_text(json.dumps(content))
    (results,) = find_results(tmp_path, declared)
    assert [team.team for team in results.teams] == ["a"]
    content["aggregates"]["c_index"]["value"] = 0.123
    (folder / "metrics.json").write_text(json.dumps(content))
    with pytest.raises(HecktorError, match=r"^a/metrics\.json: its rows give .*, but it states 0\.123"):
        find_results(tmp_path, declared)


@pytest.mark.parametrize("board", [[], {"teams": [5], "unranked": []}, {"teams": [{"team": None}], "unranked": []}])
def test_a_leaderboard_of_another_make(tmp_path: Path, board: object) -> None:
    (tmp_path / "task1").mkdir()
    (tmp_path / "task1" / "leaderboard.json").write_text(json.dumps(board))
    with pytest.raises(HecktorError, match=r"^task1/leaderboard\.json: expected a leaderboard of `hecktor rank`"):
        find_results(tmp_path, load_edition("hecktor2025"))
