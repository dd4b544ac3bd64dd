"""Tests of pairs of teams, rank stability and best runs, from metrics.json files as the evaluation writes them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import t

from contract.errors import HecktorError
from evaluation.metrics.survival import SurvivalCohort, c_index_metric
from evaluation.ranking.cli import main
from evaluation.statistics.tests import TeamRisks, compare_signed_ranks, holm, kang
from tests.evaluation.builders import read_edition
from tests.evaluation.conftest import Phase
from tests.evaluation.tables import read_lines
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

PAIR = {"team", "than", "difference", "sd", "df", "ci95_low", "ci95_high", "p", "p_holm"}
PAIR_BESIDE = {"team", "than", "difference", "p", "p_holm"}


@pytest.fixture
def rank(tmp_path):
    """Evaluate each team's filled phase, rank the teams, and return the leaderboard."""

    def run(task, fill, teams, *more, **changes):
        write_phases(tmp_path, task, fill, teams, **changes)
        return rank_again(tmp_path, task, teams, *more, edition=changes.get("edition"))

    return run


def write_phases(folder, task, fill, teams, **changes):
    for team, answers in teams.items():
        phase = Phase(folder / team, task)
        fill(phase, answers)
        phase.run(**changes)


def find_file(folder, team):
    return folder / team / "output" / "metrics.json"


def rank_again(folder, task, teams, *more, edition=None):
    files = [str(find_file(folder, team)) for team in teams]
    names = ["--names", *teams] if files else []
    options = ["--task", task.name, *names, *(["--edition", edition] if edition else [])]
    assert main([*files, *options, "--output", str(folder / "board"), *more]) == 0
    return json.loads((folder / "board" / "leaderboard.json").read_text())


@pytest.fixture
def compare(rank):
    """Rank the teams and return the comparisons."""
    return lambda *arguments, **changes: rank(*arguments, **changes)["comparisons"]


def write_statuses(phase, answers):
    """Write a pair (HPV positive, predicted) for each patient."""
    names = [f"P{i:03d}" for i in range(len(answers))]
    lines = [f"{name},{int(positive)}" for name, (positive, _) in zip(names, answers, strict=True)]
    phase.add_truth_table("PatientID,HPV Status\n" + "\n".join(lines) + "\n")
    for name, (_, predicted) in zip(names, answers, strict=True):
        phase.add_value(name, json.dumps(bool(predicted)))


def write_risks(phase, values):
    """Write risks of patients who recur on day 10 + i, every third is censored; None is a missing answer."""
    lines = [f"P{i:02d},{int(i % 3 != 2)},{10 + i}" for i in range(len(values))]
    phase.add_truth_table("PatientID,Relapse,RFS\n" + "\n".join(lines) + "\n")
    for i, value in enumerate(values):
        if value is not None:
            phase.add_value(f"P{i:02d}", json.dumps(float(value)))


def find_pair(pairs, team, than):
    return next(pair for pair in pairs if (pair["team"], pair["than"]) == (team, than))


def test_pairs_and_ranks_follow_the_draws_of_the_evaluation(rank):
    """Compute difference, deviation and ranks again from the same samples of patients.

    The interval belongs to the t test.
    """
    rng, n = np.random.default_rng(3), 60
    values = {team: -np.arange(n) + rng.normal(0, spread, n) for team, spread in (("a", 90), ("b", 15), ("c", 40))}
    board = rank(RFS, write_risks, values, "--bootstraps", "200", seed=8)
    weights = [np.bincount(s.integers(0, n, n), minlength=n) for s in np.random.default_rng(8).spawn(200)]
    drawn, whole = np.array(weights, dtype=float), np.ones((1, n))
    times, events = 10.0 + np.arange(n), np.arange(n) % 3 != 2
    metric = {
        team: c_index_metric(SurvivalCohort(times, events, of_team), "non_concordant")
        for team, of_team in values.items()
    }
    for pair in board["comparisons"]["c_index"]["pairs"]:
        first, second = metric[pair["team"]], metric[pair["than"]]
        difference, sd = float(first(whole)[0] - second(whole)[0]), (first(drawn) - second(drawn)).std(ddof=1)
        assert (pair["difference"], pair["sd"]) == pytest.approx((difference, sd), abs=1e-10)
        assert pair["p"] == pytest.approx(t.sf(difference / sd, pair["df"]))
        reach = t.ppf(0.975, pair["df"]) * sd
        assert (pair["ci95_low"], pair["ci95_high"]) == pytest.approx((difference - reach, difference + reach))
    c = np.stack([of_team(drawn) for of_team in metric.values()], axis=1)
    ranks = 1 + (c[:, None, :] > c[:, :, None] + 1e-12).sum(axis=2)
    assert board["stability"]["seed"] == 8
    for index, name in enumerate(values):
        counts = board["stability"]["rankings"]["c_index"]["teams"][name]["times_at_rank"]
        expected = {str(r): int((ranks[:, index] == r).sum()) for r in (1, 2, 3) if (ranks[:, index] == r).any()}
        assert counts == expected


