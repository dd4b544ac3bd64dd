"""Images contain the tested versions, and no package that conflicts with a CPU build of torch."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
SETS = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))
AGREE = "No broken requirements found."
OMITTED = """\
dynamic-network-architectures 0.4.4 requires timm, which is not installed.
nnunetv2 2.8.1 requires blosc2, which is not installed.
batchgenerators 0.25.5 requires unittest2, which is not installed."""

NEWER_CUDNN = (
    'torch 2.10.0 has requirement nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux", '
    "but you have nvidia-cudnn-cu12 9.19.0.56."
)


def parse_requirements(text: str) -> list[Requirement]:
    return [Requirement(line.rstrip("\\ ")) for line in text.splitlines() if re.match(r"[A-Za-z]", line)]


def read_pins(name: str) -> dict[str, str]:
    return {
        pin.name: str(pin.specifier).removeprefix("==") for pin in parse_requirements((REQUIREMENTS / name).read_text())
    }


def format_pin(pin: Requirement) -> tuple[str, str, str]:
    return canonicalize_name(pin.name), str(pin.specifier), str(pin.marker)


def test_images_contain_the_tested_versions():
    """Algorithm image and `.venv` install one file; `.venv-evaluation` installs the evaluation image's file."""
    tested = read_pins("algorithm.txt") | read_pins("dev.txt")
    assert not set(read_pins("algorithm.txt")) & set(read_pins("dev.txt"))
    assert read_pins("evaluation.txt").items() <= tested.items()
    assert read_pins("evaluation-test.txt").items() <= tested.items()
    assert not set(read_pins("evaluation.txt")) & set(read_pins("evaluation-test.txt"))


@pytest.mark.parametrize("name", SETS)
def test_a_lock_holds_checksums_of_each_pin_and_nothing_else(name: str) -> None:
    lock = (REQUIREMENTS / f"{name}.lock").read_text()
    written = parse_requirements((REQUIREMENTS / f"{name}.txt").read_text())
    assert all(re.fullmatch(r"==[^,*]+", str(pin.specifier)) for pin in written)
    assert sorted(map(format_pin, parse_requirements(lock))) == sorted(map(format_pin, written))
    _, *entries = re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE)
    for entry in entries:
        pin, *hashes = entry.rstrip().split(" \\\n    --hash=sha256:")
        assert hashes == sorted(set(hashes)), pin
        assert hashes, pin
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in hashes), pin


def test_locks_are_written_by_the_script() -> None:
    """Only the lock of torch's CPU build for Linux may be written by hand, because PyTorch's own index was not
    reachable.
    """
    assert sorted(path.stem for path in REQUIREMENTS.glob("*.lock")) == SETS
    heads = {name: (REQUIREMENTS / f"{name}.lock").read_text().split("\n", 2)[:2] for name in SETS}
    by_hand = {name for name, (_, command) in heads.items() if command != f"#    scripts/lock {name}"}
    assert by_hand <= {"torch-cpu"}
    for name in by_hand:
        assert heads[name][0].startswith("# Not written by scripts/lock: ")


def test_packages_come_only_from_locks() -> None:
    """Other installs: the project itself, the release's own wheels (`--no-deps --no-index`), the requirements of user
    code.
    """
    files = [path for folder in (".ci", "docker", "scripts") for path in (ROOT / folder).iterdir()]
    lines = [line.strip() for path in files for line in path.read_text().splitlines()]
    installs = [line for line in lines if re.search(r"\bpip3?\b.* install ", line) and not line.startswith("#")]
    assert sorted(installs) == [
        '"$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "$2"',
        '"$python" -m pip install --require-hashes --no-deps --no-build-isolation --no-compile --disable-pip-version-check \\',
        ".venv/bin/python -m pip install --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .",
        'if ! "$pip" -m pip --python "$python" --disable-pip-version-check install --progress-bar off --prefix "$prefix" \\',
    ]
    calls = [line for line in lines if re.search(r"pip-install \S*python ", line)]
    assert calls
    assert all(".lock" in call or "LOCKS" in call for call in calls), calls


