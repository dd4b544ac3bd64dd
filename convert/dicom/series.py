"""Group the images of a folder into series, without those that are no volume."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from contract.errors import InputError
from convert.dicom.headers import DicomHeader

CT, PET, STRUCTURES, DOSE = "CT", "PT", "RTSTRUCT", "RTDOSE"
_SOP_CLASSES: Final = {
    CT: ("1.2.840.10008.5.1.4.1.1.2",),
    PET: ("1.2.840.10008.5.1.4.1.1.128",),
    STRUCTURES: ("1.2.840.10008.5.1.4.1.1.481.3",),
    DOSE: ("1.2.840.10008.5.1.4.1.1.481.2",),
}
# Enhanced and legacy converted enhanced CT and PET.
_ENHANCED: Final = (
    "1.2.840.10008.5.1.4.1.1.2.1",
    "1.2.840.10008.5.1.4.1.1.2.2",
    "1.2.840.10008.5.1.4.1.1.130",
    "1.2.840.10008.5.1.4.1.1.128.1",
)
_SMALLEST_SERIES: Final = 4
_SCOUTS: Final = frozenset({"LOCALIZER", "SCOUT"})
_PROJECTIONS: Final = frozenset({"MIP", "MINIP", "PROJECTION"})
_OTHER_CT_VALUES: Final = ("Z_EFF", "ED", "EDW", "HU_MOD", "MGML", "PCT", "OD")  # maps of spectral CT
_UNCORRECTED: Final = re.compile(r"(?<![a-z])nac(?![a-z])|uncorrected|non?[ _-]?(ac(?![a-z])|att)", re.IGNORECASE)


@dataclass(frozen=True)
class ImageSeries:
    """The images of a CT or PET series, in the order of the files."""

    uid: str
    description: str
    headers: tuple[DicomHeader, ...]

    @property
    def frame_of_reference(self) -> str:
        """UID of the patient coordinate system, empty if absent."""
        return self.headers[0].text("FrameOfReferenceUID")

    @property
    def is_original(self) -> bool:
        """True unless the images were derived from others."""
        return "DERIVED" not in self.headers[0].words("ImageType")

    @property
    def is_attenuation_corrected(self) -> bool:
        """Of a PET: by CorrectedImage or, without it, by the description."""
        corrections = self.headers[0].words("CorrectedImage")
        return "ATTN" in corrections if corrections else not _UNCORRECTED.search(self.description)

    def __str__(self) -> str:
        return f"{self.description!r} ({len(self.headers)} slices, UID {self.uid})"


@dataclass(frozen=True)
class Study:
    """The usable objects of one patient, and what was ignored, with the reason."""

    ct: tuple[ImageSeries, ...]
    pet: tuple[ImageSeries, ...]
    structures: tuple[DicomHeader, ...]
    doses: tuple[DicomHeader, ...]
    ignored: tuple[str, ...]


def sort_objects(headers: Sequence[DicomHeader]) -> Study:
    """Sort the objects of a folder.

    Raises:
        InputError: several patients, or CT and PET series of several studies.
    """
    _check_single(headers, "PatientID", "patients", "the folder of one patient")
    usable: dict[tuple[str, str], list[DicomHeader]] = defaultdict(list)
    ignored: dict[tuple[str, str], list[DicomHeader]] = defaultdict(list)
    for header in headers:
        reason, uid = _unusable(header), header.text("SeriesInstanceUID")
        if reason:
            ignored[uid, reason].append(header)
        else:
            usable[header.text("Modality"), uid].append(header)
    for (modality, uid), members in list(usable.items()):
        if modality in (CT, PET) and len(members) < _SMALLEST_SERIES:
            ignored[uid, f"fewer than {_SMALLEST_SERIES} slices"] += usable.pop((modality, uid))
    images = [header for (modality, _), members in usable.items() for header in members if modality in (CT, PET)]
    _check_single(images, "StudyInstanceUID", "studies", "the folder of one study")
    by_modality: dict[str, list[ImageSeries]] = defaultdict(list)
    for (modality, uid), members in usable.items():
        by_modality[modality].append(ImageSeries(uid, _description(members[0]), tuple(members)))
    return Study(
        tuple(by_modality[CT]),
        tuple(by_modality[PET]),
        _objects(by_modality[STRUCTURES]),
        _objects(by_modality[DOSE]),
        tuple(_ignored_line(reason, members) for (_, reason), members in ignored.items()),
    )


def _objects(series: Iterable[ImageSeries]) -> tuple[DicomHeader, ...]:
    return tuple(header for one in series for header in one.headers)


def _unusable(header: DicomHeader) -> str:
    """Why an object is ignored, empty if it is used."""
    modality, sop_class = header.text("Modality"), header.text("SOPClassUID")
    if modality not in _SOP_CLASSES:
        return f"modality {modality or 'absent'}"
    if sop_class in _ENHANCED:
        return "enhanced multi-frame images; export single slices"
    if sop_class not in _SOP_CLASSES[modality]:
        return "secondary capture" if ".1.1.7" in sop_class else f"SOP class {sop_class}"
    return _no_volume(header) if modality in (CT, PET) else ""


def _no_volume(header: DicomHeader) -> str:
    """Why a CT or PET image is no slice of a volume, empty if it is one."""
    words = {token for word in header.words("ImageType") for token in re.split(r"[ _]", word)}
    if words & _SCOUTS:
        return "localizer"
    if words & _PROJECTIONS:
        return "projection"
    if header.text("RescaleType") in _OTHER_CT_VALUES:
        return f"values of type {header.text('RescaleType')}, not HU"
    return "colour image" if (header.optional_number("SamplesPerPixel") or 1) != 1 else ""


def _check_single(headers: Iterable[DicomHeader], keyword: str, plural: str, expected: str) -> None:
    examples: dict[str, DicomHeader] = {}
    for header in headers:
        if value := header.text(keyword):
            examples.setdefault(value, header)
    if len(examples) > 1:
        listed = ", ".join(f"{value} ({header.name})" for value, header in list(examples.items())[:4])
        raise InputError("input folder", f"found {len(examples)} {plural}: {listed}", expected)


def _description(header: DicomHeader) -> str:
    return header.text("SeriesDescription") or f"series {header.text('SeriesNumber') or 'without number'}"


def _ignored_line(reason: str, members: Sequence[DicomHeader]) -> str:
    count = f"{len(members)} file{'s' if len(members) > 1 else ''}"
    return f"{_description(members[0])!r} ({members[0].text('Modality')}, {count}): {reason}"
