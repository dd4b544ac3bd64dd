"""Trees: predictions by hand, and damaged trees."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.documents import EnsembleHead, Expert, ForestHead, ScaledFeature, read_head
from algorithm.heads.parts import Forest, Tree
from contract.errors import ModelPackageError
from tests.algorithm.heads.head_parts import make_linear_head, score, term

# x <= 0.5: 1.0; otherwise y <= 2: 5.0, else 9.0.
TREE = Tree(features=(0, -1, 1, -1, -1), numbers=(0.5, 1.0, 2.0, 5.0, 9.0))
STUMP = Tree(features=(-1,), numbers=(3.0,))


def make_input(name: str, **more: Any) -> ScaledFeature:
    return ScaledFeature(**{"feature": name, "transform": "identity", "fill": 0.0, "mean": 0.0, "sd": 1.0, **more})


FOREST = ForestHead(scale="test", inputs=(make_input("x"), make_input("y", fill=3.0)), trees=(TREE, STUMP))


@pytest.mark.parametrize(
    ("x", "y", "expected"), [(0.5, 0.0, 2.0), (0.6, 2.0, 4.0), (0.6, 2.1, 6.0), (None, None, 2.0), (1.0, None, 6.0)]
)
def test_a_score_by_hand(x: float | None, y: float | None, expected: float) -> None:
    """Average the tree and the stump, which is 3. A missing x is 0 and a missing y is 3."""
    assert score(FOREST, {"x": x, "y": y}) == expected
    assert [scaled.feature for scaled in FOREST.list_missing_features({"x": x, "y": y})] == [
        name for name, value in (("x", x), ("y", y)) if value is None
    ]


def test_a_forest_survives_json() -> None:
    content = json.loads(json.dumps(FOREST.as_json()))
    assert read_head(content, "rfs.json") == FOREST
    assert content["kind"] == "forest"


def test_a_forest_is_an_expert_with_a_weight() -> None:
    """Linear score x = 2 with the weight 3, forest 4 standardised to (4 - 2) / 2 = 1 with the weight 1: 7 / 4."""
    experts = (
        Expert(name="linear", mean=0.0, sd=1.0, weight=3.0, head=make_linear_head(term("x"))),
        Expert(name="forest", mean=2.0, sd=2.0, weight=1.0, head=FOREST),
    )
    assert score(EnsembleHead(experts=experts), {"x": 2.0, "y": 0.0}) == 7 / 4


@given(st.integers(0, 2**32 - 1))
def test_random_trees_equal_a_walk(seed: int) -> None:
    """Compare with a recursive walk over each tree, also with values on a threshold and infinite values."""
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng) for _ in range(int(rng.integers(1, 5)))]
    columns = rng.choice([-np.inf, -1.0, 0.0, 0.1, 1.0, np.inf], (7, 3))
    expected = [np.mean([walk(tree, row)[0] for tree in trees]) for row in columns]
    np.testing.assert_allclose(Forest.from_trees(trees).predict(columns), expected)


def random_tree(rng: np.random.Generator) -> Tree:
    features: list[int] = []
    numbers: list[float] = []

    def grow(depth: int) -> None:
        is_leaf = depth == 4 or rng.random() < 0.3
        features.append(-1 if is_leaf else int(rng.integers(3)))
        numbers.append(float(rng.normal()) if is_leaf else float(rng.choice([-1.0, 0.0, 0.1])))
        if not is_leaf:
            grow(depth + 1)
            grow(depth + 1)

    grow(0)
    return Tree(features=tuple(features), numbers=tuple(numbers))


def walk(tree: Tree, row: Any, node: int = 0) -> tuple[float, int]:
    """Return the value for a patient, and the node after this branch."""
    feature, number = tree.features[node], tree.numbers[node]
    if feature < 0:
        return number, node + 1
    left, after = walk(tree, row, node + 1)
    right, end = walk(tree, row, after)
    return (left if np.float32(row[feature]) <= np.float32(number) else right), end


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"features": [], "numbers": []}, "features"),
        ({"features": [0, -1], "numbers": [0.0, 1.0]}, "two branches after each split"),
        ({"features": [-1, -1], "numbers": [0.0, 1.0]}, "no node after the last leaf"),
        ({"features": [-2], "numbers": [0.0]}, "features"),
        ({"features": [-1], "numbers": [0.0, 1.0]}, "as many numbers"),
        ({"features": [-1], "numbers": [1e200]}, "numbers"),
        ({"features": [2, -1, -1], "numbers": [0.0, 1.0, 1.0]}, "inputs"),
    ],
)
def test_damaged_trees(tree: dict[str, Any], problem: str) -> None:
    content = FOREST.as_json() | {"trees": [tree]}
    with pytest.raises(ModelPackageError, match=problem):
        read_head(content, "rfs.json")


def test_one_feature_twice() -> None:
    with pytest.raises(ModelPackageError, match="different features"):
        read_head(FOREST.as_json() | {"inputs": [FOREST.as_json()["inputs"][0]] * 2}, "rfs.json")
