"""Heads of boosted trees: read, scored as by hand, refused in plain words."""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from algorithm.heads.classes import ClassHead, read_head
from algorithm.heads.trees import TreeHead
from contract.errors import ModelPackageError
from contract.files import write_json

pytest.importorskip("xgboost")


def stump(feature: int, at: float, below: float, above: float, missing_goes_below: int, columns: int) -> dict[str, Any]:
    """A tree with one split: leaf `below` where the feature is less than `at`, otherwise `above`."""
    return {
        "base_weights": [0.0, below, above], "categories": [], "categories_nodes": [], "categories_segments": [],
        "categories_sizes": [], "default_left": [missing_goes_below, 0, 0], "id": 0, "left_children": [1, -1, -1],
        "loss_changes": [1.0, 0.0, 0.0], "parents": [2147483647, 0, 0], "right_children": [2, -1, -1],
        "split_conditions": [at, below, above], "split_indices": [feature, 0, 0], "split_type": [0, 0, 0],
        "sum_hessian": [2.0, 1.0, 1.0],
        "tree_param": {"num_deleted": "0", "num_feature": str(columns), "num_nodes": "3", "size_leaf_vector": "1"},
    }  # fmt: skip


def model(*trees: dict[str, Any], columns: int = 2, objective: str = "survival:cox") -> dict[str, Any]:
    """xgboost's JSON of these trees; the base score 1 of Cox is a log hazard of 0."""
    parameters = {"num_class": "0", "num_feature": str(columns), "num_target": "1", "boost_from_average": "1"}
    return {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(len(trees) + 1)),
                    "tree_info": [0] * len(trees),
                    "trees": [{**tree, "id": number} for number, tree in enumerate(trees)],
                },
                "name": "gbtree",
            },
            "learner_model_param": {"base_score": "[1E0]" if "cox" in objective else "[5E-1]", **parameters},
            "objective": {"name": objective}
            | ({} if "cox" in objective else {"reg_loss_param": {"scale_pos_weight": "1"}}),
        },
        "version": [3, 2, 0],
    }


def content(**changes: Any) -> dict[str, Any]:
    trees = model(stump(0, 10.0, -0.5, 0.75, 1, 2), stump(1, 60.0, -0.25, 0.125, 0, 2))
    return {"kind": "boosted trees", "features": ["total_volume_ml", "age_years"], "trees": trees, **changes}


@pytest.mark.parametrize(
    ("volume", "age", "expected"), [(5.0, 50.0, -0.75), (12.0, 70.0, 0.875), (None, None, -0.375), (10.0, None, 0.875)]
)
def test_score_is_the_sum_of_the_leaves(volume: float | None, age: float | None, expected: float) -> None:
    """Volumes below 10 ml give -0.5, others 0.75, a missing one goes below; ages below 60 give -0.25, others and
    missing ones 0.125.
    """
    head = read_head(content(), "rfs")
    assert isinstance(head, TreeHead)
    assert head.score({"total_volume_ml": volume, "age_years": age}, "CHUM") == pytest.approx(expected)


def test_head_survives_writing() -> None:
    written = content(threshold=0.5, calibration={"slope": 2.0, "offset": 1.0})
    written["survival"] = {"days": [100.0], "cumulative_hazard": [1.0]}
    head = read_head(written, "rfs")
    assert head.as_json() == written
    assert head.missing({}) == ()


def test_trees_of_classes() -> None:
    """Trees for T2 beside a linear head for T1: the logits 0.75 and -0.5 of one split, and the intercept 0.5."""
    trees = model(stump(0, 10.0, -0.5, 0.75, 1, 1), columns=1, objective="binary:logistic")
    linear = {"kind": "x", "intercept": 0.5, "terms": [], "threshold": None}
    boosted = {"kind": "boosted trees", "features": ["volume"], "trees": trees}
    head = read_head({"classes": {"T1": linear, "T2": boosted}}, "t_stage")
    assert isinstance(head, ClassHead)
    assert head.scores({"volume": 20.0}) == pytest.approx({"T1": 0.5, "T2": 0.75})
    assert head.scores({"volume": 2.0}) == pytest.approx({"T1": 0.5, "T2": -0.5})


