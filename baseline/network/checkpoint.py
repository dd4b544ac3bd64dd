"""Read nnU-Net's checkpoints as data."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from contract.errors import ModelPackageError

# nnU-Net's log holds NumPy numbers, whose constructor moved between NumPy 1 and 2. None of these runs code.
_SCALAR: Final = np.float32(0).__reduce__()[0]
_NUMBERS: Final[list[Any]] = [
    np.dtype,
    *{type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?"},
    *((_SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]


@dataclass(frozen=True)
class Checkpoint:
    """The parts of a checkpoint that packaging needs.

    Attributes:
        name: fold and file name, for messages.
        weights: the network's state on the CPU, memory-mapped.
        configuration: the trained configuration of the plans; empty if unknown.
        trainer: class of the trainer; empty if unknown.
        mirror_axes: axes of the network's grid for mirroring.
        plans: the plans of the training; empty if unknown.
        dataset: the `dataset.json` of the training; empty if unknown.
        log: nnU-Net's log, a list with a value of each epoch by name; empty if unknown.
    """

    name: str
    weights: Mapping[str, torch.Tensor]
    configuration: str
    trainer: str
    mirror_axes: tuple[int, ...]
    plans: Mapping[str, Any]
    dataset: Mapping[str, Any]
    log: Mapping[str, Any] = field(default_factory=dict)


def read_checkpoint(path: Path, *, trust: bool = False) -> Checkpoint:
    """Read a checkpoint of nnU-Net.

    A checkpoint is a pickle, which can run code. Only tensors, plain values and NumPy numbers are accepted, which is
    all that nnU-Net writes; `trust` accepts any content, as custom trainers may write it, and lets it run code.

    Raises:
        ModelPackageError: absent, not a checkpoint of nnU-Net, or untrusted content.
    """
    name = f"{path.parent.name}/{path.name}"
    content = _load(path, name, trust)
    weights = content.get("network_weights") if isinstance(content, dict) else None
    if not isinstance(weights, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in weights.values()):
        raise ModelPackageError(name, "no `network_weights`", "a checkpoint of nnU-Net v2")
    arguments = content.get("init_args", {})
    axes = content.get("inference_allowed_mirroring_axes")
    try:
        plans, dataset = (dict(arguments.get(key, {})) for key in ("plans", "dataset_json"))
        configuration, trainer = str(arguments.get("configuration", "")), str(content.get("trainer_name", ""))
        log = dict(content.get("logging", {}))
        return Checkpoint(name, weights, configuration, trainer, _mirror_axes(axes), plans, dataset, log)
    except (AttributeError, TypeError, ValueError):
        found = f"mirror axes {axes!r} or arguments that are not nnU-Net's"
        raise ModelPackageError(name, found, "a checkpoint of nnU-Net v2") from None


def _load(path: Path, name: str, trust: bool) -> Any:
    if not path.is_file():
        raise ModelPackageError(name, "not found", "a checkpoint of nnU-Net")
    try:
        with torch.serialization.safe_globals(_NUMBERS):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        if not trust:
            raise ModelPackageError(
                name,
                f"holds more than tensors and numbers ({_unknown_types(path)}), which can run code when read; "
                "expected nnU-Net's own content, or --trust-checkpoint if you trust its author",
            ) from None
    except OSError as problem:
        raise ModelPackageError(name, f"cannot be read ({problem.strerror})", "a readable file") from None
    except (RuntimeError, EOFError):
        raise ModelPackageError(name, "not a torch file", "a checkpoint of nnU-Net") from None
    try:
        return torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    except (ImportError, AttributeError, pickle.UnpicklingError) as problem:
        expected = "the modules of its trainer, in a folder that PYTHONPATH names"
        raise ModelPackageError(name, f"cannot be read ({problem})", expected) from None


def _unknown_types(path: Path) -> str:
    """Names in a checkpoint that are not known to be harmless."""
    with torch.serialization.safe_globals(_NUMBERS):
        names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    return ", ".join(names[:3]) or "unknown objects"


def _mirror_axes(axes: Any) -> tuple[int, ...]:
    numbers = tuple(sorted({int(axis) for axis in axes or ()}))
    if any(axis not in (0, 1, 2) for axis in numbers):
        raise ValueError(f"mirror axes {axes!r}, expected 0, 1 or 2")
    return numbers
