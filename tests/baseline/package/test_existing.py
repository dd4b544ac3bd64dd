"""Tests that a package's networks are copied once to the working directory, replaced by another package's, and refused
where they do not fit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from algorithm.network.package import load_package
from baseline.package.existing import CONDITION, describe_networks, load_existing_networks, use_networks
from baseline.package.export import PackageContents, export_folder
from baseline.work import WorkFolders
from contract.archives import pack
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import write_json, write_text
from contract.packages import MANIFEST, make_file_entry

SPACING = (9.0, 9.0, 9.0)


@pytest.fixture
def work(tmp_path: Path) -> WorkFolders:
    return WorkFolders(tmp_path / "work")


def read_files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_and_an_archive_give_the_same_copy(
    work: WorkFolders, tiny_package: Path, tmp_path: Path, packed: bool
) -> None:
    """Files that the manifest does not list are not part of the package."""
    package = Path(shutil.copytree(tiny_package, tmp_path / "package"))
    if packed:
        pack(package, tmp_path / "model.tar.gz")
    else:
        write_text(package / "notes.txt", "not listed")
    assert load_existing_networks(work) is None
    use_networks(work, tmp_path / "model.tar.gz" if packed else package, SPACING)
    assert read_files(work.networks) == read_files(tiny_package)
    copy = load_existing_networks(work)
    assert copy is not None
    assert copy.root == work.networks
    assert [path.name for path in work.root.iterdir()] == ["networks"]


def test_the_same_package_is_not_copied_again_and_another_one_replaces_it(
    work: WorkFolders, tiny_package: Path, pair_package: Path
) -> None:
    use_networks(work, tiny_package, SPACING)
    before = (work.networks / MANIFEST).stat().st_mtime_ns
    use_networks(work, tiny_package, SPACING)
    assert (work.networks / MANIFEST).stat().st_mtime_ns == before
    use_networks(work, pair_package, SPACING)
    assert read_files(work.networks) == read_files(pair_package)


def test_a_spacing_of_the_prepared_images(work: WorkFolders, tiny_package: Path) -> None:
    """Spacing is in (x, y, z): a package with 9 mm refuses images of 9 x 9 x 3 mm and leaves nothing behind."""
    with pytest.raises(HecktorError, match=r"^prepare\.json: not found in work"):
        use_networks(work, tiny_package)
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [9.0, 9.0, 3.0]}})
    with pytest.raises(HecktorError, match=r"^tiny: found networks of 9 x 9 x 9 mm"):
        use_networks(work, tiny_package)
    with pytest.raises(HecktorError, match=r"^--spacing-mm: found 9 9 3"):
        use_networks(work, tiny_package, (9.0, 9.0, 3.0))
    assert [path.name for path in work.root.iterdir()] == ["prepare.json"]
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [9.0, 9.0, 9.0000001]}})
    use_networks(work, tiny_package)
    assert work.networks.is_dir()


def test_refused_networks(work: WorkFolders, tiny_package: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "nnres" / "fold_0").mkdir(parents=True)
    write_text(tmp_path / "broken.tar.gz", "not an archive")
    write_text(tmp_path / "x.pth", "weights")
    package = r"expected a model package"
    for name, message in (
        ("absent", rf"^absent: not found, {package}, as a folder or \.tar\.gz"),
        ("empty", rf"^empty: no manifest\.json, {package}$"),
        ("broken.tar.gz", r"^broken\.tar\.gz: cannot be unpacked \(truncated header\), expected an intact"),
        ("x.pth", rf"^x\.pth: found a checkpoint, {package}; `hecktor package` makes one"),
        ("nnres", rf"^nnres: found nnU-Net's results, {package}; `hecktor package --nnunet` makes one"),
    ):
        with pytest.raises(ModelPackageError, match=message):
            use_networks(work, tmp_path / name, SPACING)
    assert load_existing_networks(work) is None
    write_json(work.plan_json, {})
    with pytest.raises(HecktorError, match=r"^--networks: networks planned or trained in work"):
        use_networks(work, tiny_package, SPACING)


def test_an_altered_copy_is_refused(work: WorkFolders, tiny_package: Path) -> None:
    use_networks(work, tiny_package, SPACING)
    write_text(work.networks / "plans.json", "{}")
    with pytest.raises(ModelPackageError, match=r"^plans\.json: 2 bytes"):
        load_existing_networks(work)


def test_the_origin_of_networks_that_are_passed_on_twice(
    tiny_package: Path, tmp_path: Path, sign_package: Callable[..., None]
) -> None:
    """Descriptions of the networks' training come from the first package, name and checksum from the last."""
    first = Path(shutil.copytree(tiny_package, tmp_path / "first"))
    described = {"training": {"patients": 160}, "training_data": "phantoms", "licence": "Apache-2.0"}
    sign_package(first, **described)
    record = describe_networks(load_package(first))
    sha256 = make_file_entry(first / MANIFEST)["sha256"]
    assert record == {"name": "tiny", "sha256": sha256, **described, "condition": CONDITION}
    about = {"name": "second", "purpose": "test", "edition": "hecktor2025", "training": {}, "networks_from": record}
    second = export_folder(tmp_path / "second", PackageContents(load_package(first), {}, about))
    sha256 = make_file_entry(second / MANIFEST)["sha256"]
    assert describe_networks(load_package(second)) == record | {"name": "second", "sha256": sha256}


def test_copied_networks_keep_their_settings(
    pair_package: Path, tmp_path: Path, sign_package: Callable[..., None]
) -> None:
    """Average, mirror axes, scale and the order of several configurations decide the networks' output."""
    source = Path(shutil.copytree(pair_package, tmp_path / "source"))
    of_folds = load_package(pair_package).manifest.fold_configurations
    settings = {"average": "probabilities", "mirror_axes": [1], "normalised_over": "scan", "resampling": "grid"}
    sign_package(source, fold_configurations=of_folds, **settings)
    about = {"name": "copy", "purpose": "test", "edition": "hecktor2025"}
    copy = load_package(export_folder(tmp_path / "copy", PackageContents(load_package(source), {}, about)))
    assert {key: getattr(copy.manifest, key) for key in settings} == settings
    assert copy.manifest.configurations == tuple(of_folds)
    assert [path.read_bytes() for path in copy.fold_files] == [
        (source / f"fold_{number}.safetensors").read_bytes() for number in range(4)
    ]
    assert copy.heads == {}
