"""Tests of the heads, checkpoints and axes of a package."""

from __future__ import annotations

import json
import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.network.package import read_axes
from baseline.network.checkpoint import read_checkpoint
from baseline.package.assemble import pack_heads
from contract.editions import load_edition
from contract.errors import ModelPackageError
from tests.baseline.prepared import EDITION

TERM = {"feature": "age_years", "transform": "identity", "fill": 60.0, "mean": 61.0, "sd": 9.0, "weights": [0.2]}


def make_head(**changes: Any) -> dict[str, Any]:
    parts = {"kind": "linear", "scale": "test", "intercepts": [0.5], "terms": [TERM], "threshold": 0.25} | changes
    return {name: part for name, part in parts.items() if part is not None}


def make_record(head: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a record of `heads.json`."""
    selection = {"model": "few", "setting": {}, "tried": {}, "metric": "balanced_accuracy", "out_of_fold": 0.7}
    features = {"smallest_lesions": {"gtvp_ml": 0.1, "gtvn_ml": 0.1}, "masks": "out-of-fold masks"}
    return {"head": head, **selection, "fallback": None, "experts": [], **features} | changes


# Heads


def test_heads_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "heads.json"
    path.write_text(json.dumps({"rfs": make_head(threshold=None), "hpv_clinical": make_record(make_head())}))
    heads, _ = pack_heads(path, EDITION)
    assert list(heads) == ["rfs", "hpv_clinical"]
    assert heads["hpv_clinical"].as_json() == make_head()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"heads\.json: found list, expected heads named hpv, hpv_clinical, rfs, rfs_clinical"),
        ({"../rfs": make_head()}, r"heads\.json: found '\.\./rfs', expected heads named"),
        ({"rfs": []}, r"heads\.json: rfs: found \[\], expected a head"),
        ({"rfs": make_head(terms=[TERM | {"feature": "x"}])}, r"rfs: feature 'x' is unknown, expected"),
        ({"hpv": make_head(threshold=None)}, r"head 'hpv': no threshold, expected a number"),
        ({"hpv": make_record(make_head(), auc=0.7)}, r"heads\.json: hpv\.auc: found 0\.7, expected no such key"),
    ],
)
def test_heads_that_cannot_be_used(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "heads.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelPackageError, match=message):
        pack_heads(path, EDITION)


def make_stage_head(*numbers: int, **changes: Any) -> dict[str, Any]:
    names, several = [f"N{number}" for number in numbers], [0.5] * len(numbers)
    return make_head(threshold=None, classes=names, intercepts=several, terms=[TERM | {"weights": several}]) | changes


def test_fallbacks_of_the_heads(tmp_path: Path) -> None:
    """Fallbacks come from the records of a training. A plain head has no fallback, and HECKTOR 2025 declares none."""
    path, stages = tmp_path / "heads.json", make_stage_head(0, 1, 2, 3)
    path.write_text(json.dumps({"n_stage": make_record(stages, fallback="N2"), "n_stage_clinical": stages}))
    assert pack_heads(path, load_edition("hecktor2026"))[1]["fallbacks"] == {"n_stage": "N2"}
    path.write_text(json.dumps({"rfs": make_record(make_head(threshold=None), fallback=3.5)}))
    assert "fallbacks" not in pack_heads(path, EDITION)[1]


def test_the_smallest_lesions_of_the_heads(tmp_path: Path) -> None:
    """Limits come from the training's features; plain heads do not have limits. All heads must agree, since features
    are measured once.
    """
    path, limits = tmp_path / "heads.json", {"gtvp_ml": 0.2, "gtvn_ml": 0.07}

    def make_entry(**of_heads: Any) -> dict[str, Any]:
        path.write_text(json.dumps(of_heads))
        return pack_heads(path, EDITION)[1]

    limited, unlimited = make_record(make_head(), smallest_lesions=limits), make_record(make_head())
    assert make_entry(hpv=limited, hpv_clinical=limited)["smallest_lesions"] == limits
    assert make_entry(hpv=make_head()) == {}
    with pytest.raises(ModelPackageError, match=r"smallest_lesions gtvp_ml=0\.2 .* and gtvp_ml=0\.1 .*"):
        make_entry(hpv=limited, hpv_clinical=unlimited)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"n_stage": make_stage_head(0, 1, 2)}, "^head 'n_stage': classes N0, N1, N2, expected classes N0, N1, N2, N3"),
        ({"rfs": make_stage_head(0, 1, 2, 3)}, "^head 'rfs': classes N0, .*, expected one score for a risk"),
        ({"rfs": make_head()}, r"^head 'rfs': no \w+, expected "),  # days need more than a score
        ({"rfs": make_head(terms=[TERM | {"feature": "m1"}])}, "rfs: feature 'm1' is unknown"),  # 2026 has no M-stage
    ],
)
def test_heads_that_cannot_give_their_answer(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "heads.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelPackageError, match=message):
        pack_heads(path, load_edition("hecktor2026"))


# Checkpoints


class _Dangerous:
    """Object that writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def make_content(**more: Any) -> dict[str, Any]:
    """Return a checkpoint's content as nnU-Net writes it, with NumPy numbers in the log."""
    return {
        "network_weights": OrderedDict(a=torch.ones(2)),
        "optimizer_state": {"state": {0: {"momentum_buffer": torch.zeros(2)}}, "param_groups": [{"lr": 0.01}]},
        "grad_scaler_state": None,
        "logging": {"ema_fg_dice": [np.float64(0.5), np.float32(0.25)], "epochs": [np.int64(3), np.bool_(True)]},
        "_best_ema": np.float64(0.5),
        "current_epoch": 1,
        "init_args": {"plans": {"a": 1}, "configuration": "3d_fullres", "fold": 0, "device": torch.device("cuda")},
        "trainer_name": "MyTrainer",
        "inference_allowed_mirroring_axes": (2, 0),
        **more,
    }


def save(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "fold_0" / "checkpoint_final.pth"
    path.parent.mkdir(parents=True)
    torch.save(value, path)
    return path


def test_nnunets_own_checkpoints_need_no_trust(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(save(tmp_path, make_content()))
    assert checkpoint.name == "fold_0/checkpoint_final.pth"
    assert torch.equal(checkpoint.weights["a"], torch.ones(2))
    assert (checkpoint.configuration, checkpoint.trainer) == ("3d_fullres", "MyTrainer")
    assert checkpoint.mirror_axes == (0, 2)
    assert checkpoint.plans == {"a": 1}


def test_a_checkpoint_runs_no_code_unless_it_is_trusted(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    path = save(tmp_path, make_content(extra=_Dangerous(proof)))
    with pytest.raises(ModelPackageError, match=r"fold_0/checkpoint_final\.pth: contains more .*--trust-checkpoint"):
        read_checkpoint(path)
    assert not proof.exists()
    assert read_checkpoint(path, trust=True).trainer == "MyTrainer"
    assert proof.exists()


def test_a_trusted_checkpoint_of_a_missing_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of the training's environment exist when the checkpoint is saved, but not when it is read."""
    module = types.ModuleType("my_trainer")
    module.Settings = type("Settings", (), {"__module__": "my_trainer"})  # type: ignore[attr-defined]
    with monkeypatch.context() as there:
        there.setitem(sys.modules, "my_trainer", module)
        path = save(tmp_path, make_content(extra=module.Settings()))
    fault = r"^fold_0/checkpoint_final\.pth: cannot be read \(No module named 'my_trainer'\), expected .*PYTHONPATH"
    with pytest.raises(ModelPackageError, match=fault):
        read_checkpoint(path, trust=True)


@pytest.mark.parametrize("axes", [(3,), "xy"], ids=str)
def test_invalid_mirror_axes(tmp_path: Path, axes: object) -> None:
    with pytest.raises(ModelPackageError, match=r"mirror axes .* expected a checkpoint of nnU-Net v2"):
        read_checkpoint(save(tmp_path, make_content(inference_allowed_mirroring_axes=axes)))


def test_adaptation_plans_of_nnssl(tmp_path: Path) -> None:
    """Checkpoints may name the plan without holding it."""
    assert read_checkpoint(save(tmp_path / "a", make_content(nnssl_adaptation_plan=None))).adaptation == {}
    with pytest.raises(ModelPackageError, match=r"checkpoint_final\.pth: nnssl_adaptation_plan \[1\], expected an obj"):
        read_checkpoint(save(tmp_path / "b", make_content(nnssl_adaptation_plan=[1])))


# Axes


@pytest.mark.parametrize("axes", [[0, 1, 1], [1, 2, 3], "012 ", None], ids=str)
def test_invalid_orders(axes: object) -> None:
    with pytest.raises(ModelPackageError, match=r"^plans\.json: transpose_forward .*"):
        read_axes({"transpose_forward": axes}, {})
