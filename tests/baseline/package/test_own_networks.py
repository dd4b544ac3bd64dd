"""Tests of custom networks: they are packaged by their declaration, run like ours, and may fail in packaging or on a case."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm import Predictor
from algorithm.cli import main as predict_main
from algorithm.network import tiles
from algorithm.network.networks import HookFailedError
from algorithm.network.package import ONE_IMAGE
from algorithm.network.preprocessing import normalise
from baseline.package.cli import main as package_main
from contract.code import Code
from contract.editions import load_edition
from contract.errors import ModelPackageError, run_main
from contract.io.files import read_json, write_json
from contract.packages import read_manifest
from tests.baseline.package.nnunet_results import CHANNEL, SPACING
from tests.baseline.package.own_model import (
    CPU,
    MODEL,
    build_unet,
    compute_logits,
    load_with_code,
    package_model,
    write_model,
)
from tests.conftest import head_json

SCHEMES = ("CTNormalization", "ZScoreNormalization")


def test_the_package_says_what_the_class_declares(tmp_path: Path) -> None:
    """Spacing turns to (z, y, x), and each file and the code have checksums."""
    code, weights = write_model(tmp_path)
    (weights / "deeper").mkdir()
    (weights / "deeper" / "notes.txt").write_text("any format")
    package = package_model(tmp_path, code, weights, weights)
    manifest = json.loads((package / "manifest.json").read_text())
    assert manifest["folds"] == ["networks/0", "networks/1"]
    assert {f"networks/{k}/{name}" for k in (0, 1) for name in ("unet.pt", "deeper/notes.txt")} < set(manifest["files"])
    assert manifest["code"] == {"my_model": Code.from_folders([code]).digest("my_model")}
    assert (manifest["configuration"], manifest["resampling"]) == ("my_model:Network", "grid")
    configuration = json.loads((package / "plans.json").read_text())["configurations"]["my_model:Network"]
    assert (configuration["spacing"], configuration["patch_size"]) == ([4.0, 3.0, 3.0], [16, 16, 24])
    assert configuration["normalization_schemes"] == [[-160, 240], "Own"]
    assert load_with_code(package, code).spacing_mm == (3.0, 3.0, 4.0)


def test_heads_of_a_working_directory_have_its_edition(tmp_path: Path) -> None:
    """Custom editions are known by their document in prepare.json, also from the folder of another plan; --edition
    precedes it.
    """
    code, weights = write_model(tmp_path)
    four = (Path(__file__).parents[2] / "editions" / "four_answers.json").read_text()
    (tmp_path / "mine.json").write_text(four.replace('"time", "fallback"', '"risk", "fallback"'))
    edition = load_edition(str(tmp_path / "mine.json"))
    options = {"release": "r", "edition": "no longer there.json"}
    write_json(tmp_path / "work" / "prepare.json", {"options": options, "own_edition": edition.content})
    heads = tmp_path / "work" / "reference_masks" / "heads.json"
    command = ["--code", str(code), "--weights", str(weights), "--heads", str(heads)]
    for name, head, further in (("four-answers", "survival", []), ("hecktor2025", "rfs", ["--edition", "hecktor2025"])):
        write_json(heads, {head: head_json(threshold=0.0)})
        assert package_main([*command, *further, "--output", str(tmp_path / name)]) == 0
        manifest = read_manifest(tmp_path / name)
        assert (manifest.edition, manifest.own_edition) == (name, None if further else edition.content)
    (tmp_path / "changed.json").write_text((tmp_path / "mine.json").read_text().replace("with four", "with other"))
    with pytest.raises(ModelPackageError, match=r"^--edition: found 'four-answers' with another declaration"):
        package_main([*command, "--edition", str(tmp_path / "changed.json"), "--output", str(tmp_path / "refused")])
    assert not (tmp_path / "refused").exists()


def test_channels_are_normalised_as_declared(tmp_path: Path) -> None:
    """HU -160, 40, 240 and 1000 become 0, 0.5, 1 and 1 by the window; SUV 4, 9, 25 and 36 become 2, 3, 5 and 5."""
    code, weights = write_model(tmp_path)
    package = load_with_code(package_model(tmp_path, code, weights), code)
    ct, pet = (np.array(values, np.float32).reshape(1, 1, 4) for values in ([-160, 40, 240, 1000], [4, 9, 25, 36]))
    np.testing.assert_allclose(normalise((ct, pet), package)[:, 0, 0], [[0, 0.5, 1, 1], [2, 3, 5, 5]], rtol=1e-6)


def test_a_network_that_changes_its_patch_changes_no_image(tmp_path: Path) -> None:
    """Tiles overlap, and other members see the same image: the logits equal the logits of the same network on a copy."""
    inplace = "patch.sub_(patch.mean()).clamp_(min=0)\n        return self.unet(patch)"
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", inplace))
    copied = MODEL.replace("return self.unet(patch)", "patch = patch.clone()\n        " + inplace)
    (code / "copied.py").write_text(copied)
    with (code / "__init__.py").open("a") as file:
        file.write("\nfrom my_model.copied import Network as Copied\n")
    data = np.random.default_rng(3).normal(0, 1, (2, 16, 16, 36)).astype(np.float32)
    before = data.copy()
    changing = load_with_code(package_model(tmp_path / "changing", code, weights), code)
    peer = load_with_code(package_model(tmp_path / "copied", code, weights, network="my_model:Copied"), code)
    np.testing.assert_array_equal(compute_logits(changing, data), compute_logits(peer, before))
    np.testing.assert_array_equal(data, before)


def test_one_image_may_be_several_channels(tmp_path: Path) -> None:
    """Networks may see two functions of the CT and no PET. User functions have no description, but both are kept."""
    source = MODEL.replace("class ", "def half(x):\n    return x / 2\n\n\nclass ", 1)
    change = 'channels = (("CT", (-160, 240)), ("PET", root_of_suv))', 'channels = (("CT", half), ("CT", root_of_suv))'
    code, weights = write_model(tmp_path, source, change)
    package = load_with_code(package_model(tmp_path, code, weights), code)
    ct, pet = np.full((1, 1, 1), 4, np.float32), np.full((1, 1, 1), 9, np.float32)
    np.testing.assert_allclose(normalise((ct, pet), package).ravel(), [2, 2], rtol=1e-6)
    assert package.channel_order_of(0) == (0, 1)


@pytest.mark.parametrize("returns", ["logits", "probabilities"])
def test_logits_equal_monais_sliding_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returns: str) -> None:
    """MONAI's `sliding_window_inference` runs the same network over the same 16 x 16 x 36 voxels, half a patch apart.

    Patches of 16 x 16 x 24 start at x 0 and 12 in both. MONAI uses nnU-Net's Gaussian, which differs a little from
    MONAI's; only float32's rounding remains. The class's labels are GTVn, background, GTVp. A mean of logarithms of
    probabilities differs from a mean of logits by a constant per voxel, so these are compared as probabilities; below
    1e-7 they are cut.
    """
    from monai.inferers.utils import sliding_window_inference

    monkeypatch.setattr(tiles, "cpu_has_bfloat16", lambda: False)
    if returns == "probabilities":
        change = "return self.unet(patch)", "return self.unet(patch).softmax(1)"
        source = MODEL.replace("half_precision = False", "half_precision = False\n    returns = 'probabilities'")
        code, weights = write_model(tmp_path, source, change)
    else:
        code, weights = write_model(tmp_path)
    package = load_with_code(package_model(tmp_path, code, weights), code)
    data = np.random.default_rng(1).normal(0, 1, (2, 16, 16, 36)).astype(np.float32)
    gaussian = tiles.compute_gaussian(
        (16, 16, 24), sigma_scale=1 / 8, value_scaling_factor=10, dtype=torch.float32, device=CPU
    )
    network = build_unet()
    network.load_state_dict(torch.load(weights / "unet.pt", weights_only=True))
    with torch.inference_mode():
        peer = sliding_window_inference(
            torch.from_numpy(data)[None], (16, 16, 24), 1, network, 0.5, roi_weight_map=gaussian
        )[0]
    expected = peer[[1, 2, 0]]  # ours: background, GTVp, GTVn
    logits = torch.from_numpy(compute_logits(package, data))
    if returns == "logits":
        np.testing.assert_allclose(logits, expected, atol=2e-5)
        assert torch.equal(logits.argmax(0), expected.argmax(0))
    else:
        single = 12  # voxels along x that only one tile covers
        np.testing.assert_allclose(logits.softmax(0)[..., :single], expected.softmax(0)[..., :single], atol=1e-5)


def test_packed_with_an_nnunet_training_all_folds_answer(
    training_results: dict[str, Path], tmp_path: Path, case_folder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two folds of nnU-Net and a custom network, in turn, are three passes, since the network allows no mirrors.

    All of them see the same image: the network declares the spacing and the normalisation of the training, or is
    refused.
    """
    code, weights = write_model(tmp_path)
    command = ["--nnunet", str(training_results["plain"]), "--code", str(code), "--weights", str(weights)]
    command += ["--without-heads", "--output", str(tmp_path / "package")]
    assert run_main(package_main, command) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"expected {ONE_IMAGE}")
    del sys.modules["my_model"]
    alike = MODEL.replace('("CT", (-160, 240)), ("PET", root_of_suv)', f"*zip(('CT', 'PET'), {SCHEMES}),")
    intensities = f"intensities = {{'0': {CHANNEL}}}\n    mirror_axes"
    alike = alike.replace("(3.0, 3.0, 4.0)", str(tuple(SPACING[::-1]))).replace("mirror_axes", intensities)
    (code / "__init__.py").write_text(alike)
    assert run_main(package_main, command) == 0
    manifest = json.loads((tmp_path / "package" / "manifest.json").read_text())
    assert manifest["fold_configurations"] == ["3d_fullres", "my_model:Network", "3d_fullres"]
    assert (manifest["mirror_axes"], manifest["folds"][1]) == ([], "networks/1")
    case_folder.write()
    paths = ["--task", "segmentation", "--input", str(case_folder.input), "--output", str(case_folder.output)]
    options = ["--model", str(tmp_path / "package"), "--code", str(code), "--device", "cpu"]
    assert predict_main([*options, *paths, "--record", str(tmp_path / "record.json")]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert (record["passes_done"], record["passes_planned"], record["fallbacks"]) == (3, 3, [])


def test_missing_code_is_refused_and_unused_code_is_named(
    tmp_path: Path, case_folder: Any, tiny_package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing code is refused in one line before the case is read, by the command, by Python and when a server starts."""
    code, weights = write_model(tmp_path)
    package = package_model(tmp_path, code, weights)
    case_folder.write()
    message = r"^manifest.json: found code my_model, expected --code my_model, or an image built with it$"
    with pytest.raises(ModelPackageError, match=message):
        Predictor(package, device="cpu")
    paths = ["--task", "1", "--input", str(case_folder.input), "--output", str(case_folder.output), "--device", "cpu"]
    for options in ([], ["--serve", "--port", "0"]):
        with pytest.raises(ModelPackageError, match=message):
            predict_main([*paths, "--model", str(package), *options])
    assert not list(case_folder.output.rglob("*.mha"))
    unused = r"--code: my_model, expected code that .* names \(none\); it is not used"
    Predictor(tiny_package, device="cpu", code=[code])
    assert predict_main([*paths, "--model", str(tiny_package), "--code", str(code), "--passes", "1"]) == 0
    assert re.search(unused, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("(16, 16, 24)", "(16, 16)"), r"^network my_model:Network\.patch"),
        (("(3.0, 3.0, 4.0)", "(0.0, 3.0, 4.0)"), r"^network my_model:Network\.spacing_mm\[0\]"),
        (('"CT", (-160, 240)', '"MR", (-160, 240)'), r"^network my_model:Network\.channels\[0\]\.image"),
        (('"CT", (-160, 240)', '"CT", (240, -160)'), r"a normalisation of channel 0: a window \(low, high\)"),
        (('"CT", (-160, 240)', '"CT", "Unknown"'), r"a normalisation of channel 0"),
        (('"CT", (-160, 240)', '"CT", "CTNormalization"'), r"intensities of channel 0, which CTNormalization needs"),
        (('"background", ', ""), r"labels background, GTVp, GTVn, each once"),
        (("mirror_axes = ()", "mirror_axes = (3,)"), r"^network my_model:Network\.mirror_axes"),
        (("(self, folder, device)", "(self)"), r"network my_model:Network: cannot be constructed: TypeError"),
        (("unet.pt", "absent.pt"), r"network my_model:Network: cannot be constructed: FileNotFoundError"),
    ],
)
def test_impossible_declarations(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    code, weights = write_model(tmp_path, change=change)
    with pytest.raises(ModelPackageError, match=message):
        package_model(tmp_path, code, weights)


def test_options_of_the_package_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, weights = write_model(tmp_path)
    (empty := tmp_path / "empty").mkdir()
    output = ["--output", str(tmp_path / "p"), "--without-heads"]
    for options, message in [
        (["--network", "my_model:Network", "--nnunet", str(tmp_path)], "--network: found without --weights, expected"),
        (["--weights", str(weights)], "--code: found 0 of them with --weights, expected one folder of code"),
        (["--code", str(code), "--weights", str(empty)], "--weights empty: found no files"),
    ]:
        assert run_main(package_main, [*options, *output]) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        package_main(output)
    assert "found no network, expected --nnunet" in capsys.readouterr().err


# Faults


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("raise ValueError('no such layer')", r"ValueError: no such layer \(__init__.py, line 27\)"),
        (
            "return self.unet(patch)[:, :2]",
            r"returns float32 of shape \(1, 2, 16, 16, 24\), expected a torch.Tensor of",
        ),
        ("return self.unet(patch).argmax(1)", r"returns int64 of shape \(1, 16, 16, 24\)"),
        ("return self.unet(patch).numpy()", r"returns ndarray, expected a torch.Tensor of logits of shape"),
        ("return self.unet(patch) * float('nan')", r"returns NaN or infinity for an empty patch"),
    ],
)
def test_a_fault_is_seen_when_it_is_packaged(tmp_path: Path, line: str, fault: str) -> None:
    """Packaging tries every network with an empty patch before it writes the package."""
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", line))
    with pytest.raises(ModelPackageError, match=fault):
        package_model(tmp_path, code, weights)
    assert not (tmp_path / "package").exists()


# Faults that only a case shows: an empty patch has no value above 0.
ON_A_CASE = "if bool((patch != 0).any()): {}\n        return self.unet(patch)"
FAULTS = {
    "raises": ("raise KeyError('layer')", "KeyError: 'layer'"),
    "NaN": ("return self.unet(patch) * float('nan')", "the network returns NaN or infinity"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_a_case_leaves_the_other_members(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """Sound networks before or after the failing network give the answer, and the log says why it was left out."""
    line, message = FAULTS[fault]
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(line)))
    (code / "sound.py").write_text(MODEL)
    with (code / "__init__.py").open("a") as file:
        file.write("\nfrom my_model.sound import Network as Sound\n")
    sound = load_with_code(package_model(tmp_path / "sound", code, weights, network="my_model:Sound"), code)
    broken = load_with_code(package_model(tmp_path / "broken", code, weights), code)
    data = np.random.default_rng(4).normal(0, 1, (2, 16, 16, 24)).astype(np.float32)
    expected = compute_logits(sound, data)
    plans = {**broken.plans["configurations"], **sound.plans["configurations"]}
    for first, second in ((broken, sound), (sound, broken)):
        names = [first.manifest.configuration, second.manifest.configuration]
        manifest = first.manifest.model_copy(update={"fold_configurations": names, "folds": ["a", "b"]})
        files = (*first.fold_files, *second.fold_files)
        both = replace(first, manifest=manifest, fold_files=files, plans={**first.plans, "configurations": plans})
        caplog.clear()
        np.testing.assert_array_equal(compute_logits(both, data), expected)
        assert message in caplog.text


def answer_by_threshold(tmp_path: Path, case: Any, code: Path, package: Path) -> None:
    """Check that Python and the command answer a case by the PET threshold."""
    case.write()
    assert Predictor(package, device="cpu", code=[code]).predict(case.input).record.segmented_by == "PET threshold"
    options = ["--task", "segmentation", "--model", str(package), "--code", str(code), "--device", "cpu"]
    paths = ["--input", str(case.input), "--output", str(case.output), "--record", str(tmp_path / "record.json")]
    assert predict_main([*options, *paths]) == 0
    assert read_json(tmp_path / "record.json")["fallbacks"] == ["segmentation"]


def test_after_a_fault_on_a_case_the_pet_threshold_answers(
    tmp_path: Path, case_folder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    line, message = FAULTS["exit"]
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(line)))
    answer_by_threshold(tmp_path, case_folder, code, package_model(tmp_path, code, weights))
    assert f"no pass of the network (network my_model:Network: {message}" in caplog.text


NORMALISATIONS = {
    "raises": ("return 1 / np.zeros(3, int)[3]", "IndexError: index 3 is out of bounds"),
    "NaN": ("return suv * np.nan", "float32 of shape"),
    "shape": ("return suv[1:]", "float32 of shape"),
    "type": ("return 'SUV'", "<U3 of shape ()"),
}


@pytest.mark.parametrize("fault", NORMALISATIONS)
def test_a_normalisation_that_fails_is_named(tmp_path: Path, fault: str) -> None:
    line, message = NORMALISATIONS[fault]
    change = "def root_of_suv(suv):\n", f"def root_of_suv(suv):\n    if suv.any(): {line}\n"
    code, weights = write_model(tmp_path, change=change)
    package = load_with_code(package_model(tmp_path, code, weights), code)
    with pytest.raises(HookFailedError, match=f"^{re.escape(f'normalisation 1 of my_model:Network: {message}')}"):
        normalise((np.ones((1, 1, 4), np.float32),) * 2, package)


def test_without_a_network_the_pet_threshold_answers(
    tmp_path: Path, case_folder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Networks may need something that only the machine has on which they were packaged."""
    absent = "if Path(__file__).with_name('gone').exists(): raise OSError('gone')"
    code, weights = write_model(
        tmp_path, change=("self.unet = make_unet()", f"{absent}\n        self.unet = make_unet()")
    )
    package = package_model(tmp_path, code, weights)
    (code / "gone").touch()
    answer_by_threshold(tmp_path, case_folder, code, package)
    assert "network my_model:Network: cannot be constructed: OSError: gone" in caplog.text


@pytest.mark.slow
def test_a_network_that_hangs_ends_at_the_time_limit(tmp_path: Path, case_folder: Any) -> None:
    """If the first patch of a case never ends, the answer comes from the PET threshold."""
    line = "__import__('time').sleep(600)"
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(line)))
    package = package_model(tmp_path, code, weights)
    case_folder.write()
    command = [
        sys.executable, "-m", "algorithm", "--task", "segmentation", "--input", str(case_folder.input), "--output",
        str(case_folder.output), "--model", str(package), "--code", str(code), "--device", "cpu", "--time-limit", "16",
        "--record", str(tmp_path / "record.json"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert read_json(tmp_path / "record.json")["segmented_by"] == "PET threshold"
