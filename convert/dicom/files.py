"""Find and read DICOM files, with errors that name file and tag; files of other formats are counted."""

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

    `ignored` counts the files of other formats and DICOMDIR files, and further copies of one object. `findings` name
    files that are no DICOM files by their content but by their suffix.
    """

    headers: tuple[DicomHeader, ...]
    ignored: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def require_libraries() -> None:
    """Check that the extra `dicom` is installed.

    Raises:
        HecktorError: a library is missing; the message names the pip command.
    """
    missing = [package for module, package in _LIBRARIES.items() if importlib.util.find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        found = f"{' and '.join(missing)} {verb} not installed"
        raise HecktorError("reading DICOM", found, "the extra `dicom`: pip install 'hecktor[dicom]'")


@contextmanager
def quiet_pydicom() -> Iterator[None]:
    """Silence pydicom's warnings about values that break a rule of the standard; those that are used are checked."""
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
        InputError: no such folder, no DICOM file, or an unreadable one.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "no such folder", "a folder of DICOM files")
    paths = [path for path in find_files(folder) if not is_below_system_name(path.relative_to(folder))]
    headers: dict[str, DicomHeader] = {}
    others: list[str] = []
    copies = 0
    for path in tqdm(paths, desc="read headers", unit="file", disable=None, leave=False):
        name = path.relative_to(folder).as_posix()
        header = _read_header(path, name)
        if header is None:
            others.append(name)
            continue
        uid = str(header.required("SOPInstanceUID", "the identifier of the object"))
        copies += uid in headers
        headers.setdefault(uid, header)
    if not headers:
        found = f"found no DICOM file among {len(others)} files{_list_names(others)}"
        raise InputError(str(folder), found, "a study with CT and PET")
    ignored = [_count(len(others), f"not a DICOM object, or DICOMDIR{_list_names(others)}")] if others else []
    ignored += [_count(copies, "further copies of the same object")] if copies else []
    damaged = [name for name in others if name.lower().endswith(_DICOM_SUFFIXES)]
    findings: tuple[Finding, ...] = ()
    if damaged:
        found = f"found no DICOM data in {len(damaged)} file{'s' if len(damaged) > 1 else ''}{_list_names(damaged)}"
        findings = (Finding(folder.name, found, "complete DICOM files", "left out"),)
    return DicomFolder(tuple(headers.values()), tuple(ignored), findings)


def _count(number: int, what: str) -> str:
    return f"{number} file{'s' if number > 1 else ''}: {what}"


def _list_names(names: Sequence[str]) -> str:
    """Return the first names in brackets, empty without names."""
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return f" ({', '.join(names[:_MAX_SHOWN])}{more})" if names else ""


def read_pixels(header: DicomHeader) -> npt.NDArray[Any]:
    """Decoded stored values without rescaling: (rows, columns), or (frames, rows, columns) of an RT dose.

    Raises:
        InputError: truncated, or pixel data that cannot be decoded.
    """
    with _reading(header.name) as dcmread:
        dataset = dcmread(header.path, force=True)
        if "PixelData" not in dataset:
            raise InputError(header.name, f"found no {tag_name('PixelData')}", "a complete file")
        _set_transfer_syntax(dataset)
        return np.asarray(dataset.pixel_array)


