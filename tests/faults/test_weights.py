"""Weights that are damaged, and weights that are damaged and signed anew."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from algorithm.network.networks import build_network, load_weights, own_tensors
from algorithm.network.package import load_package
from contract.editions import Algorithm
from contract.errors import ModelPackageError
from tests.algorithm.edition import COMBINED, EDITION, EDITION_2026, SEGMENTATION

Runs = Callable[..., Any]
Change = Callable[[bytes], bytes]


def flipped(bit: int) -> Change:
    def change(content: bytes) -> bytes:
        damaged = bytearray(content)
        damaged[bit // 8 % len(damaged)] ^= 1 << bit % 8
        return bytes(damaged)

    return change


def huge(content: bytes) -> bytes:
    """All weights near the largest number of float32."""
    return save({name: torch.full_like(tensor, 3e38) for name, tensor in load(content).items()})


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.fixture
def damaged(
    tiny_package: Path, combined_package: Path, tmp_path: Path, sign_package: Callable[..., None]
) -> Callable[..., Path]:
    """A copy of a task's tiny package with one weights file changed, signed anew or not."""

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
    ("task", "change", "signed", "said"),
    [
        (SEGMENTATION, flipped(100_000), False, "the file was modified"),
        (COMBINED, truncated, False, "bytes, expected "),
        (COMBINED, flipped(3), True, "not a safetensors file"),
        (SEGMENTATION, truncated, True, "not a safetensors file"),
    ],
    ids=["bit flipped", "truncated", "bit of the header flipped and signed", "truncated and signed"],
)
def test_damaged_weights_are_refused(
    run: Runs, damaged: Callable[..., Path], task: Algorithm, change: Change, signed: bool, said: str
) -> None:
    """They would cost every case, even where fallbacks exist; a submission that fails at once names the reason."""
    ended = run(task, package=damaged(change, signed=signed, task=task)).whole()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last.startswith("error: fold_0.safetensors: ")
    assert said in ended.last


def test_a_later_fold_that_is_damaged_is_left_out(run: Runs, damaged: Callable[..., Path]) -> None:
    """Signed, so that only its own pass notices: by then there is an answer."""
    ended = run(COMBINED, package=damaged(truncated, signed=True, fold=1, task=COMBINED)).whole()
    assert ended.status == 0, ended.said
    assert "left out: fold_1.safetensors: not a safetensors file" in ended.said
    assert "1 of 4 passes" in ended.last


def test_weights_that_overflow(run: Runs, damaged: Callable[..., Path]) -> None:
    """Finite as they are, but what the network makes of them is not."""
    ended = run(SEGMENTATION, package=damaged(huge, signed=True)).whole()
    assert ended.status == 0, ended.said
    assert "*** FALLBACK *** no pass of the network (the network returns NaN or infinity)" in ended.said


@pytest.fixture(scope="module")
def loading(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Change], None]:
    """Load damaged weights into the tiny network; what is not refused must be finite."""
    package = load_package(tiny_package)
    network = build_network(package)
    sound, path = package.fold_files[0].read_bytes(), tmp_path_factory.mktemp("loading") / "fold_0.safetensors"

    def load(change: Change) -> None:
        path.write_bytes(change(sound))
        load_weights(network, path)
        assert all(bool(torch.isfinite(tensor).all()) for _, tensor in own_tensors(network))

    return load


@given(bit=st.integers(0, 12_000) | st.integers(0, 84_000))
def test_any_flipped_bit_that_no_checksum_shows(loading: Callable[[Change], None], bit: int) -> None:
    """It is refused, or the weights are finite numbers all the same. The header is the first 1.5 of 10 kB."""
    with suppress(ModelPackageError):
        loading(flipped(bit))


def test_an_infinite_weight(loading: Callable[[Change], None]) -> None:
    with pytest.raises(ModelPackageError, match=r"^fold_0\.safetensors: .* holds NaN or infinity"):
        loading(lambda content: content[:-4] + struct.pack("<f", float("inf")))