def write_wheel(folder: Path, text: str) -> str:
    """Write the wheel tiny 1.0, whose one module holds `text`; return its sha256."""
    files = {
        "tiny.py": text,
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(body.encode()).digest()) for name, body in files.items()}
    record = "".join(f"{name},sha256={digest.decode().rstrip('=')},\n" for name, digest in digests.items())
    files["tiny-1.0.dist-info/RECORD"] = record + "tiny-1.0.dist-info/RECORD,,\n"
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name), body)  # with the date of 1980
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_is_not_in_the_lock_is_refused(tmp_path: Path) -> None:
    """Install a wheel as it was locked; refuse one of the same name with another byte, and one without a checksum."""
    locks = tmp_path / "locks"
    locks.mkdir()
    environment = os.environ | {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_TARGET": str(tmp_path / "to"),
    }

    def install(lock: str) -> subprocess.CompletedProcess[str]:
        (locks / "tiny.lock").write_text(lock)
        command = [ROOT / "docker" / "pip-install", sys.executable, locks / "tiny.lock"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    lock = f"tiny==1.0 \\\n    --hash=sha256:{write_wheel(tmp_path, 'answer = 1')}\n"
    write_wheel(tmp_path, "answer = 2")
    refused = install(lock)
    assert refused.returncode == 1
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert install("tiny==1.0\n").returncode == 1
    assert not (tmp_path / "to").exists()
    write_wheel(tmp_path, "answer = 1")
    assert install(lock).returncode == 0
    assert (tmp_path / "to" / "tiny.py").read_text() == "answer = 1"


# Packages that files must not pin: torch has its own files, inference needs no timm, the evaluation needs no network
# and draws nothing, images get cases as .mha and not as DICOM, and the decoders pylibjpeg are GPL (python-gdcm is not).
DICOM = ("pydicom", "python-gdcm")
ABSENT = {
    "algorithm": ("torch", "torchvision", "timm", *DICOM),
    "evaluation": ("torch", "torchvision", "timm", "nnunetv2", "monai", "safetensors", "matplotlib", *DICOM),
    "dev": ("torch", "torchvision", "timm", "pylibjpeg", "pylibjpeg-libjpeg"),
}


@pytest.mark.parametrize("name", ABSENT)
def test_packages_that_must_not_be_pinned(name: str) -> None:
    assert not set(ABSENT[name]) & set(read_pins(f"{name}.txt"))
    if name == "dev":
        assert set(DICOM) <= set(read_pins("dev.txt"))
    else:
        assert "convert" not in (ROOT / "docker" / f"{name}.Dockerfile").read_text()


def test_the_evaluation_imports_no_drawing() -> None:
    """Evaluating and ranking import no matplotlib; the tests' requirements add it for reports."""
    program = (
        "import sys; sys.modules['matplotlib'] = sys.modules['PIL'] = None\n"
        "import evaluation.__main__, evaluation.pipeline, evaluation.rows\n"
        "import evaluation.ranking.cli, evaluation.ranking.pipeline, evaluation.ranking.table\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def read_licence(name: str) -> str:
    """Return the licence in a package's metadata: the expression, else the classifiers, else the first line of the text."""
    fields = metadata.metadata(name)
    classifiers = [line for line in fields.get_all("Classifier", ()) if line.startswith("License :: ")]
    texts = (fields.get("License-Expression"), "; ".join(classifiers), fields.get("License"))
    return next(text for text in texts if text).splitlines()[0]


@pytest.mark.parametrize("name", ["algorithm", "evaluation", "torch-cpu", "build"])
def test_no_package_of_an_image_is_gpl(name: str) -> None:
    """LGPL is excluded, too; `.venv`, whose metadata is read, has the versions of the images."""
    licences = {package: read_licence(package) for package in read_pins(f"{name}.txt")}
    assert licences
    assert not {package: licence for package, licence in licences.items() if re.search("GPL|GNU", licence)}
    assert "LGPL" in read_licence("connected-components-3d")


INFERENCE = """
import importlib, importlib.abc, importlib.metadata, pkgutil, re, sys

absent = set(sys.argv[1:])
provided = importlib.metadata.packages_distributions()
modules = {
    module for module, names in provided.items()
    if all(re.sub("[-_.]+", "-", name).lower() in absent for name in names)
}

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
assert {"blosc2", "cc3d", "matplotlib"} <= modules
import algorithm, contract
for package in (algorithm, contract):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

import numpy as np
from algorithm.network.nnunet import find_resampling, find_unet
find_unet("ResidualEncoderUNet")
for name in ("resample_data_or_seg_to_shape", "resample_torch_fornnunet"):
    resample = find_resampling({"resampling_fn_data": name}, "data")
    assert resample(np.zeros((1, 4, 4, 4), np.float32), (6, 6, 6), (2.0,) * 3, (1.0,) * 3).shape == (1, 6, 6, 6)
# Modules that are imported late, or that docs/own-model.md names.
import pandas, skimage.measure, sklearn.ensemble
from monai.losses.dice import DiceFocalLoss
from monai.networks.nets import UNet
from monai.networks.nets.segresnet import SegResNet
SegResNet(spatial_dims=3, in_channels=2, out_channels=3, init_filters=8)
"""


def test_inference_imports_nothing_that_the_image_lacks() -> None:
    """Import every module of the algorithm, and the modules that are imported late, with only the packages of the
    image.
    """
    shipped = {
        canonicalize_name(name) for file in ("algorithm", "build", "torch-cpu") for name in read_pins(f"{file}.txt")
    }
    absent = {canonicalize_name(name) for name in read_pins("dev.txt")} - shipped
    subprocess.run([sys.executable, "-W", "ignore", "-c", INFERENCE, *absent], check=True, cwd=ROOT)


def test_every_package_accepts_the_cuda_build_of_torch():
    """MONAI demands 2.8 or newer, nnU-Net excludes 2.9; `pip check` in the CUDA image checks the same."""
    version = read_pins("torch-cuda.txt")["torch"]
    demands = [Requirement(line) for name in read_pins("algorithm.txt") for line in metadata.requires(name) or ()]
    torch = [demand for demand in demands if demand.name == "torch" and demand.marker is None]
    assert len(torch) >= 3
    assert all(demand.specifier.contains(version) for demand in torch), torch


def test_cudnn_computes_convolutions_in_half_precision():
    """From 9.15 on torch uses cuDNN for them. The build asserts the same of the installed version."""
    version = read_pins("torch-cuda.txt")["nvidia-cudnn-cu12"]
    assert tuple(map(int, version.split(".")[:2])) >= (9, 15)
    assert f"you have nvidia-cudnn-cu12 {version}." in NEWER_CUDNN
    assert ">= (9, 15)" in (ROOT / "docker" / "algorithm.Dockerfile").read_text()


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (AGREE, 0),
        (OMITTED, 0),
        (NEWER_CUDNN, 0),
        (NEWER_CUDNN.replace("9.19.0.56", "9.14.0.64"), 1),
        (f"{OMITTED}\nmonai 1.6.1 has requirement torch>=2.8.0, but you have torch 2.7.1.", 1),
        ("nnunetv2 2.8.1 requires pandas, which is not installed.", 1),
        ("", 1),
    ],
    ids=["agree", "left out on purpose", "newer cuDNN", "another cuDNN", "wrong version", "missing", "no pip"],
)
def test_pip_check_fails_on_all_but_what_is_left_out(tmp_path, report, status):
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\ncat <<'END'\n{report}\nEND\n[ '{report}' = '{AGREE}' ]\n" if report else "#!/bin/sh\nexit 1\n"
    )
    python.chmod(0o755)
    done = subprocess.run([ROOT / "docker" / "pip-check", python], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert ("error: pip check: " in done.stderr) == (status == 1 and report != "")
    assert "timm" not in done.stderr
