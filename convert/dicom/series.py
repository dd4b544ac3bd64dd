"""Group the images of a folder into series, without those that are no volume, and choose one CT and one PET."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.errors import Finding, InputError
from contract.platform import compose
from convert.dicom.files import DicomHeader
from convert.dicom.slices import SlicePlane

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
        """True unless an image was derived from others."""
        return not any("DERIVED" in header.words("ImageType") for header in self.headers)

    @property
    def is_attenuation_corrected(self) -> bool:
        """Of a PET: by the first CorrectedImage or, without it, by the description. The SUV checks every slice."""
        corrections = next((words for header in self.headers if (words := header.words("CorrectedImage"))), ())
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
    """The reason to ignore an object, empty if it is used."""
    modality, sop_class = header.text("Modality"), header.text("SOPClassUID")
    if modality not in _SOP_CLASSES:
        return f"modality {modality or 'absent'}"
    if sop_class in _ENHANCED:
        return "enhanced multi-frame images; export single slices"
    if sop_class not in _SOP_CLASSES[modality]:
        return "secondary capture" if ".1.1.7" in sop_class else f"SOP class {sop_class}"
    return _no_volume(header) if modality in (CT, PET) else ""


def _no_volume(header: DicomHeader) -> str:
    """The reason why a CT or PET image is no slice of a volume, empty if it is one."""
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


# Rank by which a series is preferred, in this order.
_Criterion = tuple[str, Callable[[ImageSeries], float]]
_COMMON: Final[tuple[_Criterion, ...]] = (
    ("axial slices", lambda series: float(SlicePlane.of(series.headers[0]).is_axial)),
    ("not derived", lambda series: float(series.is_original)),
    ("most slices", lambda series: len(series.headers)),
)


@dataclass(frozen=True)
class ChosenSeries:
    """CT and PET of a case, the other CT series, and by UID the reason against each other series."""

    ct: ImageSeries
    pet: ImageSeries
    other_ct: tuple[ImageSeries, ...]
    ignored: Mapping[str, str]
    findings: tuple[Finding, ...]


def choose_series(study: Study, ct_wanted: str | None, pet_wanted: str | None) -> ChosenSeries:
    """Choose by the options `--ct-series` and `--pet-series` (UID or description), otherwise by rule.

    PET: corrected for attenuation, axial, not derived, most slices. CT: the PET's frame of reference,
    largest overlap with the PET, then the same.

    Raises:
        InputError: no CT or PET, several that the rule cannot tell apart, or CT and PET in different frames of
            reference without `--ct-series`.
    """
    pet, pet_reasons = _choose_pet(study, pet_wanted)
    ct, ct_reasons = _choose_ct(study, pet, ct_wanted)
    others = tuple(series for series in study.ct if series is not ct)
    findings = _check_frames(ct, pet, chosen_by_user=ct_wanted is not None)
    return ChosenSeries(ct, pet, others, {**pet_reasons, **ct_reasons}, findings)


def _choose_pet(study: Study, wanted: str | None) -> tuple[ImageSeries, dict[str, str]]:
    _require_any(study.pet, "PET", study)
    if wanted is not None:
        return _named(study.pet, wanted, "PET", "--pet-series")
    corrected = [series for series in study.pet if series.is_attenuation_corrected]
    reasons = {
        series.uid: f"PET {series}: no attenuation correction" for series in study.pet if series not in corrected
    }
    if not corrected:
        raise InputError("input folder", f"found only {'; '.join(reasons.values())}", "a PET with that correction")
    chosen, more = _best(corrected, _COMMON, "PET", "--pet-series")
    return chosen, reasons | more


def _choose_ct(study: Study, pet: ImageSeries, wanted: str | None) -> tuple[ImageSeries, dict[str, str]]:
    _require_any(study.ct, "CT", study)
    if wanted is not None:
        return _named(study.ct, wanted, "CT", "--ct-series")
    if len(study.ct) == 1:
        return study.ct[0], {}
    pet_box = _box_mm(pet)
    criteria = (
        ("frame of reference of the PET", lambda series: float(series.frame_of_reference == pet.frame_of_reference)),
        ("largest overlap with the PET", lambda series: round(_overlap(_box_mm(series), pet_box), 1)),
        *_COMMON,
    )
    return _best(study.ct, criteria, "CT", "--ct-series")


def _require_any(series: Sequence[ImageSeries], kind: str, study: Study) -> None:
    if not series:
        ignored = f" (ignored: {'; '.join(study.ignored)})" if study.ignored else ""
        raise InputError("input folder", f"found no {kind} series{ignored}", "a study with CT and PET")


def _named(series: Sequence[ImageSeries], wanted: str, kind: str, option: str) -> tuple[ImageSeries, dict[str, str]]:
    text = compose(wanted).strip().lower()
    for matches in (
        [one for one in series if one.uid == wanted.strip()],
        [one for one in series if compose(one.description).lower() == text],
        [one for one in series if text in compose(one.description).lower()],
    ):
        if len(matches) == 1:
            others = {one.uid: f"{kind} {one}: not chosen by {option}" for one in series if one is not matches[0]}
            return matches[0], others
    listed = ", ".join(map(str, series))
    raise InputError(option, f"found {wanted!r}", f"the UID or description of one of {listed}")


def _best(
    series: Sequence[ImageSeries], criteria: Sequence[_Criterion], kind: str, option: str
) -> tuple[ImageSeries, dict[str, str]]:
    """The first in rank and, by UID of each other series, the criterion that decided against it."""
    ranks = [(tuple(measure(one) for _, measure in criteria), one) for one in series]
    ranks.sort(key=lambda entry: entry[0], reverse=True)
    (first, chosen), others = ranks[0], ranks[1:]
    tied = [one for rank, one in others if rank == first]
    if tied:
        listed = ", ".join(map(str, [chosen, *tied]))
        raise InputError(
            "input folder", f"found {len(tied) + 1} {kind} series alike: {listed}", f"one; choose by {option}"
        )
    reasons = {}
    for rank, other in others:
        reason = next(name for (name, _), a, b in zip(criteria, first, rank, strict=True) if a != b)
        reasons[other.uid] = f"{kind} {other}: {chosen.description!r} was chosen ({reason})"
    return chosen, reasons


def _box_mm(series: ImageSeries) -> npt.NDArray[np.float64]:
    """Lowest and highest corner of a series in patient space, shape (2, 3)."""
    corners = np.concatenate([SlicePlane.of(header).corners_mm() for header in series.headers])
    return np.array([corners.min(axis=0), corners.max(axis=0)])


def _overlap(box: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Fraction of the volume of `other` that lies in `box`."""
    common = np.minimum(box[1], other[1]) - np.maximum(box[0], other[0])
    return float(np.prod(np.clip(common, 0, None)) / np.prod(np.maximum(other[1] - other[0], 1e-6)))


def _check_frames(ct: ImageSeries, pet: ImageSeries, *, chosen_by_user: bool) -> tuple[Finding, ...]:
    if ct.frame_of_reference and ct.frame_of_reference == pet.frame_of_reference:
        return ()
    found = f"FrameOfReferenceUID (0020,0052) of CT {ct.description!r} and PET {pet.description!r} "
    expected = "the same, from one examination"
    if not ct.frame_of_reference or not pet.frame_of_reference:
        return (Finding("input folder", f"{found}is absent", expected, "taken as aligned"),)
    if chosen_by_user:
        return (Finding("input folder", f"{found}differ", expected, "taken as aligned because of --ct-series"),)
    raise InputError("input folder", f"{found}differ", f"{expected}; if they are aligned, choose the CT by --ct-series")
