"""The model package that answers: which one, and its networks on the device, kept from case to case."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from algorithm.network.package import ModelPackage, load_package
from contract import platform
from contract.code import resolve_code
from contract.editions import DEFAULT_EDITION, Algorithm, Edition
from contract.errors import Finding, ModelPackageError
from contract.packages import (
    Manifest,
    PackageIdentity,
    check_code,
    check_edition,
    read_identity,
    read_manifest,
)

if TYPE_CHECKING:  # torch is imported only if a network runs
    import torch

    from algorithm.network.networks import Networks

LOGGER = logging.getLogger("hecktor")
# A package for each edition, by its name.
DEFAULT_PACKAGES: Final = Path(__file__).parents[1] / "default_model"
DEFAULT_PACKAGE: Final = DEFAULT_PACKAGES / DEFAULT_EDITION
# The wheel holds none of them.
INSTALL_MODELS: Final = "pip install ./models in the source tree"


def find_uploaded_package(folder: Path = platform.MODEL_DIR) -> Path | None:
    """Return the folder of the uploaded package, None if nothing was uploaded.

    A folder that holds anything counts as uploaded, so that a wrongly packed package fails instead of being replaced.
    """
    return folder if folder.is_dir() and any(folder.iterdir()) else None


def find_shipped_package(edition: str = DEFAULT_EDITION) -> Path:
    """Return the package that is shipped for an edition, for rehearsals; raise `ModelPackageError` without one."""
    shipped = DEFAULT_PACKAGES / edition
    if not shipped.is_dir():
        actual, expected = f"none in {platform.MODEL_DIR} and none shipped for {edition}", "--model PACKAGE"
        if not DEFAULT_PACKAGES.is_dir():
            expected += f" or, for a rehearsal, the shipped packages: {INSTALL_MODELS}"
        raise ModelPackageError("model package", actual, expected)
    return shipped


def import_network_libraries() -> None:
    """Import what a pass needs in a thread, while the case is read: torch takes a second.

    A failure is only logged, because the networks cannot be loaded then, which is an error of its own.
    """

    def import_modules() -> None:
        try:
            from algorithm.network import nnunet, passes, preprocessing  # noqa: F401

            nnunet.find_unet("PlainConvUNet")  # the network of most packages
        except Exception as problem:  # noqa: BLE001  a second import may fail with another message
            LOGGER.warning("imports while the case is read: %s: %s", type(problem).__name__, problem)

    with suppress(RuntimeError):  # too little memory for a thread
        threading.Thread(target=import_modules, name="imports", daemon=True).start()


class LoadedPackage:
    """The package at `model_dir` and its network on `device` (`auto`, `cpu`, `cuda`), each loaded when first needed.

    `code` are the folders of `--code`. They hold the user code that the package names; without folders the image holds
    it. `findings` are the problems of the device, which belong to each case that it answers.
    """

    def __init__(self, model_dir: Path, device: str, code: Sequence[Path] = ()) -> None:
        self._model_dir, self._device_name = model_dir, device
        self._code, self._code_is_given = resolve_code(code), bool(code)
        self.findings: tuple[Finding, ...] = ()
        # A case that ended early may still be in its last tile when the next one needs the network.
        self.in_use = threading.Lock()

    def check(self, edition: Edition, algorithm: Algorithm) -> list[Finding]:
        """Check that the package was made for this edition and algorithm, and that the code that it names is there.

        Returns findings for code that changed. Raises `ModelPackageError`.
        """
        check_edition(self.manifest, edition, algorithm)
        return check_code(self.manifest, self._code, is_from_option=self._code_is_given)

    def describe(self) -> str:
        """Return the package's name, purpose and checksum, for the log."""
        return f"{self.identity} ({self.manifest.purpose})"

    def load(self) -> None:
        """Verify the package and put the first fold's network on the device, unless that is done already.

        If the device fails already now, the CPU takes its place in this step and all later ones. Raises
        `ModelPackageError`.
        """
        from algorithm.network.networks import HookFailedError

        with suppress(HookFailedError):  # the first pass meets it again and leaves the network out
            self._load_first()

    def _load_first(self) -> None:
        from algorithm.network.devices import find_unexpected_cpu, first_line, is_device_failure

        device = self.device
        if not self.findings:
            self.findings = find_unexpected_cpu(self._device_name, device)
        try:
            self.networks.get(0, device)
        except (RuntimeError, MemoryError) as problem:
            if not is_device_failure(problem):
                raise
            reason = first_line(problem)
        else:
            return
        self.networks.free(device)
        actual = f"the network cannot be loaded ({reason})"
        self.findings = (Finding(f"device {device.type}", actual, action="going on with the CPU"),)
        self._device_name = "cpu"
        self.__dict__.pop("device", None)
        self.networks.get(0, self.device)

    @cached_property
    def identity(self) -> PackageIdentity:
        """Return the package's name and checksum."""
        return read_identity(self._model_dir)

    @cached_property
    def manifest(self) -> Manifest:
        """Return the manifest, which is read in no time."""
        return read_manifest(self._model_dir)

    @cached_property
    def package(self) -> ModelPackage:
        """Return the verified package. Raises `ModelPackageError`."""
        return load_package(self._model_dir, self._code)

    @cached_property
    def networks(self) -> Networks:
        """Return the folds' networks. Raises `ModelPackageError` if one of them cannot be built."""
        from algorithm.network.networks import Networks

        networks = Networks(self.package)
        networks.check()
        return networks

    @cached_property
    def device(self) -> torch.device:
        """Return the device that the user wants, or the CPU if it failed; raise `HecktorError` if no device answers."""
        from algorithm.network.devices import find_device

        return find_device(self._device_name)
