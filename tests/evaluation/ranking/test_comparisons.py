"""Which test decides about a metric, which one stands beside it, and what the leaderboard says about each pair."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest

from evaluation.editions.profile import load_profile
from evaluation.metrics.classification import binary_metrics
from evaluation.ranking.cli import main
from evaluation.ranking.comparisons import BOOTSTRAP, SIGNED_RANK, method_of
from evaluation.rows.classes import BINARY_METRICS, class_metrics
from evaluation.rows.kinds import find_metric
from evaluation.rows.mask import mask_metrics
from evaluation.rows.risk import RISK_METRICS
from evaluation.statistics.bootstrap import interval
from evaluation.statistics.kang import TeamRisks, kang
from evaluation.statistics.tests import holm, signed_ranks
from tests.evaluation.conftest import Phase
from tests.evaluation.tasks import HPV, MASK, RFS, SEGMENTATION

PAIR = {"team", "than", "difference", "sd", "ci95_low", "ci95_high", "p", "p_holm"}
PAIR_BESIDE = {"team", "than", "difference", "p", "p_holm"}


@pytest.fixture
def compare(tmp_path):
    """Evaluate each team's filled phase, rank, and return the comparisons."""

    def run(task, fill, teams, *more, edition=None, **changes):
        paths = []
        for team, answers in teams.items():
            phase = Phase(tmp_path / team, task)
            fill(phase, answers)
            phase.run(**({"edition": edition} if edition else {}), **changes)
            paths.append(str(phase.output_dir / "metrics.json"))
        names = ["--task", task.name, "--names", *teams, *(["--edition", edition] if edition else [])]
        assert main([*paths, *names, "--output", str(tmp_path / "board"), *more]) == 0
        return json.loads((tmp_path / "board" / "leaderboard.json").read_text())["comparisons"]

    return run


def statuses(phase, answers):
    """`answers` holds (HPV positive, predicted) for each patient."""
    names = [f"P{i:03d}" for i in range(len(answers))]
    lines = [f"{name},{int(positive)}" for name, (positive, _) in zip(names, answers, strict=True)]
    phase.truth_table("PatientID,HPV Status\n" + "\n".join(lines) + "\n")
    for name, (_, predicted) in zip(names, answers, strict=True):
        phase.value(name, json.dumps(bool(predicted)))


def risks(phase, values):
    """Patient i recurs on day 10 + i, every third is censored; None is no answer."""
    lines = [f"P{i:02d},{int(i % 3 != 2)},{10 + i}" for i in range(len(values))]
    phase.truth_table("PatientID,Relapse,RFS\n" + "\n".join(lines) + "\n")
    for i, value in enumerate(values):
        if value is not None:
            phase.value(f"P{i:02d}", json.dumps(float(value)))


def pair_of(pairs, team, than):
    (one,) = (pair for pair in pairs if (pair["team"], pair["than"]) == (team, than))
    return one


def test_only_means_of_per_case_values_are_compared_by_signed_ranks():
    """Of all metrics of all editions; the sum of two such means is no mean of per-case values of its own."""
    methods = {
        name: method_of(metric.metric)
        for edition in ("hecktor2020", "hecktor2021", "hecktor2022", "hecktor2025", "hecktor2026", "hntsmrg2024")
        for task in load_profile(edition).tasks.values()
        for name, metric in task.metrics.items()
    }
    means = {"gtvp_dsc_mean", "gtvn_dsc_mean", "gtvp_precision_mean", "gtvp_recall_mean"}
    assert {name for name, method in methods.items() if method == SIGNED_RANK} == means
    assert {method for name, method in methods.items() if name not in means} == {BOOTSTRAP}
    assert {"dsc_mean", "score", "gtvp_hd95_median_mm", "c_index", "balanced_accuracy"} < methods.keys()
    assert method_of(find_metric(MASK, "gtvn_surface_dsc_mean")) == SIGNED_RANK


def test_second_tests():
    stage = load_profile("hecktor2026").task(None).answers["t_stage"].answer
    tests = {
        metric.name: metric.second_test
        for metric in (*mask_metrics("both"), *RISK_METRICS, *BINARY_METRICS, *class_metrics(stage))
        if metric.second_test
    }
    mcnemar = {"balanced_accuracy", "accuracy", "sensitivity", "specificity", *(f"recall_T{n}" for n in range(1, 5))}
    assert tests == {"c_index": "kang"} | dict.fromkeys(mcnemar, "mcnemar")


