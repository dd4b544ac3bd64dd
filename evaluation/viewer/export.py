"""Write a viewer as a folder that any static web server can serve."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Final

from contract.errors import OutputError, unwritable
from contract.files import whole_folder
from evaluation.viewer.case import build_case
from evaluation.viewer.cohort import ViewerCohort

INDEX: Final = "index.html"
CASES_JSON: Final = "cases.json"
CASE_FOLDER: Final = "case"
_PAGE_SUFFIXES: Final = (".html", ".css", ".js")


def page_files() -> dict[str, bytes]:
    """The viewer's own files by name: the page, its styles and its scripts."""
    own = [entry for entry in files("evaluation.viewer").iterdir() if entry.name.endswith(_PAGE_SUFFIXES)]
    return {entry.name: entry.read_bytes() for entry in sorted(own, key=lambda entry: entry.name)}


def listing_bytes(cohort: ViewerCohort) -> bytes:
    """The content of cases.json."""
    return json.dumps(cohort.listing, allow_nan=False).encode()


def export_viewer(folder: Path, cohort: ViewerCohort) -> None:
    """Write the viewer of all cases of a cohort, whole or not at all; an earlier viewer there is replaced."""
    if folder.exists() and not (folder / CASES_JSON).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(folder.name, "exists and holds no viewer", "a new folder, or a viewer to replace")
    try:
        with whole_folder(folder) as partial:
            for name, content in {**page_files(), CASES_JSON: listing_bytes(cohort)}.items():
                (partial / name).write_bytes(content)
            for case, sources in cohort.cases.items():
                target = partial / CASE_FOLDER / case
                target.mkdir(parents=True)
                for name, content in build_case(sources).items():
                    (target / name).write_bytes(content)
    except OSError as problem:
        raise unwritable(folder.name, problem) from None
