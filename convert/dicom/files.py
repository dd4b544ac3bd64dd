"""Find and read DICOM files, with errors that name file and tag."""

from __future__ import annotations

import importlib.util
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from contract.errors import Finding, HecktorError, InputError, make_read_error
from contract.io.files import find_files
from contract.platform import is_below_system_name

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_LIBRARIES: Final = {"pydicom": "pydicom", "gdcm": "python-gdcm", "skimage": "scikit-image"}
_DIRECTORY: Final = "1.2.840.10008.1.3.10"  # SOP class of DICOMDIR
_PREAMBLE_BYTES: Final = 128
# A data set begins with group 0002 or 0008, in little or big endian.
_FIRST_GROUPS: Final = (b"\x02\x00", b"\x08\x00", b"\x00\x02", b"\x00\x08")
_DICOM_SUFFIXES: Final = (".dcm", ".dicom", ".ima")
_MAX_SHOWN: Final = 5
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class DicomFolder:
    """The headers of all DICOM files in a folder and its sub-folders, without pixels.

    `ignored` states how many files were ignored: files of other formats, DICOMDIR files and copies of an object.
    `findings` name files with the suffix of a DICOM file but without DICOM content.
    """

    headers: tuple[DicomHeader, ...]
    ignored: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def require_libraries() -> None:
    """Check that the extra `dicom` is installed.

    Raises:
        HecktorError: A library is missing; the message names the pip command.
    """
    missing = [package for module, package in _LIBRARIES.items() if importlib.util.find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        problem = f"{' and '.join(missing)} {verb} not installed"
        raise HecktorError("reading DICOM", problem, "the extra `dicom`: pip install 'hecktor[dicom]'")


@contextmanager
def quiet_pydicom() -> Iterator[None]:
    """Silence pydicom's warnings about values that violate the standard; all values that are used are checked here."""
    logger = logging.getLogger("pydicom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pydicom")
            yield
    finally:
        logger.setLevel(level)


def read_folder(folder: Path) -> DicomFolder:
    """Read all headers below `folder`, with a progress bar; the order of the files does not matter.

    Raises:
        InputError: The folder does not exist or contains no DICOM file, or a DICOM file cannot be read.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "no such folder", "a folder of DICOM files")
    paths = [path for path in find_files(folder) if not is_below_system_name(path.relative_to(folder))]
    headers: dict[str, DicomHeader] = {}
    ignored_names: list[str] = []
    copies = 0
    for path in tqdm(paths, desc="read headers", unit="file", disable=None, leave=False):
        name = path.relative_to(folder).as_posix()
        header = _read_header(path, name)
        if header is None:
            ignored_names.append(name)
            continue
        uid = str(header.require("SOPInstanceUID", "the identifier of the object"))
        copies += uid in headers
        headers.setdefault(uid, header)
    if not headers:
        problem = f"found no DICOM file among {len(ignored_names)} files{_list_names(ignored_names)}"
        raise InputError(str(folder), problem, "a study with CT and PET")
    ignored = []
    if ignored_names:
        reason = f"not a DICOM object, or DICOMDIR{_list_names(ignored_names)}"
        ignored.append(_format_count(len(ignored_names), reason))
    if copies:
        ignored.append(_format_count(copies, "further copies of the same object"))
    damaged = [name for name in ignored_names if name.lower().endswith(_DICOM_SUFFIXES)]
    findings: tuple[Finding, ...] = ()
    if damaged:
        problem = f"found no DICOM data in {len(damaged)} file{'s' if len(damaged) > 1 else ''}{_list_names(damaged)}"
        findings = (Finding(folder.name, problem, "complete DICOM files", "left out"),)
    return DicomFolder(tuple(headers.values()), tuple(ignored), findings)


def _format_count(number: int, reason: str) -> str:
    return f"{number} file{'s' if number > 1 else ''}: {reason}"


def _list_names(names: Sequence[str]) -> str:
    """Return the first names in brackets; empty without names."""
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return f" ({', '.join(names[:_MAX_SHOWN])}{more})" if names else ""


def read_pixels(header: DicomHeader) -> npt.NDArray[Any]:
    """Decode the stored values of an image without rescaling.

    Returns:
        Array of shape (rows, columns), or (frames, rows, columns) of an RT dose.

    Raises:
        InputError: The file is truncated, or its pixel data cannot be decoded.
    """
    with _open_reader(header.name) as dcmread:
        dataset = dcmread(header.path, force=True)
        if "PixelData" not in dataset:
            raise InputError(header.name, f"found no {format_tag('PixelData')}", "a complete file")
        _set_transfer_syntax(dataset)
        return np.asarray(dataset.pixel_array)


def _read_header(path: Path, name: str) -> DicomHeader | None:
    """Read the header of a file; return None for other formats and DICOMDIR.

    A DICOM file starts with 128 bytes and DICM. Any other file is read if it begins with the first group of a header.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_PREAMBLE_BYTES + 4)
    except OSError as problem:
        raise make_read_error(name, problem, InputError, "a readable file") from None
    has_preamble = start[_PREAMBLE_BYTES:] == b"DICM"
    if not has_preamble and (start[:2] not in _FIRST_GROUPS or not _is_data_set(path)):
        return None
    with _open_reader(name) as dcmread:
        dataset = dcmread(path, stop_before_pixels=True, force=True)
        if dataset.file_meta.get("MediaStorageSOPClassUID") == _DIRECTORY:
            return None
    header = DicomHeader(name, path, dataset)
    header.require("SOPClassUID", "a complete DICOM file; it may be truncated")
    return header


