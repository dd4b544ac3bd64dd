"""Evaluate the submission of a cohort, and rank teams."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import HecktorError
from evaluation.editions import DEFAULT_PROFILE
from evaluation.pipeline import EvaluationRequest, evaluate_submission
from evaluation.ranking import DEFAULT_RANKINGS
from evaluation.ranking.pipeline import RankingRequest, rank_results
from evaluation.ranking.unranked import UnrankedSource
from evaluation.results.metrics_json import parse_metrics
from evaluation.statistics import DEFAULT_BOOTSTRAPS, DEFAULT_SEED
from evaluation.statistics.bootstrap import Estimate


@dataclass(frozen=True)
class EvaluationResult:
    """An evaluation: `metrics` by name with their intervals, the case counts, and the rows of metrics.json."""

    metrics: Mapping[str, Estimate]
    cases: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    warnings: Sequence[str]
    content: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The content of metrics.json."""
        return dict(self.content)


@dataclass(frozen=True)
class RankingResult:
    """A leaderboard: the ranked teams from first to last, the rank of each, and the teams that cannot be ranked."""

    order: tuple[str, ...]
    ranks: Mapping[str, float]
    unranked: tuple[str, ...]
    content: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The content of leaderboard.json."""
        return dict(self.content)


Result = Path | str | Mapping[str, Any] | EvaluationResult


def evaluate(  # noqa: PLR0913 - keyword options of a public function
    ground_truth: Path | str,
    *,
    task: str | None = None,
    predictions: Path | str | None = None,
    submission: Path | str | None = None,
    edition: str = DEFAULT_PROFILE,
    output: Path | str | None = None,
    options: Mapping[str, str] | None = None,
    bounding_boxes: Path | str | None = None,
    seed: int = DEFAULT_SEED,
    bootstraps: int = DEFAULT_BOOTSTRAPS,
    workers: int = 0,
    public: bool = False,
) -> EvaluationResult:
    """Evaluate the answers to all cases of the ground truth, as `hecktor evaluate` does.

    Args:
        ground_truth: folder of reference masks and CSV tables, or one CSV file.
        task: name or number; None for the only task of the edition.
        predictions: folder of masks, CSV table of risks or classes, or a folder with both for several answers.
        submission: folder in the platform's layout, with `predictions.json`, instead of `predictions`.
        edition: name or path of the evaluation profile.
        output: folder for metrics.json; None writes no file.
        options: changes of the profile's rules, such as `{"missing": "skip"}`.
        bounding_boxes: CSV file of boxes in mm outside which masks are not compared.
        seed: seed of the bootstrap.
        bootstraps: replicates; 0 gives no intervals.
        workers: processes that score cases; 0 keeps one for all calls.
        public: leave out everything that a submitter must not see.

    Raises:
        HecktorError: the ground truth or the submission cannot be used. An unusable prediction is not an error; it
            counts by the edition's rule for missing cases.
    """
    if (predictions is None) == (submission is None):
        raise HecktorError("evaluate", "found both or neither of predictions and submission", "one of them")
    content = evaluate_submission(
        EvaluationRequest(
            ground_truth=Path(ground_truth),
            submission=Path(submission or "."),
            output_dir=None if output is None else Path(output),
            task=task,
            edition=edition,
            predictions=None if predictions is None else Path(predictions),
            bounding_boxes=None if bounding_boxes is None else Path(bounding_boxes),
            options=options or {},
            seed=seed,
            bootstraps=bootstraps,
            workers=workers,
            public=public,
        )
    )
    results = parse_metrics(content, "evaluate", "")
    return EvaluationResult(results.estimates, results.cases, results.rows, results.warnings, content)


def rank(  # noqa: PLR0913 - keyword options of a public function
    results: Mapping[str, Result],
    *,
    task: str | None = None,
    edition: str | None = None,
    official: str | None = None,
    ties: str | None = None,
    bootstraps: int = DEFAULT_RANKINGS,
    seed: int | None = None,
    without_rows: bool = False,
    unranked: Mapping[str, Result | tuple[Result, str]] | None = None,
    beside: Mapping[str, Result | tuple[Result, str]] | None = None,
    mean: bool = False,
    tau: Sequence[str] = (),
) -> RankingResult:
    """Rank teams from their evaluations, as `hecktor rank` does.

    Args:
        results: by team, the path or content of a metrics.json, or the result of `evaluate`.
        task: name or number; None takes the task of the first team's evaluation.
        edition: path of the evaluation profile, if it is not one of the package's own.
        official: name of another ranking of the edition, to make it official.
        ties: "min", "average", "max" or "dense"; None takes the edition's rule.
        bootstraps: bootstrap rankings; 0 for none.
        seed: seed of the bootstrap; None takes the seed of the first team's evaluation.
        without_rows: also rank results without rows (`public=True`), whose values nobody can check.
        unranked: entries that are shown without a rank, by name: a result as above or the observers.json of
            `study observers`, alone or with the reason as `(result, reason)`.
        beside: the earlier name of `unranked`.
        mean: also show the mean of all ranked teams, without a rank.
        tau: metrics by which Kendall's tau is also given; they need not rank.

    Raises:
        HecktorError: no results, impossible results, or results that cannot be compared, naming what differs.
    """
    if beside is not None:
        sys.stderr.write("warning: beside is now called unranked\n")
    given = {**(beside or {}), **(unranked or {})}
    board = rank_results(
        RankingRequest(
            teams=[(name, _source(result)) for name, result in results.items()],
            unranked=[_unranked(name, entry) for name, entry in given.items()],
            task=task,
            edition=edition,
            official=official,
            ties=ties,
            bootstraps=bootstraps,
            seed=seed,
            without_rows=without_rows,
            mean=mean,
            tau=tau,
        )
    )
    ranks = {entry["team"]: entry["rank"] for entry in board["teams"]}
    return RankingResult(tuple(ranks), ranks, tuple(entry["team"] for entry in board["unranked"]), board)


def _unranked(name: str, given: Result | tuple[Result, str]) -> UnrankedSource:
    result, reason = given if isinstance(given, tuple) else (given, "")
    return UnrankedSource(name, _source(result), reason)


def _source(result: Result) -> Path | Mapping[str, Any]:
    if isinstance(result, EvaluationResult):
        return result.content
    return Path(result) if isinstance(result, str) else result
