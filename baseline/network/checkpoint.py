"""Checkpoints of nnU-Net and nnssl, read as data without running code."""

from __future__ import annotations

import json
import pickle
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch

from contract.errors import ModelPackageError

# Types of NumPy numbers in nnU-Net's log, which run no code. Their constructor moved between NumPy 1 and 2.
_SCALAR: Final = np.float32(0).__reduce__()[0]
_NUMBERS: Final[list[Any]] = [
    np.dtype,
    *{type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?"},
    *((_SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]
_ZIP_START: Final = b"PK"
# Maximum number of letters of a message of torch, which may quote whole plans.
_MAX_REASON: Final = 120


@dataclass(frozen=True)
class Checkpoint:
    """The parts of a checkpoint that packaging needs.

    Attributes:
        name: Fold and file name, for messages.
        weights: State of the network on the CPU, memory-mapped.
        configuration: Trained configuration of the plans; empty if unknown.
        trainer: Class of the trainer; empty if unknown.
        mirror_axes: Axes of the network's grid for mirroring.
        plans: Plans of the training; empty if unknown.
        dataset: `dataset.json` of the training; empty if unknown.
        log: nnU-Net's log, a list with the values of all epochs by name; empty if unknown.
        adaptation: nnssl's `nnssl_adaptation_plan`, which names the parts of a pre-trained network; empty if the
            checkpoint is not nnssl's.
    """

    name: str
    weights: Mapping[str, torch.Tensor]
    configuration: str
    trainer: str
    mirror_axes: tuple[int, ...]
    plans: Mapping[str, Any]
    dataset: Mapping[str, Any]
    log: Mapping[str, Any] = field(default_factory=dict)
    adaptation: Mapping[str, Any] = field(default_factory=dict)


def read_checkpoint(path: Path, *, trust: bool = False) -> Checkpoint:
    """Read a checkpoint of nnU-Net.

    A checkpoint is a pickle, which can run code. Only tensors, plain values and NumPy numbers are accepted; nnU-Net
    writes nothing else. `trust` accepts any content, which custom trainers may write, and lets it run code.

    Raises:
        ModelPackageError: The file is absent, is not a checkpoint of nnU-Net, or has untrusted content.
    """
    name = f"{path.parent.name}/{path.name}"
    content = _load(path, name, trust)
    weights = content.get("network_weights") if isinstance(content, dict) else None
    if not isinstance(weights, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in weights.values()):
        raise ModelPackageError(name, "no `network_weights`", "a checkpoint of nnU-Net v2")
    for key, tensor in weights.items():
        is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        if not isinstance(key, str) or not is_plain or tensor.is_nested:
            raise ModelPackageError(name, f"{str(key)[:_MAX_REASON]} is not a plain tensor", "dense weights by name")
    adaptation = content.get("nnssl_adaptation_plan") or {}
    if not isinstance(adaptation, Mapping):
        expected = "an object, as in a checkpoint of nnssl"
        raise ModelPackageError(name, f"nnssl_adaptation_plan {str(adaptation)[:_MAX_REASON]}", expected)
    arguments = content.get("init_args", {})
    axes = content.get("inference_allowed_mirroring_axes")
    try:
        plans, dataset = (_convert_to_json(dict(arguments.get(key, {}))) for key in ("plans", "dataset_json"))
        configuration, trainer = str(arguments.get("configuration", "")), str(content.get("trainer_name", ""))
        log = dict(content.get("logging", {}))
        mirror_axes = _check_mirror_axes(axes)
        return Checkpoint(name, weights, configuration, trainer, mirror_axes, plans, dataset, log, adaptation)
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        problem = f"mirror axes {str(axes)[:_MAX_REASON]} or arguments that are not nnU-Net's"
        raise ModelPackageError(name, problem, "a checkpoint of nnU-Net v2") from None


def _load(path: Path, name: str, trust: bool) -> Any:
    """Read the content of a checkpoint.

    Torch does not check the pickle, so that a damaged pickle raises errors of any kind.

    Raises:
        ModelPackageError: The file is absent, unreadable or damaged, or holds content that is not trusted.
    """
    if not path.is_file():
        raise ModelPackageError(name, "not found", "a checkpoint of nnU-Net")
    _check_archive(path, name)
    try:
        with torch.serialization.safe_globals(_NUMBERS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error that follows has more details
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except OSError as problem:
        raise ModelPackageError(name, f"cannot be read ({problem.strerror})", "a readable file") from None
    except pickle.UnpicklingError as problem:
        if not trust:
            raise _make_refusal(path, name, problem) from None
    except Exception as problem:  # noqa: BLE001 - a damaged pickle raises any error
        raise _make_damage_error(name, problem) from None
    try:
        return torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    except (ImportError, AttributeError) as problem:
        expected = "the modules of its trainer, in a folder that PYTHONPATH names"
        raise ModelPackageError(name, f"cannot be read ({problem})", expected) from None
    except Exception as problem:  # noqa: BLE001 - a damaged pickle raises any error
        raise _make_damage_error(name, problem) from None


def _check_archive(path: Path, name: str) -> None:
    """Check the checksum of each member, which torch does not read from a mapped file; raise `ModelPackageError`."""
    try:
        with path.open("rb") as file:
            is_archive = file.read(len(_ZIP_START)) == _ZIP_START
        if not is_archive:
            raise ModelPackageError(name, "not a torch file", "a checkpoint of nnU-Net")
        with ZipFile(path) as archive:
            member = archive.testzip()
    except OSError as problem:
        raise ModelPackageError(name, f"cannot be read ({problem.strerror})", "a readable file") from None
    except BadZipFile:
        raise _make_damage_error(name, ValueError("cut off, or no index of its members")) from None
    except (ArithmeticError, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as problem:
        raise _make_damage_error(name, problem) from None
    if member is not None:
        raise _make_damage_error(name, ValueError(f"{member} does not have its checksum"))


def _make_refusal(path: Path, name: str, problem: pickle.UnpicklingError) -> ModelPackageError:
    """Make the error of a pickle that torch refuses: untrusted content with its types, or a damaged file."""
    try:
        with torch.serialization.safe_globals(_NUMBERS):
            types = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    except Exception as scan_problem:  # noqa: BLE001 - the scan reads the same damaged pickle
        return _make_damage_error(name, scan_problem)
    if not types and "Unsupported operand" in str(problem):
        return _make_damage_error(name, problem)
    return ModelPackageError(
        name,
        f"holds more than tensors and numbers ({', '.join(types[:3]) or 'unknown objects'}), which can run code when "
        "read; expected nnU-Net's own content, or --trust-checkpoint if you trust its author",
    )


def _make_damage_error(name: str, problem: Exception) -> ModelPackageError:
    """Make the error of a damaged checkpoint, with the first line of torch's message."""
    reason = str(problem).strip().split("\n")[0][:_MAX_REASON] or type(problem).__name__
    return ModelPackageError(name, f"damaged ({reason})", "a checkpoint as nnU-Net wrote it; copy it again")


def _convert_to_json(content: dict[str, Any]) -> dict[str, Any]:
    """Convert the content to plain values as in JSON; NumPy numbers become plain numbers, other objects text."""

    def convert(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else str(value)

    result: dict[str, Any] = json.loads(json.dumps(content, default=convert))
    return result


def _check_mirror_axes(axes: Any) -> tuple[int, ...]:
    numbers = tuple(sorted({int(axis) for axis in axes or ()}))
    if any(axis not in (0, 1, 2) for axis in numbers):
        raise ValueError(f"mirror axes {axes!r}, expected 0, 1 or 2")
    return numbers
