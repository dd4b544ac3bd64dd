"""Group the images of a folder into series, leave out images that form no volume, and choose one CT and one PET."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.errors import Finding, InputError
from contract.platform import normalise_unicode
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
_MIN_SLICES: Final = 4
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
        """Return the UID of the patient coordinate system, empty if absent."""
        return self.headers[0].text("FrameOfReferenceUID")

    @property
    def is_original(self) -> bool:
        """Return whether no image was derived from other images."""
        return not any("DERIVED" in header.words("ImageType") for header in self.headers)

    @property
    def is_attenuation_corrected(self) -> bool:
        """Return whether a PET is corrected: by CorrectedImage or, if it is absent, by the series description.

        Only the first slice with CorrectedImage counts here; `compute_suv_scale` checks all slices.
        """
        corrections = next((words for header in self.headers if (words := header.words("CorrectedImage"))), ())
        return "ATTN" in corrections if corrections else not _UNCORRECTED.search(self.description)

    def __str__(self) -> str:
        return f"{self.description!r} ({len(self.headers)} slices, UID {self.uid})"


@dataclass(frozen=True)
class Study:
    """The usable objects of one patient, and a line with the reason for each ignored series."""

    ct: tuple[ImageSeries, ...]
    pet: tuple[ImageSeries, ...]
    structures: tuple[DicomHeader, ...]
    doses: tuple[DicomHeader, ...]
    ignored: tuple[str, ...]


def sort_objects(headers: Sequence[DicomHeader]) -> Study:
    """Sort the objects of a folder by modality and series.

    Raises:
        InputError: The folder contains several patients, or CT and PET series of several studies.
    """
    _check_single(headers, "PatientID", "patients", "the folder of one patient")
    usable: dict[tuple[str, str], list[DicomHeader]] = defaultdict(list)
    ignored: dict[tuple[str, str], list[DicomHeader]] = defaultdict(list)
    for header in headers:
        reason = _find_ignore_reason(header)
        uid = header.text("SeriesInstanceUID")
        if reason is not None:
            ignored[uid, reason].append(header)
        else:
            usable[header.text("Modality"), uid].append(header)
    for (modality, uid), members in list(usable.items()):
        if modality in (CT, PET) and len(members) < _MIN_SLICES:
            ignored[uid, f"fewer than {_MIN_SLICES} slices"] += usable.pop((modality, uid))
    images = [header for (modality, _), members in usable.items() for header in members if modality in (CT, PET)]
    _check_single(images, "StudyInstanceUID", "studies", "the folder of one study")
    by_modality: dict[str, list[ImageSeries]] = defaultdict(list)
    for (modality, uid), members in usable.items():
        by_modality[modality].append(ImageSeries(uid, _describe_series(members[0]), tuple(members)))
    return Study(
        tuple(by_modality[CT]),
        tuple(by_modality[PET]),
        _join_headers(by_modality[STRUCTURES]),
        _join_headers(by_modality[DOSE]),
        tuple(_describe_ignored(reason, members) for (_, reason), members in ignored.items()),
    )


def _join_headers(series: Iterable[ImageSeries]) -> tuple[DicomHeader, ...]:
    return tuple(header for image_series in series for header in image_series.headers)


def _find_ignore_reason(header: DicomHeader) -> str | None:
    """Return the reason to ignore an object, None if it is used."""
    modality = header.text("Modality")
    sop_class = header.text("SOPClassUID")
    if modality not in _SOP_CLASSES:
        return f"modality {modality or 'absent'}"
    if sop_class in _ENHANCED:
        return "enhanced multi-frame images; export single slices"
    if sop_class not in _SOP_CLASSES[modality]:
        return "secondary capture" if ".1.1.7" in sop_class else f"SOP class {sop_class}"
    return _find_non_volume_reason(header) if modality in (CT, PET) else None


def _find_non_volume_reason(header: DicomHeader) -> str | None:
    """Return the reason why a CT or PET image is not a slice of a volume, None if it is a slice."""
    words = {token for word in header.words("ImageType") for token in re.split(r"[ _]", word)}
    if words & _SCOUTS:
        return "localizer"
    if words & _PROJECTIONS:
        return "projection"
    if header.text("RescaleType") in _OTHER_CT_VALUES:
        return f"values of type {header.text('RescaleType')}, not HU"
    return "colour image" if (header.get_number("SamplesPerPixel") or 1) != 1 else None


def _check_single(headers: Iterable[DicomHeader], keyword: str, plural: str, expected: str) -> None:
    examples: dict[str, DicomHeader] = {}
    for header in headers:
        if value := header.text(keyword):
            examples.setdefault(value, header)
    if len(examples) > 1:
        listed = ", ".join(f"{value} ({header.name})" for value, header in list(examples.items())[:4])
        raise InputError("input folder", f"found {len(examples)} {plural}: {listed}", expected)


def _describe_series(header: DicomHeader) -> str:
    return header.text("SeriesDescription") or f"series {header.text('SeriesNumber') or 'without number'}"


def _describe_ignored(reason: str, members: Sequence[DicomHeader]) -> str:
    count = f"{len(members)} file{'s' if len(members) > 1 else ''}"
    return f"{_describe_series(members[0])!r} ({members[0].text('Modality')}, {count}): {reason}"


# Name of a criterion and a function of a series; the series with the highest value is preferred.
_Criterion = tuple[str, Callable[[ImageSeries], float]]
_COMMON: Final[tuple[_Criterion, ...]] = (
    ("axial slices", lambda series: float(SlicePlane.from_header(series.headers[0]).is_axial)),
    ("not derived", lambda series: float(series.is_original)),
    ("most slices", lambda series: len(series.headers)),
)


@dataclass(frozen=True)
class ChosenSeries:
    """CT and PET of a case, the other CT series, and the reason by UID for each series that was not chosen."""

    ct: ImageSeries
    pet: ImageSeries
    other_ct: tuple[ImageSeries, ...]
    ignored: Mapping[str, str]
    findings: tuple[Finding, ...]


def choose_series(study: Study, ct_name: str | None, pet_name: str | None) -> ChosenSeries:
    """Choose CT and PET by the options `--ct-series` and `--pet-series` (UID or description), otherwise by rule.

    The PET must be corrected for attenuation; axial slices, an original series and most slices are preferred. For the
    CT, the PET's frame of reference and the largest overlap with the PET come before these criteria.

    Raises:
        InputError: There is no CT or PET, several series are equal by the rule, or CT and PET have different frames of
            reference without `--ct-series`.
    """
    pet, pet_reasons = _choose_pet(study, pet_name)
    ct, ct_reasons = _choose_ct(study, pet, ct_name)
    other_ct = tuple(series for series in study.ct if series is not ct)
    findings = _check_frames(ct, pet, chosen_by_user=ct_name is not None)
    return ChosenSeries(ct, pet, other_ct, {**pet_reasons, **ct_reasons}, findings)


def _choose_pet(study: Study, name: str | None) -> tuple[ImageSeries, dict[str, str]]:
    _check_present(study.pet, "PET", study)
    if name is not None:
        return _choose_by_name(study.pet, name, "PET", "--pet-series")
    corrected = [series for series in study.pet if series.is_attenuation_corrected]
    reasons = {
        series.uid: f"PET {series}: no attenuation correction" for series in study.pet if series not in corrected
    }
    if not corrected:
        raise InputError(
            "input folder", f"found only {'; '.join(reasons.values())}", "a PET that is corrected for attenuation"
        )
    chosen, reasons_by_rank = _choose_by_rank(corrected, _COMMON, "PET", "--pet-series")
    return chosen, reasons | reasons_by_rank


def _choose_ct(study: Study, pet: ImageSeries, name: str | None) -> tuple[ImageSeries, dict[str, str]]:
    _check_present(study.ct, "CT", study)
    if name is not None:
        return _choose_by_name(study.ct, name, "CT", "--ct-series")
    if len(study.ct) == 1:
        return study.ct[0], {}
    pet_box = _compute_bounding_box_mm(pet)
    criteria = (
        ("frame of reference of the PET", lambda series: float(series.frame_of_reference == pet.frame_of_reference)),
        (
            "largest overlap with the PET",
            lambda series: round(_compute_overlap_fraction(_compute_bounding_box_mm(series), pet_box), 1),
        ),
        *_COMMON,
    )
    return _choose_by_rank(study.ct, criteria, "CT", "--ct-series")


def _check_present(series: Sequence[ImageSeries], kind: str, study: Study) -> None:
    if not series:
        ignored = f" (ignored: {'; '.join(study.ignored)})" if study.ignored else ""
        raise InputError("input folder", f"found no {kind} series{ignored}", "a study with CT and PET")


def _choose_by_name(
    series: Sequence[ImageSeries], name: str, kind: str, option: str
) -> tuple[ImageSeries, dict[str, str]]:
    text = normalise_unicode(name).strip().lower()
    for matches in (
        [candidate for candidate in series if candidate.uid == name.strip()],
        [candidate for candidate in series if normalise_unicode(candidate.description).lower() == text],
        [candidate for candidate in series if text in normalise_unicode(candidate.description).lower()],
    ):
        if len(matches) == 1:
            chosen = matches[0]
            rejected = [candidate for candidate in series if candidate is not chosen]
            return chosen, {candidate.uid: f"{kind} {candidate}: not chosen by {option}" for candidate in rejected}
    listed = ", ".join(map(str, series))
    raise InputError(option, f"found {name!r}", f"the UID or description of one of {listed}")


def _choose_by_rank(
    series: Sequence[ImageSeries], criteria: Sequence[_Criterion], kind: str, option: str
) -> tuple[ImageSeries, dict[str, str]]:
    """Choose the series that ranks first; return with it by UID why each other series was not chosen."""
    ranks = [(tuple(measure(candidate) for _, measure in criteria), candidate) for candidate in series]
    ranks.sort(key=lambda entry: entry[0], reverse=True)
    best_rank, chosen = ranks[0]
    rejected = ranks[1:]
    tied = [candidate for rank, candidate in rejected if rank == best_rank]
    if tied:
        listed = ", ".join(map(str, [chosen, *tied]))
        raise InputError(
            "input folder",
            f"found {len(tied) + 1} equally suitable {kind} series: {listed}",
            f"one; choose by {option}",
        )
    reasons = {}
    for rank, candidate in rejected:
        reason = next(name for (name, _), a, b in zip(criteria, best_rank, rank, strict=True) if a != b)
        reasons[candidate.uid] = f"{kind} {candidate}: {chosen.description!r} was chosen ({reason})"
    return chosen, reasons


def _compute_bounding_box_mm(series: ImageSeries) -> npt.NDArray[np.float64]:
    """Compute the lowest and highest corner of a series in patient space, shape (2, 3)."""
    corners = np.concatenate([SlicePlane.from_header(header).corners_mm() for header in series.headers])
    return np.array([corners.min(axis=0), corners.max(axis=0)])


def _compute_overlap_fraction(box: npt.NDArray[np.float64], pet_box: npt.NDArray[np.float64]) -> float:
    """Compute the fraction of the PET's volume that lies in `box`."""
    common = np.minimum(box[1], pet_box[1]) - np.maximum(box[0], pet_box[0])
    return float(np.prod(np.clip(common, 0, None)) / np.prod(np.maximum(pet_box[1] - pet_box[0], 1e-6)))


def _check_frames(ct: ImageSeries, pet: ImageSeries, *, chosen_by_user: bool) -> tuple[Finding, ...]:
    if ct.frame_of_reference and ct.frame_of_reference == pet.frame_of_reference:
        return ()
    problem = f"FrameOfReferenceUID (0020,0052) of CT {ct.description!r} and PET {pet.description!r} "
    expected = "the same, from one examination"
    if not ct.frame_of_reference or not pet.frame_of_reference:
        return (Finding("input folder", f"{problem}is absent", expected, "assumed to be aligned"),)
    if chosen_by_user:
        return (Finding("input folder", f"{problem}differ", expected, "assumed to be aligned because of --ct-series"),)
    raise InputError(
        "input folder", f"{problem}differ", f"{expected}; if they are aligned, choose the CT by --ct-series"
    )
