"""Packages are refused unless every byte is what the manifest says, and before anything is computed with them."""

from __future__ import annotations

import json
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


@pytest.fixture
def root(tiny_package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_package, tmp_path / "package"))


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text())
    changed = change(content)
    path.write_text(json.dumps(content if changed is None else changed))


def test_a_sound_package(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    assert package.manifest.name == "tiny"
    assert [path.name for path in package.fold_files] == ["fold_0.safetensors", "fold_1.safetensors"]
    assert sorted(package.heads) == ["hpv", "hpv_clinical", "rfs", "rfs_clinical"]
    assert package.head("rfs").terms[1].feature == "age_years"


def test_spacing_is_turned_to_x_y_z(root: Path, sign_package: Callable[..., None]) -> None:
    """The plans have the order (z, y, x)."""
    edit_json(root / "plans.json", lambda plans: plans["configurations"]["3d_fullres"].update(spacing=[5.0, 2.0, 1.0]))
    sign_package(root)
    assert load_package(root).spacing_mm == (1.0, 2.0, 5.0)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_file_that_is_not_what_the_manifest_says(root: Path) -> None:
    flip_a_bit(root / "fold_1.safetensors")
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
def test_manifests_that_do_not_fit(
    root: Path, sign_package: Callable[..., None], changes: dict[str, Any], message: str
) -> None:
    sign_package(root, **changes)
    with pytest.raises(ModelPackageError, match=rf"^manifest\.json[.:] ?{message}"):
        load_package(root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plans: [], "found a list"),
        (lambda plans: plans.update(configurations=3), "no configuration '3d_fullres'"),
        (lambda plans: plans["configurations"]["3d_fullres"].pop("patch_size"), "no 'patch_size'"),
        (lambda plans: plans.pop("foreground_intensity_properties_per_channel"), "no 'foreground_intensity"),
        (lambda plans: plans["configurations"]["3d_fullres"].update(spacing=[1, 2, 0]), "spacing .* expected three"),
        (lambda plans: plans.update(transpose_forward=[2, 0, 0]), r"transpose_forward \[2, 0, 0\]"),
    ],
)
def test_plans_that_do_not_fit(
    root: Path, sign_package: Callable[..., None], change: Callable[[Any], Any], message: str
) -> None:
    def keep(plans: Any) -> Any:
        result = change(plans)
        return result if result == [] else plans

    edit_json(root / "plans.json", keep)
    sign_package(root)
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        load_package(root)


NO_CHANNELS = r"channels .*, expected numbers from 0 \(CT\) to 1 \(PET\)"
NO_LABELS = "labels .*, expected the numbers 0 to 2 in some order"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("normalization_schemes", ["CTNormalization", "Whitening"], "normalisation 'Whitening', expected a window"),
        ("normalization_schemes", ["CTNormalization", [240, -160]], r"normalisation \[240, -160\], expected a window"),
        ("normalization_schemes", ["CTNormalization"], r"1 channels, expected 2 \(CT and PET\)"),
        ("normalization_schemes", "CTNormalization", "normalization_schemes 'CTNormalization', expected 2"),
        *(("channels", channels, NO_CHANNELS) for channels in ([0, 2], [0, -1], [], "CT")),
        *(("labels", labels, NO_LABELS) for labels in ([0, 1], [0, 1, 1], [0, 1, 3], [0, 1, 2.0], 0)),
    ],
    ids=str,
)
def test_plans_that_inference_cannot_compute(
    root: Path, sign_package: Callable[..., None], key: str, value: Any, message: str
) -> None:
    """Channels of the tiny package are 0 (CT) and 1 (PET)."""
    edit_json(root / "plans.json", lambda plans: plans["configurations"]["3d_fullres"].update({key: value}))
    sign_package(root)
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        load_package(root)


