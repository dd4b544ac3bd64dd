"""Find the inputs of a case (declared paths, `inputs.json`, or plain files), and collect warnings about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Socket
from contract.errors import Finding, InputError
from contract.images.volumes import find_image_suffix, find_single_image, list_images
from contract.platform import NAMED_IMAGE_SUFFIXES
from contract.predictions import read_inputs

LOGGER = logging.getLogger("hecktor")
LISTING: Final = "inputs.json"
# Channel numbers in nnU-Net's file names.
_NNUNET_CT, _NNUNET_PET = "_0000", "_0001"


@dataclass(frozen=True)
class CaseFiles:
    """A case in plain files: CT in HU, PET in SUV, and its `ehr.json` if there is one."""

    ct: Path
    pet: Path
    ehr: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return all files of the case."""
        return (self.ct, self.pet) if self.ehr is None else (self.ct, self.pet, self.ehr)


def make_case_files(ct: Path, pet: Path | None, ehr: Path | None) -> CaseFiles:
    """Return a case in plain files; without `pet` the PET is CASE_0001 next to a CT with nnU-Net's name CASE_0000."""
    files = CaseFiles(ct, find_pet(ct) if pet is None else pet, ehr)
    for option, path in zip(("--ct", "--pet", "--ehr"), files.paths, strict=False):
        if not path.is_file():
            raise InputError(option, f"no file {path}", "an existing file")
        if option != "--ehr" and find_image_suffix(path, NAMED_IMAGE_SUFFIXES) is None:
            raise InputError(option, f"{path.name}", f"an image in {', '.join(NAMED_IMAGE_SUFFIXES)}")
    if files.ct.samefile(files.pet):
        raise InputError("--pet", f"the file of --ct, {ct.name}", "another file")
    return files


def find_pet(ct: Path) -> Path:
    """Return the path of the PET CASE_0001 for a CT named CASE_0000, as nnU-Net does; else raise `InputError`."""
    suffix = find_image_suffix(ct, NAMED_IMAGE_SUFFIXES) or ""
    stem = ct.name[: len(ct.name) - len(suffix)]
    if not suffix or not stem.endswith(_NNUNET_CT):
        expected = f"the PET's file, or a CT with nnU-Net's name CASE{_NNUNET_CT}.nii.gz"
        raise InputError("--pet", f"not given, with a CT named {ct.name}", expected)
    return ct.with_name(stem.removesuffix(_NNUNET_CT) + _NNUNET_PET + ct.name[len(stem) :])


def find_input(root: Path, socket: Socket, notices: Notices) -> Path:
    """Find the socket's folder or image (image sockets) or file (JSON sockets) below `root`.

    If the declared path holds no input, an entry of `inputs.json` with the socket's slug may name another one, which
    gives a notice. A listed path that leads out of `root` is never used. Without a usable entry, the declared path is
    returned.
    """
    declared = socket.path_under(root)
    if _holds_input(declared, socket) or not (root / LISTING).is_file():
        return declared
    for path in dict.fromkeys(_list_paths(root, socket, notices)):
        try:
            is_inside = (root / path).resolve().is_relative_to(root.resolve())
            holds_input = is_inside and _holds_input(root / path, socket)
        except (OSError, RuntimeError, ValueError):  # too long or otherwise no path, or links in a circle
            continue
        if not is_inside:
            notices.note(Finding(LISTING, f"{path!r} of {socket.slug} leads out of the input folder", action="ignored"))
        elif holds_input:
            action = f"the input is read from {path}"
            notices.note(Finding(LISTING, f"{path!r} as path of {socket.slug}", repr(socket.relative_path), action))
            return root / path
    return declared


def find_image(path: Path) -> Path:
    """Return the image at `path`, which may be the folder of the image."""
    return path if path.is_file() else find_single_image(path)


def _list_paths(root: Path, socket: Socket, notices: Notices) -> Iterator[str]:
    """Iterate over the paths of the entries with the socket's slug in `inputs.json`."""
    try:
        entries = read_inputs(root / LISTING, error=InputError)
    except InputError as problem:
        notices.note(Finding(problem.what, problem.found, problem.expected, "ignored"))
        return
    yield from (entry.relative_path for entry in entries if entry.slug == socket.slug and entry.relative_path)


def _holds_input(path: Path, socket: Socket) -> bool:
    if not socket.is_image:
        return path.is_file()
    return bool(list_images(path)) if path.is_dir() else path.is_file() and find_image_suffix(path) is not None


@dataclass
class Notices:
    """Collects the findings about a case, which is answered all the same: one failed case fails a whole submission."""

    findings: list[Finding] = field(default_factory=list)

    def note(self, finding: Finding) -> None:
        """Log a finding and keep it for the record."""
        self.findings.append(finding)
        LOGGER.warning("%s", finding)
