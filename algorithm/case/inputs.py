"""Find the inputs of a case: at their declared paths, or where `inputs.json` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from algorithm.case.notices import Notices
from contract.editions import Socket
from contract.errors import Finding, InputError
from contract.images.volumes import find_single_image, image_suffix, list_images
from contract.predictions import read_inputs

LISTING: Final = "inputs.json"


def input_path(root: Path, socket: Socket, notices: Notices) -> Path:
    """The socket's folder or image (image sockets) or file (JSON sockets) below `root`.

    If the declared path holds no input, an entry of `inputs.json` with the socket's slug may name another one, which
    gives a notice. A listed path that leads out of `root` is never used. Without a usable entry, the declared path is
    returned.
    """
    declared = socket.path_under(root)
    if _holds_input(declared, socket) or not (root / LISTING).is_file():
        return declared
    for path in dict.fromkeys(_listed_paths(root, socket, notices)):
        try:
            is_inside = (root / path).resolve().is_relative_to(root.resolve())
            holds_input = is_inside and _holds_input(root / path, socket)
        except (OSError, RuntimeError, ValueError):  # too long or otherwise no path, or links in a circle
            continue
        if not is_inside:
            notices.warn(Finding(LISTING, f"{path!r} of {socket.slug} leads out of the input folder", action="ignored"))
        elif holds_input:
            action = f"the input is read from {path}"
            notices.warn(Finding(LISTING, f"{path!r} as path of {socket.slug}", repr(socket.relative_path), action))
            return root / path
    return declared


def single_image(path: Path) -> Path:
    """The image at `path`, which may be its folder. Raises `InputError`."""
    return path if path.is_file() else find_single_image(path)


def _listed_paths(root: Path, socket: Socket, notices: Notices) -> Iterator[str]:
    """Paths of the entries with the socket's slug in `inputs.json`."""
    try:
        entries = read_inputs(root / LISTING, error=InputError)
    except InputError as problem:
        notices.warn(Finding(problem.what, problem.found, problem.expected, "ignored"))
        return
    yield from (entry.relative_path for entry in entries if entry.slug == socket.slug and entry.relative_path)


def _holds_input(path: Path, socket: Socket) -> bool:
    if not socket.is_image:
        return path.is_file()
    return bool(list_images(path)) if path.is_dir() else path.is_file() and image_suffix(path) is not None
