"""Answers for one PET/CT patient: masks of the tumours, recurrence risk, HPV status.

`Predictor` is the Python interface (docs/research.md). Importing this package does not import torch.

The modules in the order of a case: `cli` and `arguments` read the options, `request` holds what is asked for.
`command` answers one case or serves, `batch` answers many cases, `predictor` answers in Python. `pipeline` runs the
attempts and watches the `deadline`. `segmenter` makes the mask of each attempt, `answers` its risks and classes,
`output` its files. `prediction` writes log and record.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algorithm.prediction import Prediction as Prediction
    from algorithm.predictor import Predictor as Predictor

_HOMES = {"Prediction": "algorithm.prediction", "Predictor": "algorithm.predictor"}
__all__ = ["Prediction", "Predictor"]


def __getattr__(name: str) -> Any:
    """Import on first use: the entry point must block signals before the imports, which take seconds."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