def test_balanced_accuracy_is_not_compared_by_plain_accuracy(compare):
    """90 positives and 10 negatives; `all` answers positive throughout, `fair` is right in 63 positives and 9 negatives.

    Balanced accuracy: all (1 + 0) / 2 = 0.50, fair (63/90 + 9/10) / 2 = 0.80. The variance of the difference is
    (0.7 x 0.3 / 90 + 0.9 x 0.1 / 10) / 4 = 0.00283, its standard deviation 0.0532, so 0 lies 5.6 of these away, and
    the bootstrap calls fair better. McNemar's test counts the patients that one alone has right, 27 for all and 9 for
    fair: P(27 or more heads of 36) = 0.002 says that all is better, and is one of plain accuracy, 0.90 and 0.72.
    """
    patients = np.arange(100)
    positive = patients < 90
    fair = np.where(positive, patients < 63, patients == 99)
    teams = {
        "all": list(zip(positive, np.ones(100, dtype=bool), strict=True)),
        "fair": list(zip(positive, fair, strict=True)),
    }
    of_metric = compare(HPV, statuses, teams, "--bootstraps", "500")
    found = of_metric["balanced_accuracy"]
    assert found["test"] == "bootstrap_difference"
    better, worse = pair_of(found["pairs"], "fair", "all"), pair_of(found["pairs"], "all", "fair")
    assert set(better) == PAIR
    assert better["difference"] == pytest.approx(0.30)
    assert better["sd"] == pytest.approx(0.0532, rel=0.1)
    assert better["p"] < 0.005
    assert better["p_holm"] == pytest.approx(2 * better["p"])
    assert worse["p"] == pytest.approx(1 - better["p"])
    assert (worse["ci95_low"], worse["ci95_high"]) == pytest.approx((-better["ci95_high"], -better["ci95_low"]))
    assert 0.1 < better["ci95_low"] < 0.3 < better["ci95_high"] < 0.4
    assert list(found["other_tests"]) == ["mcnemar"]
    plain = pair_of(found["other_tests"]["mcnemar"], "all", "fair")
    assert set(plain) == PAIR_BESIDE
    assert plain["difference"] == pytest.approx(0.90 - 0.72)
    assert plain["p"] == pytest.approx(0.002, abs=0.0005)
    assert pair_of(of_metric["sensitivity"]["pairs"], "all", "fair")["p"] < 1e-6
    only_negatives = of_metric["specificity"]["other_tests"]["mcnemar"]
    assert pair_of(only_negatives, "fair", "all")["p"] == pytest.approx(2**-9)


def test_figures_of_a_pair_are_those_of_the_evaluation_s_draws(compare):
    """Difference, deviation and interval recomputed from the same samples of patients."""
    rng, n = np.random.default_rng(3), 40
    positive = np.arange(n) % 3 > 0
    right = {team: rng.random(n) < share for team, share in (("a", 0.6), ("b", 0.8), ("c", 0.7))}
    answers = {team: list(zip(positive, positive == correct, strict=True)) for team, correct in right.items()}
    found = compare(HPV, statuses, answers, "--bootstraps", "200", seed=8)["balanced_accuracy"]["pairs"]
    weights = [np.bincount(s.integers(0, n, n), minlength=n) for s in np.random.default_rng(8).spawn(200)]
    drawn, whole = np.array(weights, dtype=float), np.ones((1, n))
    metric = {team: binary_metrics(positive, correct)["balanced_accuracy"] for team, correct in right.items()}
    for pair in found:
        first, second = metric[pair["team"]], metric[pair["than"]]
        gaps = first(drawn) - second(drawn)
        expected = (float(first(whole)[0] - second(whole)[0]), gaps.std(ddof=1), *interval(gaps))
        figures = [pair[part] for part in ("difference", "sd", "ci95_low", "ci95_high")]
        assert figures == pytest.approx(expected, abs=1e-10)


def test_skipped_cases_are_left_out_of_the_tests_beside(compare):
    """The second team lacks P03 and P04. Kang compares both on the other cases, the bootstrap each team's own value."""
    rng, n = np.random.default_rng(2), 30
    values = {name: list(-np.arange(n) + rng.normal(0, 15, n)) for name in "abc"}
    values["b"][3] = values["b"][4] = None
    found = compare(RFS, risks, values, "--bootstraps", "40", options={"missing": "skip"})["c_index"]
    times, events = 10.0 + np.arange(n), np.arange(n) % 3 != 2
    both = [case for case in range(n) if case not in (3, 4)]
    for than, cases in (("b", both), ("c", list(range(n)))):
        of_two = np.array([[values[name][case] for case in cases] for name in ("a", than)], dtype=float)
        expected = kang(TeamRisks(times[cases], events[cases], of_two, 0.0))
        assert pair_of(found["other_tests"]["kang"], "a", than)["p"] == pytest.approx(expected.p[0, 1])


