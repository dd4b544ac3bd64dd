"""Paths and file names of grand-challenge.org, and names that operating systems add or spell differently."""

from __future__ import annotations

import unicodedata
from pathlib import Path, PurePath
from typing import Final, Literal

INPUT_DIR: Final = Path("/input")
OUTPUT_DIR: Final = Path("/output")
MODEL_DIR: Final = Path("/opt/ml/model")
# Folders of user code that was built into an image.
CODE_DIR: Final = Path("/opt/code")
GROUND_TRUTH_DIR: Final = Path("/opt/ml/input/data/ground_truth")
# The label tells how the platform runs an image: a new process for each case (exec), or one server for all (invoke).
API_METHOD_LABEL: Final = "org.grand-challenge.api-method"
ApiMethod = Literal["exec", "invoke"]
API_METHODS: Final[tuple[ApiMethod, ...]] = ("exec", "invoke")
# Port of the `invoke` mode.
INVOKE_PORT: Final = 4743
# Ours, not the platform's: the file to which an algorithm writes the record of each run.
RUN_RECORD_VARIABLE: Final = "HECKTOR_RUN_RECORD"
# Ours: variables of an image, which its entry point reads as default arguments (`contract.entry.read_image_arguments`).
EDITION_VARIABLE: Final = "HECKTOR_EDITION"
TASK_VARIABLE: Final = "HECKTOR_TASK"
API_METHOD_VARIABLE: Final = "HECKTOR_API_METHOD"
REQUIRE_MODEL_VARIABLE: Final = "HECKTOR_REQUIRE_MODEL"

INPUTS_JSON: Final = "inputs.json"
PREDICTIONS_JSON: Final = "predictions.json"
METRICS_JSON: Final = "metrics.json"
MASK_FILE_NAME: Final = "output.mha"

# The platform accepts .mha and TIFF. TIFF is refused here: it stores no origin, and unusual pages corrupt ITK's memory.
TIFF_SUFFIXES: Final = (".tif", ".tiff")
PLATFORM_IMAGE_SUFFIXES: Final = (".mha", *TIFF_SUFFIXES)
# .nii.gz is for local use; an algorithm must not write it.
READABLE_IMAGE_SUFFIXES: Final = (".mha", ".nii.gz")
# Formats that store an image in a single file.
ONE_FILE_SUFFIXES: Final = (*READABLE_IMAGE_SUFFIXES, ".nii")
# Only for images that a user names one by one: a submitted .mhd could point to any file.
NAMED_IMAGE_SUFFIXES: Final = (*ONE_FILE_SUFFIXES, ".mhd")
MAX_FILES_IN_IMAGE_FOLDER: Final = 1000
# Entries that macOS and Windows add, in lower case; names that begin with a dot are always skipped.
_SYSTEM_NAMES: Final = frozenset(
    {"__macosx", ".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini", "$recycle.bin", "icon\r"}
)


def normalise_unicode(text: str) -> str:
    """Return a text in Unicode form NFC, so that names that look the same compare equal.

    macOS decomposes the letters of file names (NFD), while tables and other systems usually use NFC.
    """
    return unicodedata.normalize("NFC", text)


def is_system_name(name: str) -> bool:
    """Return whether an entry of a folder or archive is hidden or was added by an operating system."""
    return name.startswith(".") or is_added_by_system(name)


def is_added_by_system(name: str) -> bool:
    """Return whether an operating system added an entry, such as `._scan.nii.gz`; other hidden files do not count."""
    return name.startswith("._") or name.lower() in _SYSTEM_NAMES


def is_below_system_name(path: PurePath) -> bool:
    """Return whether a part of a relative path is hidden or was added by an operating system."""
    return any(is_system_name(part) for part in path.parts)
