"""Answers for one PET/CT patient: masks of the tumours, recurrence risk, HPV status.

`Predictor` is the Python interface (docs/research.md). Importing this package does not import torch.

The modules, in the order in which a case passes through them: `cli` and `arguments` read the options, and `request`
stores them. `command` answers one case or serves, `batch` answers many cases, and `predictor` is the Python interface.
`pipeline` runs the attempts and watches the `deadline`. `segmenter` makes the mask of each attempt, `answers` computes
its risks and classes, and `output` writes its files. `prediction` writes the log and the record of the run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algorithm.prediction import Prediction as Prediction
    from algorithm.predictor import Predictor as Predictor

_MODULE_OF = {"Prediction": "algorithm.prediction", "Predictor": "algorithm.predictor"}
__all__ = ["Prediction", "Predictor"]


def __getattr__(name: str) -> Any:
    """Import a name on first use: the entry point must block signals before the imports, which take seconds."""
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
