"""Schemes that rank by single cases and by tests: hand-derived tables, invariants, and equal teams, which never win."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, wilcoxon

from contract.errors import HecktorError, MetricError
from contract.io.files import read_json
from evaluation.editions.document import MeanCaseRank, MedianCaseRank, RankingProfile, WinRank
from evaluation.editions.profile import load_profile, with_options
from evaluation.metrics.lesions import ComparedLesions, FalseVoxels, LesionCounts
from evaluation.metrics.overlap import MeanRecall, Overlap
from evaluation.metrics.rules import SIGNED_RANK
from evaluation.ranking.cli import main as rank
from evaluation.ranking.leaderboard import build_leaderboard, order_teams
from evaluation.ranking.out_of_competition import UnrankedEntry, count_teams_above
from evaluation.ranking.scheme_values import rank_cases
from evaluation.ranking.wins import ALPHA, count_signed_rank_wins, count_t_wins, count_wins
from evaluation.results.documents import MetricFigures
from evaluation.results.scored import measure_answer
from evaluation.results.task import TaskResults
from evaluation.rows.mask import ComparedLabel, make_mask_row
from evaluation.statistics.gains import compute_gains, compute_recall_gains
from evaluation.statistics.tests import compare_signed_ranks, holm, make_signed_rank_statistic
from reporting.report.cli import main as report
from tests.evaluation.builders import make_metrics, read_edition
from tests.evaluation.challenge import ChallengeSize, write_challenge

DSC = "gtvp_dsc_mean"
MEAN = MeanCaseRank(metric=DSC)
MEDIAN = MedianCaseRank(metric=DSC)
WINS = WinRank(metric=DSC, test=SIGNED_RANK)
EMPTY = Overlap(0, 0, 0)
FALSE_POSITIVE = Overlap(0, 0, 10)
MISSING = None

A = [0.9, 0.8, 0.2, 0.7]
B = [0.8, 0.8, 0.9, 0.6]
C = [0.7, 0.1, 0.9, 0.5]


def make_results(scheme, teams, ties="min", **rules):
    """Build results of teams from the DSC of each case, which may also be an overlap, or missing."""
    profile = with_options(load_profile("hecktor2025").find_task("segmentation"), rules)
    ranking = RankingProfile(official="x", ties=ties, schemes={"x": scheme})
    profile = replace(profile, metrics={DSC: profile.metrics[DSC]}, ranking=ranking)
    answer = profile.answers["segmentation"]
    metrics, answers = {}, {}
    for team, values in teams.items():
        rows = [make_row(f"P{place:03d}", value, answer.rules) for place, value in enumerate(values)]
        measured = measure_answer(answer, answer.scorer.make_table(rows))
        mean = measured.measurement.metrics[DSC](np.ones((1, len(measured.counted.cases))))
        answers[team] = {"segmentation": measured}
        metrics[team] = make_metrics({DSC: mean.tolist()}, provenance={"seed": 1})
    return TaskResults(profile, metrics, answers)


def make_row(case, value, rules):
    error = "absent" if value is MISSING else None
    if value is MISSING:
        overlap = Overlap(0, 100, 0)
    else:
        overlap = value if isinstance(value, Overlap) else Overlap(round(100 * value), 100, 100)
    lesions = ComparedLesions(LesionCounts(1, 0, 0), FalseVoxels())
    gtvp = ComparedLabel(overlap, FalseVoxels(), rules.gtvp_empty)
    gtvn = ComparedLabel(
        Overlap(1, 1, 1) if error is None else Overlap(0, 1, 0), FalseVoxels(), rules.gtvn_empty, lesions
    )
    return make_mask_row(case, 1.0, gtvp, gtvn, error=error)


def rank_by_scheme(scheme, teams, ties="min", bootstraps=0, **rules):
    return build_leaderboard(make_results(scheme, teams, ties, **rules), bootstraps)


def get_ranks(board):
    return {entry.team: entry.rank for entry in board.teams}


def get_figures(board, name):
    return {entry.team: getattr(entry.rankings["x"], name) for entry in board.teams}


def test_mean_and_median_of_the_ranks_within_cases():
    """Ranks within the four cases are A 1 1 3 1, B 2 1 1 2, C 3 3 1 3.

    Means 6/4, 6/4, 10/4; medians 1, 1.5, 3. B has the best mean DSC, 0.775 against 0.65 and 0.55. `average` shares rank
    1.5 in cases 2 and 3: sums 1 + 1.5 + 3 + 1, 2 + 1.5 + 1.5 + 2, 3 + 3 + 1.5 + 3. The best run has the best rank.
    """
    teams = {"A": A, "B": B, "C": C}
    mean = rank_by_scheme(MEAN, teams)
    assert get_figures(mean, "mean_case_rank") == {"A": 1.5, "B": 1.5, "C": 2.5}
    assert get_ranks(mean) == {"A": 1, "B": 1, "C": 3}
    average = rank_by_scheme(MEAN, teams, "average")
    assert get_figures(average, "mean_case_rank") == {"A": 1.625, "B": 1.75, "C": 2.625}
    assert get_ranks(average) == {"A": 1, "B": 2, "C": 3}
    median = rank_by_scheme(MEDIAN, teams)
    assert get_figures(median, "median_case_rank") == {"A": 1, "B": 1.5, "C": 3}
    assert get_ranks(median) == {"A": 1, "B": 2, "C": 3}
    assert {entry.team: entry.metrics[DSC].rank for entry in mean.teams} == {"B": 1, "A": 2, "C": 3}
    assert order_teams(make_results(MEDIAN, {"1": C, "2": B, "3": A}), 0, None) == ["3", "2", "1"]


def test_a_missing_answer_ranks_by_the_edition_s_rule():
    """C lacks case 1. By `worst` its DSC is 0, again rank 3. By `skip` the case has ranks 1 and 2, and C has 3, 1, 3."""
    teams = {"A": A, "B": B, "C": [MISSING, *C[1:]]}
    assert get_figures(rank_by_scheme(MEAN, teams, missing="worst"), "mean_case_rank") == {"A": 1.5, "B": 1.5, "C": 2.5}
    skipped = rank_by_scheme(MEAN, teams, missing="skip")
    assert get_figures(skipped, "mean_case_rank") == {"A": 1.5, "B": 1.5, "C": pytest.approx(7 / 3)}


def test_a_case_without_a_value_for_right_answers_has_no_ranks():
    """In a fifth, empty reference B marks a tumour, A and C rightly do not.

    By `skip` the DSC of A and C is undefined there, so that the case has no ranks, although B has 0. By `one` A and C
    have 1 and rank 1, B has 0 and ranks 3: sums 7, 9, 11 of five cases.
    """
    teams = {"A": [*A, EMPTY], "B": [*B, FALSE_POSITIVE], "C": [*C, EMPTY]}
    skipped = make_results(MEAN, teams, gtvp_empty="skip")
    assert np.isnan(rank_cases(skipped, DSC, "min")[:, 4]).all()
    assert get_figures(build_leaderboard(skipped, 0), "mean_case_rank") == {"A": 1.5, "B": 1.5, "C": 2.5}
    counted = rank_by_scheme(MEAN, teams, gtvp_empty="one")
    assert get_figures(counted, "mean_case_rank") == {"A": 7 / 5, "B": 9 / 5, "C": 11 / 5}


def test_a_team_without_a_rank_is_named():
    teams = {"A": [0.5, MISSING], "B": [MISSING, FALSE_POSITIVE], "C": [0.4, EMPTY]}
    with pytest.raises(MetricError, match="in which B can be ranked"):
        rank_by_scheme(MEAN, teams, missing="skip", gtvp_empty="skip")


@pytest.mark.parametrize(
    ("cases", "wins"),
    [(6, {"A": 0, "B": 0, "C": 0}), (7, {"A": 2, "B": 1, "C": 0})],
)
def test_wins_by_signed_ranks(cases, wins):
    """Each team is better than the next in all n cases: p is 2^-n, of six tests: 6/64 = 0.094, 6/128 = 0.047."""
    teams = {
        team: [level + 0.01 * case for case in range(cases)] for team, level in zip("ABC", (0.8, 0.6, 0.4), strict=True)
    }
    board = rank_by_scheme(WINS, teams, bootstraps=20)
    assert get_figures(board, "significant_wins") == wins
    assert get_ranks(board) == ({"A": 1, "B": 2, "C": 3} if wins["A"] else {"A": 1, "B": 1, "C": 1})


def test_a_replicate_that_equals_the_cohort_has_its_wins():
    """Sixty cases, so that the normal approximation of Wilcoxon's test holds in the cohort as well."""
    rng = np.random.default_rng(6)
    teams = {f"T{place}": np.clip(0.5 + 0.05 * place + rng.normal(0, 0.1, 60), 0, 1).tolist() for place in range(4)}
    results = make_results(WINS, teams)
    tests = build_leaderboard(results, 50).comparisons[DSC]
    names = list(teams)
    whole = np.array([[results.value(team, DSC) for team in names]])
    assert count_t_wins(tests, names, whole, 60)[0].tolist() == count_wins(tests.pairs, names).tolist()
    values = np.round(np.array(list(teams.values())), 2)
    statistics = {
        (names[a], names[b]): make_signed_rank_statistic(values[a], values[b])(np.ones((1, 60)))
        for a in range(4)
        for b in range(4)
    }
    pairs = tests.other_tests[SIGNED_RANK]
    assert count_signed_rank_wins(pairs, names, statistics)[0].tolist() == count_wins(pairs, names).tolist()
    assert count_wins(pairs, names).max() > 0


