"""From a folder of DICOM files to a case in the platform's layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from contract.editions import Edition, load_edition
from contract.editions.clinical import ClinicalValue
from contract.editions.declaration import CT, CT_PLANNING, PET, RT_DOSE
from contract.errors import Finding, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from convert.case import CaseImage, check_free, write_case
from convert.dicom.choice import ChosenSeries, choose_series
from convert.dicom.clinical import clinical_values
from convert.dicom.dose import choose_dose, planning_ct, read_dose
from convert.dicom.files import DicomFolder, quiet_pydicom, read_folder, require_libraries
from convert.dicom.headers import DicomHeader
from convert.dicom.series import sort_objects
from convert.dicom.slices import SliceStack, stack_slices
from convert.dicom.structures import ReferenceMask, RoiNames, choose_structures, draw_structures
from convert.dicom.suv import suv_scale
from convert.dicom.volumes import read_ct, read_pet


@dataclass(frozen=True)
class ConvertRequest:
    """A conversion.

    Attributes:
        source: folder of one study; sub-folders are read too.
        output: new or empty folder of the case.
        edition: gives sockets and clinical variables.
        ct_series, pet_series: UID or description of a series; None chooses by rule.
        roi_names: names of the ROIs of GTVp and GTVn.
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
        output: folder of the case.
        ct, pet: grids.
        suv_max: highest SUV.
        suv_factors: smallest and largest SUV of a rescaled pixel value of 1 over the slices.
        suv_derivation: dose, weight and times behind the factors.
        ehr: content of `ehr.json`.
        structures: reference mask and names of the ROIs, None without a structure set.
        dose_max_gy: highest dose, None without a dose.
        ignored: files and series that were not used, with the reason.
        findings: warnings.
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
    """Convert one study with CT and PET; writes a whole case or nothing.

    Raises:
        HecktorError: the extra `dicom` is not installed, the study cannot be used, or the output cannot be written.
    """
    require_libraries()
    check_free(request.output)
    with quiet_pydicom():
        return _convert(request)


def _convert(request: ConvertRequest) -> ConvertedCase:
    folder = read_folder(request.source)
    study = sort_objects(folder.headers)
    chosen = choose_series(study, request.ct_series, request.pet_series)

    ct_stack, pet_stack = stack_slices(chosen.ct.headers), stack_slices(chosen.pet.headers)
    scale = suv_scale(pet_stack.headers)
    structure_set, unused_sets = choose_structures(study.structures, chosen.ct)
    dose_header, unused_doses = choose_dose(study.doses)

    ct, ct_findings = read_ct(ct_stack)
    pet = read_pet(pet_stack, scale)
    _check_overlap(ct.geometry, pet.geometry)
    structures = None if structure_set is None else draw_structures(structure_set, ct.geometry, request.roi_names)
    images = {CT: CaseImage(ct, chosen.ct.uid), PET: CaseImage(pet, chosen.pet.uid)}
    images |= _radiotherapy(dose_header, chosen)
    undeclared = sorted(images.keys() - request.edition.inputs.keys())
    images = {name: image for name, image in images.items() if name not in undeclared}

    ehr = clinical_values(pet_stack.headers[0], request.edition.clinical)
    mask = Volume(structures.array, ct.geometry) if structures is not None and structures.rois else None
    write_case(request.output, request.edition, images, ehr, mask)

    undeclared_lines = [f"{name}: not an input of edition {request.edition.name}" for name in undeclared]
    reasons = [reason for uid, reason in chosen.ignored.items() if uid not in {image.uid for image in images.values()}]
    return ConvertedCase(
        output=request.output,
        ct=ct.geometry,
        pet=pet.geometry,
        suv_max=float(pet.array.max()),
        suv_factors=(min(scale.factors), max(scale.factors)),
        suv_derivation=scale.derivation,
        ehr=ehr,
        structures=structures,
        dose_max_gy=float(images[RT_DOSE].volume.array.max()) if RT_DOSE in images else None,
        ignored=(*_ignored_files(folder), *study.ignored, *reasons, *unused_sets, *unused_doses, *undeclared_lines),
        findings=(*chosen.findings, *_tilts(ct_stack, pet_stack), *scale.findings, *ct_findings),
    )


def _radiotherapy(dose: DicomHeader | None, chosen: ChosenSeries) -> dict[str, CaseImage]:
    """The dose, and the planning CT if the dose was not planned on the CT of the PET/CT."""
    if dose is None:
        return {}
    images = {RT_DOSE: CaseImage(read_dose(dose), dose.text("SeriesInstanceUID"))}
    planning = planning_ct(dose, chosen.ct, chosen.other_ct)
    if planning is not None:
        images[CT_PLANNING] = CaseImage(read_ct(stack_slices(planning.headers))[0], planning.uid)
    return images


def _check_overlap(ct: Geometry, pet: Geometry) -> None:
    boxes = [grid.corners_mm() for grid in (ct, pet)]
    lower = np.max([box.min(axis=0) for box in boxes], axis=0)
    upper = np.min([box.max(axis=0) for box in boxes], axis=0)
    if not bool(np.all(lower < upper)):
        raise InputError(
            "PET", f"does not overlap the CT ({pet.describe()} against {ct.describe()})", "one body region"
        )


def _ignored_files(folder: DicomFolder) -> list[str]:
    lines = []
    if folder.others:
        lines.append(f"{folder.others} file{'s' if folder.others > 1 else ''}: not a DICOM object, or DICOMDIR")
    if folder.copies:
        lines.append(f"{folder.copies} file{'s' if folder.copies > 1 else ''}: further copies of the same object")
    return lines


def _tilts(*stacks: SliceStack) -> list[Finding]:
    """A warning for each series with a tilted gantry."""
    return [
        Finding(
            stack.headers[0].name,
            f"slices shifted as by a gantry tilt of {stack.tilt_degrees:.3g} degrees",
            action="resampled within the slices onto a regular grid",
        )
        for stack in stacks
        if stack.tilt != (0.0, 0.0)
    ]
