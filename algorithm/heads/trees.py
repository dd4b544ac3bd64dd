"""Gradient-boosted trees as a head: xgboost's JSON model, checked before xgboost reads it."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from algorithm.heads.linear import Calibration, Term, parse_head
from algorithm.heads.survival import Survival
from contract.errors import ModelPackageError

OBJECTIVES: Final = ("survival:cox", "binary:logistic")
_INSTALL: Final = "the package xgboost to be installed (pip install xgboost-cpu), since this head is made of trees"
_ONE_OF_EACH_NODE: Final = (
    "left_children", "right_children", "split_indices", "split_conditions", "default_left", "split_type", "parents",
)  # fmt: skip
_VALID: Final = "xgboost's JSON model of a single output"
_NO_PARENT: Final = 2**31 - 1
# Sums of leaves of this size are still finite in float32.
_LARGEST_NUMBER: Final = 1e30


@dataclass(frozen=True)
class TreeHead:
    """A log partial hazard (`survival:cox`) or a logit (`binary:logistic`) by boosted trees.

    `features` name the model's columns; a missing value is left to the trees. The optional parts are those of a linear
    head. `terms` is empty: no feature has a weight or a fill of its own.
    """

    kind: str
    features: tuple[str, ...]
    trees: Mapping[str, Any]
    threshold: float | None = None
    calibration: Calibration | None = None
    survival: Survival | None = None
    terms: tuple[Term, ...] = ()
    intercept: float = 0.0

    def score(self, features: Mapping[str, float | None], centre: str | None = None) -> float:
        """The trees' sum, always finite; an absent feature counts as missing. The centre plays no role.

        Raises:
            ModelPackageError: xgboost is not installed or refuses the model.
        """
        del centre
        return self.scores([features])[0]

    def scores(self, rows: Sequence[Mapping[str, float | None]]) -> list[float]:
        """The score of each row of features. Raises as `score`."""
        import numpy as np
        import xgboost

        table = [[_number(row.get(name)) for name in self.features] for row in rows]
        data = xgboost.DMatrix(np.array(table, dtype=np.float32).reshape(len(rows), len(self.features)), nthread=1)
        return [float(value) for value in self._booster.predict(data, output_margin=True)]

    def missing(self, features: Mapping[str, float | None]) -> tuple[Term, ...]:  # noqa: ARG002
        """Nothing: trees have a branch for a missing value."""
        return ()

    def as_json(self) -> dict[str, Any]:
        record = {"kind": self.kind, "features": list(self.features), "trees": self.trees, "threshold": self.threshold}
        record |= {} if self.calibration is None else {"calibration": vars(self.calibration)}
        return record | ({} if self.survival is None else {"survival": self.survival.as_json()})

    @cached_property
    def _booster(self) -> Any:
        check_installed(self.kind)
        import xgboost

        try:
            booster = xgboost.Booster({"nthread": 1})
            booster.load_model(bytearray(json.dumps(self.trees).encode()))
        except xgboost.core.XGBoostError as problem:
            raise ModelPackageError(self.kind, f"refused by xgboost ({str(problem).splitlines()[0]})", _VALID) from None
        return booster


def parse_trees(content: Mapping[str, Any], name: str) -> TreeHead:
    """Read a head of trees from JSON; `threshold`, `calibration` and `survival` are as in a linear head.

    Raises:
        ModelPackageError: a field is absent or of another type, the model is none of xgboost's, or xgboost is not
            installed.
    """
    features = content.get("features")
    if not isinstance(features, list) or not all(isinstance(feature, str) for feature in features):
        raise ModelPackageError(name, f"features {str(features)[:40]}", "the names of the trees' columns")
    check_trees(content["trees"], features, name)
    check_installed(name)
    linear = parse_head({"threshold": None, **content, "terms": [], "intercept": 0.0}, name)
    optional = linear.threshold, linear.calibration, linear.survival
    return TreeHead(linear.kind, tuple(features), content["trees"], *optional)


def check_installed(name: str) -> None:
    """Raise `ModelPackageError` if xgboost is not installed."""
    if importlib.util.find_spec("xgboost") is None:
        raise ModelPackageError(name, "no xgboost", _INSTALL)


def check_trees(model: Any, features: Sequence[str], name: str) -> None:
    """Check that xgboost can read the model and walk its trees: it follows wrong indices without looking.

    Raises:
        ModelPackageError: not xgboost's JSON, another number of features, several outputs, categories, or a tree whose
            nodes are no tree.
    """
    try:
        learner = model["learner"]
        parameters, booster = learner["learner_model_param"], learner["gradient_booster"]
        trees, names = booster["model"]["trees"], (booster["name"], learner["objective"]["name"])
        _check(names[0] == "gbtree" and names[1] in OBJECTIVES, name, f"trees of kind {names[0]} {names[1]}")
        single = (parameters["num_class"], parameters["num_target"]) == ("0", "1")
        _check(single, name, "trees of several outputs")
        _check(
            parameters["num_feature"] == str(len(features)), name, f"{parameters['num_feature']} features in the trees"
        )
        _check(abs(float(str(parameters["base_score"]).strip("[]"))) < _LARGEST_NUMBER, name, "an infinite base score")
        counts = booster["model"]["gbtree_model_param"]
        _check(
            (counts["num_trees"], counts["num_parallel_tree"]) == (str(len(trees)), "1"),
            name,
            "another number of trees than it declares",
        )
        _check(booster["model"]["tree_info"] == [0] * len(trees), name, "trees of several outputs")
        _check(booster["model"]["iteration_indptr"] == list(range(len(trees) + 1)), name, "rounds of several trees")
        _check(not any(booster["model"].get("cats", {}).values()), name, "trees with categories")
        for number, tree in enumerate(trees):
            # xgboost stores each tree at its id, whatever the id is.
            _check(type(tree["id"]) is int and tree["id"] == number, name, "a tree without its number as id")
            _check_tree(tree, len(features), name)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        raise ModelPackageError(name, f"trees of another form ({type(problem).__name__}: {problem})", _VALID) from None


def _check_tree(tree: Mapping[str, Any], features: int, name: str) -> None:
    count, parameters = len(tree["left_children"]), tree["tree_param"]
    sizes = (parameters["num_nodes"], parameters["num_feature"], parameters["num_deleted"])
    _check(count > 0 and sizes == (str(count), str(features), "0"), name, "a tree of another size")
    _check(parameters["size_leaf_vector"] in ("0", "1"), name, "trees whose leaves have several values")
    columns = {key: tree[key] for key in _ONE_OF_EACH_NODE}
    also = ("base_weights", "loss_changes", "sum_hessian")
    lists = [*columns.values(), *(tree[key] for key in also)]
    _check(all(isinstance(one, list) and len(one) == count for one in lists), name, "a tree with a list too short")
    _check(not any(tree[key] for key in tree if key.startswith("categories")), name, "trees with categories")
    _check(not any(columns["split_type"]), name, "trees with categories")
    numbers = [value for one in lists for value in one]
    valid = all(isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER for value in numbers)
    _check(valid, name, "a tree with a value that is no finite number")
    whole = [*columns["left_children"], *columns["right_children"], *columns["parents"], *columns["split_indices"]]
    _check(all(type(value) is int for value in whole), name, "a tree with an index that is no whole number")
    _check(all(value in (0, 1) for value in columns["default_left"]), name, "trees with default_left beyond 0 and 1")
    _check(all(0 <= index < features for index in columns["split_indices"]), name, "a split on an unknown feature")
    _check(_is_tree(columns, count), name, "a tree whose nodes are no tree")


def _is_tree(columns: Mapping[str, list[int]], count: int) -> bool:
    """True if every node but the first is the child of one earlier node, which is its parent."""
    expected = {0: _NO_PARENT}
    for node, pair in enumerate(zip(columns["left_children"], columns["right_children"], strict=True)):
        if pair == (-1, -1):
            continue
        for child in pair:
            if not node < child < count or child in expected:
                return False
            expected[child] = node
    return [expected.get(node) for node in range(count)] == columns["parents"]


def _check(holds: bool, name: str, found: str) -> None:
    if not holds:
        raise ModelPackageError(name, found, _VALID)


def _number(value: float | None) -> float:
    """NaN for a missing value; a number beyond float32 counts as its limit."""
    largest = 3e38
    return math.nan if value is None or not math.isfinite(value) else max(-largest, min(largest, value))
