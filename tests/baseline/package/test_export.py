"""Tests that a loaded package holds the exported network up to float16, and nothing that could execute."""

from __future__ import annotations

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
from baseline.package.existing import read_trained_plans
from baseline.package.export import EnsembleMember, PackageContents, _write_weights, export_contents
from contract.errors import ModelPackageError, OutputError
from tests.algorithm.heads.head_parts import make_linear_head, term

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