def _is_data_set(path: Path) -> bool:
    """Return whether a file without a preamble can be read as a DICOM data set with class and instance."""
    from pydicom import dcmread

    try:
        dataset = dcmread(path, specific_tags=["SOPClassUID", "SOPInstanceUID"], stop_before_pixels=True, force=True)
        return bool(dataset.get("SOPClassUID")) and bool(dataset.get("SOPInstanceUID"))
    except Exception:  # noqa: BLE001  the parser raises many types on files of other formats
        return False


def _set_transfer_syntax(dataset: Dataset) -> None:
    """Set the transfer syntax of a file without a file header; its pixels are not compressed."""
    from pydicom import uid

    if "TransferSyntaxUID" in dataset.file_meta:
        return
    is_implicit, is_little = dataset.original_encoding
    explicit = uid.ExplicitVRLittleEndian if is_little else uid.ExplicitVRBigEndian
    dataset.file_meta.TransferSyntaxUID = uid.ImplicitVRLittleEndian if is_implicit else explicit


@contextmanager
def _open_reader(name: str) -> Iterator[Any]:
    """Yield pydicom's `dcmread` and turn its exceptions into an `InputError` that names the file."""
    from pydicom import dcmread

    try:
        yield dcmread
    except HecktorError:
        raise
    except Exception as problem:  # noqa: BLE001  parsers and decoders raise many types on damaged files
        reason = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise InputError(name, f"cannot be read ({reason})", "a complete DICOM file") from None


@dataclass(frozen=True)
class DicomHeader:
    """Attributes of one DICOM file, or of one item of its sequences.

    The methods `require...` raise `InputError` if the attribute is absent; the error names file, keyword and tag.

    Attributes:
        name: Path relative to the input folder, for messages.
        path: Path of the file.
        dataset: The attributes as pydicom read them.
    """

    name: str
    path: Path
    dataset: Dataset

    def get(self, keyword: str) -> Any:
        """Return the value of an attribute, None if it is absent, empty or blank."""
        value = self._value(keyword)
        if value is None or (hasattr(value, "__len__") and len(value) == 0):
            return None
        return None if isinstance(value, str) and not value.strip() else value

    def text(self, keyword: str) -> str:
        """Return the value as text in one line, empty if it is absent."""
        value = self.get(keyword)
        return "" if value is None else " ".join(str(value).split())

    def words(self, keyword: str) -> tuple[str, ...]:
        """Return the values of a code string in capitals; empty if it is absent."""
        value = self.get(keyword)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        return tuple(str(word).strip().upper() for word in values)

    def require(self, keyword: str, expected: str) -> Any:
        """Return the value of an attribute; raise `InputError` if it is absent or empty."""
        value = self.get(keyword)
        if value is None:
            raise InputError(self.name, f"found no {format_tag(keyword)}", expected)
        return value

    def get_number(self, keyword: str) -> float | None:
        """Return the value as a number, None if it is absent; raise `InputError` if it is not finite."""
        value = self.get(keyword)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(self.name, f"found {format_tag(keyword)} {str(value)[:40]!r}", "a number")
        return number

    def require_number(self, keyword: str, expected: str) -> float:
        """Return the value as a number; raise `InputError` if it is absent or not finite."""
        self.require(keyword, expected)
        number = self.get_number(keyword)
        assert number is not None  # noqa: S101  `require` checked it
        return number

    def require_numbers(self, keyword: str, count: int | None, expected: str) -> tuple[float, ...]:
        """Return `count` finite numbers, any number of them if it is None; raise `InputError` for other values."""
        value = self.require(keyword, expected)
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        try:
            numbers = tuple(float(number) for number in values)
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) != (count or len(values)) or not all(map(math.isfinite, numbers)):
            raise InputError(self.name, f"found {format_tag(keyword)} {str(value)[:60]}", expected)
        return numbers

    def items(self, keyword: str) -> tuple[DicomHeader, ...]:
        """Return the items of a sequence, empty if it is absent."""
        return tuple(DicomHeader(self.name, self.path, item) for item in self.get(keyword) or ())

    def get_private(self, group: int, creator: str, element: int) -> Any:
        """Return a private element, such as (0009,xx0D) of creator GEMS_PETD_01; None if it is absent or empty."""
        from pydicom.tag import BaseTag

        dataset = self.dataset
        try:
            tag = dataset.private_block(group, creator).get_tag(element)
        except KeyError:
            if (group, 0x0010) in dataset:
                return None
            tag = BaseTag(group << 16 | 0x1000 | element)  # Anonymisation may have removed the creator.
        value = dataset[tag].value if tag in dataset else None
        if isinstance(value, bytes):  # The type is unknown without the creator.
            value = value.decode("ascii", "replace").strip(" \0")
        return value or None

    def _value(self, keyword: str) -> Any:
        try:
            return self.dataset.get(keyword)
        except Exception as problem:  # noqa: BLE001  values are parsed here, which raises many types in damaged files
            raise InputError(self.name, f"{format_tag(keyword)} cannot be read ({problem})", "a valid value") from None


def read_shared(headers: Sequence[DicomHeader], what: str, read: Callable[[DicomHeader], _Value]) -> _Value:
    """Read a value that all slices must share; `what` names the value in the message.

    Raises:
        InputError: A slice has another value than the first slice; the message names both files.
    """
    first = read(headers[0])
    for header in headers[1:]:
        value = read(header)
        if value != first:
            shown, expected = ("absent" if item is None else str(item) for item in (value, first))
            raise InputError(header.name, f"found {what} {shown}", f"{expected} as in {headers[0].name}")
    return first


def format_tag(keyword: str) -> str:
    """Return keyword and tag of an attribute, such as `PatientWeight (0010,1030)`."""
    from pydicom.datadict import tag_for_keyword

    tag = tag_for_keyword(keyword) or 0
    return f"{keyword} ({tag >> 16:04X},{tag & 0xFFFF:04X})"
