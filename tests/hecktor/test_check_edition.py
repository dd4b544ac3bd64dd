"""`hecktor check-edition` checks a custom edition and prints its tasks, metrics and rankings."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.editions import list_editions
from hecktor.cli import main


@pytest.fixture
def edition(tmp_path: Path) -> Path:
    assert main(["new", "edition", str(tmp_path / "larynx")]) == 0
    return tmp_path / "larynx" / "edition.json"


def test_the_ranking_and_its_weights_are_printed(edition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["check-edition", str(edition)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "My Edition (larynx): no error found",
        "task all",
        "  inputs: ct, pet, ehr",
        "  answers: tumour (mask), response (class), survival (risk)",
        "  official ranking: score, by score",
        "  score = 0.4 gtvp_dsc_mean + 0.3 response_balanced_accuracy + 0.3 c_index",
    ]
    (usable,) = [line for line in lines if "can rank" in line]
    assert {"gtvn_f1_agg", "response_balanced_accuracy", "c_index"} <= set(usable.partition(": ")[2].split(", "))
    # The optimum of a volume bias is 0, so the metric does not rank.
    assert "gtvp_volume_bias_mean_ml" not in usable


def test_inputs_that_no_task_uses_are_named(edition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dose = '"rt_dose": {"slug": "dose", "title": "Dose", "kind": "Image", "path": "images/dose"}'
    edition.write_text(edition.read_text().replace('"inputs": {', f'"inputs": {{{dose},', 1))
    capsys.readouterr()
    assert main(["check-edition", str(edition)]) == 0
    assert "warning: no task uses rt_dose" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "replacement", "message"),
    [
        ('"surfaces": "none"', '"surfaces": "nodes"', "answers.tumour.rules.surfaces: found"),
        (
            '["gtvp_dsc_mean", ',
            '["gtvp_surface_dsc_mean", ',
            "metrics.score.weighted_sum: 'gtvp_surface_dsc_mean' is not",
        ),
        ('"official": "score"', '"official": "total"', 'ranking.official: found "total", expected one of score'),
    ],
)
def test_an_error_in_the_scoring_names_its_place(
    text: str, replacement: str, message: str, edition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = edition.read_text()
    assert text in content
    edition.write_text(content.replace(text, replacement))
    assert main(["check-edition", str(edition)]) == 1
    assert f"error: edition.json.scoring.all.{message}" in capsys.readouterr().err


@pytest.mark.parametrize("name", list_editions())
def test_the_editions_of_the_package_have_no_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-edition", name]) == 0
    assert f"({name}): no error found" in capsys.readouterr().out
