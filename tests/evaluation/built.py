"""Results and leaderboards that tests make by hand: the real documents, completed by what a test does not state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from contract.editions import Algorithm
from evaluation.editions.profile import load_profile
from evaluation.results.board import Leaderboard
from evaluation.results.documents import MetricFigures, MetricsJson
from evaluation.results.task import TaskResults
from tests.evaluation.tasks import SEGMENTATION

Json = Mapping[str, Any]
NO_FIGURES = dict.fromkeys(("value", "ci95_low", "ci95_high"))


def metrics_of(
    figures: Mapping[str, Sequence[float | None]] | None = None, rows: Sequence[Json] = (), **parts: Any
) -> MetricsJson:
    """A metrics.json of values with their intervals, and of rows, which get the cases A, B, C, ... unless they name theirs.

    Of the `parts`, `provenance` is completed.
    """
    named = [{"case": chr(ord("A") + place), "error": None, **row} for place, row in enumerate(rows)]
    origin = {"format": 2, "task": "segmentation", "edition": "hecktor2025", "options": {}} | parts.pop(
        "provenance", {}
    )
    aggregates = {name: MetricFigures.from_values(*of) for name, of in (figures or {}).items()}
    given = {"cases": {"used": len(named)}, "warnings": [], "results": named, **parts, "provenance": origin}
    return MetricsJson(aggregates=aggregates, **given)


def results_of(
    teams: Mapping[str, MetricsJson], task: Algorithm = SEGMENTATION, edition: str = "hecktor2025", **parts: Any
) -> TaskResults:
    """Results of a task of an edition, which are not checked."""
    return TaskResults(replace(load_profile(edition).task(task.name), algorithm=task), teams, **parts)


def board_of(metrics: Mapping[str, str], teams: Sequence[Json], **parts: Any) -> Leaderboard:
    """A leaderboard by its metrics and its entries, which rank in this order by the first metric unless they say more."""
    official = parts.setdefault("official", next(iter(metrics)))
    ranked = []
    for place, entry in enumerate(teams, 1):
        rank = entry.get("rank", place)
        of_metrics = {name: {"rank": rank, **figures} for name, figures in _figures(metrics, entry).items()}
        rankings = {official: {"rank": rank}, **entry.get("rankings", {})}
        ranked.append({"rank": rank, **entry, "metrics": of_metrics, "rankings": rankings})
    outside = [{"place": 0, **one, "metrics": _figures(metrics, one)} for one in parts.pop("out_of_competition", ())]
    tests = parts.pop("comparisons", None)
    content = {
        "task": "segmentation",
        "edition": "hecktor2025",
        "ties": "min",
        "incomplete": [],
        "stability": None,
        "provenance": {},
        **{name: {} for name in ("runs", "files", "methods")},
        "identical_answers": [],
        **parts,
        "metrics": metrics,
        "teams": ranked,
        "out_of_competition": outside,
        "comparisons": tests and {name: _tests(of) for name, of in tests.items()},
    }
    return Leaderboard.model_validate(content)


def with_board(results: TaskResults, **changes: Any) -> TaskResults:
    """The results with parts of their leaderboard changed."""
    return replace(results, leaderboard=board_of(**{**results.board.to_dict(), **changes}))


def _figures(metrics: Mapping[str, str], entry: Json) -> dict[str, Json]:
    given = entry.get("metrics", {})
    return {name: {**NO_FIGURES, **given.get(name, {})} for name in metrics}


def _tests(of: Json) -> Json:
    others = {name: _pairs(pairs) for name, pairs in of.get("other_tests", {}).items()}
    return {**of, "pairs": _pairs(of["pairs"]), "other_tests": others}


def _pairs(pairs: Sequence[Json]) -> list[Json]:
    return [{"difference": None, "p": None, "p_holm": None, **pair} for pair in pairs]