@given(st.integers(0, 10_000))
@settings(max_examples=50)
def test_signed_ranks_of_weighted_cases_are_those_of_repeated_cases(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 6, (2, 12)) / 5
    weights = rng.integers(0, 4, 12)
    statistic = make_signed_rank_statistic(a, b)(weights[None].astype(float))[0]
    gaps = np.round(np.repeat(a - b, weights), 12)
    gaps = gaps[gaps != 0]
    if gaps.size == 0:
        assert statistic == 0
        return
    expected = wilcoxon(gaps, correction=False, method="asymptotic").zstatistic
    direction = np.sign((np.sign(gaps) * rankdata(np.abs(gaps))).sum())
    assert statistic == pytest.approx(direction * abs(expected))


@st.composite
def draw_tables(draw):
    cases = draw(st.integers(2, 6))
    return draw(st.lists(st.lists(st.integers(0, 10), min_size=cases, max_size=cases), min_size=1, max_size=5))


@given(draw_tables(), st.randoms(), st.sampled_from(["min", "average", "max", "dense"]))
@settings(max_examples=6)
def test_the_order_of_the_teams_changes_no_rank(table, random, ties):
    order = list(range(len(table)))
    random.shuffle(order)
    straight = {f"T{place}": [value / 10 for value in table[place]] for place in range(len(table))}
    turned = {f"T{place}": straight[f"T{place}"] for place in order}
    for scheme in (MEAN, MEDIAN, WINS):
        boards = [rank_by_scheme(scheme, teams, ties, bootstraps=2) for teams in (straight, turned)]
        assert get_ranks(boards[0]) == get_ranks(boards[1])


