"""Conversion of clinical data into cases: `convert_dicom` reads DICOM folders (docs/dicom.md).

Importing this package does not import pydicom, which only the extra `dicom` installs.
"""

from convert.pipeline import ConvertedCase, ConvertRequest, convert_dicom

__all__ = ["ConvertRequest", "ConvertedCase", "convert_dicom"]
