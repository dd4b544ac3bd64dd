"""Find and replace the files of a report: its page, the folder of its pictures, and the files of its figures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from contract.errors import HecktorError, OutputError
from contract.io.files import read_json

_PAGE_SUFFIXES: Final = (".html", ".htm")
_PAGE_MARK: Final = b'<meta name="generator" content="hecktor">'
# The JSON file tells which figures are a report's, so it is removed last.
_FIGURE_SUFFIXES: Final = (".svg", ".pdf", ".csv", ".json")
_PICTURE_SUFFIXES: Final = frozenset({".jpg", ".js"})


def find_page_path(output: Path) -> Path:
    """Return the HTML file that `--output` names: the path itself, or index.html in a folder.

    Raises:
        OutputError: A file or a link lies where a folder is needed, or the page or its folder of pictures contains
            a file that this program did not write.
    """
    is_file = output.suffix.lower() in _PAGE_SUFFIXES and not output.is_dir()
    page = output if is_file else output / "index.html"
    existing = next(folder for folder in page.absolute().parents if folder.exists())
    if not existing.is_dir():
        raise OutputError("--output", f"found the file {existing.name}", "an HTML file, or a folder for index.html")
    if page.is_file() and _PAGE_MARK not in page.read_bytes():
        raise OutputError("--output", f"found {page.name} of another program", "another name, or remove that file")
    _check_pictures(get_pictures_folder(page))
    return page


def _check_pictures(folder: Path) -> None:
    """Raise `OutputError` if the path is not a folder, or if it contains a file that is not a picture of a report."""
    expected = f"another name, or remove {folder.name}"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        kind = "link" if folder.is_symlink() else "file"
        finding = f"found the {kind} {folder.name} in the place of the folder of pictures"
        raise OutputError("--output", finding, expected)
    for path in sorted(folder.glob("*")):
        if path.suffix not in _PICTURE_SUFFIXES or path.is_dir():
            finding = f"found {folder.name}/{path.name}, which is not one of a report's pictures"
            raise OutputError("--output", finding, expected)


def get_pictures_folder(page: Path) -> Path:
    """Return the folder of a page's pictures and their contours, which each run replaces."""
    return page.with_name(f"{page.stem}_files")


def remove_earlier_page(page: Path) -> None:
    """Remove the page of an earlier run and its pictures, so that a run that fails leaves no page.

    Pictures without their page may be files of the user, so they stay.

    Raises:
        OutputError: A file cannot be removed.
    """
    if not page.is_file():
        return
    try:
        pictures = get_pictures_folder(page)
        if pictures.is_dir():
            shutil.rmtree(pictures)
        page.unlink()
    except OSError as problem:
        reason = f"{page.name} cannot be replaced ({problem.strerror or problem})"
        raise OutputError("--output", reason, "a file") from None


def remove_earlier_figures(folder: Path) -> None:
    """Remove the files `<folder>/<task>/<name>` of the figures of an earlier run; other files stay.

    Raises:
        OutputError: A file cannot be removed.
    """
    try:
        for data in folder.glob("*/*.json"):
            if _is_figure(data):
                for suffix in _FIGURE_SUFFIXES:
                    data.with_suffix(suffix).unlink(missing_ok=True)
    except OSError as problem:
        reason = f"{folder.name} cannot be replaced ({problem.strerror or problem})"
        raise OutputError("--figures", reason, "a folder") from None


def _is_figure(data: Path) -> bool:
    """Return whether a JSON file contains an analysis of a report."""
    try:
        content = read_json(data)
    except HecktorError:
        return False
    return isinstance(content, dict) and content.get("name") == data.stem and {"caption", "columns"} <= content.keys()
