"""Organs as further labels of a training. Their outputs become background where the network answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from contract import labels
from contract.errors import ModelPackageError

# Labels are stored in one byte.
MOST_ORGANS = 250


def organ_count(configuration: Mapping[str, Any]) -> int:
    """Number of organs behind background, GTVp and GTVn in the outputs of a configuration's network.

    Raises:
        ModelPackageError: the architecture's `organs` is no list of names.
    """
    names = configuration["architecture"].get("organs", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) > MOST_ORGANS:
        raise ModelPackageError("plans.json", f"organs {names!r}", f"a list of at most {MOST_ORGANS} names")
    return len(names)


def organs_as_background(network: nn.Module) -> None:
    """Let a network answer background, GTVp and GTVn alone, so that organs take memory in a tile and nowhere else.

    The background's logit becomes the logarithm of the sum over background and organs. The softmax of the three then
    gives each tumour the probability that it had among all labels. Leaving the organs' outputs out would not: inside
    an organ the background alone is improbable, too.
    """
    network.register_forward_hook(_without_organs)


def _without_organs(_module: nn.Module, _inputs: Any, logits: torch.Tensor) -> torch.Tensor:
    tumours = len(labels.NAMES)
    values = logits.float()
    background = torch.cat([values[:, :1], values[:, tumours:]], dim=1).logsumexp(1, keepdim=True)
    return torch.cat([background, values[:, 1:tumours]], dim=1)
