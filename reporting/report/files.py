"""The files of a report: its page and the folder of its pictures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from contract.errors import OutputError

_PAGE_SUFFIXES: Final = (".html", ".htm")
_OWN_PAGE: Final = b'<meta name="generator" content="hecktor">'
_PICTURE_FILES: Final = frozenset({".jpg", ".js"})


def page_file(output: Path) -> Path:
    """The HTML file that `--output` names: itself, or index.html in a folder.

    Raises OutputError: a file or a link lies where a folder is needed, or the page or its folder of pictures holds what
    this program did not write.
    """
    is_file = output.suffix.lower() in _PAGE_SUFFIXES and not output.is_dir()
    page = output if is_file else output / "index.html"
    existing = next(folder for folder in page.absolute().parents if folder.exists())
    if not existing.is_dir():
        raise OutputError("--output", f"found the file {existing.name}", "an HTML file, or a folder for index.html")
    if page.is_file() and _OWN_PAGE not in page.read_bytes():
        raise OutputError("--output", f"found {page.name} of another program", "another name, or remove that file")
    pictures = pictures_of(page)
    if pictures.is_symlink() or (pictures.exists() and not pictures.is_dir()):
        kind = "link" if pictures.is_symlink() else "file"
        found = f"found the {kind} {pictures.name} in the place of the folder of pictures"
        raise OutputError("--output", found, f"another name, or remove {pictures.name}")
    others = [one.name for one in sorted(pictures.glob("*")) if one.suffix not in _PICTURE_FILES or one.is_dir()]
    if others:
        found = f"found {pictures.name}/{others[0]}, which is not one of a report's pictures"
        raise OutputError("--output", found, f"another name, or remove {pictures.name}")
    return page


def pictures_of(page: Path) -> Path:
    """The folder of a page's pictures and their contours, which each run replaces."""
    return page.with_name(f"{page.stem}_files")


def remove_earlier_page(page: Path) -> None:
    """Remove the page of an earlier run and its pictures, which would look like this one's if it fails.

    Pictures without a page beside them may be anybody's, and stay. Raises OutputError: one cannot be removed.
    """
    if not page.is_file():
        return
    try:
        if pictures_of(page).is_dir():
            shutil.rmtree(pictures_of(page))
        page.unlink()
    except OSError as problem:
        raise OutputError(
            "--output", f"{page.name} cannot be replaced ({problem.strerror or problem})", "a file"
        ) from None
