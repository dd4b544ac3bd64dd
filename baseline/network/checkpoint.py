"""Checkpoints of nnU-Net and nnssl: read as data without running code, and used as starting weights of a training."""

from __future__ import annotations

import json
import pickle
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from algorithm.network.networks import iterate_tensors
from algorithm.network.package import ModelPackage, is_custom, load_package
from baseline.network.plans import PARTS, NetworkPlan, Stem
from contract import labels
from contract.archives import SUFFIX, unpack
from contract.errors import HecktorError, InputError, ModelPackageError

# Types of NumPy numbers in nnU-Net's log, which run no code. Their constructor moved between NumPy 1 and 2.
_SCALAR: Final = np.float32(0).__reduce__()[0]
_NUMBERS: Final[list[Any]] = [
    np.dtype,
    *{type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?"},
    *((_SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]
_ZIP_START: Final = b"PK"
# Maximum number of characters that are quoted from a message of torch, which may contain whole plans.
_MAX_REASON: Final = 120

Weights = Mapping[str, torch.Tensor]
# Prefixes of the names of a decoder's tensors, in nnU-Net's networks and in SegResNet.
_DECODER: Final = ("decoder.", "up_")
# Names of parts of nnU-Net's network, by the keys under which nnssl stores the names of these parts in its own network.
# nnssl's `ResEncL` is the same network as nnU-Net's `ResidualEncoderUNet`; some of its pre-trainings put it inside
# another network.
_PART_OF_NNSSL_KEY: Final = {"key_to_encoder": "encoder.stages", "key_to_stem": "encoder.stem"}


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
        ModelPackageError: The file is absent, unreadable or damaged, or has content that is not trusted.
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
        expected = "the modules of its trainer in a folder on PYTHONPATH"
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
        raise _make_damage_error(name, ValueError(f"{member} has a wrong checksum"))


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
        f"contains more than tensors and numbers ({', '.join(types[:3]) or 'unknown objects'}), which can run code "
        "when read; expected nnU-Net's own content, or --trust-checkpoint if you trust its author",
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


def load_starting_weights(network: nn.Module, plan: NetworkPlan, fold: int, output_layers: str) -> str:
    """Copy the plan's parts of the starting weights into a network; return a summary of the copied tensors.

    nnU-Net's own function would run code from the file. If several networks of a package fit, the folds use them in
    turn.

    Args:
        network: Network of the training; it may be compiled or shared by several processes.
        plan: Plan with starting weights: a checkpoint of nnU-Net or nnssl, or a model package.
        fold: Number of the fold.
        output_layers: Text that the names of output layers, the heads, contain.

    Raises:
        HecktorError: The file cannot be read as data, a layer of the parts is missing or has another shape, or a
            package's networks are custom networks or have another order of channels or labels.
    """
    from torch._dynamo import OptimizedModule  # takes seconds

    path = Path(str(plan.starting_weights))
    bare = network.module if isinstance(network, DistributedDataParallel) else network
    bare = bare._orig_mod if isinstance(bare, OptimizedModule) else bare
    own = dict(iterate_tensors(bare))
    part_of = {name: find_part(name, output_layers) for name in own}
    wanted = {name: tensor for name, tensor in own.items() if part_of[name] in plan.starting_parts}
    stem = next(iter(own))
    with _load_candidates(path, plan) as candidates:
        adapted = [adapt_stem(weights, stem, own[stem], plan.starting_stem) for weights in candidates]
        mismatches = [_find_mismatch(wanted, weights) for weights in adapted]
        fitting = [number for number, mismatch in enumerate(mismatches) if mismatch is None]
        if not fitting:
            raise HecktorError("--starting-weights", f"{path.name}: {mismatches[0]}", "weights of the same network")
        number = fitting[fold % len(fitting)]
        with torch.no_grad():
            for name, tensor in wanted.items():
                tensor.copy_(adapted[number][name])
        channels = candidates[number][stem].shape[1] if stem in wanted else own[stem].shape[1]
        unused = {name for name in candidates[number] if name not in wanted and not _is_alias(name)}
    taken = [f"{sum(part_of[name] == part for name in wanted)} of {part}" for part in plan.starting_parts]
    random = [part for part in PARTS if part not in plan.starting_parts]
    sentences = [f"{path.name}: tensors taken: {', '.join(taken)}"]
    if channels != own[stem].shape[1]:
        words = "repeated over" if plan.starting_stem == "repeat" else "filled with zeros for"
        sentences.append(
            f"first layer of {channels} channel{'s' * (channels > 1)} {words} {own[stem].shape[1]} channels"
        )
    sentences += [f"random at the start: {', '.join(random)}"] if random else []
    sentences += [f"not taken: {len(unused)} tensors, such as {min(unused)}"] if unused else []
    return "starting weights of " + "; ".join(sentences)


def find_part(name: str, output_layers: str) -> str:
    """Find the part of a network that a tensor belongs to, one of `PARTS`."""
    if output_layers in name:
        return "heads"
    return "decoder" if name.startswith(_DECODER) else "encoder"


def adapt_stem(weights: Weights, name: str, own: torch.Tensor, stem: Stem) -> Weights:
    """Adapt the first layer of another network's weights to the number of images that the network sees.

    Args:
        weights: Weights of the other network.
        name: Name of the first layer's weights.
        own: Weights of the network's first layer, (features, channels, z, y, x).
        stem: `repeat` gives each image the weights of a single channel, divided by the number of images; `zero` gives
            the first images the weights of the channels, and the others zeros.

    Returns:
        The weights; unchanged where the layer fits or cannot be adapted.
    """
    if name not in weights or weights[name].ndim != own.ndim:
        return weights
    first, (channels, images) = weights[name], (weights[name].shape[1], own.shape[1])
    if channels >= images or (stem == "repeat" and channels != 1):
        return weights
    if stem == "repeat":
        adapted = first.repeat_interleave(images, dim=1) / images
    else:
        adapted = torch.cat([first, first.new_zeros(first.shape[0], images - channels, *first.shape[2:])], dim=1)
    return {**weights, name: adapted}


def rename_nnssl(checkpoint: Checkpoint) -> Weights:
    """Return the weights of a checkpoint under the names of nnU-Net's network."""
    starts = {
        str(checkpoint.adaptation[key]).removeprefix(".") + ".": f"{own}."
        for key, own in _PART_OF_NNSSL_KEY.items()
        if checkpoint.adaptation.get(key)
    }
    renamed = {}
    for name, tensor in checkpoint.weights.items():
        start = next((start for start in starts if name.startswith(start)), "")
        renamed[starts.get(start, "") + name.removeprefix(start)] = tensor
    return renamed


@contextmanager
def _load_candidates(path: Path, plan: NetworkPlan) -> Iterator[list[Weights]]:
    """Load the weights of a checkpoint, or of each network of a package."""
    if path.is_file() and not path.name.endswith(SUFFIX):
        yield [rename_nnssl(read_checkpoint(path))]
        return
    if not path.exists():
        raise InputError(str(path), "not found", "a checkpoint of nnU-Net or nnssl (.pth), or a model package")
    with tempfile.TemporaryDirectory(prefix="hecktor-") as scratch:
        root = path
        if path.is_file():
            root = Path(scratch) / "package"
            unpack(path, root)
        package = load_package(root)
        for fold in range(len(package.fold_files)):
            _check_network(package, fold, path.name, plan)
        yield [load_file(str(file)) for file in package.fold_files]


def _check_network(package: ModelPackage, fold: int, name: str, plan: NetworkPlan) -> None:
    """Check that the weights of one network in a package mean the same in a training with the plan.

    Raises:
        HecktorError: The network is a custom network, sees the channels in another order, or sees only the PET although
            its first layer would get the CT; or its heads are to be copied, but have the labels in another order.
    """
    if is_custom(package.configuration_of(fold)):
        raise HecktorError("--starting-weights", f"{name}: a custom network", "networks of nnU-Net or SegResNet")
    sources = [package.channel_sources[number] for number in package.channel_order_of(fold)]
    if sources != sorted(sources):
        channels = ", ".join(package.manifest.channels[source] for source in sources)
        expected = f"channels in the order {', '.join(package.manifest.channels)}"
        raise HecktorError("--starting-weights", f"{name}: a network that sees {channels}", expected)
    if plan.starting_stem == "zero" and plan.channels == "both" and package.sees_only_pet(fold):
        expected = "--starting-stem repeat: zero gives its first layer to the CT"
        raise HecktorError("--starting-stem", f"zero for {name}, a network that sees only the PET", expected)
    outputs = package.label_order_of(fold)
    if "heads" in plan.starting_parts and outputs != tuple(labels.NAMES):
        order = ", ".join(labels.NAMES[outputs.index(number)] for number in range(len(outputs)))
        expected = f"--starting-parts encoder decoder, or labels in the order {', '.join(labels.NAMES.values())}"
        raise HecktorError("--starting-parts", f"heads of {name}, whose labels are {order}", expected)


def _find_mismatch(own: Weights, weights: Weights) -> str | None:
    """Find the first layer that is missing or has another shape; None if all layers fit."""
    for name, tensor in own.items():
        if name not in weights:
            return f"no {name}"
        if weights[name].shape != tensor.shape:
            return f"{name} of shape {tuple(weights[name].shape)} instead of {tuple(tensor.shape)}"
    return None


def _is_alias(name: str) -> bool:
    """Return whether nnU-Net lists a tensor a second time under this name."""
    return name.startswith("decoder.encoder.") or ".all_modules." in name
