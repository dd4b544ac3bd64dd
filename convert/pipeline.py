"""Convert a folder of DICOM files to a case in the platform's layout, and write it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.editions import Edition, load_edition
from contract.editions.clinical import ClinicalValue, ClinicalVariable, ImpossibleValueError
from contract.editions.inputs import CT, EHR, PET
from contract.errors import Finding, InputError, OutputError, make_write_error
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask, write_volume
from contract.io.files import atomic_folder, write_json
from contract.platform import INPUTS_JSON, normalise_unicode
from contract.predictions import make_socket_entry
from convert.dicom.files import DicomHeader, format_tag, quiet_pydicom, read_folder, require_libraries
from convert.dicom.series import choose_series, sort_objects
from convert.dicom.slices import stack_slices
from convert.dicom.structures import ReferenceMask, RoiNames, read_structures
from convert.dicom.suv import compute_suv_scale
from convert.dicom.volumes import SeriesVolume, read_ct, read_pet, read_radiotherapy

GROUND_TRUTH: Final = "ground_truth"
_AGE: Final = re.compile(r"(\d{1,3})([DWMY])")
_PER_YEAR: Final = {"D": 365.25, "W": 52.18, "M": 12.0, "Y": 1.0}


@dataclass(frozen=True)
class ConvertRequest:
    """Options of a conversion.

    Attributes:
        source: Folder of one study; sub-folders are read, too.
        output: New or empty folder of the case.
        edition: Edition that declares sockets and clinical variables.
        ct_series, pet_series: UID or description of a series; None chooses by rule.
        roi_names: Names of the ROIs of GTVp and GTVn.
    """

    source: Path
    output: Path
    edition: Edition = field(default_factory=load_edition)
    ct_series: str | None = None
    pet_series: str | None = None
    roi_names: RoiNames = field(default_factory=RoiNames)


@dataclass(frozen=True)
class ConvertedCase:
    """A written case and how it was derived.

    Attributes:
        output: Folder of the case.
        ct, pet: Grids of CT and PET.
        suv_max: Highest SUV.
        suv_factors: Smallest and largest factor of the slices from rescaled pixel values to SUV.
        suv_derivation: Dose, weight and times from which the factors were computed.
        ehr: Content of `ehr.json`.
        structures: Reference mask and names of the ROIs; None without a structure set.
        dose_max_gy: Highest dose; None without a dose.
        ignored: Files and series that were not used, with the reason.
        findings: Warnings.
    """

    output: Path
    ct: Geometry
    pet: Geometry
    suv_max: float
    suv_factors: tuple[float, float]
    suv_derivation: str
    ehr: dict[str, ClinicalValue]
    structures: ReferenceMask | None
    dose_max_gy: float | None
    ignored: tuple[str, ...]
    findings: tuple[Finding, ...]


def convert_dicom(request: ConvertRequest) -> ConvertedCase:
    """Convert one study with CT and PET; write a complete case or nothing.

    Raises:
        HecktorError: The extra `dicom` is not installed, the study cannot be used, or the output cannot be written.
    """
    require_libraries()
    check_new_folder(request.output)
    with quiet_pydicom():
        return _convert(request)


def _convert(request: ConvertRequest) -> ConvertedCase:
    folder = read_folder(request.source)
    study = sort_objects(folder.headers)
    chosen = choose_series(study, request.ct_series, request.pet_series)

    ct_stack, pet_stack = stack_slices(chosen.ct.headers), stack_slices(chosen.pet.headers)
    scale = compute_suv_scale(pet_stack.headers)
    ct, ct_findings = read_ct(ct_stack)
    pet = read_pet(pet_stack, scale)
    _check_overlap(ct.geometry, pet.geometry)

    structures, unused_sets = read_structures(study.structures, chosen.ct, ct.geometry, request.roi_names)
    therapy = read_radiotherapy(study.doses, chosen.ct, chosen.other_ct, frozenset(request.edition.inputs))
    ehr, ehr_findings = read_clinical_values(pet_stack.headers, request.edition.clinical)

    images = {CT: SeriesVolume(ct, chosen.ct.uid), PET: SeriesVolume(pet, chosen.pet.uid), **therapy.images}
    mask = Volume(structures.array, ct.geometry) if structures is not None and structures.rois else None
    write_case(request.output, request.edition, images, ehr, mask)

    written = {image.uid for image in images.values()}
    not_chosen = [reason for uid, reason in chosen.ignored.items() if uid not in written]
    return ConvertedCase(
        output=request.output,
        ct=ct.geometry,
        pet=pet.geometry,
        suv_max=float(pet.array.max()),
        suv_factors=(min(scale.factors), max(scale.factors)),
        suv_derivation=scale.derivation,
        ehr=ehr,
        structures=structures,
        dose_max_gy=therapy.dose_max_gy,
        ignored=(*folder.ignored, *study.ignored, *not_chosen, *unused_sets, *therapy.ignored),
        findings=(
            *folder.findings,
            *chosen.findings,
            *scale.findings,
            *ct_findings,
            *ehr_findings,
            *therapy.findings,
            *(structures.findings if structures is not None else ()),
        ),
    )


def _check_overlap(ct: Geometry, pet: Geometry) -> None:
    boxes = [grid.corners_mm() for grid in (ct, pet)]
    lower = np.max([box.min(axis=0) for box in boxes], axis=0)
    upper = np.min([box.max(axis=0) for box in boxes], axis=0)
    if not bool(np.all(lower < upper)):
        problem = f"does not overlap the CT ({pet.describe()} against {ct.describe()})"
        raise InputError("PET", problem, "the same body region")


def make_case_name(folder: Path) -> str:
    """Return the name of a case: its folder, or the patient's folder above `input` in a cohort `PATIENT/input`."""
    resolved = folder.resolve()
    return normalise_unicode(resolved.parent.name if resolved.name == "input" else resolved.name)


