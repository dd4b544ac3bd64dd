"""Several trainings in one package: an ensemble, and trainings that do not go together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.network.package import load_package
from tests.baseline.package.nnunet_results import edit_checkpoint, edit_training, our_logits, package, package_both


@pytest.mark.parametrize(
    ("second", "configuration"), [("segresnet", "3d_segresnet"), ("resenc_m", "3d_fullres_2")], ids=str
)
def test_an_ensemble_of_two_trainings(
    trained: dict[str, Path], tmp_path: Path, second: str, configuration: str
) -> None:
    """Two folds of the U-Net and one of the other, which follows the U-Net's first: the weights' mean answers.

    ResEnc-M was trained by plans of its own, whose configuration has the U-Net's name: it gets another.
    """
    assert package_both(trained["plain"], trained[second], tmp_path / "both") == 0
    for name in ("plain", second):
        assert package(trained[name], tmp_path / name) == 0
    both, *apart = (load_package(tmp_path / name) for name in ("both", "plain", second))
    assert both.fold_configurations == ("3d_fullres", configuration, "3d_fullres")
    assert list(both.plans["configurations"]) == ["3d_fullres", configuration]
    assert both.manifest["name"] == f"{apart[0].manifest['name']} + {apart[1].manifest['name']}"
    assert [member["folds"] for member in both.manifest["training"]["members"]] == [["0", "1"], ["0"]]
    weights = [path.read_bytes() for one in apart for path in one.fold_files]
    assert [path.read_bytes() for path in both.fold_files] == [weights[0], weights[2], weights[1]]
    data = np.random.default_rng(1).normal(0, 1, (2, 30, 13, 44)).astype(np.float32)
    plain, other = (our_logits(one, data) for one in apart)
    np.testing.assert_allclose(our_logits(both, data), (2 * plain + other) / 3, atol=1e-4)


def test_one_training_given_twice_is_one_member(trained: dict[str, Path], tmp_path: Path) -> None:
    """The same plans and configuration by two trainers would be told apart by nothing but the weights."""
    assert package_both(trained["plain"], trained["plain"], tmp_path / "both") == 0
    both = load_package(tmp_path / "both")
    assert "fold_configurations" not in both.manifest
    assert len(both.fold_files) == 4
    assert both.fold_files[0].read_bytes() == both.fold_files[1].read_bytes()


def test_an_ensemble_is_mirrored_as_all_of_it_was_trained(
    results: Path, trained: dict[str, Path], tmp_path: Path
) -> None:
    """Axes 0 and 2 of the network's grid are y and x of (z, y, x); the other training was mirrored along x alone."""
    for fold in (0, 1):
        edit_checkpoint(lambda content: content.update(inference_allowed_mirroring_axes=(2,)), fold)(results)
    assert package_both(results, trained["resenc_m"], tmp_path / "both") == 0
    assert load_package(tmp_path / "both").manifest["mirror_axes"] == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda plans: plans["configurations"]["3d_fullres"].update(spacing=[18.0, 6.0, 4.0]),
            r"plans\.json: spacing \[6\.0, 18\.0, 4\.0\] of '3d_fullres_2', expected \[6\.0, 18\.0, 4\.5\] as of '3d_fullres'",
        ),
        (
            lambda plans: plans["configurations"]["3d_fullres"].update(normalization_schemes=["CTNormalization"] * 2),
            r"plans\.json: normalization_schemes .* of '3d_fullres_2', expected",
        ),
        (
            lambda plans: plans["foreground_intensity_properties_per_channel"]["0"].update(mean=1.0),
            (
                r"plans\.json: foreground_intensity_properties_per_channel of channel 0: mean 1\.0 in 'nnUNetPlans', "
                r"expected 0\.0 as in 'nnUNetResEncUNetMPlans'"
            ),
        ),
    ],
    ids=["spacing", "normalisation", "intensities"],
)
def test_trainings_that_do_not_go_together(
    results: Path,
    trained: dict[str, Path],
    tmp_path: Path,
    change: Callable[[Any], Any],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    edit_training("plans.json", change)(results)
    assert package_both(trained["resenc_m"], results, tmp_path / "out" / "both") == 1
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])
    assert not list((tmp_path / "out").rglob("*"))
