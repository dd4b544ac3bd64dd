"""Write a model package: plans, one safetensors file a fold, heads as plain data, and a manifest over all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import nn

from algorithm.heads import LinearHead
from algorithm.model_package import FORMAT_VERSION, MANIFEST, file_entry
from algorithm.networks import own_tensors, untrained_network
from baseline.nnunet import CONFIGURATION
from baseline.prepare import CHANNELS
from contract import labels
from contract.files import write_json

# Of the plans only what inference reads: the rest tells of the machine that planned.
_PLAN_KEYS: Final = ("plans_name", "configurations", "foreground_intensity_properties_per_channel", "label_manager")


def export_package(
    target: Path,
    plans: Mapping[str, Any],
    checkpoints: Sequence[Path],
    heads: Mapping[str, LinearHead],
    description: Mapping[str, Any],
) -> Path:
    """Write a package into the folder `target`, replacing what is there only once all of it is written.

    Args:
        target: the package's folder.
        plans: nnU-Net's plans.
        checkpoints: nnU-Net's final checkpoints, fold 0 first; only their weights are kept, as float16.
        heads: name to head.
        description: goes into the manifest: name, purpose, intended use, training data, licence, results.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
    try:
        slim = {key: plans[key] for key in _PLAN_KEYS}
        slim["configurations"] = {CONFIGURATION: plans["configurations"][CONFIGURATION]}
        write_json(partial / "plans.json", slim)
        network = untrained_network(slim["configurations"][CONFIGURATION], len(CHANNELS), len(labels.NAMES))
        folds = [_write_fold(checkpoint, partial, number, network) for number, checkpoint in enumerate(checkpoints)]
        for name, head in heads.items():
            write_json(partial / "heads" / f"{name}.json", head.as_json())
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        manifest = {
            "format_version": FORMAT_VERSION,
            **description,
            "channels": list(CHANNELS),
            "labels": {str(value): name for value, name in labels.NAMES.items()},
            "configuration": CONFIGURATION,
            "folds": folds,
            "files": {path.relative_to(partial).as_posix(): file_entry(path) for path in files},
        }
        write_json(partial / MANIFEST, manifest)
        if target.exists():
            shutil.rmtree(target)
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _write_fold(checkpoint: Path, folder: Path, number: int, network: nn.Module) -> str:
    # Our own training wrote this file; nnU-Net's checkpoints hold more than tensors.
    content = torch.load(checkpoint, map_location="cpu", weights_only=False)
    trained = content["network_weights"]
    # A checkpoint holds a shared tensor once for every name it has; only the first name is kept.
    weights = {name: trained[name].to(torch.float16).contiguous().clone() for name, _ in own_tensors(network)}
    path = folder / f"fold_{number}.safetensors"
    save_file(weights, str(path))
    path.chmod(0o644)
    return path.name