def check_new_folder(folder: Path) -> None:
    """Raise `OutputError` if `folder` exists and is not an empty folder."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise OutputError(str(folder), "exists and is not empty", "a new or empty folder")


def write_case(
    folder: Path,
    edition: Edition,
    images: Mapping[str, SeriesVolume],
    ehr: Mapping[str, ClinicalValue],
    mask: Volume | None,
) -> None:
    """Write a complete case or nothing.

    Args:
        folder: New or empty folder.
        edition: Edition that declares the sockets.
        images: Images by the name of the input; file names are derived from the UIDs.
        ehr: Content of `ehr.json`.
        mask: Reference mask on the CT's grid, written to `ground_truth/CASE.mha`; None without structures.

    Raises:
        OutputError: The folder is in use or cannot be written.
    """
    check_new_folder(folder)
    name = make_case_name(folder)
    entries: list[dict[str, Any]] = []
    try:
        with atomic_folder(folder) as partial:
            for key, image in images.items():
                socket, pk = edition.inputs[key], str(uuid.uuid5(uuid.NAMESPACE_OID, image.uid))
                write_volume(socket.path_under(partial) / f"{pk}.mha", image.volume)
                entries.append(make_socket_entry(socket, len(entries) + 1, image=(pk, f"{name}.mha")))
            write_json(edition.inputs[EHR].path_under(partial), dict(ehr))
            entries.append(make_socket_entry(edition.inputs[EHR], len(entries) + 1, value=dict(ehr)))
            write_json(partial / INPUTS_JSON, entries)
            if mask is not None:
                write_mask(partial / GROUND_TRUTH / f"{name}.mha", mask.array, mask.geometry)
    except OSError as problem:
        raise make_write_error(str(folder), problem) from None


def read_clinical_values(
    headers: Sequence[DicomHeader], clinical: Sequence[ClinicalVariable]
) -> tuple[dict[str, ClinicalValue], list[Finding]]:
    """Read the clinical variables of a series.

    Returns:
        The values by the edition's keys, without variables that the files do not contain, and a finding for each value
        that cannot be used.
    """
    values: dict[str, ClinicalValue] = {}
    findings: list[Finding] = []
    for variable in clinical:
        if variable.name not in _READERS:
            continue
        keyword, read = _READERS[variable.name]
        texts = list(dict.fromkeys(header.text(keyword) for header in headers))
        raw = list(dict.fromkeys(read(header) for header in headers))
        try:
            value = variable.read(raw[0]) if len(raw) == 1 else None
        except ImpossibleValueError:  # Such as sex O.
            value = None
        if value is not None:
            values[variable.key] = value
        elif any(texts):
            problem = f"found {format_tag(keyword)} {' and '.join(text or 'absent' for text in texts)}"
            expected = f"one {_EXPECTED[keyword]}" if len(texts) > 1 else _EXPECTED[keyword]
            findings.append(Finding(headers[0].name, problem, expected, f"no {variable.key} in {EHR}.json"))
    return values, findings


def _compute_age_years(header: DicomHeader) -> float | None:
    """Compute the age at the study in whole years, from PatientAge or else from the date of birth."""
    match = _AGE.fullmatch(header.text("PatientAge").upper())
    if match:
        return float(int(int(match[1]) / _PER_YEAR[match[2]]))
    try:
        birth, study = (datetime.strptime(header.text(key), "%Y%m%d") for key in ("PatientBirthDate", "StudyDate"))
    except ValueError:
        return None
    return float(study.year - birth.year - ((study.month, study.day) < (birth.month, birth.day)))


# Attribute of a clinical variable and the function that reads it.
_READERS: Final[Mapping[str, tuple[str, Callable[[DicomHeader], float | str | None]]]] = {
    "age_years": ("PatientAge", _compute_age_years),
    "gender": ("PatientSex", lambda header: header.text("PatientSex").lower() or None),
    "weight_kg": ("PatientWeight", lambda header: header.get_number("PatientWeight") or None),
}
_EXPECTED: Final = {
    "PatientAge": "an age with its unit such as 061Y",
    "PatientSex": "M or F",
    "PatientWeight": "a possible weight in kg",
}
