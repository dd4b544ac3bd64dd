"""The functions of nnU-Net that inference calls; no other module of the algorithm imports nnU-Net.

Nothing here changes nnU-Net: the patches for training are in `baseline/network/patches.py`, which is in no image.
`tests/algorithm/network/test_nnunet_calls.py` checks what inference relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nnunetv2.inference.sliding_window_prediction import compute_gaussian, compute_steps_for_sliding_window
from nnunetv2.preprocessing.normalization import default_normalization_schemes

__all__ = [
    "compute_gaussian",
    "compute_steps_for_sliding_window",
    "find_normalisation",
    "find_resampling",
    "find_unet",
]


def find_unet(name: str) -> Callable[..., Any]:
    """Return the class of one of nnU-Net's networks; raise `AttributeError` for an unknown name."""
    # nnU-Net's networks are in a separate distribution.
    from dynamic_network_architectures.architectures import unet

    network: Callable[..., Any] = getattr(unet, name)
    return network


def find_normalisation(name: str) -> Callable[..., Any]:
    """Return the class of a normalisation scheme of nnU-Net's plans."""
    scheme: Callable[..., Any] = getattr(default_normalization_schemes, name)
    return scheme


def find_resampling(configuration: Mapping[str, Any], kind: str) -> Callable[..., Any]:
    """Return nnU-Net's function that resamples `data` or `probabilities`, with the options of a configuration.

    nnU-Net's `ConfigurationManager` returns the same function, but its module also imports libraries of training, such
    as blosc2, which the algorithm image does not contain.

    Args:
        configuration: Configuration of nnU-Net's plans.
        kind: "data" or "probabilities".

    Raises:
        RuntimeError: nnU-Net has no function of this name.
    """
    # Loads scikit-image and pandas: half a second and 50 MB that packages with another resampling do not need.
    from nnunetv2.preprocessing.resampling import default_resampling, no_resampling, resample_torch

    name = configuration[f"resampling_fn_{kind}"]
    # Plans without options leave the key out.
    options = configuration.get(f"resampling_fn_{kind}_kwargs", {})
    for module in (default_resampling, no_resampling, resample_torch):
        if hasattr(module, name):
            return partial(getattr(module, name), **options)
    raise RuntimeError(f"nnU-Net has no resampling function {name!r}")
