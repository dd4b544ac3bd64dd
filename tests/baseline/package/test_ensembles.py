"""Tests of several trainings in a package: ensembles, and trainings that do not go together."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.network import tiles
from algorithm.network.package import INTENSITIES, ONE_IMAGE, load_package
from contract.io.files import write_json
from contract.packages import read_manifest
from tests.baseline.package.nnunet_results import (
    compute_logits,
    edit_checkpoint,
    edit_dataset,
    edit_training,
    package,
    package_both,
)
from tests.baseline.package.test_parts import make_head, make_record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second", "configuration"), [("segresnet", "3d_segresnet"), ("resenc_m", "3d_fullres_2")], ids=str
)
def test_an_ensemble_of_two_trainings(
    training_results: dict[str, Path], tmp_path: Path, second: str, configuration: str
) -> None:
    """Two folds of the U-Net and a fold of the other network, placed after the U-Net's first, answer by their mean
    logits.

    ResEnc-M was trained by separate plans whose configuration has the U-Net's name, so its configuration is renamed.
    """
    assert package_both(training_results["plain"], training_results[second], tmp_path / "both") == 0
    for name in ("plain", second):
        assert package(training_results[name], tmp_path / name) == 0
    both, *singles = (load_package(tmp_path / name) for name in ("both", "plain", second))
    assert both.manifest.configurations == ("3d_fullres", configuration, "3d_fullres")
    assert list(both.plans["configurations"]) == ["3d_fullres", configuration]
    assert both.manifest.name == f"{singles[0].manifest.name} + {singles[1].manifest.name}"
    assert [member["folds"] for member in both.manifest.training["members"]] == [["0", "1"], ["0"]]
    weights = [path.read_bytes() for model in singles for path in model.fold_files]
    assert [path.read_bytes() for path in both.fold_files] == [weights[0], weights[2], weights[1]]
    data = np.random.default_rng(1).normal(0, 1, (2, 30, 13, 44)).astype(np.float32)
    plain_logits, second_logits = (compute_logits(model, data) for model in singles)
    np.testing.assert_allclose(compute_logits(both, data), (2 * plain_logits + second_logits) / 3, atol=1e-4)


def test_heads_of_one_of_two_trainings_are_noted(
    training_results: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Heads were fitted on the out-of-fold masks of `work`, which holds only the first of two trainings."""
    plain = training_results["plain"]
    own = Path(shutil.copytree(plain, tmp_path / "work" / "results" / plain.name))
    heads = tmp_path / "work" / "heads.json"
    write_json(heads, {"hpv": make_record(make_head(), masks="out-of-fold masks")})
    assert package(own, tmp_path / "one", "--heads", str(heads)) == 0
    assert "of work" not in capsys.readouterr().out
    assert package(own, tmp_path / "both", "--heads", str(heads), "--nnunet", str(training_results["segresnet"])) == 0
    assert "note: heads: fitted on out-of-fold masks of work only; `hecktor train" in capsys.readouterr().out
    masks = [read_manifest(tmp_path / name).training["heads_fitted_on"] for name in ("one", "both")]
    assert masks == ["out-of-fold masks", "out-of-fold masks of work only"]


def test_an_ensemble_is_mirrored_as_all_of_it_was_trained(
    results: Path, training_results: dict[str, Path], tmp_path: Path
) -> None:
    """Axes 0 and 2 of the network's grid are y and x of (z, y, x). The other training was mirrored only along x."""
    for fold in (0, 1):
        edit_checkpoint(lambda content: content.update(inference_allowed_mirroring_axes=(2,)), fold)(results)
    assert package_both(results, training_results["resenc_m"], tmp_path / "both") == 0
    assert load_package(tmp_path / "both").manifest.mirror_axes == [2]


