"""Organs become background where a network answers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from algorithm.network.organs import organ_count, organs_as_background
from contract.errors import ModelPackageError


def test_each_tumour_keeps_its_probability() -> None:
    """Weights 1, 2, 1 and 3 of background, GTVp, GTVn and an organ: the background gets 1 + 3 of 7, GTVp 2, GTVn 1."""
    network = torch.nn.Identity()
    organs_as_background(network)
    logits = torch.log(torch.tensor([1.0, 2.0, 1.0, 3.0])).reshape(1, 4, 1, 1, 1)
    assert network(logits).softmax(1).flatten().tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    assert network(logits)[0, 0].item() == pytest.approx(math.log(4))


@pytest.mark.parametrize("organs", [3, "brain", [1], ["brain"] * 251])
def test_what_is_no_list_of_names_is_refused(organs: Any) -> None:
    with pytest.raises(ModelPackageError, match=r"^plans\.json: organs "):
        organ_count({"architecture": {"organs": organs}})
    assert organ_count({"architecture": {"organs": ["brain", "spine"]}}) == 2
    assert organ_count({"architecture": {}}) == 0