@pytest.mark.parametrize("negatives", [1, 2])
def test_a_class_of_few_patients(compare, negatives):
    """`yes` calls every negative positive and `right` none; some positives are wrong, so that draws vary.

    One negative leaves no degree of freedom, two leave one: v = (2.5 + 0.5 - 4 / 4) / 16 = 0.125 of the negatives, so
    that specificities of 1 and 0 have t = 2.828 and p = 0.108. The bootstrap's deviation, of only the positives, gave
    p = 4.6e-18 for the balanced accuracy. A class of one patient leaves the sensitivity its p.
    """
    patients = np.arange(60)
    positive, wrong = patients >= negatives, patients % 7 == 6
    teams = {
        "right": list(zip(positive, positive ^ wrong, strict=True)),
        "yes": list(zip(positive, np.where(positive, ~wrong, True), strict=True)),
        "other": list(zip(positive, np.where(positive, patients % 2 == 0, True), strict=True)),
    }
    by_metric = compare(HPV, write_statuses, teams, "--bootstraps", "100")
    for name, difference in (("balanced_accuracy", 0.5), ("specificity", 1.0)):
        pair = find_pair(by_metric[name]["pairs"], "right", "yes")
        assert pair["difference"] == pytest.approx(difference)
        if negatives == 1:
            assert set(pair) == {*PAIR, "without_p"}
            assert {pair[part] for part in ("p", "p_holm", "ci95_low", "ci95_high")} == {None}
            assert pair["without_p"] == "too few patients to test: a class has only one"
        else:
            assert set(pair) == PAIR
            assert pair["p"] == pytest.approx(t.sf(8**0.5, 1), rel=0.1)
    # The family of Holm's correction are the pairs with a p.
    better = find_pair(by_metric["sensitivity"]["pairs"], "right", "other")
    assert better["p_holm"] == pytest.approx(6 * better["p"])
    assert find_pair(by_metric["sensitivity"]["pairs"], "yes", "right")["p"] == 0.5


def test_skipped_cases_are_left_out_of_further_tests(compare):
    """Team b lacks P03 and P04. Kang compares both teams on the other cases, the bootstrap each team's own value."""
    rng, n = np.random.default_rng(2), 30
    values = {name: list(-np.arange(n) + rng.normal(0, 15, n)) for name in "abc"}
    values["b"][3] = values["b"][4] = None
    comparison = compare(RFS, write_risks, values, "--bootstraps", "40", options={"missing": "skip"})["c_index"]
    times, events = 10.0 + np.arange(n), np.arange(n) % 3 != 2
    both = [case for case in range(n) if case not in (3, 4)]
    for than, cases in (("b", both), ("c", list(range(n)))):
        of_two = np.array([[values[name][case] for case in cases] for name in ("a", than)], dtype=float)
        expected = kang(TeamRisks(times[cases], events[cases], of_two, 0.0))
        assert find_pair(comparison["other_tests"]["kang"], "a", than)["p"] == pytest.approx(expected.p[0, 1])