def test_equal_teams_claim_a_win_in_at_most_five_percent_of_rankings():
    """Five teams share each case's difficulty and differ only by noise, skewed as a DSC is; 500 rankings of 60 cases.

    Balanced accuracies have 12 patients in the smaller class.
    """
    rng = np.random.default_rng(7)
    claims = {"signed ranks": 0, "t of means": 0, "t of balanced accuracies": 0}
    off_diagonal = ~np.eye(5, dtype=bool)
    classes = np.stack([np.arange(60) < 12, np.arange(60) >= 12]).astype(float)
    for _ in range(500):
        values = 1 / (1 + np.exp(-rng.normal(1.5, 1, 60) - rng.normal(0, 0.5, (5, 60))))
        claims["signed ranks"] += (holm(compare_signed_ranks(values).p[off_diagonal]) < ALPHA).any()
        weights = rng.multinomial(60, np.full(60, 1 / 60), 200)
        left_out = (values.sum(axis=1, keepdims=True) - values) / 59
        p = compute_gains(values.mean(axis=1), values @ weights.T / 60, left_out).p[off_diagonal]
        claims["t of means"] += (holm(p) < ALPHA).any()
        recalls = [MeanRecall((rng.random(60) < 0.7).astype(float), classes, 2) for _ in range(5)]
        accuracies = np.array([recall(np.ones((1, 60)))[0] for recall in recalls])
        claims["t of balanced accuracies"] += (
            holm(compute_recall_gains(recalls, accuracies).p[off_diagonal]) < ALPHA
        ).any()
    assert max(claims.values()) <= 25, claims


def test_the_place_of_an_entry_out_of_competition():
    """D ranks 1 in each case and so above all; E without rows, and one without a value, stand below all teams."""
    teams = make_results(MEAN, {"A": A, "B": B, "C": C})
    best = make_results(MEAN, {"D": [1.0] * 4})
    figures = {DSC: MetricFigures.from_values(1.0)}
    assert count_teams_above(UnrankedEntry("D", "", figures, results=best), teams) == 0
    assert count_teams_above(UnrankedEntry("E", "", figures), teams) == 3
    assert count_teams_above(UnrankedEntry("F", "", {}), teams) == 3


def test_a_scheme_without_its_input_is_refused_or_left_out():
    """Without rows or rankings an official scheme is refused and a further one left out."""
    teams = make_results(MEAN, {"A": A, "B": B})
    without_rows = replace(teams, answers={})
    with pytest.raises(HecktorError, match="ranking x: results without per-case rows"):
        build_leaderboard(without_rows, 0)
    with pytest.raises(HecktorError, match="ranking x: no bootstrap rankings, expected --bootstraps above 0"):
        build_leaderboard(make_results(WINS, {"A": A, "B": B}), 0)
    ranking = RankingProfile(official="dsc", ties="min", schemes={"dsc": DSC, "cases": MEAN, "wins": WINS})
    further = replace(teams, profile=replace(teams.profile, ranking=ranking))
    assert build_leaderboard(further, 20).teams[0].rankings.keys() == {"dsc", "cases", "wins"}
    assert build_leaderboard(further, 0).teams[0].rankings.keys() == {"dsc", "cases"}
    assert build_leaderboard(replace(further, answers={}), 20).teams[0].rankings.keys() == {"dsc"}


