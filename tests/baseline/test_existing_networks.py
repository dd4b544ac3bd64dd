"""A release and a model package become a package with the same networks and heads of the release's patients."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from algorithm.network.package import load_package
from baseline.cli import main
from contract.archives import pack, unpack
from contract.errors import HecktorError
from contract.io.files import read_json
from contract.packages import make_file_entry
from tests.baseline.conftest import TinyRelease

PATIENTS = 8


def write_release(release: TinyRelease) -> Path:
    """Write eight clones of a phantom at two centres; the old patients relapse early and are HPV negative."""
    for number in range(PATIENTS):
        name = release.add(f"{('CHUM', 'HMR')[number // 4]}-{number:03d}")
        old = number % 2
        release.set(name, Age=f"{50 + 20 * old + number}", Relapse=str(old), RFS=str(2000 - 1500 * old + number))
        release.set(name, HPV_Status=str(1 - old))
    return release.write_tables()


def options(release: Path, root: Path, networks: Path, spacing_mm: str = "9") -> list[str]:
    places = ["--release", str(release), "--work", str(root / "work"), "--output", str(root / "package")]
    return [
        "all",
        *places,
        "--networks",
        str(networks),
        "--folds",
        "2",
        "--jobs",
        "1",
        "--spacing-mm",
        *[spacing_mm] * 3,
    ]


@pytest.mark.slow
def test_heads_of_new_patients_on_the_networks_of_a_package(
    tiny_release: TinyRelease, tiny_package: Path, tmp_path: Path
) -> None:
    """No plan is made and no network is trained. The new package differs from the existing package only in its heads."""
    release = write_release(tiny_release)
    assert main(options(release, tmp_path, tiny_package)) == 0
    existing, package = load_package(tiny_package), load_package(tmp_path / "package")
    manifest = package.manifest
    assert manifest.edition == "hecktor2025"
    assert sorted(package.heads) == ["hpv", "hpv_clinical", "rfs", "rfs_clinical"]
    assert package.heads["rfs"] != existing.heads["rfs"]
    for name in ("plans.json", "fold_0.safetensors", "fold_1.safetensors"):
        assert (package.root / name).read_bytes() == (existing.root / name).read_bytes()
    for key in ("configuration", "folds", "mirror_axes"):
        assert getattr(manifest, key) == getattr(existing.manifest, key)
    assert manifest.training == {
        "patients": PATIENTS, "centres": ["CHUM", "HMR"], "folds": 2, "seed": 0,
        "heads_fitted_on": "out-of-fold masks",
    }  # fmt: skip
    sha256 = make_file_entry(tiny_package / "manifest.json")["sha256"]
    condition = "none of these patients was among the networks' training patients"
    assert manifest.networks_from == {"name": "tiny", "sha256": sha256, "condition": condition}
    card = (package.root / "MODEL_CARD.md").read_text()
    assert f"the package tiny (sha256 of its manifest {sha256})" in card
    assert condition in card
    check_work(tmp_path / "work")
    check_continuing(release, tmp_path, tiny_package)


def check_work(work: Path) -> None:
    """Check masks, features and expected DSC of every patient. The folder of nnU-Net holds only the prepared images."""
    assert sorted(path.name for path in (work / "nnunet").iterdir()) == ["raw"]
    names = sorted(read_json(work / "features.json")["result"])
    assert len(names) == PATIENTS
    for name in names:
        assert (work / "out_of_fold" / "masks" / f"{name}.nii.gz").is_file()


def check_continuing(release: Path, root: Path, package: Path) -> None:
    """Check that the same networks as an archive change nothing, that the package can be an archive too, and that the
    steps continue without `--networks`. A spacing other than the networks' and a plan of new networks are refused.
    """
    work = root / "work"
    steps = [work / "features.json", work / "cross_validation.json", work / "report" / "index.html"]
    before = {path: path.stat().st_mtime_ns for path in steps}
    pack(package, root / "model.tar.gz")
    shutil.rmtree(root / "package")
    assert main(options(release, root, root / "model.tar.gz")) == 0
    assert main(["heads", "--work", str(work)]) == 0
    assert main(["heads", "--work", str(work), "--networks", str(package)]) == 0
    assert {path: path.stat().st_mtime_ns for path in steps} == before
    assert main(["export", "--work", str(work), "--output", str(root / "packed.tar.gz")]) == 0
    unpack(root / "packed.tar.gz", root / "unpacked")
    assert load_package(root / "unpacked").manifest == load_package(root / "package").manifest
    with pytest.raises(HecktorError, match=r"^--spacing-mm: found 3 3 3"):
        main(options(release, root, package, "3"))
    with pytest.raises(HecktorError, match=r"^networks: found the networks of a package"):
        main(["plan", "--work", str(work)])
