"""A network of one's own: packaged by its declaration, run like ours, and what its faults cost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm import Predictor
from algorithm.cli import main as predict_main
from algorithm.deadline import Deadline
from algorithm.network import windows
from algorithm.network.images import ReadyImage, normalise
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes, planned_passes
from baseline.package.assemble import PackageRequest, package_training
from baseline.package.cli import main as package_main
from contract.archives import unpack
from contract.code import Code
from contract.errors import HecktorError, ModelPackageError, run_main

CPU = torch.device("cpu")
# A UNet of MONAI with three labels in another order, a fixed window for CT and the entrant's own scale for PET.
MODEL = """
from pathlib import Path
import numpy as np
import torch
from monai.networks.nets import UNet

def make_unet():
    return UNet(3, 2, 3, channels=(4, 8), strides=(2,), norm="instance")

def root_of_suv(suv):
    return np.sqrt(np.clip(suv, 0, 25))

class Network:
    spacing_mm = (3.0, 3.0, 4.0)
    patch = (16, 16, 24)
    channels = (("CT", (-160, 240)), ("PET", root_of_suv))
    labels = ("GTVn", "background", "GTVp")
    mirror_axes = ()
    half_precision = False

    def __init__(self, folder, device):
        self.unet = make_unet()
        self.unet.load_state_dict(torch.load(Path(folder) / "unet.pt", weights_only=True))
        self.unet.to(device).eval()

    def __call__(self, patch):
        return self.unet(patch)
