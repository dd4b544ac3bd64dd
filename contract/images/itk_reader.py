"""Open image files with ITK, without the headers that it misreads.

SimpleITK takes 0.4 s to import, so only the functions that read or write an image import it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contract.errors import HecktorError
from contract.images.completeness import nifti_defect
from contract.images.metaimage import GEOMETRY_FIELDS, MAX_HEADER_BYTES, mha_fields
from contract.platform import TIFF_SUFFIXES

if TYPE_CHECKING:
    import SimpleITK as sitk

# Chosen by suffix: ITK would reject capitals, and would read another format under a known suffix.
_ITK_READERS: Final = {
    ".mha": "MetaImageIO",
    ".mhd": "MetaImageIO",
    ".nii.gz": "NiftiImageIO",
    ".nii": "NiftiImageIO",
}


def open_reader(path: Path, suffix: str | None, error: type[HecktorError]) -> sitk.ImageFileReader:
    """Open an image and read its header; `suffix` chooses the format, MetaImage if None.

    Raises:
        HecktorError: of class `error`: absent, empty, or not readable.
    """
    if not path.exists():
        raise error(path.name, f"not found in {path.parent.name}", "an image")
    if not path.is_file():
        raise error(path.name, "not a regular file", "an image")
    if path.stat().st_size == 0:
        raise error(path.name, "empty file", "an image")
    if suffix in TIFF_SUFFIXES:
        raise error(path.name, "a TIFF, which stores no origin and no slice spacing", "an .mha or .nii.gz file")
    if suffix in (".mha", ".mhd"):
        _check_metaimage_text(path, error)
    if suffix in (".nii", ".nii.gz") and (fault := nifti_defect(path, header_only=True)):
        raise error(path.name, *fault)
    import SimpleITK as sitk

    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.SetImageIO(_ITK_READERS[suffix or ".mha"])
    try:
        reader.ReadImageInformation()
    except RuntimeError as problem:
        raise error(path.name, f"not a readable image ({itk_reason(problem, path)})") from None
    return reader


def _check_metaimage_text(path: Path, error: type[HecktorError]) -> None:
    """Reject a MetaImage header that ITK misreads.

    ITK reads out of bounds on an absurd NDims, takes a non-numeric origin for 0, and needs 7 s for 60 MB of comments.
    """
    with path.open("rb") as file:
        fields = mha_fields(file)
        if file.tell() > MAX_HEADER_BYTES:
            raise error(path.name, f"a header of more than {MAX_HEADER_BYTES} bytes", "an image with a shorter one")
    rank = fields.get("NDims", "3")
    if not (rank.isascii() and rank.isdecimal() and len(rank) == 1 and rank != "0"):
        raise error(path.name, f"not a readable image (NDims {rank[:40]!r})", "a 3D image")
    for key in sorted(GEOMETRY_FIELDS & fields.keys()):
        invalid = [token for token in fields[key].split() if not _is_finite(token)]
        if invalid:
            raise error(path.name, f"{key} holds {invalid[0][:40]!r}", "finite numbers")


def _is_finite(token: str) -> bool:
    try:
        return math.isfinite(float(token))
    except ValueError:
        return False


def itk_reason(problem: BaseException, path: Path) -> str:
    """The last sentence of an ITK message, without paths and memory addresses, which differ between runs."""
    text = re.sub(r"\(0x[0-9a-fA-F]+\)", "", str(problem).replace(str(path), path.name))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else type(problem).__name__
    if last == "Reason: Success":  # ITK's words for an error that no system call caused
        return "its header cannot be parsed"
    return re.sub(r"(/[^\s:\"']+)+/", "", last)[:200]
