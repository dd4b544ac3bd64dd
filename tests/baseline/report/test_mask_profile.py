"""The profile of the mask alone, of an edition with four answers."""

from __future__ import annotations

from pathlib import Path

from baseline.report.mask_profile import mask_profile
from contract.editions import load_edition
from evaluation.editions.profile import load_profile

FOUR = Path(__file__).parents[2] / "editions" / "four_answers.json"


def test_an_edition_with_a_task_for_masks_keeps_its_profile(tmp_path: Path) -> None:
    assert mask_profile(load_edition("hecktor2025"), tmp_path) == "hecktor2025"
    assert not list(tmp_path.iterdir())


def test_the_mask_keeps_its_rules_without_the_other_answers(tmp_path: Path) -> None:
    edition = load_edition(str(FOUR))
    whole = load_profile(edition.evaluation_profile).task("everything")
    alone = load_profile(mask_profile(edition, tmp_path)).task("everything")
    assert list(alone.answers) == ["mask"]
    assert alone.answers["mask"].rules == whole.answers["mask"].rules
    assert {f"mask_{name}": metric.title for name, metric in alone.metrics.items()} == {
        name: metric.title for name, metric in whole.metrics.items() if name.startswith("mask_")
    }
