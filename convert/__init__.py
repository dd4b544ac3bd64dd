"""Conversion of DICOM studies into cases: `convert_dicom` (docs/formats.md).

The import of this package imports neither SimpleITK nor pydicom, which only the extra `dicom` installs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convert.pipeline import ConvertedCase, ConvertRequest, convert_dicom

__all__ = ["ConvertRequest", "ConvertedCase", "convert_dicom"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("convert.pipeline"), name)
