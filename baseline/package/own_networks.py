"""An entrant's own networks as members of a package: their declaration, and the files of each fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorithm.network.own import NetworkDeclaration, declaration_of
from contract.code import Code, split_reference
from contract.errors import HecktorError

NETWORK = "network"
# Its name in a folder of code if the user gives none.
_CLASS = "Network"


@dataclass(frozen=True)
class OwnMember:
    """Networks of one class of an entrant: one folder of files for each fold.

    Attributes:
        reference: the class, such as `my_model:Network`.
        declaration: what the class declares.
        folders: the files of each fold, which are copied as they are.
        digest: sha256 of the code.
        channels: names of the edition's channels.
    """

    reference: str
    declaration: NetworkDeclaration
    folders: tuple[Path, ...]
    digest: str
    channels: tuple[str, ...]

    @property
    def code(self) -> dict[str, str]:
        """The manifest's entry: the folder of code and its checksum."""
        return {split_reference(self.reference, NETWORK)[0]: self.digest}

    @property
    def configuration(self) -> dict[str, Any]:
        """The network as a configuration of nnU-Net's plans."""
        return self.declaration.configuration(self.reference, self.channels)


def own_member(code: Code, network: str | None, weights: Sequence[Path], channels: tuple[str, ...]) -> OwnMember | None:
    """The entrant's network of `--code`, `--network` and `--weights`; None if none was given.

    `channels` are the names of the edition's.

    Raises:
        HecktorError: some of the three are missing, or a folder of weights is absent or empty.
        ModelPackageError: the code cannot be imported, or has no such class or a wrong declaration.
    """
    if not weights:
        if network is not None:
            raise HecktorError("--network", "found without --weights", "both")
        return None
    if network is None:
        if len(code.folders) != 1:
            found = f"found {len(code.folders)} of them with --weights"
            raise HecktorError("--code", found, "one folder of code, or --network folder:Name")
        network = f"{next(iter(code.folders))}:{_CLASS}"
    for folder in weights:
        if not folder.is_dir() or not any(path.is_file() for path in folder.rglob("*")):
            raise HecktorError(f"--weights {folder.name}", "found no files", "the folder that the network is made from")
    declaration = declaration_of(code.find(network, NETWORK), network, channels)
    digest = code.digest(split_reference(network, NETWORK)[0])
    return OwnMember(network, declaration, tuple(weights), digest, channels)
