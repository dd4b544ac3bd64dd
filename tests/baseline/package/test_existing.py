"""Tests of exported packages, and of a package whose networks another training uses, replaces or refuses."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from algorithm.heads.documents import Head
from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import load_weights
from algorithm.network.package import CARD, load_package
from baseline.network.checkpoint import Checkpoint, read_checkpoint
from baseline.package.existing import (
    CONDITION,
    describe_networks,
    load_existing_networks,
    read_trained_plans,
    use_networks,
)
from baseline.package.export import EnsembleMember, PackageContents, _write_weights, export_contents, export_folder
from baseline.work import WorkFolders
from contract.archives import pack
from contract.errors import HecktorError, ModelPackageError, OutputError
from contract.io.files import write_json, write_text
from contract.packages import MANIFEST, make_file_entry
from tests.algorithm.heads.head_parts import make_linear_head, term

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


# Export

HEAD = make_linear_head(term("age_years", -0.2, fill=60.0, mean=61.0, sd=9.0), intercept=0.5, threshold=0.25)
DESCRIPTION = {"name": "tiny", "purpose": "for tests", "edition": "hecktor2025", "mirror_axes": [2]}


@pytest.fixture(scope="module")
def plans(tiny_package: Path) -> dict[str, Any]:
    loaded = dict(load_package(tiny_package).plans)
    loaded["configurations"] = {"2d": {}, **loaded["configurations"]}
    return {**loaded, "original_median_spacing_after_transp": [1, 1, 1], "machine": "secret"}


@pytest.fixture
def checkpoint(plans: dict[str, Any], tmp_path: Path) -> Path:
    torch.manual_seed(0)
    network = build_untrained_network(plans["configurations"]["3d_fullres"], 2, 3)
    content = {"network_weights": network.state_dict(), "optimizer_state": {"momentum": torch.zeros(1000)}}
    torch.save(content, tmp_path / "a.pth")
    return tmp_path / "a.pth"


def export(
    target: Path,
    plans: dict[str, Any],
    *checkpoints: Path,
    heads: dict[str, Head] | None = None,
    card: str | None = None,
) -> Path:
    """Export a package of checkpoints."""
    member = EnsembleMember(read_trained_plans(plans, "3d_fullres"), "3d_fullres", map(read_checkpoint, checkpoints))
    return export_contents(target, PackageContents([member], heads or {}, DESCRIPTION, card))


def test_only_plain_data_and_only_what_inference_reads(plans: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    package = load_package(export(tmp_path / "package", plans, checkpoint, heads={"rfs": HEAD}))
    assert package.head("rfs") == HEAD
    files = sorted(path.relative_to(package.root).as_posix() for path in package.root.rglob("*") if path.is_file())
    assert files == ["fold_0.safetensors", "heads/rfs.json", "manifest.json", "plans.json"]
    assert set(package.manifest.files) == set(files) - {"manifest.json"}
    assert list(package.plans["configurations"]) == ["3d_fullres"]
    assert "secret" not in (package.root / "plans.json").read_text()
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in package.root.rglob("*"))


def test_the_model_card_is_listed(plans: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    """Model cards are checked like every other file."""
    root = export(tmp_path / "package", plans, checkpoint, card="# tiny\n")
    assert (load_package(root).root / CARD).read_text() == "# tiny\n"
    (root / CARD).write_text("# tin\n")
    with pytest.raises(ModelPackageError, match=r"^MODEL_CARD\.md: 6 bytes"):
        load_package(root)


def test_a_new_export_replaces_the_whole_package(plans: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    """If the export fails, the earlier package stays."""
    target = export(tmp_path / "package", plans, checkpoint, checkpoint)
    before = (target / "manifest.json").read_bytes()
    with pytest.raises(ModelPackageError, match=r"absent\.pth: not found"):
        export(target, plans, checkpoint, tmp_path / "absent.pth")
    assert (target / "manifest.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pth", "package"]
    assert len(load_package(export(target, plans, checkpoint)).fold_files) == 1
    assert not (target / "fold_1.safetensors").exists()


def test_a_folder_of_something_else_is_not_replaced(plans: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    work = export(tmp_path / "work", plans, checkpoint)
    (work / "manifest.json").rename(work / "thesis.tex")
    with pytest.raises(OutputError, match=r"^work: exists and is not a model package"):
        export(work, plans, checkpoint)
    assert (work / "thesis.tex").is_file()
    with pytest.raises(OutputError, match=r"^package: cannot be written .*"):
        export(work / "thesis.tex" / "package", plans, checkpoint)


def test_a_package_that_cannot_be_loaded_is_not_kept(plans: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    """Loading the package again reveals that intensities for CT normalisation are missing."""
    lacking = plans | {"foreground_intensity_properties_per_channel": {"0": {"mean": 0.0}, "1": {}}}
    with pytest.raises(ModelPackageError, match=r"^plans\.json: found no number 'std' for channel 0, expected"):
        export(tmp_path / "package", lacking, checkpoint)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pth"]


class SegResNet(nn.Module):
    """Network with a backbone's name and the integers of a transformer and of batch normalisation."""

    def __init__(self, counter: int = 0) -> None:
        super().__init__()
        self.conv_final = nn.Conv3d(2, 3, 1)
        self.register_buffer("position_index", torch.arange(117_649))
        self.register_buffer("num_batches_tracked", torch.tensor(counter))


def test_integers_are_packaged_exactly(tmp_path: Path) -> None:
    """float16 holds every integer up to 2,048, then every second integer, and no integer above 65,504."""
    trained = SegResNet(counter=70_000)
    path = tmp_path / "fold_0.safetensors"
    _write_weights(Checkpoint("fold_0/checkpoint_final.pth", trained.state_dict(), "", "", (), {}, {}), path, trained)
    weights = load_file(path)
    assert weights["conv_final.weight"].dtype == torch.float16
    assert torch.equal(weights["position_index"], torch.arange(117_649))
    loaded = SegResNet()
    load_weights(loaded, path)
    assert torch.equal(loaded.position_index, torch.arange(117_649))
    assert int(loaded.num_batches_tracked) == 70_000
    torch.testing.assert_close(loaded.conv_final.weight, trained.conv_final.weight, rtol=1e-3, atol=1e-6)
