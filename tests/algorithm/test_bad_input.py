"""Unusable input: exit status 1, one plain last line that names file, finding and expectation, and no output."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import SimpleITK as sitk

from algorithm.cli import main
from contract.errors import HecktorError
from contract.images.volumes import Volume, write_volume

FORBIDDEN = ("Traceback", 'File "', "WARNING: In", "ITK", "itk::")


def check_refusal(answer: Any, message: str) -> None:
    assert answer.status == 1
    last = answer.lines[-1]
    assert re.search(rf"^error: {message}", last), last
    assert not any(word in line for word in FORBIDDEN for line in answer.lines), answer.lines
    assert len(last) < 400
    assert answer.files == []


def image(path: Path, size: list[int], kind: int = sitk.sitkInt16) -> None:
    sitk.WriteImage(sitk.Image(size, kind), str(path))


def truncate(path: Path, share: float = 0.6) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def as_nifti(path: Path, volume: Volume) -> Path:
    path.unlink()
    nifti = path.parent / "scan.nii.gz"
    write_volume(nifti, volume)
    return nifti


def uncompressed(case: Any) -> None:
    write_volume(case.ct_path, case.ct, compress=False)
    truncate(case.ct_path)


BAD: dict[str, tuple[Callable[[Any], object], str]] = {
    "no-ct-folder": (
        lambda c: shutil.rmtree(c.ct_path.parent),
        r"images/ct: no such folder, expected exactly one image",
    ),
    "no-pet-folder": (lambda c: shutil.rmtree(c.pet_path.parent), r"images/pet: no such folder, expected"),
    "no-input-at-all": (lambda c: shutil.rmtree(c.input), r"--input: no such file or folder: /.*/input \(.* exists\)"),
    "empty-ct-folder": (lambda c: c.ct_path.unlink(), r"images/ct: found nothing, expected exactly one image"),
    "file-of-another-kind": (
        lambda c: c.ct_path.rename(c.ct_path.with_suffix(".dcm")),
        r"images/ct: found 0a1b2c3d-ct\.dcm, expected exactly one image",
    ),
    "two-cts": (
        lambda c: shutil.copy(c.ct_path, c.ct_path.parent / "second.mha"),
        r"images/ct: found 2 images \(0a1b2c3d-ct\.mha, second\.mha\), expected exactly one",
    ),
    "template-image": (
        lambda c: image(c.ct_path, [1, 1], sitk.sitkUInt8),
        r"0a1b2c3d-ct\.mha: 2 dimensions \(1 x 1\), expected a 3D image",
    ),
    "2d": (lambda c: image(c.ct_path, [64, 64]), r"0a1b2c3d-ct\.mha: 2 dimensions \(64 x 64\), expected a 3D image"),
    "4d": (lambda c: image(c.pet_path, [8, 8, 8, 2]), r"4e5f6a7b-pet\.mha: 4 dimensions .*, expected a 3D image"),
    "1x1x1": (lambda c: image(c.ct_path, [1, 1, 1]), r"0a1b2c3d-ct\.mha: size \(1, 1, 1\), expected at least"),
    "truncated-compressed": (lambda c: truncate(c.ct_path), r"0a1b2c3d-ct\.mha: truncated, \d+ bytes .*, expected \d+"),
    "truncated-raw": (uncompressed, r"0a1b2c3d-ct\.mha: truncated, \d+ bytes .*, expected \d+"),
    "truncated-header": (lambda c: truncate(c.ct_path, 0.005), r"0a1b2c3d-ct\.mha: "),
    "truncated-nifti": (lambda c: truncate(as_nifti(c.pet_path, c.pet)), r"scan\.nii\.gz: truncated, the gzip stream"),
    "garbage": (lambda c: c.ct_path.write_bytes(b"\x00\xff" * 5000), r"0a1b2c3d-ct\.mha: not a readable image"),
    "empty-file": (lambda c: c.pet_path.write_bytes(b""), r"4e5f6a7b-pet\.mha: empty file, expected an image"),
    "no-ehr": (lambda c: c.ehr_path.unlink(), r"ehr\.json: not found in .*, expected a JSON file"),
    "ehr-no-json": (lambda c: c.ehr_path.write_text("Age: 61"), r"ehr\.json: not valid JSON .*expected"),
    "ehr-empty": (lambda c: c.ehr_path.write_text(""), r"ehr\.json: not valid JSON .*expected"),
    "ehr-a-list": (lambda c: c.ehr_path.write_text("[]"), r"ehr\.json: found a JSON list, expected an object"),
    "ehr-binary": (lambda c: c.ehr_path.write_bytes(b"\xff\xfe{"), r"ehr\.json: not UTF-8 text, expected"),
}


@pytest.mark.parametrize("name", BAD)
def test_unusable_input(case_folder: Any, predict: Any, name: str) -> None:
    spoil, message = BAD[name]
    spoil(case_folder.write())
    check_refusal(predict("rfs", "--method", "clinical"), message)


@pytest.mark.parametrize("task", ["segmentation", "rfs", "hpv"])
@pytest.mark.parametrize("name", ["truncated-compressed", "ehr-a-list"])
def test_unusable_input_in_every_task(case_folder: Any, predict: Any, name: str, task: str) -> None:
    spoil, message = BAD[name]
    spoil(case_folder.write())
    check_refusal(predict(task), message)


@pytest.fixture
def package(tiny_package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_package, tmp_path / "package"))


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda p: flip_a_byte(p / "fold_0.safetensors"),
            r"fold_0\.safetensors: sha256 .*, expected .*the file was modified",
        ),
        (lambda p: (p / "fold_1.safetensors").unlink(), r"fold_1\.safetensors: not in the model package"),
        (lambda p: (p / "manifest.json").unlink(), r".*: no manifest\.json, expected a model package"),
        (shutil.rmtree, r"--model: no such file or folder: .*"),
    ],
    ids=["checksum", "missing-file", "no-manifest", "no-folder"],
)
@pytest.mark.parametrize("task", ["segmentation", "rfs"])
def test_unusable_packages(
    case_folder: Any, predict: Any, package: Path, task: str, spoil: Callable[[Path], object], message: str
) -> None:
    case_folder.write()
    spoil(package)
    check_refusal(predict(task, model=package), message)


@pytest.mark.parametrize("task", ["segmentation", "rfs", "hpv"])
def test_an_output_folder_that_is_a_file(case_folder: Any, predict: Any, tmp_path: Path, task: str) -> None:
    case_folder.write()
    blocked = tmp_path / "blocked"
    blocked.write_text("I am a file")
    answer = predict(task, output=blocked)
    check_refusal(answer, r"(output\.mha|rfs\.json|hpv-status\.json): cannot be written \(.*\), expected a writable")
    assert blocked.read_text() == "I am a file"


def test_a_method_of_another_task(case_folder: Any, predict: Any) -> None:
    case_folder.write()
    answer = predict("rfs", "--method", "threshold")
    check_refusal(answer, "method 'threshold': cannot answer task rfs, expected segmentation")


def test_cuda_without_a_card(case_folder: Any, predict: Any) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("a CUDA device answers here")
    case_folder.write()
    check_refusal(predict("rfs", "--device", "cuda"), "device cuda: no CUDA device answers, expected one")


def test_cuda_without_a_card_is_refused_before_the_package_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "images").mkdir()
    (tmp_path / "manifest.json").write_text("damaged")
    folder = str(tmp_path)
    with pytest.raises(HecktorError, match=r"^device cuda: no CUDA device answers"):
        main(["--task", "rfs", "--input", folder, "--output", f"{folder}/out", "--model", folder, "--device", "cuda",
              "--edition", "hecktor2025"])  # fmt: skip
