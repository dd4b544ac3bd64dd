"""Tests of an edition of MR: a stock nnU-Net and a custom network, from the package to the answer of a case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from nnunetv2.inference import predict_from_raw_data

from algorithm.cli import main as predict
from contract.errors import ModelPackageError
from contract.images.volumes import Volume, find_single_image, read_volume, write_volume
from contract.io.files import read_json
from contract.packages import read_manifest
from tests.baseline.package.nnunet_results import CPU, DATASET, edit_checkpoint, package, train_once, use_float32
from tests.baseline.package.own_model import MODEL, package_model, write_model
from tests.visits import EDITION, make_visits

MID_RT = ("--edition", EDITION, "--task", "mid-rt")
NAMES = "mr_during, mr_registered, mask_registered GTVp, mask_registered GTVn"
# A training that sees the structure GTVp and both MRs, in another order than the edition.
CHANNELS = {"0": "noNorm", "1": "T2 before", "2": "mr_during"}
ORDER = "mr_during=2,mr_registered=1,mask_registered GTVp=0"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the images of a phantom with two visits."""
    return make_visits(tmp_path_factory.mktemp("visits")) / "MDA-001" / "input"


@pytest.fixture(scope="module")
def mr_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = train_once(tmp_path_factory.mktemp("nnunet"), {**DATASET, "channel_names": CHANNELS}, (6.0, 4.5, 4.5))
    edit_checkpoint(balance)(results)
    return results


def balance(checkpoint: Any) -> None:
    """Balance the labels: make the sum of each output layer's weights 0, and so its biases."""
    for name, tensor in checkpoint["network_weights"].items():
        if "seg_layers" in name:
            offset = tensor.mean(dim=1, keepdim=True) if tensor.ndim > 1 else tensor
            tensor.sub_(offset).copy_(tensor.half().float())


def predict_mask(case: Path, model: Path, folder: Path, *options: str) -> Volume:
    """Run a package and return its mask, which a network gave on the grid of the later MR."""
    output, record = folder / "out", folder / "record.json"
    call = ["--input", str(case), "--output", str(output), "--model", str(model), "--device", "cpu", *MID_RT, *options]
    assert predict([*call, "--record", str(record)]) == 0
    assert read_json(record)["segmented_by"] == "network"
    answer = read_volume(find_single_image(output / "images" / "mri-head-neck-segmentation"))
    assert answer.geometry == read_volume(find_single_image(case / "images" / "mid-rt-t2w-head-neck")).geometry
    return answer


def predict_nnunet_mask(case: Path, results: Path, scratch: Path) -> np.ndarray:
    """Return the mask of nnU-Net's predictor for the case's files, with the images in the order of the training."""
    images = case / "images"
    mask = read_volume(find_single_image(images / "registered-pre-rt-head-neck-segmentation"))
    gtvp = scratch / "gtvp.mha"
    write_volume(gtvp, Volume((mask.array == 1).astype(np.float32), mask.geometry))
    mrs = [find_single_image(images / name) for name in ("registered-pre-rt-head-neck", "mid-rt-t2w-head-neck")]
    predictor = predict_from_raw_data.nnUNetPredictor(perform_everything_on_device=False, device=CPU, allow_tqdm=False)
    predictor.initialize_from_trained_model_folder(str(results), (0,))
    data, properties = SimpleITKIO().read_images([str(path) for path in (gtvp, *mrs)])
    return np.asarray(predictor.predict_single_npy_array(data, properties))


@pytest.mark.slow
def test_the_package_of_a_stock_nnunet_answers_as_it_does(
    mr_results: Path, case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three of the four channels are used in another order. Both sides use float32, so only near ties may differ: 1
    voxel in 10,000.
    """
    use_float32(monkeypatch)
    assert package(mr_results, tmp_path / "model", *MID_RT, "--channels", ORDER) == 0
    assert "note: ZScoreNormalization: normalised over the whole scan" in capsys.readouterr().out
    manifest = read_manifest(tmp_path / "model")
    assert (manifest.edition, ", ".join(manifest.channels)) == (EDITION, NAMES)
    assert manifest.training["channels"] == {"mr_during": 2, "mr_registered": 1, "mask_registered GTVp": 0}
    mask = predict_mask(case, tmp_path / "model", tmp_path).array
    expected = predict_nnunet_mask(case, mr_results, tmp_path)
    assert min(np.bincount(expected.ravel(), minlength=3)) > 1000
    assert np.mean(mask != expected) < 1e-4


def test_a_task_is_needed_where_tasks_have_other_channels(
    mr_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, message in (
        (("--edition", EDITION), "--task: found none, expected one of pre-rt, mid-rt"),
        (("--task", "2"), "--task: found '2', expected none"),
    ):
        assert package(mr_results, tmp_path / "model", *options) == 1
        assert message in capsys.readouterr().err


def test_a_custom_network_sees_the_images_of_the_edition(case: Path, tmp_path: Path) -> None:
    """Custom networks get the registered mask as second channel and mark its GTVp; another image is refused."""
    mr = 'channels = (("mr_during", "ZScoreNormalization"), ("mask_registered GTVp", "NoNormalization"))'
    source = MODEL.replace('channels = (("CT", (-160, 240)), ("PET", root_of_suv))', mr)
    source = source.replace(
        "return self.unet(patch)",
        "gtvp = 20 * patch[:, 1:] - 10\n        return torch.cat([-30 + 0 * gtvp, 0 * gtvp, gtvp], 1)",
    )
    code, weights = write_model(tmp_path, source)
    options: dict[str, Any] = {"edition": EDITION, "task": "mid-rt"}
    model = package_model(tmp_path, code, weights, **options)
    answer = predict_mask(case, model, tmp_path, "--code", str(code)).array
    earlier = read_volume(find_single_image(case / "images" / "registered-pre-rt-head-neck-segmentation")).array
    both, sizes = ((answer == 1) & (earlier == 1)).sum(), (answer == 1).sum() + (earlier == 1).sum()
    assert 2 * both / sizes > 0.9
    assert not (answer == 2).any()
    expected = r"channels\[0\]\.image: found 'mr_during', expected one of mr_before$"
    with pytest.raises(ModelPackageError, match=expected):
        package_model(tmp_path, code, weights, edition=EDITION, task="pre-rt")
