"""Results of small challenges, made from rows by hand or at random."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from contract.editions import Algorithm, Answer
from evaluation.analyses.sources import TaskResults
from evaluation.analyses.tables import AnswerRows, answer_rows
from evaluation.editions.profile import AnswerProfile, TaskProfile, load_profile
from evaluation.inputs.ground_truth import FollowUp
from evaluation.metrics.lesions import LesionCounts
from evaluation.metrics.overlap import Overlap, dsc_of_case, scores_of_case
from evaluation.metrics.rules import SURFACES_OF, MaskRules
from evaluation.metrics.surface import SurfaceRow, without_prediction
from evaluation.ranking.leaderboard import leaderboard
from evaluation.results.metrics_json import TeamMetrics, aggregates, parse_metrics
from evaluation.results.scored import metrics_on, weighted_sums
from evaluation.results.teams import comparable_teams
from evaluation.rows import CaseRow
from evaluation.rows.classes import ClassRow
from evaluation.rows.mask import MaskRow
from evaluation.rows.risk import RiskRow
from evaluation.statistics.bootstrap import Estimate, estimate
from tests.evaluation.tasks import MASK, SEGMENTATION

Rows = Sequence[Mapping[str, Any]]


def team_of(name: str, rows: Rows = (), **parts: Any) -> TeamMetrics:
    """A team with rows, which get the cases A, B, C, ... unless they name theirs."""
    named = [{"case": chr(ord("A") + place), "error": None, **row} for place, row in enumerate(rows)]
    values: dict[str, Any] = {"estimates": {}, "cases": {"used": len(named)}, "warnings": [], "provenance": {}}
    return TeamMetrics(name, rows=named, **{**values, **parts})


@pytest.fixture
def table() -> Callable[..., AnswerRows]:
    """Make the rows of one answer from each team's rows."""

    def make(teams: Mapping[str, Rows], answer: Answer = MASK, task: Algorithm = SEGMENTATION) -> AnswerRows:
        of_teams = [team_of(name, rows) for name, rows in teams.items()]
        return answer_rows(TaskResults(task, {"metrics": {}, "teams": []}, of_teams), answer)

    return make


@pytest.fixture
def challenge() -> Callable[..., TaskResults]:
    """Make a random challenge of an edition's task: `teams` teams of rising skill, `cases` cases."""
    return _challenge


def _challenge(
    edition: str, task: str = "", *, teams: int = 3, cases: int = 12, lost: Sequence[int] = (), number: int = 1
) -> TaskResults:
    """`lost` are the numbers of teams that answer no case."""
    profile = load_profile(edition)
    chosen = profile.task(task or next(iter(profile.tasks)))
    metrics = [_team(chosen, place, cases, place in lost) for place in range(teams)]
    board = leaderboard(comparable_teams(chosen, metrics), bootstraps=20)
    order = [entry["team"] for entry in [*board["teams"], *board["unranked"]]]
    prefixes = {name: one.prefix for name, one in chosen.answers.items()} if chosen.has_several_answers else {}
    by_name = {one.team: one for one in metrics}
    return TaskResults(chosen.algorithm.numbered(number), board, [by_name[name] for name in order], prefixes)


def _team(profile: TaskProfile, place: int, cases: int, is_lost: bool) -> TeamMetrics:
    reference, predicted = np.random.default_rng(7), np.random.default_rng(100 + place)
    names = [f"{'CHUV' if number % 2 else 'CHUP'}-{number:03d}" for number in range(cases)]
    rows: dict[str, list[CaseRow]] = {}
    for name, answer in profile.answers.items():
        rows[name] = [_row(answer, case, (reference, predicted), place, is_lost) for case in names]
    measured: dict[str, Any] = {}
    for name, answer in profile.answers.items():
        measurement = answer.scorer.measure(rows[name])
        measured |= metrics_on(np.arange(cases), cases, answer, measurement)
    measured |= weighted_sums(measured, profile.metrics)
    ranked = {name: measured[name] for name in profile.metrics}
    estimates = estimate(ranked, cases, 20, np.random.default_rng(1)).by_metric
    ones = np.ones((1, cases))
    others = {name: float(metric(ones)[0]) for name, metric in measured.items() if name not in ranked}
    undefined = {name: Estimate(None if np.isnan(value) else value, None, None) for name, value in others.items()}
    plain = {name: [row.as_json() for row in of] for name, of in rows.items()}
    if profile.has_several_answers:
        results = [{"case": case, **{name: plain[name][number] for name in plain}} for number, case in enumerate(names)]
    else:
        results = plain[next(iter(plain))]
    centres = {}
    for centre in ("CHUP", "CHUV"):
        weights = np.array([[float(case.startswith(centre)) for case in names]])
        values = {name: float(metric(weights)[0]) for name, metric in measured.items()}
        figures = {name: {"value": value if np.isfinite(value) else None} for name, value in values.items()}
        centres[centre] = {"cases": int(weights.sum()), "aggregates": figures}
    content = {
        "aggregates": aggregates({**estimates, **undefined}),
        "centres": centres,
        "cases": {"used": cases},
        "warnings": [],
        "results": results,
        "provenance": {
            "format": 1,
            "task": profile.algorithm.name,
            "edition": profile.edition,
            "options": profile.options,
            "seed": 1,
            "case_set_sha256": hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest(),
        },
    }
    return parse_metrics(content, "metrics.json", f"team {place}")