"""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """The code that a test imports is forgotten after it."""
    yield
    for name in [one for one in sys.modules if one.split(".")[0] == "my_model"]:
        del sys.modules[name]


def write_model(root: Path, source: str = MODEL, change: tuple[str, str] = ("", "")) -> tuple[Path, Path]:
    """The code `my_model` and the folder of its weights, with the numbers of a fixed seed."""
    code, weights = root / "my_model", root / "weights"
    code.mkdir(parents=True)
    assert change[0] in source
    (code / "__init__.py").write_text(source.replace(*change))
    weights.mkdir()
    torch.manual_seed(2)
    torch.save(unet().state_dict(), weights / "unet.pt")
    return code, weights


def unet() -> torch.nn.Module:
    from monai.networks.nets import UNet

    return UNet(3, 2, 3, channels=(4, 8), strides=(2,), norm="instance").eval()


def packaged(root: Path, code: Path, *weights: Path, **options: Any) -> Path:
    request = PackageRequest(nnunet=(), heads=None, output=root / "package", code=(code,), weights=weights, **options)
    return package_training(request).path


def loaded(package: Path, code: Path) -> ModelPackage:
    return load_package(package, Code.of([code]))


def run(package: ModelPackage, data: np.ndarray) -> np.ndarray:
    return Passes(ReadyImage(data), planned_passes(package), Networks(package), Deadline(600), CPU).run().logits


def test_the_package_says_what_the_class_declares(tmp_path: Path) -> None:
    """Spacing turns to (z, y, x), each file has its checksum, the code is named with its own."""
    code, weights = write_model(tmp_path)
    (weights / "deeper").mkdir()
    (weights / "deeper" / "notes.txt").write_text("any format")
    package = packaged(tmp_path, code, weights, weights)
    manifest = json.loads((package / "manifest.json").read_text())
    assert manifest["folds"] == ["networks/0", "networks/1"]
    assert {f"networks/{k}/{name}" for k in (0, 1) for name in ("unet.pt", "deeper/notes.txt")} < set(manifest["files"])
    assert manifest["code"] == {"my_model": Code.of([code]).digest("my_model")}
    assert (manifest["configuration"], manifest["resampling"]) == ("my_model:Network", "grid")
    configuration = json.loads((package / "plans.json").read_text())["configurations"]["my_model:Network"]
    assert (configuration["spacing"], configuration["patch_size"]) == ([4.0, 3.0, 3.0], [16, 16, 24])
    assert configuration["normalization_schemes"] == ["Window(-160, 240)", "Own"]
    assert loaded(package, code).spacing_mm == (3.0, 3.0, 4.0)


def test_an_archive_for_upload_is_the_folder(tmp_path: Path) -> None:
    code, weights = write_model(tmp_path)
    folder = packaged(tmp_path, code, weights)
    options = ["--code", str(code), "--weights", str(weights), "--without-heads"]
    assert package_main([*options, "--output", str(tmp_path / "model.tar.gz")]) == 0
    unpack(tmp_path / "model.tar.gz", tmp_path / "unpacked")
    for path in (one for one in folder.rglob("*") if one.is_file()):
        assert (tmp_path / "unpacked" / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_channels_are_normalised_as_declared(tmp_path: Path) -> None:
    """HU -160, 40, 240 and 1000 become 0, 0.5, 1 and 1 by the window; SUV 4, 9, 25 and 36 become 2, 3, 5 and 5."""
    code, weights = write_model(tmp_path)
    package = loaded(packaged(tmp_path, code, weights), code)
    ct, pet = (np.array(values, np.float32).reshape(1, 1, 4) for values in ([-160, 40, 240, 1000], [4, 9, 25, 36]))
    np.testing.assert_allclose(normalise((ct, pet), package)[:, 0, 0], [[0, 0.5, 1, 1], [2, 3, 5, 5]], rtol=1e-6)


def test_a_window_keeps_all_digits(tmp_path: Path) -> None:
    code, weights = write_model(tmp_path, change=('"CT", (-160, 240)', '"CT", (-1000.125, 1234567)'))
    package = loaded(packaged(tmp_path, code, weights), code)
    assert package.configuration["normalization_schemes"] == ["Window(-1000.125, 1234567)", "Own"]


def test_a_network_that_changes_its_patch_changes_no_image(tmp_path: Path) -> None:
    """Tiles overlap, and other members see the same image: the answers are those of the same network on a copy."""
    inplace = "patch.sub_(patch.mean()).clamp_(min=0)\n        return self.unet(patch)"
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", inplace))
    copied = MODEL.replace("return self.unet(patch)", "patch = patch.clone()\n        " + inplace)
    (code / "copied.py").write_text(copied)
    with (code / "__init__.py").open("a") as file:
        file.write("\nfrom my_model.copied import Network as Copied\n")
    data = np.random.default_rng(3).normal(0, 1, (2, 16, 16, 36)).astype(np.float32)
    before = data.copy()
    changing = loaded(packaged(tmp_path / "changing", code, weights), code)
    peer = loaded(packaged(tmp_path / "copied", code, weights, network="my_model:Copied"), code)
    np.testing.assert_array_equal(run(changing, data), run(peer, before))
    np.testing.assert_array_equal(data, before)


def test_one_image_may_be_several_channels(tmp_path: Path) -> None:
    """Two windows of the CT and no PET."""
    change = 'channels = (("CT", (-160, 240)), ("PET", root_of_suv))', 'channels = (("CT", (0, 100)), ("CT", (0, 10)))'
    code, weights = write_model(tmp_path, change=change)
    package = loaded(packaged(tmp_path, code, weights), code)
    ct, pet = np.full((1, 1, 1), 5, np.float32), np.full((1, 1, 1), 9, np.float32)
    np.testing.assert_allclose(normalise((ct, pet), package).ravel(), [0.05, 0.5], rtol=1e-6)


@pytest.mark.parametrize("returns", ["logits", "probabilities"])
def test_logits_are_those_of_monais_sliding_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returns: str
) -> None:
    """MONAI's `sliding_window_inference` of the same network over the same 16 x 16 x 36 voxels, half a patch apart.

    Patches of 16 x 16 x 24 start at x 0 and 12 in both. MONAI is given nnU-Net's Gaussian, which differs a little from
    its own; what remains is float32's rounding. The class's labels are GTVn, background, GTVp. A mean of logarithms of
    probabilities differs from one of logits by a constant per voxel, so those are compared as probabilities; below 1e-7
    they are cut.
    """
    from monai.inferers.utils import sliding_window_inference

    monkeypatch.setattr(windows, "cpu_has_bfloat16", lambda: False)
    if returns == "probabilities":
        change = "return self.unet(patch)", "return self.unet(patch).softmax(1)"
        source = MODEL.replace("half_precision = False", "half_precision = False\n    returns = 'probabilities'")
        code, weights = write_model(tmp_path, source, change)
    else:
        code, weights = write_model(tmp_path)
    package = loaded(packaged(tmp_path, code, weights), code)
    data = np.random.default_rng(1).normal(0, 1, (2, 16, 16, 36)).astype(np.float32)
    gaussian = windows.compute_gaussian(
        (16, 16, 24), sigma_scale=1 / 8, value_scaling_factor=10, dtype=torch.float32, device=CPU
    )
    network = unet()
    network.load_state_dict(torch.load(weights / "unet.pt", weights_only=True))
    with torch.inference_mode():
        peer = sliding_window_inference(
            torch.from_numpy(data)[None], (16, 16, 24), 1, network, 0.5, roi_weight_map=gaussian
        )[0]
    expected = peer[[1, 2, 0]]  # ours: background, GTVp, GTVn
    found = torch.from_numpy(run(package, data))
    if returns == "logits":
        np.testing.assert_allclose(found, expected, atol=2e-5)
        assert torch.equal(found.argmax(0), expected.argmax(0))
    else:
        single = 12  # voxels along x that one tile alone covers
        np.testing.assert_allclose(found.softmax(0)[..., :single], expected.softmax(0)[..., :single], atol=1e-5)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("raise ValueError('no such layer')", r"ValueError: no such layer \(__init__.py, line 27\)"),
        ("return self.unet(patch)[:, :2]", r"returns float32 of shape \(1, 2, 16, 16, 24\), expected logits of shape"),
        ("return self.unet(patch).argmax(1)", r"returns int64 of shape \(1, 16, 16, 24\)"),
        ("return None", r"returns NoneType, expected logits"),
        ("return self.unet(patch) * float('nan')", r"answers NaN or infinity to an empty patch"),
    ],
)
def test_a_fault_is_seen_when_it_is_packaged(tmp_path: Path, line: str, fault: str) -> None:
    """Every package is tried with an empty patch before it is written."""
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", line))
    with pytest.raises(ModelPackageError, match=fault):
        packaged(tmp_path, code, weights)
    assert not (tmp_path / "package").exists()


# Faults that only a case shows: an empty patch has no value above 0.
ON_A_CASE = "if bool((patch != 0).any()): {}\n        return self.unet(patch)"
FAULTS = {
    "raises": ("raise KeyError('layer')", "KeyError: 'layer'"),
    "NaN": ("return self.unet(patch) * float('nan')", "the network answers NaN or infinity"),
    "type": ("return 3", "returns int, expected logits of shape (1, 3, 16, 16, 24)"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "shape": ("return self.unet(patch)[..., :3]", "expected logits of shape (1, 3, 16, 16, 24)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_a_case_costs_the_network_not_the_answer(
    tmp_path: Path, case_folder: Any, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """The PET threshold answers, by Python and by the command; log and run record say why."""
    line, message = FAULTS[fault]
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(line)))
    package = packaged(tmp_path, code, weights)
    case_folder.write()
    prediction = Predictor(package, device="cpu", code=[code]).predict(case_folder.input)
    assert prediction.record.segmented_by == "PET threshold"
    assert f"no pass of the network ({'network my_model:Network: ' if fault != 'NaN' else ''}" in caplog.text
    assert message in caplog.text
    given = ["--model", str(package), "--code", str(code), "--device", "cpu"]
    paths = ["--task", "segmentation", "--input", str(case_folder.input), "--output", str(case_folder.output)]
    assert predict_main([*given, *paths, "--record", str(tmp_path / "record.json")]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["fallbacks"] == ["segmentation"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_a_case_leaves_the_other_members(tmp_path: Path, fault: str) -> None:
    """Beside a sound network, before or after it: the answer is the sound one's."""
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(FAULTS[fault][0])))
    (code / "sound.py").write_text(MODEL)
    with (code / "__init__.py").open("a") as file:
        file.write("\nfrom my_model.sound import Network as Sound\n")
    sound = loaded(packaged(tmp_path / "sound", code, weights, network="my_model:Sound"), code)
    broken = loaded(packaged(tmp_path / "broken", code, weights), code)
    data = np.random.default_rng(4).normal(0, 1, (2, 16, 16, 24)).astype(np.float32)
    expected = run(sound, data)
    plans = {**broken.plans["configurations"], **sound.plans["configurations"]}
    for first, second in ((broken, sound), (sound, broken)):
        names = [first.manifest.configuration, second.manifest.configuration]
        manifest = first.manifest.model_copy(update={"fold_configurations": names, "folds": ["a", "b"]})
        files = (*first.fold_files, *second.fold_files)
        both = replace(first, manifest=manifest, fold_files=files, plans={**first.plans, "configurations": plans})
        np.testing.assert_array_equal(run(both, data), expected)


