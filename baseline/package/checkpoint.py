"""nnU-Net's checkpoints, read as data."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from contract.errors import ModelPackageError

# nnU-Net's log in a checkpoint holds NumPy numbers; numpy 1 kept their constructor elsewhere. None of them runs code.
_SCALAR: Final = np.float32(0).__reduce__()[0]
_NUMBERS: Final[list[Any]] = [
    np.dtype,
    *{type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?"},
    *((_SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]


@dataclass(frozen=True)
class Checkpoint:
    """What packaging needs of a checkpoint.

    Attributes:
        name: fold and file, for messages.
        weights: the network's state, on the CPU; stays on disk until it is used.
        configuration: the plans' configuration that was trained; empty where the checkpoint does not say.
        trainer: class of the trainer; empty where the checkpoint does not say.
        mirror_axes: axes of the network's own grid along which it may be mirrored.
        plans: the plans that it was trained by; empty where the checkpoint does not say.
    """

    name: str
    weights: Mapping[str, torch.Tensor]
    configuration: str
    trainer: str
    mirror_axes: tuple[int, ...]
    plans: Mapping[str, Any]


def read_checkpoint(path: Path, *, trust: bool = False) -> Checkpoint:
    """Read a checkpoint of nnU-Net.

    A checkpoint is a pickle, which can run code when it is read. Here it may hold tensors, plain values and NumPy's
    numbers, which is what nnU-Net itself writes; `trust` reads one that holds more, as a trainer of one's own may
    write, and lets it run what it likes.

    Raises:
        ModelPackageError: the file is absent, no checkpoint of nnU-Net, or holds more and is not trusted.
    """
    name = f"{path.parent.name}/{path.name}"
    content = _load(path, name, trust)
    weights = content.get("network_weights") if isinstance(content, dict) else None
    if not isinstance(weights, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in weights.values()):
        raise ModelPackageError(name, "no `network_weights`", "a checkpoint of nnU-Net v2")
    arguments = content.get("init_args", {})
    axes = content.get("inference_allowed_mirroring_axes")
    try:
        return Checkpoint(
            name,
            weights,
            str(arguments.get("configuration", "")),
            str(content.get("trainer_name", "")),
            _mirror_axes(axes),
            dict(arguments.get("plans", {})),
        )
    except (AttributeError, TypeError, ValueError):
        raise ModelPackageError(
            f"{name}", f"mirror axes {axes!r} or arguments that are not nnU-Net's", "a checkpoint of nnU-Net v2"
        ) from None


def _load(path: Path, name: str, trust: bool) -> Any:
    if not path.is_file():
        raise ModelPackageError(name, "not found", "a checkpoint of nnU-Net")
    try:
        with torch.serialization.safe_globals(_NUMBERS):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        if not trust:
            raise ModelPackageError(
                f"{name}",
                (
                    f"holds more than tensors and numbers ({_strangers(path)}), which can run code when it is read; "
                    "expected nnU-Net's own content, or --trust-checkpoint if you know who wrote it"
                ),
            ) from None
    except OSError as problem:
        raise ModelPackageError(name, f"cannot be read ({problem.strerror})", "a readable file") from None
    except (RuntimeError, EOFError):
        raise ModelPackageError(name, "not a file of torch.save", "a checkpoint of nnU-Net") from None
    try:
        return torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    except (ImportError, AttributeError, pickle.UnpicklingError) as problem:
        raise ModelPackageError(
            f"{name}", f"cannot be read ({problem})", "that the trainer's own modules can be imported"
        ) from None


def _strangers(path: Path) -> str:
    """The names in a checkpoint that are not known to be harmless."""
    with torch.serialization.safe_globals(_NUMBERS):
        names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    return ", ".join(names[:3]) or "an unknown kind of object"


def _mirror_axes(axes: Any) -> tuple[int, ...]:
    found = tuple(sorted({int(axis) for axis in axes or ()}))
    if any(axis not in (0, 1, 2) for axis in found):
        raise ValueError(f"mirror axes {axes!r}, expected 0, 1 or 2")
    return found