def make_mask_writer(blank):
    """Fill a phase: a GTVp of 4 planes, predicted with some left out, and one GTVn, predicted unless 4 are left out."""

    def fill(phase, cuts):
        for case, cut in enumerate(cuts):
            reference = blank()
            reference[1:5, 2:5, 2:6] = 1
            reference[1:4, 6:8, 8:10] = 2
            predicted = reference.copy()
            predicted[1 : 1 + cut] = 0
            phase.add_truth_mask(f"P{case}", reference)
            phase.add_mask(f"P{case}", predicted)

    return fill


def test_masks_are_compared_by_means_and_by_signed_ranks(compare, blank):
    """DSCs of the GTVp are 2 (4 - cut) / (8 - cut): 1, 6/7, 2/3 and 2/5 with none to three planes left out.

    Fine is better in all six cases, by 1/7, 1/3, 4/21, 1/7, 16/35 and 1/3. Six cases leave at most five degrees of
    freedom; with a single case less there would be no p.
    """
    teams = {"fine": [0, 0, 1, 0, 1, 0], "coarse": [1, 2, 2, 1, 3, 2]}
    comparisons = compare(SEGMENTATION, make_mask_writer(blank), teams, "--bootstraps", "100")
    dsc = np.array([[2 * (4 - cut) / (8 - cut) for cut in cuts] for cuts in teams.values()])
    there, back = (find_pair(comparisons["gtvp_dsc_mean"]["pairs"], *names) for names in (teams, reversed(list(teams))))
    assert comparisons["gtvp_dsc_mean"]["test"] == "bootstrap_difference"
    assert there["difference"] == pytest.approx(dsc[0].mean() - dsc[1].mean())
    assert there["p"] == pytest.approx(max(t.sf(there["difference"] / there["sd"], there["df"]), 1 / 64))
    assert there["p"] < 0.05 < back["p"]
    np.testing.assert_allclose([there["p_holm"], back["p_holm"]], holm(np.array([there["p"], back["p"]])))
    assert there["ci95_low"] < there["difference"] < there["ci95_high"]
    signed_ranks = find_pair(comparisons["gtvp_dsc_mean"]["other_tests"]["wilcoxon_signed_rank"], *teams)
    assert (signed_ranks["difference"], signed_ranks["p"]) == pytest.approx((1, compare_signed_ranks(dsc).p[0, 1]))
    assert comparisons["gtvn_dsc_agg"]["test"] == "bootstrap_difference"
    assert find_pair(comparisons["gtvn_dsc_agg"]["pairs"], *teams)["p"] < 0.05


def test_an_infinite_median_has_no_difference_but_a_p(compare, blank, tmp_path):
    """Team a misses three of five tumours and team b none: the median HD95 of a is infinite and that of b 0 mm.

    Signed ranks decide: three differing pairs, all infinite and for b, are one of 2^3 ways to give them signs, so that p
    is 1/8, and 1 for a.
    """
    content = read_edition("hecktor2025")
    task = content["scoring"][SEGMENTATION.name]
    task["metrics"]["gtvp_hd95_median_mm"] = {"title": "Median HD95 (mm)", "higher_is_better": False}
    task["answers"]["segmentation"]["rules"]["surfaces"] = "gtvp"
    (tmp_path / "mine.json").write_text(json.dumps(content))

    def fill(phase, missed):
        for case in range(5):
            mask = blank()
            mask[1:5, 2:5, 2:6] = 1
            mask[1:4, 6:8, 8:10] = 2
            phase.add_truth_mask(f"P{case}", mask)
            phase.add_mask(f"P{case}", np.where((mask == 1) & (case < missed), 0, mask).astype(np.uint8))

    teams = {"a": 3, "b": 0}
    comparisons = compare(SEGMENTATION, fill, teams, "--bootstraps", "2000", edition=str(tmp_path / "mine.json"))
    of_metric = comparisons["gtvp_hd95_median_mm"]
    assert of_metric["test"] == "wilcoxon_signed_rank"
    better, worse = find_pair(of_metric["pairs"], "b", "a"), find_pair(of_metric["pairs"], "a", "b")
    assert set(better) == PAIR_BESIDE
    assert (better["difference"], better["p"], better["p_holm"], worse["p"]) == (None, 1 / 8, 1 / 4, 1)
    assert of_metric["other_tests"] == {}


