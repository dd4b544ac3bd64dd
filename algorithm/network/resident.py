"""What outlives a case: the verified model package and its network on the device."""

from __future__ import annotations

import logging
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from algorithm.network.package import ModelPackage, load_package

if TYPE_CHECKING:  # torch is imported only where a network runs
    import torch

    from algorithm.network.networks import Networks

LOGGER = logging.getLogger("hecktor")


class Resident:
    """The package at `model_dir` and its network on `device` (`auto`, `cpu`, `cuda`), each loaded when first needed."""

    def __init__(self, model_dir: Path, device: str) -> None:
        self._model_dir, self._device_name = model_dir, device
        # A case that was ended early may be in its last tile when the next one wants the network.
        self.in_use = threading.Lock()

    def load(self) -> None:
        """Verify the package and put the first fold's network on the device; nothing is done twice.

        Raises:
            ModelPackageError: the package is incomplete or altered, or its weights do not fit its plans.
            HecktorError: the device does not answer.
        """
        self.networks.of(0, self.device)

    @cached_property
    def package(self) -> ModelPackage:
        """The verified package. Raises `ModelPackageError`."""
        package = load_package(self._model_dir)
        LOGGER.info("model package: %s", package.name)
        return package

    @cached_property
    def networks(self) -> Networks:
        """Where the folds' networks come from. Raises `ModelPackageError` where one of them cannot be built."""
        from algorithm.network.networks import Networks

        networks = Networks(self.package)
        networks.check()
        return networks

    @cached_property
    def device(self) -> torch.device:
        """The device that was asked for. Raises `HecktorError` where it does not answer."""
        from algorithm.cpus import limit_torch_threads
        from algorithm.network.devices import device_named, prepare_gpu

        limit_torch_threads()
        device = device_named(self._device_name)
        prepare_gpu(device)
        return device