def _row(
    profile: AnswerProfile, case: str, rngs: tuple[np.random.Generator, np.random.Generator], skill: int, is_lost: bool
) -> CaseRow:
    answer, (reference, predicted) = profile.answer, rngs
    error = "absent" if is_lost else None
    if answer.kind == "risk":
        days, relapse = float(reference.integers(50, 2500)), bool(reference.random() < 0.5)
        risk = (days if answer.direction == "time" else -days) + predicted.normal(0, 2000 / (1 + skill))
        return RiskRow(case, FollowUp(days, relapse), None if is_lost else risk, error)
    if answer.kind == "class":
        actual = answer.classes[int(case[-3:]) % len(answer.classes)]
        is_right = predicted.random() < 0.4 + 0.1 * skill
        other = answer.classes[int(predicted.integers(len(answer.classes)))]
        probability = float(predicted.random()) if answer.is_binary and not is_lost else None
        return ClassRow(
            case, answer, actual, None if is_lost else actual if is_right else other, error, probability=probability
        )
    assert isinstance(profile.rules, MaskRules)
    return _mask_row(case, profile.rules, reference, predicted, skill, is_lost)


def _mask_row(
    case: str,
    rules: MaskRules,
    reference: np.random.Generator,
    predicted: np.random.Generator,
    skill: int,
    is_lost: bool,
) -> MaskRow:
    """A GTVp and one to three GTVn lesions; some of these are found as they are, beside a false one of 20 voxels."""
    volume, sizes = int(reference.integers(100, 5000)), reference.integers(10, 900, int(reference.integers(1, 4)))
    shared = 0 if is_lost else int(min(0.95, 0.5 + 0.1 * skill + 0.2 * predicted.random()) * volume)
    n_found = 0 if is_lost else int(predicted.integers(0, len(sizes) + 1))
    found, false = int(sizes[:n_found].sum()), 0 if is_lost else 20
    gtvp, gtvn = (shared, volume, 0 if is_lost else volume), (found, int(sizes.sum()), found + false)
    dsc, precision, recall = scores_of_case(*gtvp, failed=is_lost, rule=rules.gtvp_empty)
    measured = SurfaceRow("measured", {"hd95_mm": 9.0 - skill, "asd_mm": 1.0, "surface_dsc": 0.5})
    surface = without_prediction() if is_lost else measured
    return MaskRow(
        case,
        1.0,
        Overlap(*gtvp),
        Overlap(*gtvn),
        LesionCounts(n_found, 0 if is_lost else 1, len(sizes) - n_found),
        dsc,
        "absent" if is_lost else None,
        gtvp_precision=precision,
        gtvp_recall=recall,
        gtvn_dsc=dsc_of_case(*gtvn, failed=is_lost, rule=rules.gtvn_empty),
        surfaces=dict.fromkeys(SURFACES_OF[rules.surfaces], surface),
        gtvn_lesion_voxels=tuple(sizes.tolist()),
        gtvn_lesion_dsc=tuple(1.0 if number < n_found else None for number in range(len(sizes))),
    )


def ranks(tau: float | None = 0.5, **of_team: dict[str, int]) -> dict[str, Any]:
    teams = {
        name: {"times_at_rank": times, "mean": 1.0, "ci95_low": 1, "ci95_high": 2} for name, times in of_team.items()
    }
    return {"teams": teams, "kendall_tau": {"mean": tau, "ci95_low": -1.0, "ci95_high": 1.0, "replicates": 4}}


@pytest.fixture
def two_teams() -> TaskResults:
    """Two teams: ann first in three of four rankings; ann better than bea with p 0.01, bea than ann with 0.9996."""
    interval = {"difference": 0.2, "ci95_low": 0.1, "ci95_high": 0.3, "p": 0.005, "p_holm": 0.01}
    pairs = [
        {"team": "ann", "than": "bea", **interval},
        {"team": "bea", "than": "ann", "difference": None, "p": 0.9996, "p_holm": 0.9996},
    ]
    alone = ranks(None, ann={"1": 4}, bea={"2": 4})
    board = {
        "official": "o",
        "metrics": {"m": "M", "d_mm": "D (mm)"},
        "teams": [{"team": "ann"}, {"team": "bea"}],
        "stability": {
            "bootstraps": 4,
            "rankings": {"o": ranks(ann={"1": 3, "2": 1}, bea={"1": 1, "2": 3})},
            "metrics": {"m": alone, "d_mm": ranks(0.25, ann={"1": 4}, bea={"2": 4})},
        },
        "comparisons": {name: {"test": "wilcoxon_signed_rank", "pairs": pairs} for name in ("m", "d_mm")},
    }
    ann = {"m": Estimate(0.8, 0.7, 0.9), "d_mm": Estimate(3.0, 2.0, math.inf), "gtvp_f1": Estimate(0.5, None, None)}
    bea = {"m": Estimate(0.6, 0.5, 0.7), "d_mm": Estimate(math.inf, 9.0, math.inf)}
    return TaskResults(SEGMENTATION, board, [team_of("ann", estimates=ann), team_of("bea", estimates=bea)])
