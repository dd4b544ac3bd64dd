"""Custom heads for tests, as folders of code."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# Knows that patients with a large absolute value of x relapse early, which no linear model can learn.
ABSOLUTE: Final = """
import json

import numpy as np


class Head:
    def __init__(self, target):
        self.target = target
        self.classes = len(target.classes)

    def fit(self, features, outcomes, rng):
        if self.target.kind == "risk":
            assert list(outcomes) == ["days", "event"]
        else:
            assert set(outcomes["class"]) == set(range(self.classes))

    def predict(self, features):
        x = np.abs(features["x"].to_numpy())
        if self.classes > 2:
            return -np.abs(x[:, None] - np.arange(self.classes))
        return x

    def save(self, folder):
        (folder / "classes.json").write_text(json.dumps(self.classes))

    @classmethod
    def load(cls, folder):
        head = cls.__new__(cls)
        head.classes = json.loads((folder / "classes.json").read_text())
        return head
"""


def write_custom_head(folder: Path, *changes: tuple[str, str], name: str = "my_code") -> Path:
    """Write `ABSOLUTE` with changes to its text as a folder of code, and return its path."""
    text = ABSOLUTE
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    path = folder / name
    path.mkdir(parents=True)
    (path / "__init__.py").write_text(text)
    return path