def test_the_best_of_several_runs_counts(tmp_path, capsys):
    """Of six pairs team a orders 3, 6 and 0 correctly, team b 4 and 5, whose median is 4.5.

    Means over teams: best (6 + 5) / 12, median (3 + 4.5) / 12, worst (0 + 4) / 12.
    """
    orders = {"a1": [2, 3, 4, 1], "a2": [4, 3, 2, 1], "a3": [1, 2, 3, 4], "b1": [3, 4, 1, 2], "b2": [3, 4, 2, 1]}
    write_phases(tmp_path, RFS, write_all_recurring, orders)
    runs = [f"{team}={','.join(str(find_file(tmp_path, name)) for name in orders if name[0] == team)}" for team in "ab"]
    board = rank_again(tmp_path, RFS, (), "--runs", runs[0], "--runs", runs[1], "--bootstraps", "0")
    assert [entry["team"] for entry in board["teams"]] == ["a", "b"]
    assert board["runs"]["a"]["chosen"].startswith("2 ")
    assert [run["metrics"]["c_index"]["value"] for run in board["runs"]["a"]["order"]] == [1, 0.5, 0]
    of_b = board["runs"]["b"]["summary"]["c_index"]
    assert [of_b[part] for part in ("best", "median", "worst")] == pytest.approx([5 / 6, 4.5 / 6, 4 / 6])
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("mean of the runs of 2 teams") + 1] == (
        f"   c_index: best {11 / 12:.4f}, median {7.5 / 12:.4f}, worst {4 / 12:.4f}"
    )


def write_all_recurring(phase, values):
    """Write the risks of patients who recur on day i."""
    lines = [f"P{day},1,{day}" for day in range(1, len(values) + 1)]
    phase.add_truth_table("PatientID,Relapse,RFS\n" + "\n".join(lines) + "\n")
    for day, value in enumerate(values, start=1):
        phase.add_value(f"P{day}", str(value))


def test_the_table_equals_the_json(rank, tmp_path, capsys):
    """The name of a team is no formula in the table. Teams without rows are ranked on request and marked.

    Results against different references are not mixed: one follow-up was corrected between the evaluations.
    """
    teams = {"a": -np.arange(9), "=b": np.arange(9)}
    board = rank(RFS, write_risks, teams, "--bootstraps", "20")
    assert [entry["team"] for entry in board["teams"]] == ["a", "=b"]
    lines = read_lines(tmp_path / "board" / "leaderboard.csv")
    assert [(line["rank"], line["team"], line["c_index_value"]) for line in lines] == [
        ("1", "a", "1.0"),
        ("2", "'=b", "0.0"),
    ]
    assert lines[1]["rank_ci95_low"] == "2.0"
    assert lines[0]["c_index_ci95_low"] == str(board["teams"][0]["metrics"]["c_index"]["ci95_low"])

    file = find_file(tmp_path, "=b")
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "results": []}))
    with pytest.raises(HecktorError, match=r"\(=b\): no per-case rows"):
        rank_again(tmp_path, RFS, teams)
    capsys.readouterr()
    board = rank_again(tmp_path, RFS, teams, "--without-rows")
    assert [entry.get("without_rows") for entry in board["teams"]] == [None, True]
    assert (board["stability"], board["comparisons"]) == (None, None)
    assert "no per-case rows (written with --no-rows): =b" in board["without_stability_because"]
    printed = capsys.readouterr().out
    assert "no rank stability" in printed
    assert [line.endswith("  without rows") for line in printed.splitlines()[1:3]] == [False, True]
    assert [line["without_rows"] for line in read_lines(tmp_path / "board" / "leaderboard.csv")] == ["no", "yes"]

    content["results"][8]["rfs_days"] += 1
    file.write_text(json.dumps(content))
    with pytest.raises(HecktorError, match="a and =b: P08 was measured against different references"):
        rank_again(tmp_path, RFS, teams, "--bootstraps", "5")
