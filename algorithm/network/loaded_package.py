"""Find the model package to use, and keep its networks on the device from case to case."""

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
# The folder of the shipped packages, each named after its edition.
DEFAULT_PACKAGES: Final = Path(__file__).parents[1] / "default_model"
DEFAULT_PACKAGE: Final = DEFAULT_PACKAGES / DEFAULT_EDITION
# The wheel of this project contains no packages.
INSTALL_MODELS: Final = "pip install ./models in the source tree"


def find_uploaded_package(folder: Path = platform.MODEL_DIR) -> Path | None:
    """Return the folder of the uploaded package, None if nothing was uploaded.

    A folder that is not empty counts as uploaded, so that a wrongly packed package fails instead of being replaced.
    """
    return folder if folder.is_dir() and any(folder.iterdir()) else None


def find_shipped_package(edition: str = DEFAULT_EDITION) -> Path:
    """Return the package that is shipped for an edition, for rehearsals; raise `ModelPackageError` if there is none."""
    shipped = DEFAULT_PACKAGES / edition
    if not shipped.is_dir():
        actual, expected = f"none in {platform.MODEL_DIR} and none shipped for {edition}", "--model PACKAGE"
        if not DEFAULT_PACKAGES.is_dir():
            expected += f" or, for a rehearsal, the shipped packages: {INSTALL_MODELS}"
        raise ModelPackageError("model package", actual, expected)
    return shipped


def import_network_libraries() -> None:
    """Import the libraries of a pass in a thread while the case is read, because torch takes a second.

    A failure is only logged: loading the networks will then fail and report it.
    """

    def import_modules() -> None:
        try:
            from algorithm.network import nnunet, passes, preprocessing  # noqa: F401

            nnunet.find_unet("PlainConvUNet")  # the network of most packages
        except Exception as problem:  # noqa: BLE001  logged here, since a second import may fail with another message
            LOGGER.warning("imports while the case is read: %s: %s", type(problem).__name__, problem)

    with suppress(RuntimeError):  # too little memory for a thread
        threading.Thread(target=import_modules, name="imports", daemon=True).start()


class LoadedPackage:
    """A model package and its networks on a device, each loaded when it is first needed.

    Args:
        model_dir: Folder of the package.
        device: `auto`, `cpu` or `cuda`.
        code: Folders of `--code` with the user code that the package names; without folders the code in the image is
            used.

    Attributes:
        findings: Problems of the device, which concern every case that it answers.
    """

    def __init__(self, model_dir: Path, device: str, code: Sequence[Path] = ()) -> None:
        self._model_dir, self._device_name = model_dir, device
        self._code, self._code_is_given = resolve_code(code), bool(code)
        self.findings: tuple[Finding, ...] = ()
        # A case that ended early may still be in its last tile when the next one needs the network.
        self.in_use = threading.Lock()

    def check(self, edition: Edition, algorithm: Algorithm) -> list[Finding]:
        """Check that the package was made for this edition and algorithm, and that the code that it names exists.

        Returns:
            Findings about code that has changed since the package was made.

        Raises:
            ModelPackageError: The package does not fit, or its code is missing.
        """
        check_edition(self.manifest, edition, algorithm)
        return check_code(self.manifest, self._code, is_from_option=self._code_is_given)

    def describe(self) -> str:
        """Return name, checksum and purpose of the package for the log."""
        return f"{self.identity} ({self.manifest.purpose})"

    def load(self) -> None:
        """Verify the package and put the network of the first fold on the device, unless that has been done.

        If the device fails, the CPU replaces it from now on, and `findings` says so.

        Raises:
            ModelPackageError: The package cannot be used.
        """
        from algorithm.network.networks import HookFailedError

        with suppress(HookFailedError):  # the first pass fails again and leaves the network out
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
        self.findings = (Finding(f"device {device.type}", actual, action="continuing with the CPU"),)
        self._device_name = "cpu"
        self.__dict__.pop("device", None)
        self.networks.get(0, self.device)

    @cached_property
    def identity(self) -> PackageIdentity:
        """Return the package's name and checksum."""
        return read_identity(self._model_dir)

    @cached_property
    def manifest(self) -> Manifest:
        """Return the manifest, without verifying the package. Raises `ModelPackageError`."""
        return read_manifest(self._model_dir)

    @cached_property
    def package(self) -> ModelPackage:
        """Return the verified package. Raises `ModelPackageError`."""
        return load_package(self._model_dir, self._code)

    @cached_property
    def networks(self) -> Networks:
        """Return the networks of the folds; raise `ModelPackageError` if one of them cannot be built."""
        from algorithm.network.networks import Networks

        networks = Networks(self.package)
        networks.check()
        return networks

    @cached_property
    def device(self) -> torch.device:
        """Return the requested device, or the CPU if it failed; raise `HecktorError` if `cuda` cannot be used."""
        from algorithm.network.devices import find_device

        return find_device(self._device_name)
