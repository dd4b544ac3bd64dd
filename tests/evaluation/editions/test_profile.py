"""Profiles are data with a checked schema."""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from contract.documents import json_schema
from contract.editions import load_edition
from contract.errors import HecktorError
from evaluation.editions import known_profiles
from evaluation.editions.document import Borda, Lexicographic
from evaluation.editions.profile import load_declaration, load_profile, parse_profile, with_options
from evaluation.metrics.classes import BINARY_METRICS, MANY_CLASSES_METRICS
from evaluation.metrics.masks import mask_metrics
from evaluation.metrics.risks import RISK_METRICS
from evaluation.metrics.rules import RULES_OF_KIND
from evaluation.studies.outputs import add_answer_options, chosen_answer
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

DOCS = Path(__file__).parents[3] / "docs"
FOUR_ANSWERS = Path(__file__).parents[2] / "editions"


@pytest.fixture
def profile():
    return json.loads(files("evaluation.editions").joinpath("hecktor2025.json").read_text())


def test_hecktor_2025_is_the_specification():
    edition = load_profile("hecktor2025")
    assert edition.task(SEGMENTATION.name).options == {
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
    assert edition.task(RFS.name).options == {"missing": "worst", "missing_risk": "non_concordant", "direction": "risk"}
    nested = edition.task(SEGMENTATION.name).ranking.schemes["nested_borda"]
    assert nested == Borda(parts=("gtvp_dsc_mean", Borda(parts=("gtvn_dsc_agg", "gtvn_f1_agg"))))
    official = edition.task(HPV.name).ranking
    assert official.schemes[official.official] == Lexicographic(parts=("balanced_accuracy", "specificity"))


def test_official_metrics_are_those_of_the_official_scheme_each_once():
    """Sensitivity is a metric of task 3 but does not rank; in 2021 the HD95 stands in the Borda count and after it."""
    assert load_profile("hecktor2025").task(HPV.name).ranking.official_metrics == ("balanced_accuracy", "specificity")
    of_2021 = load_profile("hecktor2021").task(SEGMENTATION.name).ranking
    assert of_2021.official_metrics == ("gtvp_dsc_mean", "gtvp_hd95_median_mm")


def test_an_older_edition_has_the_declaration_that_its_profile_names():
    assert load_declaration("hecktor2021") == load_profile("hecktor2021").declaration == load_declaration("hecktor2025")


def test_a_profile_file_works_as_a_named_edition_does(tmp_path, profile):
    profile["name"] = "mine"
    profile["tasks"]["segmentation"]["answers"]["segmentation"]["rules"]["connectivity"] = 6
    (tmp_path / "mine.json").write_text(json.dumps(profile))
    assert load_profile(str(tmp_path / "mine.json")).task(SEGMENTATION.name).options["connectivity"] == 6


def test_an_edition_without_the_task_says_so(profile):
    del profile["tasks"]["hpv"]
    with pytest.raises(HecktorError, match="no task 'hpv'"):
        parse_profile(profile, "p").task(HPV.name)


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
    assert {load_profile(edition).task(name).algorithm.name for name in names} == {task.name}


def test_a_study_takes_the_number_of_the_challenge():
    parser = argparse.ArgumentParser()
    add_answer_options(parser)
    task, answer = chosen_answer(parser, parser.parse_args(["--edition", "hecktor2021", "--task", "3"]))
    assert (task.name, answer.kind) == ("rfs", "risk")


@pytest.mark.parametrize("aliases", [["2", "2"], ["hpv"]])
def test_an_alias_names_one_task(profile, aliases):
    profile["tasks"]["rfs"]["aliases"] = aliases
    with pytest.raises(HecktorError, match="each name or alias of a task once"):
        parse_profile(profile, "mine.json")


def test_unknown_edition_names_the_known_ones():
    with pytest.raises(HecktorError, match=r"hecktor1999.*hecktor2025"):
        load_profile("hecktor1999")
    assert "hecktor2025" in known_profiles()


SEG = ("tasks", "segmentation")
RULES = (*SEG, "answers", "segmentation", "rules")
WEIGHTED = (*SEG, "ranking", "schemes", "flat_borda")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), 1, "format: found 1, expected a number of at least 2"),
        (("surplus",), 1, "p.json.surplus: found 1"),
        (("tasks",), {}, "tasks: found {}, expected at least 1"),
        (("title",), "", "title: found"),
        ((*SEG, "answers"), {}, "found , expected exactly segmentation"),
        ((*RULES, "connectivity"), 8, "connectivity: found 8"),
        ((*RULES, "iou_strict"), 1, "iou_strict: found 1"),
        ((*RULES, "iou_threshold"), "0.3", 'iou_threshold: found "0.3"'),
        ((*RULES, "iou_threshold"), 1, "iou_threshold: found 1"),
        (RULES, {"missing": "worst"}, "found the rules of another kind of answer"),
        (RULES, {}, "rules.missing: found nothing"),
        ((*SEG, "metrics", "gtvp_dsc_mean", "title"), "", 'title: found ""'),
        ((*SEG, "metrics", "dice"), {"title": "Dice", "higher_is_better": True}, "'dice' is not measured"),
        ((*SEG, "metrics", "gtvp_hd95_median_mm"), {"title": "HD95", "higher_is_better": False}, "not measured under"),
        ((*RULES, "surface_tolerance_mm"), -1, "surface_tolerance_mm: found -1"),
        ((*SEG, "ranking", "official"), "coin", 'official: found "coin"'),
        ((*SEG, "ranking", "ties"), "random", 'ties: found "random"'),
        ((*SEG, "ranking", "schemes", "flat_borda"), "dice", "unknown metric 'dice'"),
        (WEIGHTED, {"mean": ["x"]}, "borda, mean_rank, median_rank, lexicographic"),
        (WEIGHTED, {"borda": ["gtvp_dsc_mean"], "weights": [1, 2]}, "expected 1 weights, one for each part"),
        (WEIGHTED, {"borda": ["gtvp_dsc_mean"], "weights": [0]}, r"weights\[0\]: found 0, expected a number above 0"),
        (WEIGHTED, {"borda": ["gtvp_dsc_mean"], "weights": [10**400]}, r"weights\[0\]: found "),
        ((*SEG, "metrics", "gtvp_dsc_mean", "higher_is_better"), False, "found false, expected true"),
        (
            ("tasks", "hpv", "metrics", "calibration_in_the_large"),
            {"title": "Calibration", "higher_is_better": False},
            "calibration_in_the_large has its optimum at 0",
        ),
        (
            WEIGHTED,
            {"median_rank": ["gtvp_dsc_mean"], "weights": [1]},
            r"flat_borda\.weights: found \[1\]",
        ),
    ],
)
def test_a_break_of_the_schema_is_named(profile, path, value, message):
    changed = copy.deepcopy(profile)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(HecktorError, match=message):
        parse_profile(changed, "p.json")