@pytest.fixture
def swapped_results(training_results: dict[str, Path], tmp_path: Path) -> Path:
    """Copy ResEnc-M as if trained on PET, CT and with GTVn before GTVp."""
    source = training_results["resenc_m"]
    target = Path(shutil.copytree(source, tmp_path / "Dataset002_Swapped" / source.name))
    edit_dataset(channel_names={"0": "PET", "1": "CT"}, labels={"background": 0, "GTVn": 1, "GTVp": 2})(target)
    edit_training("plans.json", exchange_channels)(target)
    return target


def exchange_channels(plans: Any) -> None:
    for configuration in plans["configurations"].values():
        if "normalization_schemes" in configuration:
            configuration["normalization_schemes"].reverse()
    intensities = plans[INTENSITIES]
    intensities["0"], intensities["1"] = intensities["1"], intensities["0"]


def test_an_order_for_each_member(
    training_results: dict[str, Path], swapped_results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members see the channels and return the labels in their own order: the result is the mean of both packages'
    logits.
    """
    monkeypatch.setattr(tiles, "cpu_has_bfloat16", lambda: False)
    channels = ("--channels", "CT=0,PET=1", "--channels", "CT=1,PET=0")
    lesions = ("--labels", "GTVp=1,GTVn=2", "--labels", "GTVp=2,GTVn=1")
    members = ("--nnunet", str(swapped_results), *channels, *lesions)
    assert package(training_results["plain"], tmp_path / "both", *members) == 0
    assert package(training_results["plain"], tmp_path / "first") == 0
    assert package(swapped_results, tmp_path / "second", *channels[2:], *lesions[2:]) == 0
    both, first, second = (load_package(tmp_path / name) for name in ("both", "first", "second"))
    weights = [path.read_bytes() for path in both.fold_files]
    assert weights[:2] == [first.fold_files[0].read_bytes(), second.fold_files[0].read_bytes()]
    records = both.manifest.training["members"]
    assert [member.get("channels") for member in records] == [None, {"CT": 1, "PET": 0}]
    assert [member.get("labels") for member in records] == [None, {"GTVp": 2, "GTVn": 1}]
    assert [both.channel_order_of(fold) for fold in range(3)] == [(0, 1), (1, 0), (0, 1)]
    data = np.random.default_rng(1).normal(0, 1, (2, 12, 8, 16)).astype(np.float32)
    expected = (2 * compute_logits(first, data) + compute_logits(second, data[::-1].copy())) / 3
    np.testing.assert_allclose(compute_logits(both, data), expected, atol=1e-4)


def test_orders_that_do_not_fit_every_member(
    training_results: dict[str, Path], swapped_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages name the training at fault and, if the number of options is wrong, both numbers."""

    def error(*options: str) -> str:
        assert package(training_results["plain"], tmp_path / "out", "--nnunet", str(swapped_results), *options) == 1
        return capsys.readouterr().err.splitlines()[-1]

    plain = "/".join(training_results["plain"].parts[-2:])
    assert error("--channels", "CT=1,PET=0") == (
        f"error: {plain}: --channels: found CT=1,PET=0, expected CT=0, as in dataset.json; repeat --channels if "
        "the trainings differ"
    )
    assert error(*("--channels", "CT=0,PET=1") * 3) == (
        "error: --channels: found 3 of them for 2 --nnunet, expected one for all, or one for each in the same order"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p["configurations"]["3d_fullres"].update(spacing=[18.0, 6.0, 3.0]), "spacing [6.0, 18.0, 3.0], 3d_fullres"),
        (lambda p: p[INTENSITIES]["0"].update(mean=1.0), f"{INTENSITIES} [{{'mean': 1.0"),
    ],
    ids=["spacing", "intensities"],
)  # fmt: skip
def test_trainings_on_different_images_are_refused(
    results: Path,
    training_results: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Any], Any],
    message: str,
) -> None:
    edit_training("plans.json", change)(results)
    assert package_both(training_results["resenc_m"], results, tmp_path / "both") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: plans.json: 3d_fullres_2 has {message}")
    assert error.endswith(f"expected {ONE_IMAGE}")
    assert not (tmp_path / "both").exists()