def changed(*path: str | int, value: Any) -> dict[str, Any]:
    """The content with the model's entry at `path` replaced."""
    record = copy.deepcopy(content())
    place: Any = record["trees"]["learner"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return record


TREES = ("gradient_booster", "model", "trees")


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (content(trees=[]), "trees of another form"),
        (content(trees={"learner": {}}), "trees of another form"),
        (content(features="age"), "features age"),
        (content(features=["age_years"]), "2 features in the trees"),
        (changed("objective", "name", value="rank:pairwise"), "rank:pairwise"),
        (changed("gradient_booster", "name", value="dart"), "dart"),
        (changed("learner_model_param", "num_class", value="3"), "several outputs"),
        (changed(*TREES, 0, "left_children", value=[2000000, -1, -1]), "nodes are no tree"),
        (changed(*TREES, 0, "left_children", value=[2, -1, -1]), "nodes are no tree"),
        (changed(*TREES, 0, "right_children", value=[0, -1, -1]), "nodes are no tree"),
        (changed(*TREES, 0, "split_indices", value=[7, 0, 0]), "unknown feature"),
        (changed(*TREES, 0, "split_conditions", value=[1.0]), "a list too short"),
        (changed(*TREES, 1, "split_conditions", value=[float("inf"), 0.0, 0.0]), "no finite number"),
        (changed(*TREES, 1, "split_conditions", value=[1e39, 0.0, 0.0]), "no finite number"),
        (changed("learner_model_param", "base_score", value="1e39"), "infinite base score"),
        # xgboost would store the tree at this place of a list of two, which ends the process.
        (changed(*TREES, 1, "id", value=2000000), "without its number as id"),
        (changed(*TREES, 1, "tree_param", "num_nodes", value="900"), "another size"),
        (changed("gradient_booster", "model", "tree_info", value=[0, 5]), "several outputs"),
    ],
)
def test_model_that_is_none_is_refused(damaged: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelPackageError, match=message) as raised:
        read_head(damaged, "heads/rfs.json")
    assert str(raised.value).startswith("heads/rfs.json: ")


def test_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without xgboost a package with trees is refused in one line; heads without trees do not need it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelPackageError, match="no xgboost, expected the package xgboost to be installed") as raised:
        read_head(content(), "heads/rfs.json")
    assert "\n" not in str(raised.value)
    assert read_head({"kind": "x", "intercept": 0.5, "terms": [], "threshold": None}, "rfs").score({}) == 0.5


def test_linear_heads_do_not_import_the_library() -> None:
    """xgboost takes a second to import, which inference with linear heads does not spend."""
    code = "import sys, algorithm.heads.classes; sys.exit('xgboost' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_damaged_numbers_never_end_the_process(tmp_path: Path) -> None:
    """Each number of the trees replaced by a wrong one: refused or scored, never a crash of the interpreter."""
    write_json(tmp_path / "head.json", content())
    code = f"""
import copy, json
from algorithm.heads.classes import read_head
from contract.errors import ModelPackageError
content = json.load(open({str(tmp_path / "head.json")!r}))
tree = content["trees"]["learner"]["gradient_booster"]["model"]["trees"][0]
for key, values in tree.items():
    for place in range(len(values) if isinstance(values, list) else 0):
        for wrong in (-2147483648, -2, 3, 2147483647, 1e30, None, "x", [], {{}}):
            changed = copy.deepcopy(content)
            changed["trees"]["learner"]["gradient_booster"]["model"]["trees"][0][key][place] = wrong
            try:
                read_head(changed, "head").score({{"age_years": 61.0}})
            except ModelPackageError:
                pass
print("done")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "done\n", result.stderr[-2000:]