def test_intensities_that_a_normalisation_needs(root: Path, sign_package: Callable[..., None]) -> None:
    """CTNormalization needs the standard deviation of the CT, channel 0."""
    edit_json(root / "plans.json", lambda plans: plans[INTENSITIES]["0"].update(std=None))
    sign_package(root)
    with pytest.raises(ModelPackageError, match=r"^plans\.json: found no number 'std' for channel 0, expected"):
        load_package(root)


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
    pair_package: Path,
    tmp_path: Path,
    sign_package: Callable[..., None],
    changes: dict[str, Any],
    resampling: str,
    difference: str,
) -> None:
    """Resampling counts only if nnU-Net resamples; the intensities of a z-scored PET do not count."""
    root = Path(shutil.copytree(pair_package, tmp_path / "pair"))
    fold_configurations = json.loads((root / "manifest.json").read_text())["fold_configurations"]

    def change(plans: Any) -> None:
        for configuration in plans["configurations"].values():
            for kind in ("data", "probabilities"):
                configuration[f"resampling_fn_{kind}"] = "resample_data_or_seg_to_shape"
        if intensities := changes.get(INTENSITIES):
            intensities["0"] = plans[INTENSITIES]["0"] | intensities.get("0", {})
        plans["configurations"]["segresnet"].update(changes)

    edit_json(root / "plans.json", change)
    sign_package(root, fold_configurations=fold_configurations, resampling=resampling)
    if not difference:
        load_package(root)
        return
    with pytest.raises(ModelPackageError, match=re.escape(f"plans.json: segresnet has {difference}")) as refused:
        load_package(root)
    assert refused.value.expected == ONE_IMAGE


def test_a_member_without_plans(pair_package: Path, tmp_path: Path, sign_package: Callable[..., None]) -> None:
    root = Path(shutil.copytree(pair_package, tmp_path / "pair"))
    sign_package(root, fold_configurations=["3d_fullres", "vnet"] * 2)
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


def test_nnunets_resampling_needs_known_functions_of_all_members(
    pair_package: Path, tmp_path: Path, sign_package: Callable[..., None]
) -> None:
    root = Path(shutil.copytree(pair_package, tmp_path / "pair"))
    of_folds = load_package(root).manifest.fold_configurations

    def write_functions(first: str, second: str) -> Path:
        functions = {"resampling_fn_data": first, "resampling_fn_probabilities": "resample_torch_fornnunet"}

        def change(plans: dict[str, Any]) -> None:
            plans["configurations"][of_folds[0]].update(functions)
            plans["configurations"][of_folds[1]].update(functions | {"resampling_fn_data": second})

        edit_json(root / "plans.json", change)
        sign_package(root, fold_configurations=of_folds, resampling="nnunet")
        return root

    cubic, torch = "resample_data_or_seg_to_shape", "resample_torch_fornnunet"
    assert load_package(write_functions(cubic, cubic)).manifest.resampling == "nnunet"
    with pytest.raises(ModelPackageError, match=r"segresnet has resampling_fn_data 'resample_torch_fornnunet'"):
        load_package(write_functions(cubic, torch))
    for functions in (("mine", "mine"), (cubic, "mine")):
        with pytest.raises(ModelPackageError, match=r"^plans\.json: (segresnet has )?resampling_fn_data 'mine'"):
            load_package(write_functions(*functions))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "cubic"}, "resampling_fn_data_kwargs {'order': 'cubic'} (TypeError"),
        (["order", 3], "resampling_fn_data_kwargs ['order', 3], expected an object of options"),
    ],
)
def test_options_with_which_nnunet_cannot_resample(
    tiny_package: Path, tmp_path: Path, sign_package: Callable[..., None], options: Any, message: str
) -> None:
    """The package is refused when it is loaded, before a case."""
    root = Path(shutil.copytree(tiny_package, tmp_path / "package"))
    functions = dict.fromkeys(("resampling_fn_data", "resampling_fn_probabilities"), "resample_torch_fornnunet")

    def change(plans: dict[str, Any]) -> None:
        for configuration in plans["configurations"].values():
            configuration.update(functions | {"resampling_fn_data_kwargs": options})

    edit_json(root / "plans.json", change)
    sign_package(root, resampling="nnunet")
    with pytest.raises(ModelPackageError, match=re.escape(message)):
        Networks(load_package(root)).check()
