"""The scoring of an edition is data with a checked schema; ranked metrics may be weighted sums of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contract.documents import build_json_schema, parse_document
from contract.editions import list_editions, load_edition, parse_edition
from contract.errors import HecktorError
from evaluation.editions.document import Borda, Lexicographic, MeasuredMetric, RankedMetric, resolve_metrics
from evaluation.editions.profile import build_profile, load_profile, with_options
from evaluation.metrics.classification import BINARY_METRICS, MULTICLASS_METRICS
from evaluation.metrics.masks import list_mask_metrics
from evaluation.metrics.rules import RULES_OF_KIND
from evaluation.metrics.survival import RISK_METRICS
from tests.evaluation.builders import read_edition
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

DOCS = Path(__file__).parents[3] / "docs"
FOUR_ANSWERS = Path(__file__).parents[2] / "editions" / "four_answers.json"


@pytest.fixture
def content():
    """HECKTOR 2025 under another name."""
    return read_edition("hecktor2025")


def test_hecktor_2025_is_the_specification():
    edition = load_profile("hecktor2025")
    assert edition.find_task(SEGMENTATION.name).options == {
        "missing": "worst",
        "geometry": "exact",
        "gtvp_empty": "skip",
        "volume_unit": "mm3",
        "connectivity": 26,
        "iou_threshold": 0.3,
        "iou_strict": True,
        "matching": "one_to_one",
        "surfaces": "none",
        "surface_tolerance_mm": 2.0,
        "bounding_box": "optional",
        "gtvn_empty": "skip",
    }
    assert edition.find_task(RFS.name).options == {
        "missing": "worst",
        "missing_risk": "non_concordant",
        "direction": "risk",
    }
    nested = edition.find_task(SEGMENTATION.name).ranking.schemes["nested_borda"]
    assert nested == Borda(parts=("gtvp_dsc_mean", Borda(parts=("gtvn_dsc_agg", "gtvn_f1_agg"))))
    official = edition.find_task(HPV.name).ranking
    assert official.schemes[official.official] == Lexicographic(parts=("balanced_accuracy", "specificity"))


def test_an_edition_without_the_task_says_so(content):
    del content["scoring"]["hpv"]
    with pytest.raises(HecktorError, match="no task 'hpv'"):
        build_profile(parse_edition(content)).find_task(HPV.name)


@pytest.mark.parametrize(
    ("edition", "names", "task"),
    [
        ("hecktor2021", ("2", "3", "pfs", "rfs"), RFS),  # 2021, 3.5: tasks 2 and 3 predict the same outcome
        ("hntsmrg2024", ("1", "pre-RT"), load_edition("hntsmrg2024").algorithms[0]),  # 2024, 2.1
        ("hntsmrg2024", ("2", "mid-RT"), load_edition("hntsmrg2024").algorithms[1]),
        ("hecktor2022", ("2", "rfs"), RFS),
    ],
)
def test_a_task_has_the_numbers_and_names_of_its_challenge(edition, names, task):
    assert {load_profile(edition).find_task(name).algorithm.name for name in names} == {task.name}


SEG = ("scoring", "segmentation")
RULES = (*SEG, "answers", "segmentation", "rules")
WEIGHTED = (*SEG, "ranking", "schemes", "flat_borda")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("scoring",), {}, "p.json.scoring: found {}, expected at least 1"),
        ((*SEG, "answers"), {}, "found , expected exactly segmentation"),
        ((*RULES, "connectivity"), 8, "connectivity: found 8"),
        ((*RULES, "iou_threshold"), 1, "iou_threshold: found 1"),
        (RULES, {"missing": "worst"}, "found the rules of another kind of answer"),
        ((*SEG, "answers", "segmentation", "prefix"), "T_", r"segmentation\.prefix: found"),
        ((*SEG, "metrics", "dice"), {"title": "Dice", "higher_is_better": True}, "'dice' is not measured"),
        ((*SEG, "metrics", "gtvp_hd95_median_mm"), {"title": "HD95", "higher_is_better": False}, "not measured under"),
        ((*SEG, "ranking", "official"), "coin", 'official: found "coin"'),
        ((*SEG, "ranking", "ties"), "random", 'ties: found "random"'),
        ((*SEG, "ranking", "schemes", "flat_borda"), "dice", "unknown metric 'dice'"),
        (WEIGHTED, {"mean": ["x"]}, "borda, mean_rank, median_rank, lexicographic, mean_case_rank"),
        (WEIGHTED, {"mean_case_rank": ["gtvp_dsc_mean"]}, "mean_case_rank: found "),
        (
            WEIGHTED,
            {"borda": ["gtvn_f1_agg", {"mean_case_rank": "gtvn_dsc_agg"}]},
            "flat_borda: mean_case_rank of 'gtvn_dsc_agg', which is not a mean or median",
        ),
        (
            ("scoring", "hpv", "ranking", "schemes", "other"),
            {"significant_wins": "balanced_accuracy", "test": "wilcoxon_signed_rank"},
            "other: significant_wins of 'balanced_accuracy', which is not a mean or median",
        ),
        (WEIGHTED, {"significant_wins": "gtvp_dsc_mean", "test": "t"}, 'test: found "t"'),
        (WEIGHTED, {"borda": ["gtvp_dsc_mean"], "weights": [1, 2]}, "expected 1 weights, one for each part"),
        (WEIGHTED, {"borda": ["gtvp_dsc_mean"], "weights": [0]}, r"weights\[0\]: found 0, expected a number above 0"),
        ((*SEG, "metrics", "gtvp_dsc_mean", "higher_is_better"), False, "found false, expected true"),
        (
            ("scoring", "hpv", "metrics", "calibration_in_the_large"),
            {"title": "Calibration", "higher_is_better": False},
            "calibration_in_the_large has its optimum at 0",
        ),
        (WEIGHTED, {"median_rank": ["gtvp_dsc_mean"], "weights": [1]}, r"flat_borda\.weights: found \[1\]"),
    ],
)
def test_an_invalid_edition_is_refused(content, path, value, message):
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(HecktorError, match=message):
        build_profile(parse_edition(content, "p.json"))


def test_no_code_asks_for_an_edition_by_name():
    for path in (Path(__file__).parents[3] / "evaluation").rglob("*.py"):
        assert not [name for name in list_editions() if f'"{name}"' in path.read_text()], path.name


def test_every_rule_and_metric_is_documented():
    rules = (DOCS / "editions.md").read_text()
    pages = (DOCS / "metrics.md").read_text()
    for metric in (*list_mask_metrics("both"), *RISK_METRICS, *BINARY_METRICS, *MULTICLASS_METRICS):
        assert f"`{metric.name}`" in pages
    for kind in RULES_OF_KIND.values():
        properties = build_json_schema(kind)["properties"]
        choices = [json.dumps(value).strip('"') for field in properties.values() for value in field.get("enum", ())]
        assert not [name for name in (*properties, *choices) if f"`{name}`" not in rules]


def test_options_name_one_answer_or_all():
    task = load_profile(str(FOUR_ANSWERS)).find_task(None)
    changed = with_options(
        task, {"missing": "skip", "t_stage.missing": "stop", "connectivity": "6", "iou_threshold": 0.1}
    )
    assert changed.options["t_stage"] == {"missing": "stop", "not_counted": "skip"}
    assert changed.options["n_stage"] == {"missing": "skip", "not_counted": "skip"}
    assert (changed.options["mask"]["connectivity"], changed.options["mask"]["iou_threshold"]) == (6, 0.1)
    with pytest.raises(HecktorError, match=r"unknown (survival\.)?colour"):
        with_options(task, {"colour": "red"})
    with pytest.raises(HecktorError, match=r"unknown (survival\.)?colour"):
        with_options(task, {"survival.colour": "red"})


KNOWN = {metric.name: MeasuredMetric("answer", metric) for metric in (*MULTICLASS_METRICS, *BINARY_METRICS)}


def make_entry(parts, weights, **more):
    return {"title": "t", "higher_is_better": True, "weighted_sum": parts, "weights": weights, **more}


def resolve(raw):
    entries = {name: parse_document(metric, RankedMetric, f"metrics.{name}") for name, metric in raw.items()}
    return resolve_metrics(entries, KNOWN, "metrics")


def expand(raw, name="total"):
    return dict(resolve(raw)[name].terms)


def test_nested_sums_are_expanded_to_measured_metrics():
    """0.6 (0.5 accuracy + 0.5 auc) + 0.4 auc = 0.3 accuracy + 0.7 auc; the order of the entries is free.

    Sums may also consist of metrics that are best when they are low.
    """
    raw = {"total": make_entry(["half", "auc"], [0.6, 0.4]), "half": make_entry(["accuracy", "auc"], [0.5, 0.5])}
    assert expand(raw) == pytest.approx({"accuracy": 0.3, "auc": 0.7})
    low = {"total": make_entry(["brier", "calibration_error"], [1, 2], higher_is_better=False)}
    assert expand(low) == {"brier": 1.0, "calibration_error": 2.0}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"total": make_entry(["dice"], [1])}, r"metrics\.total\.weighted_sum: 'dice' is not measured"),
        ({"total": make_entry([], [])}, r"metrics\.total\.weighted_sum: found \[\], expected at least 1"),
        ({"total": make_entry([{"a": 1}], [1])}, r"weighted_sum\[0\]: found "),
        ({"total": make_entry(["auc", "accuracy"], [1])}, "expected 2 weights, one for each part"),
        ({"total": make_entry(["auc"], [-1])}, r"weights\[0\]: found -1, expected a number above 0"),
        ({"total": make_entry(["b"], [1]), "b": make_entry(["total"], [1])}, "found 'total' inside itself"),
        ({"auc": make_entry(["accuracy"], [1])}, "found the name of a measured metric"),
        ({"total": make_entry(["auc", "brier"], [1, 1])}, "found auc, brier"),
        ({"total": make_entry(["brier"], [1])}, "higher_is_better: found true"),
        ({"total": make_entry(["auc"], [1], unit="mm")}, 'metrics.total.unit: found "mm"'),
    ],
)
def test_an_invalid_sum_is_refused(raw, message):
    with pytest.raises(HecktorError, match=message):
        resolve(raw)


@pytest.fixture
def edition_of_2026():
    return read_edition("hecktor2026")


def test_metrics_of_two_answers_need_different_names(edition_of_2026):
    answers = edition_of_2026["scoring"]["combined"]["answers"]
    answers["n_stage"]["prefix"] = "t_"
    with pytest.raises(HecktorError, match="metric 't_balanced_accuracy' of t_stage and n_stage"):
        build_profile(parse_edition(edition_of_2026))


def test_without_a_prefix_the_name_of_the_answer_stands_first(edition_of_2026):
    del edition_of_2026["scoring"]["combined"]["answers"]["n_stage"]["prefix"]
    edition_of_2026 = json.loads(
        json.dumps(edition_of_2026).replace('"n_balanced_accuracy"', '"n_stage_balanced_accuracy"')
    )
    metrics = build_profile(parse_edition(edition_of_2026)).find_task(None).metrics
    assert "n_stage_balanced_accuracy" in metrics["score"].terms


def test_options_keep_the_terms_of_a_sum_measured(edition_of_2026):
    """Surface metrics end with `surfaces=none`; a sum of them cannot be measured any more."""
    task = edition_of_2026["scoring"]["combined"]
    task["answers"]["segmentation"]["rules"]["surfaces"] = "both"
    task["metrics"]["surface"] = make_entry(["gtvp_surface_dsc_mean", "gtvn_surface_dsc_mean"], [1, 1])
    profile = build_profile(parse_edition(edition_of_2026)).find_task(None)
    with pytest.raises(HecktorError, match="'gtvp_surface_dsc_mean' is not measured under these rules"):
        with_options(profile, {"surfaces": "none"})
