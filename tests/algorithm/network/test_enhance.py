"""The network sees functions of the CT that nobody stores: their values, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from algorithm.network.enhance import Enhanced, enhancements
from contract.errors import ModelPackageError


class Seen(nn.Module):
    """Answers what it is shown."""

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return data


def test_values_by_hand() -> None:
    """Squares and cube roots of -8, 0, 0.125 and 1 are 64, 0, 1/64, 1 and -2, 0, 0.5, 1; the PET stays as it is."""
    ct, pet = torch.tensor([-8.0, 0.0, 0.125, 1.0]), torch.tensor([5.0, 6.0, 7.0, 8.0])
    data = torch.stack([ct, pet]).reshape(1, 2, 1, 1, 4)
    output = Enhanced(Seen(), ("ct_cube_root", "ct_square"))(data)
    expected = torch.stack([ct, pet, torch.tensor([-2.0, 0.0, 0.5, 1.0]), torch.tensor([64.0, 0.0, 1 / 64, 1.0])])
    torch.testing.assert_close(output, expected.reshape(1, 4, 1, 1, 4), atol=1e-6, rtol=0)


def test_the_input_is_unchanged() -> None:
    """The sliding window shows one tensor to the network tile by tile."""
    data = torch.randn(2, 2, 3, 3, 3)
    before = data.clone()
    assert Enhanced(Seen(), ("ct_square",))(data).shape == (2, 3, 3, 3, 3)
    assert torch.equal(data, before)


def test_names_in_their_order() -> None:
    assert enhancements(["ct_cube_root", "ct_square"]) == ("ct_cube_root", "ct_square")
    assert enhancements([]) == ()


@pytest.mark.parametrize(
    "names",
    [["ct_cube"], ["ct_square", "ct_square"], "ct_square", [2], [["ct_square"]], None, {"ct_square": 1}],
    ids=str,
)
def test_unknown_names(names: Any) -> None:
    with pytest.raises(ModelPackageError, match=r"^plans\.json: enhance .*, expected some of ct_square, ct_cube_root,"):
        enhancements(names)