def test_an_edition_of_ones_own_does_not_take_a_known_name(profile, tmp_path):
    """`hecktor rank` finds an edition by the name in metrics.json: that must not be another one's."""
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(profile))
    assert load_profile(str(path)) == load_profile(profile["name"])
    profile["tasks"]["segmentation"]["ranking"]["official"] = "flat_borda"
    path.write_text(json.dumps(profile))
    with pytest.raises(HecktorError, match=r"mine\.json\.name: "):
        load_profile(str(path))
    profile["name"] = "mine"
    path.write_text(json.dumps(profile))
    assert load_profile(str(path)).name == "mine"


def test_the_editions_of_the_package():
    of_hecktor = {f"hecktor{year}" for year in (2020, 2021, 2022, 2025, 2026)}
    assert set(known_profiles()) == {*of_hecktor, "hntsmrg2024"}


def test_no_code_asks_for_an_edition_by_name():
    for path in (Path(__file__).parents[3] / "evaluation").rglob("*.py"):
        text = path.read_text().replace('DEFAULT_EDITION: Final = "hecktor2025"', "")
        assert not [name for name in known_profiles() if f'"{name}"' in text], path.name


def test_every_rule_and_metric_is_documented():
    rules = (DOCS / "editions.md").read_text()
    pages = (DOCS / "metrics.md").read_text()
    for metric in (*mask_metrics("both"), *RISK_METRICS, *BINARY_METRICS, *MANY_CLASSES_METRICS):
        assert f"`{metric.name}`" in pages
    for kind in RULES_OF_KIND.values():
        properties = json_schema(kind)["properties"]
        choices = [json.dumps(one).strip('"') for field in properties.values() for one in field.get("enum", ())]
        assert not [name for name in (*properties, *choices) if f"`{name}`" not in rules]


def test_options_name_one_answer_or_all():
    task = load_profile(str(FOUR_ANSWERS / "four_answers_profile.json")).task(None)
    changed = with_options(task, {"missing": "skip", "t_stage.missing": "stop", "connectivity": "6"})
    assert changed.options["t_stage"] == {"missing": "stop", "not_counted": "skip"}
    assert changed.options["n_stage"] == {"missing": "skip", "not_counted": "skip"}
    assert changed.options["mask"]["connectivity"] == 6
    with pytest.raises(HecktorError, match=r"unknown (survival\.)?colour"):
        with_options(task, {"colour": "red"})
    with pytest.raises(HecktorError, match=r"unknown (survival\.)?colour"):
        with_options(task, {"survival.colour": "red"})


def test_a_metric_needs_the_name_of_its_answer(tmp_path):
    content = json.loads((FOUR_ANSWERS / "four_answers_profile.json").read_text())
    content["declaration"] = str(FOUR_ANSWERS / "four_answers.json")
    metrics = content["tasks"]["everything"]["metrics"]
    metrics["c_index"] = metrics.pop("survival_c_index")
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    with pytest.raises(HecktorError, match="'c_index' is not measured under these rules"):
        load_profile(str(path))


def test_parsing_a_profile_loads_neither_image_libraries_nor_what_reads_and_scores():
    code = (
        "import sys; from evaluation.editions import known_profiles; from evaluation.editions.profile import "
        "load_profile; [load_profile(one) for one in known_profiles()]; print([name for name in sys.modules if "
        "name.startswith(('SimpleITK', 'scipy', 'evaluation.rows', 'evaluation.inputs', 'evaluation.execution'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
