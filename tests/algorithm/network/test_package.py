"""Packages are refused unless every byte is what the manifest says, and before anything is computed with them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from algorithm.network.loaded_package import (
    DEFAULT_PACKAGE,
    DEFAULT_PACKAGES,
    find_shipped_package,
    find_uploaded_package,
)
from algorithm.network.networks import Networks
from algorithm.network.package import INTENSITIES, ONE_IMAGE, load_package
from contract.errors import ModelPackageError
from tests.algorithm.conftest import copy_package
from tests.conftest import write_manifest

Change = Callable[[dict[str, Any]], object]


def change_configuration(**changes: Any) -> Change:
    """Return a function that changes keys of the tiny network's configuration."""
    return lambda plans: plans["configurations"]["3d_fullres"].update(changes)


def test_a_sound_package(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    assert package.manifest.name == "tiny"
    assert [path.name for path in package.fold_files] == ["fold_0.safetensors", "fold_1.safetensors"]
    assert sorted(package.heads) == ["hpv", "hpv_clinical", "rfs", "rfs_clinical"]
    assert package.head("rfs").terms[1].feature == "age_years"


def test_spacing_is_turned_to_x_y_z(tiny_package: Path, tmp_path: Path) -> None:
    """The plans have the order (z, y, x)."""
    root = copy_package(tiny_package, tmp_path / "package", change_configuration(spacing=[5.0, 2.0, 1.0]))
    assert load_package(root).spacing_mm == (1.0, 2.0, 5.0)


def test_a_file_that_is_not_what_the_manifest_says(tiny_package: Path, tmp_path: Path) -> None:
    root = copy_package(tiny_package, tmp_path / "package")
    content = bytearray((root / "fold_1.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (root / "fold_1.safetensors").write_bytes(content)
    with pytest.raises(ModelPackageError, match=r"^fold_1\.safetensors: sha256 .*, expected .*the file was modified"):
        load_package(root)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": ["PET", "CT"]}, r"channels: found \['PET', 'CT'\]"),
        ({"labels": {"0": "background", "1": "GTVn", "2": "GTVp"}}, "labels: found"),
        ({"folds": []}, r"folds: found \[\]"),
        ({"folds": ["fold_7.safetensors"]}, r"does not list fold_7\.safetensors"),
        ({"mirror_axes": [3]}, r"mirror_axes\[0\]: found 3"),
        ({"fold_configurations": ["3d_fullres"]}, "fold_configurations: found"),
        ({"files": {"/etc/passwd": {"sha256": "", "size": 1}}}, ".* leads out of the package"),
        ({"files": {}}, "does not list plans.json"),
    ],
)
def test_manifests_that_do_not_fit(tiny_package: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelPackageError, match=rf"^manifest\.json[.:] ?{message}"):
        load_package(copy_package(tiny_package, tmp_path / "package", **changes))


SCHEMES = "normalization_schemes"
NO_CHANNELS = r"channels .*, expected numbers from 0 \(CT\) to 1 \(PET\)"
NO_LABELS = "labels .*, expected the numbers 0 to 2 in some order"
# Channels of the tiny package are 0 (CT) and 1 (PET).
UNUSABLE: list[tuple[Change, str]] = [
    (lambda plans: plans.update(configurations=3), "no configuration '3d_fullres'"),
    (lambda plans: plans["configurations"]["3d_fullres"].pop("patch_size"), "no 'patch_size'"),
    (lambda plans: plans.pop("foreground_intensity_properties_per_channel"), "no 'foreground_intensity"),
    (lambda plans: plans.update(transpose_forward=[2, 0, 0]), r"transpose_forward \[2, 0, 0\]"),
    # CTNormalization needs the standard deviation of the CT.
    (lambda plans: plans[INTENSITIES]["0"].update(std=None), "found no number 'std' for channel 0, expected"),
    (change_configuration(spacing=[1, 2, 0]), "spacing .* expected three"),
    (change_configuration(architecture=["PlainConvUNet"]), r"architecture \['PlainConvUNet'\], expected an object"),
    (change_configuration(architecture={"arch_kwargs": 3}), "arch_kwargs 3, expected an object"),
    *((change_configuration(patch_size=[16, 16, size]), "patch_size .* whole ones") for size in (16.5, "16")),
    (
        change_configuration(**{SCHEMES: ["CTNormalization", "Whitening"]}),
        "normalisation 'Whitening', expected a window",
    ),
    (change_configuration(**{SCHEMES: ["CTNormalization", [240, -160]]}), r"normalisation \[240, -160\], expected a"),
    (change_configuration(**{SCHEMES: ["CTNormalization"]}), r"1 channels, expected 2 \(CT and PET\)"),
    (change_configuration(**{SCHEMES: "CTNormalization"}), "normalization_schemes 'CTNormalization', expected 2"),
    *((change_configuration(channels=channels), NO_CHANNELS) for channels in ([0, 2], [0, -1], [], "CT")),
    *((change_configuration(labels=labels), NO_LABELS) for labels in ([0, 1], [0, 1, 1], [0, 1, 3], [0, 1, 2.0], 0)),
]


@pytest.mark.parametrize(("change", "message"), UNUSABLE)
def test_plans_that_inference_cannot_use(tiny_package: Path, tmp_path: Path, change: Change, message: str) -> None:
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        load_package(copy_package(tiny_package, tmp_path / "package", change))


def test_folds_of_two_members(pair_package: Path) -> None:
    package = load_package(pair_package)
    assert package.manifest.configurations == ("3d_fullres", "segresnet", "3d_fullres", "segresnet")
    assert [package.patch_of(fold) for fold in range(3)] == [(16, 16, 16), (24, 16, 20), (16, 16, 16)]
    assert package.configuration_of(1)["architecture"]["network_class_name"].endswith(".SegResNet")
    assert package.spacing_mm == (9.0, 9.0, 9.0)


@pytest.mark.parametrize(
    ("changes", "resampling", "difference"),
    [
        ({"spacing": [9.0, 9.0, 8.0]}, "grid", "spacing [9.0, 9.0, 8.0], 3d_fullres [9.0, 9.0, 9.0]"),
        ({"channels": [1, 1]}, "grid", "channels [1, 1], 3d_fullres [0, 1]"),
        ({"channels": [1, 0]}, "grid", "normalization_schemes ['ZScoreNormalization', 'CTNormalization'], 3d_"),
        ({"foreground_intensity_properties_per_channel": {"0": {"std": 200.0}, "1": {}}}, "grid", "foreground_"),
        ({"foreground_intensity_properties_per_channel": {"1": {"std": 7.0}}}, "grid", ""),
        ({"resampling_fn_data_kwargs": {"order": 1}}, "grid", ""),
        ({"resampling_fn_data_kwargs": {"order": 1}}, "nnunet", "resampling_fn_data_kwargs {'order': 1}, 3d_"),
        ({"resampling_fn_probabilities_kwargs": {"order": 0}}, "nnunet", "resampling_fn_probabilities_kwargs {'order'"),
    ],
    ids=str,
)
def test_networks_that_see_different_images_are_refused(
    pair_package: Path, tmp_path: Path, changes: dict[str, Any], resampling: str, difference: str
) -> None:
    """Resampling counts only if nnU-Net resamples; the intensities of a z-scored PET do not count."""

    def change(plans: Any) -> None:
        for configuration in plans["configurations"].values():
            for kind in ("data", "probabilities"):
                configuration[f"resampling_fn_{kind}"] = "resample_data_or_seg_to_shape"
        if intensities := changes.get(INTENSITIES):
            intensities["0"] = plans[INTENSITIES]["0"] | intensities.get("0", {})
        plans["configurations"]["segresnet"].update(changes)

    root = copy_package(pair_package, tmp_path / "pair", change, resampling=resampling)
    if not difference:
        load_package(root)
        return
    with pytest.raises(ModelPackageError, match=re.escape(f"plans.json: segresnet has {difference}")) as refused:
        load_package(root)
    assert refused.value.expected == ONE_IMAGE


def test_a_package_without_plans(tiny_package: Path, tmp_path: Path) -> None:
    root = copy_package(tiny_package, tmp_path / "package")
    (root / "plans.json").write_text("[]")
    write_manifest(root)
    with pytest.raises(ModelPackageError, match=r"^plans\.json: found a list"):
        load_package(root)


def test_a_member_without_plans(pair_package: Path, tmp_path: Path) -> None:
    root = copy_package(pair_package, tmp_path / "pair", fold_configurations=["3d_fullres", "vnet"] * 2)
    with pytest.raises(ModelPackageError, match=r"^plans\.json: no configuration 'vnet', which the manifest names"):
        load_package(root)


def test_which_package_is_taken(tmp_path: Path) -> None:
    """An uploaded package counts even if it was packed wrongly; otherwise the shipped package is taken."""
    assert find_shipped_package() == DEFAULT_PACKAGE
    assert find_uploaded_package(tmp_path / "absent") is None
    uploaded = tmp_path / "model"
    uploaded.mkdir()
    assert find_uploaded_package(uploaded) is None
    (uploaded / "a-folder-too-many").mkdir()
    assert find_uploaded_package(uploaded) == uploaded
    with pytest.raises(ModelPackageError, match=r"manifest\.json: not found"):
        load_package(uploaded)


def test_without_the_shipped_packages_the_message_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel ships no package; the tree ships none for some editions."""
    with pytest.raises(ModelPackageError, match=r"none shipped for hntsmrg2024, expected --model PACKAGE$"):
        find_shipped_package("hntsmrg2024")
    monkeypatch.setattr("algorithm.network.loaded_package.DEFAULT_PACKAGES", tmp_path / "default_model")
    with pytest.raises(ModelPackageError, match=r"expected --model PACKAGE or, .*: pip install \./models"):
        find_shipped_package()


def test_the_shipped_packages_share_their_networks(tmp_path: Path) -> None:
    """The networks are stored in the package of 2025; the manifest of 2026 has their checksums."""
    both = Path(shutil.copytree(DEFAULT_PACKAGES, tmp_path / "both"))
    package = load_package(both / "hecktor2026")
    assert package.fold_files == load_package(both / "hecktor2025").fold_files
    shared = package.fold_files[1]
    shared.write_bytes(shared.read_bytes()[:-1] + b"?")
    with pytest.raises(ModelPackageError, match=r"^fold_1\.safetensors: sha256 .*checksum mismatch"):
        load_package(both / "hecktor2026")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("resample_data_or_seg_to_shape", "resample_data_or_seg_to_shape", ""),
        (
            "resample_data_or_seg_to_shape",
            "resample_torch_fornnunet",
            "segresnet has resampling_fn_data 'resample_torch",
        ),
        ("mine", "mine", "resampling_fn_data 'mine'"),
        ("resample_data_or_seg_to_shape", "mine", "segresnet has resampling_fn_data 'mine'"),
    ],
)
def test_nnunets_resampling_needs_known_functions_of_all_members(
    pair_package: Path, tmp_path: Path, first: str, second: str, message: str
) -> None:
    def change(plans: dict[str, Any]) -> None:
        for configuration, function in (("3d_fullres", first), ("segresnet", second)):
            functions = {"resampling_fn_data": function, "resampling_fn_probabilities": "resample_torch_fornnunet"}
            plans["configurations"][configuration].update(functions)

    root = copy_package(pair_package, tmp_path / "pair", change, resampling="nnunet")
    if not message:
        assert load_package(root).manifest.resampling == "nnunet"
        return
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        load_package(root)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "cubic"}, "resampling_fn_data_kwargs {'order': 'cubic'} (TypeError"),
        (["order", 3], "resampling_fn_data_kwargs ['order', 3], expected an object of options"),
    ],
)
def test_options_with_which_nnunet_cannot_resample(
    tiny_package: Path, tmp_path: Path, options: Any, message: str
) -> None:
    """The package is refused when it is loaded, before a case."""
    functions = dict.fromkeys(("resampling_fn_data", "resampling_fn_probabilities"), "resample_torch_fornnunet")
    change = change_configuration(**functions, resampling_fn_data_kwargs=options)
    root = copy_package(tiny_package, tmp_path / "package", change, resampling="nnunet")
    with pytest.raises(ModelPackageError, match=re.escape(message)):
        Networks(load_package(root)).check()
