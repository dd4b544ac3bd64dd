"""Decision trees as plain numbers: one tree as a document, and all trees of a forest as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from algorithm.heads.parts import Number
from contract.documents import Document

Floats = npt.NDArray[np.float64]
MAX_TREES: Final = 1000
MAX_NODES: Final = 10_000
# Number of a leaf in `Tree.features`.
LEAF: Final = -1


class Tree(Document):
    """One tree in preorder: each split is followed by its left branch, and then by its right branch.

    Attributes:
        features: For each node the number of the feature that it splits, or -1 for a leaf.
        numbers: For each node the threshold of the split, or the value of the leaf. A patient goes left if the feature
            is at most the threshold. Features and thresholds are compared in single precision.
    """

    features: Annotated[tuple[Annotated[int, Field(ge=LEAF)], ...], Field(min_length=1, max_length=MAX_NODES)]
    numbers: tuple[Number, ...]

    @model_validator(mode="after")
    def _check_nodes(self) -> Self:
        if len(self.numbers) != len(self.features):
            raise ValueError(f"as many numbers ({len(self.numbers)}) as features ({len(self.features)})")
        open_branches = 1
        for node, feature in enumerate(self.features, start=1):
            open_branches += -1 if feature == LEAF else 1
            if (open_branches == 0) != (node == len(self.features)):
                raise ValueError("two branches after each split, and no node after the last leaf")
        return self

    def find_right_branches(self) -> list[int]:
        """Find the first node of the right branch of each node; the node itself for a leaf."""
        right = list(range(len(self.features)))
        splits: list[int] = []
        for node, feature in enumerate(self.features):
            if node and self.features[node - 1] == LEAF:
                right[splits.pop()] = node
            if feature != LEAF:
                splits.append(node)
        return right


@dataclass(frozen=True)
class Forest:
    """The nodes of several trees, one tree after the other.

    Attributes:
        roots: Number of the first node of each tree.
        features: Number of the feature that a node splits; -1 for a leaf.
        thresholds: Thresholds of the splits, in single precision.
        values: Values of the leaves.
        right: First node of the right branch; a leaf's own number.
    """

    roots: npt.NDArray[np.int64]
    features: npt.NDArray[np.int64]
    thresholds: npt.NDArray[np.float32]
    values: Floats
    right: npt.NDArray[np.int64]

    @classmethod
    def from_trees(cls, trees: Sequence[Tree]) -> Forest:
        """Join trees."""
        sizes = [len(tree.features) for tree in trees]
        roots = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        numbers = np.concatenate([np.array(tree.numbers, dtype=np.float64) for tree in trees])
        right = [np.array(tree.find_right_branches()) + root for tree, root in zip(trees, roots, strict=True)]
        largest = np.finfo(np.float32).max
        return cls(
            roots,
            np.concatenate([np.array(tree.features, dtype=np.int64) for tree in trees]),
            np.clip(numbers, -largest, largest).astype(np.float32),
            numbers,
            np.concatenate(right),
        )

    def predict(self, columns: Floats) -> Floats:
        """Compute the mean of the trees' leaves for each patient, shape (patients,).

        Args:
            columns: The features, shape (patients, features).
        """
        values = columns.astype(np.float32)
        nodes = np.tile(self.roots, (len(values), 1))
        rows = np.arange(len(values))[:, None]
        while (is_split := self.features[nodes] != LEAF).any():
            goes_left = values[rows, np.maximum(self.features[nodes], 0)] <= self.thresholds[nodes]
            nodes = np.where(is_split & goes_left, nodes + 1, self.right[nodes])
        return np.asarray(self.values[nodes].mean(1), dtype=np.float64)