NORMALISATIONS = {
    "raises": ("return 1 / np.zeros(3, int)[3]", "IndexError: index 3 is out of bounds"),
    "NaN": ("return suv * np.nan", "float32 of shape"),
    "shape": ("return suv[1:]", "float32 of shape"),
    "type": ("return 'SUV'", "<U3 of shape ()"),
}


@pytest.mark.parametrize("fault", NORMALISATIONS)
def test_a_normalisation_that_fails_on_a_case_costs_the_network_not_the_answer(
    tmp_path: Path, case_folder: Any, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    line, message = NORMALISATIONS[fault]
    change = "def root_of_suv(suv):\n", f"def root_of_suv(suv):\n    if suv.any(): {line}\n"
    code, weights = write_model(tmp_path, change=change)
    package = packaged(tmp_path, code, weights)
    case_folder.write()
    record = Predictor(package, device="cpu", code=[code]).predict(case_folder.input).record
    assert record.segmented_by == "PET threshold"
    assert f"no pass of the network (normalisation 1 of my_model:Network: {message}" in caplog.text


def test_a_network_that_cannot_be_made_on_a_case_costs_the_network_not_the_answer(
    tmp_path: Path, case_folder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that needs what only the machine has on which it was packaged."""
    absent = "if Path(__file__).with_name('gone').exists(): raise OSError('gone')"
    change = "self.unet = make_unet()", f"{absent}\n        self.unet = make_unet()"
    code, weights = write_model(tmp_path, change=change)
    package = packaged(tmp_path, code, weights)
    (code / "gone").touch()
    case_folder.write()
    prediction = Predictor(package, device="cpu", code=[code]).predict(case_folder.input)
    assert prediction.record.segmented_by == "PET threshold"
    assert "network my_model:Network: it cannot be made: OSError: gone" in caplog.text
    given = ["--model", str(package), "--code", str(code), "--device", "cpu"]
    paths = ["--task", "segmentation", "--input", str(case_folder.input), "--output", str(case_folder.output)]
    assert predict_main([*given, *paths, "--record", str(tmp_path / "record.json")]) == 0
    assert json.loads((tmp_path / "record.json").read_text())["fallbacks"] == ["segmentation"]


def test_a_network_that_hangs_ends_at_the_time_limit(tmp_path: Path, case_folder: Any) -> None:
    """The first patch of a case never ends: the answer by PET threshold stands."""
    line = "__import__('time').sleep(600)"
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(line)))
    package = packaged(tmp_path, code, weights)
    case_folder.write()
    command = [
        sys.executable, "-m", "algorithm", "--task", "segmentation", "--input", str(case_folder.input), "--output",
        str(case_folder.output), "--model", str(package), "--code", str(code), "--device", "cpu", "--time-limit", "25",
        "--record", str(tmp_path / "record.json"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "record.json").read_text())["segmented_by"] == "PET threshold"


def test_beside_nnunets_the_logits_are_averaged(tmp_path: Path, pair_package: Path) -> None:
    """One pass each over one image: the mean of both members' own logits."""
    code, weights = write_model(tmp_path, change=('("PET", root_of_suv)', '("PET", (0, 25))'))
    own = loaded(packaged(tmp_path, code, weights), code)
    theirs = load_package(pair_package)
    configurations = {**theirs.plans["configurations"], **own.plans["configurations"]}
    names = ["3d_fullres", "my_model:Network"]
    manifest = theirs.manifest.model_copy(
        update={"fold_configurations": names, "folds": ["a", "b"], "average": "logits", "mirror_axes": []}
    )
    files = (theirs.fold_files[0], own.fold_files[0])
    plans = {**theirs.plans, "configurations": configurations}
    both = replace(theirs, manifest=manifest, fold_files=files, plans=plans, code=own.code)
    data = np.random.default_rng(5).normal(0, 1, (2, 16, 16, 24)).astype(np.float32)
    alone = [run(replace(both, manifest=manifest.model_copy(update={"fold_configurations": [name], "folds": ["a"]}),
                         fold_files=(file,)), data) for name, file in zip(names, files, strict=True)]  # fmt: skip
    np.testing.assert_allclose(run(both, data), (alone[0] + alone[1]) / 2, rtol=1e-6)


def test_packed_beside_an_nnunet_training_all_folds_answer(
    trained: dict[str, Path], tmp_path: Path, case_folder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two folds of nnU-Net and one of the network, in turn, are three passes, since the network allows no mirrors.

    A normalisation of its own needs the resampled region, which nnU-Net's whole scan is not.
    """
    code, weights = write_model(tmp_path)
    command = ["--nnunet", str(trained["plain"]), "--code", str(code), "--weights", str(weights), "--without-heads"]
    command += ["--output", str(tmp_path / "package")]
    assert run_main(package_main, command) == 1
    assert "found a normalisation of its own beside --nnunet" in capsys.readouterr().err
    del sys.modules["my_model"]
    (code / "__init__.py").write_text(MODEL.replace('("PET", root_of_suv)', '("PET", (0, 25))'))
    assert run_main(package_main, command) == 0
    manifest = json.loads((tmp_path / "package" / "manifest.json").read_text())
    assert manifest["fold_configurations"] == ["3d_fullres", "my_model:Network", "3d_fullres"]
    assert (manifest["mirror_axes"], manifest["folds"][1]) == ([], "networks/1")
    case_folder.write()
    paths = ["--task", "segmentation", "--input", str(case_folder.input), "--output", str(case_folder.output)]
    given = ["--model", str(tmp_path / "package"), "--code", str(code), "--device", "cpu"]
    assert predict_main([*given, *paths, "--record", str(tmp_path / "record.json")]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert (record["passes_done"], record["passes_planned"], record["fallbacks"]) == (3, 3, [])


def test_code_that_is_not_there_or_not_used_is_refused(tmp_path: Path, case_folder: Any, tiny_package: Path) -> None:
    """In one line, before the case is read; by the command, by Python and by a server's start."""
    code, weights = write_model(tmp_path)
    package = packaged(tmp_path, code, weights)
    case_folder.write()
    message = r"^manifest.json: found code my_model, expected --code my_model, or an image built with it$"
    with pytest.raises(ModelPackageError, match=message):
        Predictor(package, device="cpu")
    paths = ["--task", "1", "--input", str(case_folder.input), "--output", str(case_folder.output), "--device", "cpu"]
    for options in ([], ["--serve", "--port", "0"]):
        with pytest.raises(ModelPackageError, match=message):
            predict_main([*paths, "--model", str(package), *options])
    assert not list(case_folder.output.rglob("*.mha"))
    unused = r"^--code: found my_model, expected code that .* names \(none\)$"
    with pytest.raises(HecktorError, match=unused):
        Predictor(tiny_package, device="cpu", code=[code])
    with pytest.raises(HecktorError, match=unused):
        predict_main([*paths, "--model", str(tiny_package), "--code", str(code)])


def test_another_version_of_the_code_answers_with_a_notice(tmp_path: Path, case_folder: Any) -> None:
    code, weights = write_model(tmp_path)
    package = packaged(tmp_path, code, weights)
    with (code / "__init__.py").open("a") as file:
        file.write("# changed\n")
    case_folder.write()
    record = Predictor(package, device="cpu", code=[code]).predict(case_folder.input).record
    assert any("code my_model" in str(notice) and "another version" in str(notice) for notice in record.notices)
    assert record.segmented_by == "network"


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
        (("(self, folder, device)", "(self)"), r"network my_model:Network: it cannot be made: TypeError"),
        (("unet.pt", "absent.pt"), r"network my_model:Network: it cannot be made: FileNotFoundError"),
    ],
)
def test_a_declaration_that_cannot_be(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    code, weights = write_model(tmp_path, change=change)
    with pytest.raises(ModelPackageError, match=message):
        packaged(tmp_path, code, weights)


def test_options_of_the_package_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, weights = write_model(tmp_path)
    output = ["--output", str(tmp_path / "p"), "--without-heads"]
    for options, message in [
        (["--network", "my_model:Network", "--nnunet", "r"], "--network: found without --weights, expected both"),
        (["--weights", str(weights)], "--code: found 0 of them with --weights, expected one folder of code"),
        (["--code", str(code), "--weights", str(tmp_path / "no")], "--weights no: found no files"),
    ]:
        assert run_main(package_main, [*options, *output]) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        package_main(output)
    assert "found no network, expected --nnunet" in capsys.readouterr().err
