"""Weights that are damaged, with and without a new checksum in the manifest."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from algorithm.network.networks import build_network, iterate_tensors, load_weights
from algorithm.network.package import load_package
from contract.editions import Algorithm
from contract.errors import ModelPackageError
from tests.algorithm.edition import COMBINED, EDITION, EDITION_2026, SEGMENTATION
from tests.faults.conftest import Runs

Change = Callable[[bytes], bytes]


def flip_bit(bit: int) -> Change:
    def change(content: bytes) -> bytes:
        damage_package = bytearray(content)
        damage_package[bit // 8 % len(damage_package)] ^= 1 << bit % 8
        return bytes(damage_package)

    return change


def enlarge(content: bytes) -> bytes:
    """Set all weights near the largest number of float32."""
    return save({name: torch.full_like(tensor, 3e38) for name, tensor in load(content).items()})


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.fixture
def damage_package(
    tiny_package: Path, combined_package: Path, tmp_path: Path, sign_package: Callable[..., None]
) -> Callable[..., Path]:
    """Change a weights file in a copy of a task's tiny package, which is signed again or not."""

    def make(change: Change, *, signed: bool, fold: int = 0, task: Algorithm = SEGMENTATION) -> Path:
        root = tmp_path / "damaged"
        shutil.copytree(combined_package if task is COMBINED else tiny_package, root)
        path = root / f"fold_{fold}.safetensors"
        path.write_bytes(change(path.read_bytes()))
        if signed:
            sign_package(root, edition=EDITION_2026.name if task is COMBINED else EDITION.name)
        return root

    return make


@pytest.mark.parametrize(
    ("task", "change", "signed", "message"),
    [
        (SEGMENTATION, flip_bit(100_000), False, "the file was modified"),
        (COMBINED, truncate, False, "bytes, expected "),
        (COMBINED, flip_bit(3), True, "not a safetensors file"),
        (SEGMENTATION, truncate, True, "not a safetensors file"),
    ],
    ids=["bit flipped", "truncated", "bit of the header flipped and signed", "truncated and signed"],
)
def test_damaged_weights_are_refused(
    run: Runs, damage_package: Callable[..., Path], task: Algorithm, change: Change, signed: bool, message: str
) -> None:
    """They would fail every case, even with fallbacks; a submission that fails at once names the reason."""
    ended = run(task, package=damage_package(change, signed=signed, task=task)).complete()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last_line.startswith("error: fold_0.safetensors: ")
    assert message in ended.last_line


def test_a_later_fold_that_is_damaged_is_left_out(run: Runs, damage_package: Callable[..., Path]) -> None:
    """Only the pass of a signed fold notices the damage; by then there is an answer."""
    ended = run(COMBINED, package=damage_package(truncate, signed=True, fold=1, task=COMBINED)).complete()
    assert ended.status == 0, ended.stderr
    assert "left out: fold_1.safetensors: not a safetensors file" in ended.stderr
    assert "1 of 4 passes" in ended.last_line


def test_weights_that_overflow(run: Runs, damage_package: Callable[..., Path]) -> None:
    """Finite weights can give infinite scores."""
    ended = run(SEGMENTATION, package=damage_package(enlarge, signed=True)).complete()
    assert ended.status == 0, ended.stderr
    assert "*** FALLBACK *** no pass of the network (the network returns NaN or infinity)" in ended.stderr


@pytest.fixture(scope="module")
def load_damaged(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Change], None]:
    """Load damaged weights into the tiny network; weights that load must be finite."""
    package = load_package(tiny_package)
    network = build_network(package)
    sound, path = package.fold_files[0].read_bytes(), tmp_path_factory.mktemp("loading") / "fold_0.safetensors"

    def load(change: Change) -> None:
        path.write_bytes(change(sound))
        load_weights(network, path)
        assert all(bool(torch.isfinite(tensor).all()) for _, tensor in iterate_tensors(network))

    return load


@given(bit=st.integers(0, 12_000) | st.integers(0, 84_000))
def test_any_flipped_bit_that_no_checksum_shows(load_damaged: Callable[[Change], None], bit: int) -> None:
    """Flipped bits are refused, or the weights are still finite. The header is the first 1.5 of 10 kB."""
    with suppress(ModelPackageError):
        load_damaged(flip_bit(bit))


def test_an_infinite_weight(load_damaged: Callable[[Change], None]) -> None:
    with pytest.raises(ModelPackageError, match=r"^fold_0\.safetensors: .* contains NaN or infinity"):
        load_damaged(lambda content: content[:-4] + struct.pack("<f", float("inf")))
