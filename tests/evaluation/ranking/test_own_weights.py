"""Results of an edition of the package, ranked again by other weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.errors import HecktorError
from contract.io.files import read_json, write_json
from evaluation.api import evaluate
from evaluation.ranking.cli import main as rank
from reporting.analyses.sources import find_results, load_results_profile
from tests.evaluation.builders import read_edition
from tests.evaluation.conftest import GRID
from tests.evaluation.staging import ANSWERS, make_predictions, write_plain, write_truth

WEIGHTS = [0.5, 0.25, 0.25]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Write HECKTOR 2026 with other weights, and with a new sum that decides before all others."""
    content = read_edition("hecktor2026")
    (task,) = content["scoring"].values()
    task["metrics"]["score"]["weights"] = WEIGHTS
    own = {"title": "Own", "higher_is_better": True, "weighted_sum": ["dsc_mean", "c_index"], "weights": [1, 1]}
    task["metrics"] = {**task["metrics"], "own_score": own}
    task["ranking"]["schemes"] = {"both": {"borda": ["own_score", "score"]}, "score": "score"}
    task["ranking"]["official"] = "both"
    write_json(tmp_path / "mine.json", content)
    return tmp_path / "mine.json"


@pytest.fixture
def answers(tmp_path: Path) -> tuple[Path, Path]:
    """Write reference and predictions of four patients."""
    truth = write_truth(tmp_path / "truth", GRID)
    return truth, write_plain(tmp_path / "answers", make_predictions(GRID), ANSWERS, GRID)


def score(answers: tuple[Path, Path], output: Path, **changes: Any) -> dict[str, Any]:
    truth, predicted = answers
    evaluate(truth, predictions=predicted, output=output, bootstraps=20, seed=3, **changes)
    return dict(read_json(output / "metrics.json"))


def rank_team(folder: Path, mine: Path, *more: str) -> dict[str, Any]:
    file = str(folder / "team" / "metrics.json")
    assert rank([file, "--edition", str(mine), "--bootstraps", "5", "--output", str(folder), *more]) == 0
    return dict(read_json(folder / "leaderboard.json"))


def list_figures(entry: dict[str, Any], name: str) -> list[float]:
    return [entry["metrics"][name][part] for part in ("value", "ci95_low", "ci95_high")]


def test_a_ranking_by_own_weights_equals_an_evaluation_by_them(answers, mine: Path, tmp_path: Path) -> None:
    before = score(answers, tmp_path / "team", edition="hecktor2026")["aggregates"]
    direct = score(answers, tmp_path / "direct", edition=str(mine))["aggregates"]
    (entry,) = rank_team(tmp_path, mine)["teams"]
    for name in ("score", "own_score", "dsc_mean", "c_index"):
        assert list_figures(entry, name) == pytest.approx([direct[name][part] for part in direct[name]][:3]), name
    terms = [before[name]["value"] for name in ("dsc_mean", "tn_balanced_accuracy", "c_index")]
    value = sum(weight * term for weight, term in zip(WEIGHTS, terms, strict=True))
    assert entry["metrics"]["score"]["value"] == pytest.approx(value)
    assert abs(value - before["score"]["value"]) > 0.01
    # The report reads the same results again, and shows deciding metrics in the order of the edition's.
    (task,) = find_results(tmp_path, load_results_profile(tmp_path, None))
    assert task.deciding_metrics == ["score", "own_score"]
    assert task.teams["team"].aggregates["own_score"].value == entry["metrics"]["own_score"]["value"]


def test_without_rows_a_sum_is_computed_from_the_values(answers, mine: Path, tmp_path: Path) -> None:
    before = score(answers, tmp_path / "team", edition="hecktor2026", rows=False)["aggregates"]
    (entry,) = rank_team(tmp_path, mine, "--without-rows")["teams"]
    value = before["dsc_mean"]["value"] + before["c_index"]["value"]
    assert list_figures(entry, "own_score") == [pytest.approx(value), None, None]


def test_a_report_by_an_edition_needs_results_of_its_rules(answers, tmp_path: Path) -> None:
    """Results that were evaluated with other options cannot be ranked or reported under the edition's name."""
    score(answers, tmp_path / "team", edition="hecktor2026", options={"rfs.missing_risk": "tie"})
    arguments = [str(tmp_path / "team" / "metrics.json"), "--bootstraps", "5", "--output", str(tmp_path)]
    with pytest.raises(
        HecktorError, match=r"rfs\.missing_risk tie, expected rfs\.missing_risk non_concordant; evaluate"
    ):
        rank([*arguments, "--edition", "hecktor2026"])
    assert rank(arguments) == 0
    profile = load_results_profile(tmp_path, "hecktor2026")
    assert len(find_results(tmp_path, profile)) == 1
    with pytest.raises(HecktorError, match=r"rules that differ from hecktor2026: rfs\.missing_risk tie"):
        find_results(tmp_path, profile, same_rules=True)
