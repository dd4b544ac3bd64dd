"""Tests that a loaded package holds the exported network up to float16, and nothing that could execute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from algorithm.heads.documents import Head
from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import build_network, load_weights
from algorithm.network.package import CARD, load_package
from baseline.network.checkpoint import read_checkpoint
from baseline.package.existing import read_trained_plans
from baseline.package.export import EnsembleMember, PackageContents, export_contents
from contract.errors import ModelPackageError, OutputError
from tests.algorithm.heads.head_parts import make_linear_head, term

HEAD = make_linear_head(term("age_years", -0.2, fill=60.0, mean=61.0, sd=9.0), intercept=0.5, threshold=0.25)
DESCRIPTION = {"name": "tiny", "purpose": "for tests", "edition": "hecktor2025", "mirror_axes": [2]}


def export_package(
    target: Path,
    plans: dict[str, Any],
    checkpoints: dict[str, list[Path]],
    heads: dict[str, Head],
    description: dict[str, Any],
    card: str | None = None,
) -> Path:
    """Export a package of checkpoints by configuration, whose probabilities are averaged."""
    members = [
        EnsembleMember(read_trained_plans(plans, name), name, map(read_checkpoint, paths))
        for name, paths in checkpoints.items()
    ]
    described = {**description, "average": "probabilities"}
    return export_contents(target, PackageContents(members, heads, described, card))


@pytest.fixture(scope="module")
def plans(tiny_package: Path) -> dict[str, Any]:
    loaded = dict(load_package(tiny_package).plans)
    loaded["configurations"] = {"2d": {}, **loaded["configurations"]}
    return {**loaded, "original_median_spacing_after_transp": [1, 1, 1], "machine": "secret"}


def write_checkpoint(plans: dict[str, Any], path: Path, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    network = build_untrained_network(plans["configurations"]["3d_fullres"], 2, 3)
    content = {"network_weights": network.state_dict(), "optimizer_state": {"momentum": torch.zeros(1000)}}
    torch.save(content, path)
    return network.eval()


def test_round_trip(plans: dict[str, Any], tmp_path: Path) -> None:
    paths = [tmp_path / f"checkpoint_{fold}.pth" for fold in range(2)]
    networks = [write_checkpoint(plans, path, seed) for seed, path in enumerate(paths)]
    package = load_package(
        export_package(tmp_path / "package", plans, {"3d_fullres": paths}, {"hpv": HEAD}, DESCRIPTION)
    )
    assert package.head("hpv") == HEAD
    assert package.manifest.mirror_axes == [2]
    assert package.manifest.average == "probabilities"
    data = torch.randn(1, 2, 16, 16, 16)
    for number, trained in enumerate(networks):
        network = build_network(package).eval()
        load_weights(network, package.fold_files[number])
        with torch.inference_mode():
            expected, actual = trained(data), network(data)
        assert torch.allclose(actual, expected, atol=0.01, rtol=0.01)
        for name, tensor in network.named_parameters():
            assert torch.equal(tensor, dict(trained.named_parameters())[name].half().float())


def test_only_plain_data_and_only_what_inference_reads(plans: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(plans, tmp_path / "a.pth", 0)
    package = load_package(
        export_package(tmp_path / "package", plans, {"3d_fullres": [tmp_path / "a.pth"]}, {"rfs": HEAD}, DESCRIPTION)
    )
    files = sorted(path.relative_to(package.root).as_posix() for path in package.root.rglob("*") if path.is_file())
    assert files == ["fold_0.safetensors", "heads/rfs.json", "manifest.json", "plans.json"]
    assert set(package.manifest.files) == set(files) - {"manifest.json"}
    assert list(package.plans["configurations"]) == ["3d_fullres"]
    assert "secret" not in (package.root / "plans.json").read_text()
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in package.root.rglob("*"))


def test_the_model_card_is_listed_and_optional(plans: dict[str, Any], tmp_path: Path) -> None:
    """Model cards are checked like every other file, and the package without a card loads as well."""
    write_checkpoint(plans, tmp_path / "a.pth", 0)
    root = export_package(
        tmp_path / "package", plans, {"3d_fullres": [tmp_path / "a.pth"]}, {}, DESCRIPTION, "# tiny\n"
    )
    package = load_package(root)
    assert (package.root / CARD).read_text() == "# tiny\n"
    assert CARD in package.manifest.files
    assert package.heads == {}
    (root / CARD).write_text("# tin\n")
    with pytest.raises(ModelPackageError, match=r"^MODEL_CARD\.md: 6 bytes"):
        load_package(root)


def test_a_failed_export_leaves_the_earlier_package(plans: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(plans, tmp_path / "a.pth", 0)
    target = export_package(tmp_path / "package", plans, {"3d_fullres": [tmp_path / "a.pth"]}, {}, DESCRIPTION)
    before = (target / "manifest.json").read_bytes()
    with pytest.raises(ModelPackageError, match=r"absent\.pth: not found"):
        export_package(target, plans, {"3d_fullres": [tmp_path / "a.pth", tmp_path / "absent.pth"]}, {}, DESCRIPTION)
    assert (target / "manifest.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pth", "package"]


def test_a_new_export_replaces_the_whole_package(plans: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(plans, tmp_path / "a.pth", 0)
    export_package(tmp_path / "package", plans, {"3d_fullres": [tmp_path / "a.pth"] * 2}, {"rfs": HEAD}, DESCRIPTION)
    package = load_package(
        export_package(tmp_path / "package", plans, {"3d_fullres": [tmp_path / "a.pth"]}, {}, DESCRIPTION)
    )
    assert len(package.fold_files) == 1
    assert not (package.root / "fold_1.safetensors").exists()


def test_a_folder_of_something_else_is_not_replaced(plans: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(plans, tmp_path / "a.pth", 0)
    work = tmp_path / "work"
    work.mkdir()
    export_package(work, plans, {"3d_fullres": [tmp_path / "a.pth"]}, {}, DESCRIPTION)
    (work / "manifest.json").rename(work / "thesis.tex")
    with pytest.raises(OutputError, match=r"^work: exists and is not a model package"):
        export_package(work, plans, {"3d_fullres": [tmp_path / "a.pth"]}, {}, DESCRIPTION)
    assert (work / "thesis.tex").is_file()


def test_a_package_that_cannot_be_loaded_is_not_kept(plans: dict[str, Any], tmp_path: Path) -> None:
    """Loading the package again reveals that intensities for CT normalisation are missing."""
    write_checkpoint(plans, tmp_path / "a.pth", 0)
    lacking = plans | {"foreground_intensity_properties_per_channel": {"0": {"mean": 0.0}, "1": {}}}
    with pytest.raises(ModelPackageError, match=r"^plans\.json: found no number 'std' for channel 0, expected"):
        export_package(tmp_path / "package", lacking, {"3d_fullres": [tmp_path / "a.pth"]}, {}, DESCRIPTION)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pth"]


def test_a_folder_that_cannot_be_written(plans: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(plans, tmp_path / "a.pth", 0)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"^package: cannot be written .*"):
        export_package(tmp_path / "file" / "package", plans, {"3d_fullres": [tmp_path / "a.pth"]}, {}, DESCRIPTION)
