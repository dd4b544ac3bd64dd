"""The page of a viewer: the template for a server, and one file with everything for an export."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final

from contract.errors import OutputError
from contract.io.files import write_text
from reporting.page.html import json_element
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerCohort

_LIBRARY: Final = "niivue.umd.js"
_SCRIPT: Final = "viewer.js"
_STYLE: Final = "viewer.css"
# In every page that was exported, and the suffix of a single file.
_MARK: Final = '<meta name="generator" content="hecktor view">'
_SUFFIXES: Final = (".html", ".htm")
# An exported page asks nobody for anything.
_POLICY: Final = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:\">"
)


def page_files(cohort: ViewerCohort) -> dict[str, bytes]:
    """The files of the page by address; that of the page, which asks a server for its cases, is empty."""
    page = _page(
        style=f'<link rel="stylesheet" href="{_STYLE}">',
        scripts=f'<script defer src="{_LIBRARY}"></script>\n<script type="module" src="{_SCRIPT}"></script>',
        data=json_element(cohort.listing, "cohort"),
    )
    names = (_STYLE, _SCRIPT, _LIBRARY, "niivue.LICENSE")
    return {"": page.encode(), **{name: _read(name).encode() for name in names}}


def export_viewer(target: Path, cohort: ViewerCohort) -> Path:
    """Write the page with all cases of a cohort as one file, and return it: the target, or index.html in that folder.

    It opens without a server: a page from a file may not read other files. Raises OutputError instead of overwriting
    what is no viewer.
    """
    page = target if target.suffix.lower() in _SUFFIXES and not target.is_dir() else target / "index.html"
    if page.exists() and (not page.is_file() or _MARK.encode() not in page.read_bytes()[:1000]):
        raise OutputError(page.name, "exists and is not a viewer", "another name, or remove it")
    cases = [json_element(build_case(sources), f"case-{n}") for n, sources in enumerate(cohort.cases.values())]
    library = f"/*!\n{_read('niivue.LICENSE').strip()}\n*/\n{_read(_LIBRARY)}"
    text = _page(
        style=f"{_POLICY}\n<style>\n{_read(_STYLE)}</style>",
        scripts=f'<script>\n{library}\n</script>\n<script type="module">\n{_read(_SCRIPT)}</script>',
        data="\n".join([json_element(cohort.listing, "cohort"), *cases]),
    )
    write_text(page, text)
    return page


def _page(**parts: Any) -> str:
    return Template(_read("index.html")).substitute(mark=_MARK, **parts)


def _read(name: str) -> str:
    folder = files("reporting.page") / "vendor" if name.startswith("niivue") else files("reporting.viewer")
    return (folder / name).read_bytes().decode()
