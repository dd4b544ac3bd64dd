"""Evaluation image of this tree in a phase: built, saved, checked, loaded and tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.editions import load_edition
from contract.io.files import read_json
from evaluation.editions.profile import load_profile
from hecktor.phase.pipeline import PhaseOptions, make_phase
from rehearsal.submission.images import SOURCE, ImageBuilder, find_builder_engine

pytestmark = [pytest.mark.container, pytest.mark.slow]


@pytest.mark.usefixtures("engine")
def test_an_evaluation_image_scores_a_perfect_and_an_empty_submission(tmp_path: Path) -> None:
    """Always answering the first class is right for the negative patient and wrong for both positive ones: (1 + 0) / 2."""
    truth, output = tmp_path / "hpv.csv", tmp_path / "phase"
    truth.write_text("PatientID,HPV Status\nA-1,1\nB-2,0\nC-3,1\n")
    images = ImageBuilder(find_builder_engine(None), SOURCE, None, level=1)
    profile = load_profile("hecktor2025")
    tries = make_phase(PhaseOptions(load_edition(), profile, profile.find_task("hpv"), truth, output), images, print)
    assert (output / "hecktor-evaluation-hpv.tar.gz").stat().st_size > 1e8
    results = {name: read_json(output / "rehearsal" / name / "metrics.json") for name in tries}
    values = {name: result["aggregates"]["balanced_accuracy"]["value"] for name, result in results.items()}
    assert values == {"perfect": 1.0, "empty": 0.5}
    text = (output / "README.md").read_text()
    assert "run with its own user, no network, read-only input, 8 GiB, 2 CPUs and 3600 s." in text