def masks(blank):
    """Fill a phase: a GTVp of 4 planes, predicted with some left out, and one GTVn, predicted unless 4 are left out."""

    def fill(phase, cuts):
        for case, cut in enumerate(cuts):
            reference = blank()
            reference[1:5, 2:5, 2:6] = 1
            reference[1:4, 6:8, 8:10] = 2
            predicted = reference.copy()
            predicted[1 : 1 + cut] = 0
            phase.truth_mask(f"P{case}", reference)
            phase.mask(f"P{case}", predicted)

    return fill


def test_masks_are_compared_by_signed_ranks_and_aggregates_by_the_bootstrap(compare, blank):
    """DSCs of the GTVp are 2 (4 - cut) / (8 - cut): 1, 6/7, 2/3 and 2/5 with none to three planes left out."""
    teams = {"fine": [0, 0, 1, 0, 1, 0], "coarse": [1, 2, 2, 1, 3, 2]}
    found = compare(SEGMENTATION, masks(blank), teams, "--bootstraps", "100")
    dsc = np.array([[2 * (4 - cut) / (8 - cut) for cut in cuts] for cuts in teams.values()])
    there, back = (pair_of(found["gtvp_dsc_mean"]["pairs"], *names) for names in (teams, reversed(list(teams))))
    assert found["gtvp_dsc_mean"]["test"] == "wilcoxon_signed_rank"
    assert found["gtvp_dsc_mean"]["other_tests"] == {}
    assert there["difference"] == pytest.approx(dsc[0].mean() - dsc[1].mean())
    assert there["p"] == pytest.approx(signed_ranks(dsc)[0, 1])
    assert there["p"] < 0.05 < back["p"]
    np.testing.assert_allclose([there["p_holm"], back["p_holm"]], holm(np.array([there["p"], back["p"]])))
    assert there["ci95_low"] < there["difference"] < there["ci95_high"]
    assert found["gtvn_dsc_agg"]["test"] == "bootstrap_difference"
    assert pair_of(found["gtvn_dsc_agg"]["pairs"], *teams)["p"] < 0.05


def test_an_infinite_median_has_no_difference_but_a_p(compare, blank, tmp_path):
    """Of five tumours, a misses three and b none, so that a's median HD95 is infinite and b's 0 mm.

    b's is smaller in the samples with three or more of the missed tumours, and equal in the others. With three to five
    of five draws at 3/5 each that is a probability of 0.3456 + 0.2592 + 0.0778 = 0.683; ties count half, so that p is
    about (1 - 0.683) / 2 = 0.159.
    """
    content = json.loads((files("evaluation.editions") / "hecktor2025.json").read_text())
    content["name"] = "with_surfaces"
    task = content["tasks"][SEGMENTATION.name]
    task["metrics"]["gtvp_hd95_median_mm"] = {"title": "Median HD95 (mm)", "higher_is_better": False}
    task["rules"]["surfaces"] = "gtvp"
    (tmp_path / "profile.json").write_text(json.dumps(content))

    def fill(phase, missed):
        for case in range(5):
            mask = blank()
            mask[1:5, 2:5, 2:6] = 1
            mask[1:4, 6:8, 8:10] = 2
            phase.truth_mask(f"P{case}", mask)
            phase.mask(f"P{case}", np.where((mask == 1) & (case < missed), 0, mask).astype(np.uint8))

    teams = {"a": 3, "b": 0}
    found = compare(SEGMENTATION, fill, teams, "--bootstraps", "2000", edition=str(tmp_path / "profile.json"))
    better = pair_of(found["gtvp_hd95_median_mm"]["pairs"], "b", "a")
    assert (better["difference"], better["sd"], better["ci95_high"]) == (None, None, None)
    assert better["ci95_low"] == 0
    assert better["p"] == pytest.approx(0.159, abs=0.02)
    assert pair_of(found["gtvp_hd95_median_mm"]["pairs"], "a", "b")["p"] == pytest.approx(1 - better["p"], abs=1e-3)
