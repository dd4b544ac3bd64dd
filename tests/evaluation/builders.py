"""Builders of results, leaderboards and editions, which complete what a test does not state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from contract.editions import Algorithm
from evaluation.editions.profile import load_profile
from evaluation.results.board import Leaderboard
from evaluation.results.documents import MetricFigures, MetricsJson
from evaluation.results.task import TaskResults
from tests.evaluation.tasks import SEGMENTATION

Json = Mapping[str, Any]
NO_FIGURES = dict.fromkeys(("value", "ci95_low", "ci95_high"))


def read_edition(name: str) -> dict[str, Any]:
    """Return the document of an edition of the package, under the name `mine`."""
    return {**json.loads((files("contract.editions") / f"{name}.json").read_text()), "name": "mine"}


def make_metrics(
    figures: Mapping[str, Sequence[float | None]] | None = None, rows: Sequence[Json] = (), **parts: Any
) -> MetricsJson:
    """Build a metrics.json from values with their intervals and from rows, whose cases are A, B, C, ... unless named."""
    named = [{"case": chr(ord("A") + place), "error": None, **row} for place, row in enumerate(rows)]
    origin = {"format": 2, "task": "segmentation", "edition": "hecktor2025", "options": {}} | parts.pop(
        "provenance", {}
    )
    aggregates = {name: MetricFigures.from_values(*values) for name, values in (figures or {}).items()}
    content = {"cases": {"used": len(named)}, "warnings": [], "results": named, **parts, "provenance": origin}
    return MetricsJson(aggregates=aggregates, **content)


def make_results(
    teams: Mapping[str, MetricsJson], task: Algorithm = SEGMENTATION, edition: str = "hecktor2025", **parts: Any
) -> TaskResults:
    """Build the results of a task, without checking them."""
    return TaskResults(replace(load_profile(edition).find_task(task.name), algorithm=task), teams, **parts)


def make_board(metrics: Mapping[str, str], teams: Sequence[Json], **parts: Any) -> Leaderboard:
    """Build a leaderboard from its metrics and its teams, in the order of their ranks."""
    official = parts.setdefault("official", next(iter(metrics)))
    ranked = []
    for place, entry in enumerate(teams, 1):
        rank = entry.get("rank", place)
        of_metrics = {name: {"rank": rank, **figures} for name, figures in _fill_figures(metrics, entry).items()}
        rankings = {official: {"rank": rank}, **entry.get("rankings", {})}
        ranked.append({"rank": rank, **entry, "metrics": of_metrics, "rankings": rankings})
    outside = [
        {"place": 0, **row, "metrics": _fill_figures(metrics, row)} for row in parts.pop("out_of_competition", ())
    ]
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
        "comparisons": tests and {name: _fill_tests(comparison) for name, comparison in tests.items()},
    }
    return Leaderboard.model_validate(content)


def with_board(results: TaskResults, **changes: Any) -> TaskResults:
    """Return the results with parts of their leaderboard changed."""
    return replace(results, leaderboard=make_board(**{**results.board.to_dict(), **changes}))


def _fill_figures(metrics: Mapping[str, str], entry: Json) -> dict[str, Json]:
    figures = entry.get("metrics", {})
    return {name: {**NO_FIGURES, **figures.get(name, {})} for name in metrics}


def _fill_tests(comparison: Json) -> Json:
    other_tests = {name: _fill_pairs(pairs) for name, pairs in comparison.get("other_tests", {}).items()}
    return {**comparison, "pairs": _fill_pairs(comparison["pairs"]), "other_tests": other_tests}


def _fill_pairs(pairs: Sequence[Json]) -> list[Json]:
    return [{"difference": None, "p": None, "p_holm": None, **pair} for pair in pairs]