SCHEMES = {
    "cases": {"mean_case_rank": DSC},
    "wins": {"significant_wins": "gtvn_f1_agg"},
    "both": {"borda": [{"median_case_rank": DSC}, {"significant_wins": DSC, "test": SIGNED_RANK}]},
}


@pytest.fixture(scope="module")
def challenge(tmp_path_factory):
    """Write results of 2025 and an edition that ranks them by cases and wins."""
    folder = tmp_path_factory.mktemp("challenge")
    write_challenge(folder, "hecktor2025", ChallengeSize(4, 30, bootstraps=5, rankings=0))
    content = read_edition("hecktor2025")
    content["scoring"]["segmentation"]["ranking"] = {"official": "cases", "ties": "min", "schemes": SCHEMES}
    (folder / "by_cases.json").write_text(json.dumps(content))
    return folder


def test_rank_and_report_follow_the_edition(challenge, tmp_path, capsys):
    results = sorted(map(str, (challenge / "task1").glob("*/metrics.json")))
    options = ["--task", "1", "--edition", str(challenge / "by_cases.json"), "--bootstraps", "50", "--mean"]
    outside = ["--out-of-competition", f"Baseline={results[3]}:no paper"]
    for official, figure, head in (
        ("cases", "mean_case_rank", "wins by cases, with mean rank within the cases 1."),
        ("wins", "significant_wins", "Significant wins"),
        ("both", "rank_sum", ""),
    ):
        out = tmp_path / official
        assert rank([*results[:3], *options, *outside, "--official", official, "--output", str(out)]) == 0
        board = read_json(out / "leaderboard.json")
        assert board["official"] == official
        assert all(figure in entry["rankings"][official] for entry in board["teams"])
        assert board["stability"]["rankings"].keys() == SCHEMES.keys()
        assert {entry["team"] for entry in board["out_of_competition"]} == {"Baseline", "mean of all teams"}
        assert f"{official}_{figure}" in (out / "leaderboard.csv").read_text()
        assert report(["--results", str(out), "--output", str(out / "report.html")]) == 0
        assert head in (out / "report.html").read_text()
    capsys.readouterr()


def test_distances_are_ranked_from_the_smallest_and_tested_by_signed_ranks(tmp_path):
    """HD95 of 2021: Wilcoxon's test decides, without an interval, so that wins need no deviation."""
    write_challenge(tmp_path, "hecktor2021", ChallengeSize(3, 30, bootstraps=5, rankings=0))
    content = read_edition("hecktor2021")
    hd95 = "gtvp_hd95_median_mm"
    schemes = {"cases": {"mean_case_rank": hd95}, "wins": {"significant_wins": hd95}}
    (task,) = [name for name, scoring in content["scoring"].items() if hd95 in scoring["metrics"]]
    content["scoring"][task]["ranking"] = {"official": "cases", "ties": "min", "schemes": schemes}
    (tmp_path / "own.json").write_text(json.dumps(content))
    results = sorted(map(str, (tmp_path / "task1").glob("*/metrics.json")))
    options = ["--task", "1", "--edition", str(tmp_path / "own.json"), "--bootstraps", "20"]
    assert rank([*results, *options, "--output", str(tmp_path / "board")]) == 0
    board = read_json(tmp_path / "board" / "leaderboard.json")
    tests = board["comparisons"][hd95]
    assert tests["test"] == SIGNED_RANK
    for entry in board["teams"]:
        wins = sum(pair["team"] == entry["team"] and pair["p_holm"] < ALPHA for pair in tests["pairs"])
        assert entry["rankings"]["wins"]["significant_wins"] == wins
    rows = [read_json(Path(file))["results"] for file in results]
    surfaces = [[row["gtvp"]["surface"] for row in of_team] for of_team in rows]
    states = np.array([[surface["state"] for surface in of_team] for of_team in surfaces])
    hd95s = [[surface["values"]["hd95_mm"] for surface in of_team] for of_team in surfaces]
    distances = np.where(states == "measured", np.array(hd95s, dtype=float), np.inf)
    expected = rankdata(distances[:, ~(states == "both_empty").any(axis=0)], axis=0, method="min").mean(axis=1)
    by_team = {entry["team"]: entry["rankings"]["cases"]["mean_case_rank"] for entry in board["teams"]}
    assert [by_team[team] for team in sorted(by_team)] == pytest.approx(expected.tolist())