def _read_header(path: Path, name: str) -> DicomHeader | None:
    """Header of a file; None for other formats and DICOMDIR.

    A file without the 128 bytes and DICM at its start is read if it begins with the first group of a header.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_PREAMBLE_BYTES + 4)
    except OSError as problem:
        raise make_read_error(name, problem, InputError, "a readable file") from None
    has_preamble = start[_PREAMBLE_BYTES:] == b"DICM"
    if not has_preamble and (start[:2] not in _FIRST_GROUPS or not _is_data_set(path)):
        return None
    with _reading(name) as dcmread:
        dataset = dcmread(path, stop_before_pixels=True, force=True)
        if dataset.file_meta.get("MediaStorageSOPClassUID") == _DIRECTORY:
            return None
    header = DicomHeader(name, path, dataset)
    header.required("SOPClassUID", "a complete DICOM file; it may be truncated")
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
    """Set the syntax of a file without a file header, whose pixels are not compressed."""
    from pydicom import uid

    if "TransferSyntaxUID" in dataset.file_meta:
        return
    is_implicit, is_little = dataset.original_encoding
    explicit = uid.ExplicitVRLittleEndian if is_little else uid.ExplicitVRBigEndian
    dataset.file_meta.TransferSyntaxUID = uid.ImplicitVRLittleEndian if is_implicit else explicit


@contextmanager
def _reading(name: str) -> Iterator[Any]:
    """Yield pydicom's `dcmread`; what it raises on a damaged file becomes an InputError that names the file."""
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

    `name` is the path relative to the input folder, for messages; `path` is the file.
    """

    name: str
    path: Path
    dataset: Dataset

    def optional(self, keyword: str) -> Any:
        """The value of an attribute; None if it is absent, empty or blank."""
        value = self._value(keyword)
        if value is None or (hasattr(value, "__len__") and len(value) == 0):
            return None
        return None if isinstance(value, str) and not value.strip() else value

    def text(self, keyword: str) -> str:
        """The value as text in one line, empty if absent."""
        value = self.optional(keyword)
        return "" if value is None else " ".join(str(value).split())

    def words(self, keyword: str) -> tuple[str, ...]:
        """The values of a multi-valued code string in capitals, empty if absent."""
        value = self.optional(keyword)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        return tuple(str(one).strip().upper() for one in values)

    def required(self, keyword: str, expected: str) -> Any:
        """The value of an attribute.

        Raises:
            InputError: absent or empty; the message names file, keyword and tag.
        """
        value = self.optional(keyword)
        if value is None:
            raise InputError(self.name, f"found no {tag_name(keyword)}", expected)
        return value

    def optional_number(self, keyword: str) -> float | None:
        """The value as a finite number, None if absent.

        Raises:
            InputError: not a finite number.
        """
        value = self.optional(keyword)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(self.name, f"found {tag_name(keyword)} {str(value)[:40]!r}", "a number")
        return number

    def number(self, keyword: str, expected: str) -> float:
        """The value as a finite number; raises InputError if absent or not a number."""
        self.required(keyword, expected)
        number = self.optional_number(keyword)
        assert number is not None  # noqa: S101  `required` checked it
        return number

    def numbers(self, keyword: str, count: int | None, expected: str) -> tuple[float, ...]:
        """`count` finite numbers, any count if None; raises InputError for any other value."""
        value = self.required(keyword, expected)
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        try:
            numbers = tuple(float(one) for one in values)
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) != (count or len(values)) or not all(map(math.isfinite, numbers)):
            raise InputError(self.name, f"found {tag_name(keyword)} {str(value)[:60]}", expected)
        return numbers

    def items(self, keyword: str) -> tuple[DicomHeader, ...]:
        """The items of a sequence, empty if absent."""
        return tuple(DicomHeader(self.name, self.path, item) for item in self.optional(keyword) or ())

    def private(self, group: int, creator: str, element: int) -> Any:
        """A private element, such as (0009,xx0D) of creator GEMS_PETD_01; None if absent or empty."""
        from pydicom.tag import BaseTag

        dataset = self.dataset
        try:
            tag = dataset.private_block(group, creator).get_tag(element)
        except KeyError:
            if (group, 0x0010) in dataset:
                return None
            tag = BaseTag(group << 16 | 0x1000 | element)  # anonymisation may have removed the creator
        value = dataset[tag].value if tag in dataset else None
        if isinstance(value, bytes):  # of unknown type without its creator
            value = value.decode("ascii", "replace").strip(" \0")
        return value or None

    def _value(self, keyword: str) -> Any:
        try:
            return self.dataset.get(keyword)
        except Exception as problem:  # noqa: BLE001  values are parsed here, which raises many types in damaged files
            raise InputError(self.name, f"{tag_name(keyword)} cannot be read ({problem})", "a valid value") from None


def read_shared(headers: Sequence[DicomHeader], what: str, read: Callable[[DicomHeader], _Value]) -> _Value:
    """Return the value that all slices share; `what` names it in the message.

    Raises:
        InputError: a slice gives another value than the first one; the message names both files.
    """
    first = read(headers[0])
    for header in headers[1:]:
        value = read(header)
        if value != first:
            shown, expected = ("absent" if item is None else str(item) for item in (value, first))
            raise InputError(header.name, f"found {what} {shown}", f"{expected} as in {headers[0].name}")
    return first


def tag_name(keyword: str) -> str:
    """Keyword and tag of an attribute: `PatientWeight (0010,1030)`."""
    from pydicom.datadict import tag_for_keyword

    tag = tag_for_keyword(keyword) or 0
    return f"{keyword} ({tag >> 16:04X},{tag & 0xFFFF:04X})"
