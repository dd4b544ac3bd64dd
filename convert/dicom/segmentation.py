"""Write a mask as a DICOM segmentation of the CT on whose grid it lies."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract import labels
from contract.errors import HecktorError, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import convert_to_labels, read_volume
from contract.io.files import atomic_path
from convert.dicom.files import DicomHeader, quiet_pydicom, read_folder, require_libraries
from convert.dicom.series import ImageSeries, sort_objects
from convert.dicom.slices import SliceStack, stack_slices

_EXPECTED_EXTRA: Final = "the extra `dicom`: pip install 'hecktor[dicom]'"
_MANUFACTURER: Final = "hecktor"
_SERIES_NUMBER: Final = 1000
# Attributes that DICOM requires, but allows to be empty; anonymised files do not contain all of them.
_MAY_BE_EMPTY: Final = (
    "PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyID", "StudyDate", "StudyTime",
    "AccessionNumber", "ReferringPhysicianName",
)  # fmt: skip
# Concepts of SNOMED CT in the context group of lesion segmentation types (CID 7159), which all viewers know.
_PROPERTY_TYPES: Final = {labels.GTVP: "NeoplasmPrimary", labels.GTVN: "NeoplasmSecondary"}


@dataclass(frozen=True)
class SegmentationRequest:
    """A mask to write as DICOM.

    Attributes:
        mask: Image with labels 1 GTVp and 2 GTVn on the CT's grid.
        source: Folder of the study with the CT; sub-folders are read, too.
        output: DICOM file to write.
        algorithm: Name of the algorithm or model package that made the mask; None if a person drew it.
        version: Version of the algorithm.
    """

    mask: Path
    source: Path
    output: Path
    algorithm: str | None = "hecktor"
    version: str = "unknown"


def write_segmentation(request: SegmentationRequest) -> ImageSeries:
    """Write a DICOM segmentation with one segment for each label of the mask; return the CT series.

    Raises:
        HecktorError: A library is missing, no CT of the study has the mask's grid, the mask is empty, or the output
            cannot be written.
    """
    require_libraries()
    if importlib.util.find_spec("highdicom") is None:
        raise HecktorError("writing DICOM", "highdicom is not installed", _EXPECTED_EXTRA)
    volume = read_volume(request.mask)
    mask = convert_to_labels(volume, request.mask.name)
    if not mask.array.any():
        raise InputError(request.mask.name, "an empty mask", "a lesion: DICOM has no segmentation without a segment")
    with quiet_pydicom():
        series, stack = _find_ct(request.source, mask.geometry)
        segmentation = _make_segmentation(request, stack, mask.array)
        with atomic_path(request.output) as partial:
            segmentation.save_as(partial)
    return series


def _find_ct(source: Path, grid: Geometry) -> tuple[ImageSeries, SliceStack]:
    """Find the CT series with the mask's grid; raise `InputError` if no CT has it."""
    differences = []
    for series in sort_objects(read_folder(source).headers).ct:
        stack = stack_slices(series.headers)
        own_differences = grid.find_differences(stack.geometry)
        if not own_differences:
            return series, stack
        differences.append(f"{series}: {own_differences[0]}")
    raise InputError("--mask", "; ".join(differences) or f"no CT in {source.absolute()}", "the grid of a CT of --input")


def _make_segmentation(request: SegmentationRequest, stack: SliceStack, mask: Any) -> Any:
    """Make the data set of a segmentation; the slices of `mask` are in the order of the stack."""
    from highdicom import UID
    from highdicom.seg import Segmentation, SegmentationTypeValues

    present = [label for label in labels.FOREGROUND if (mask == label).any()]
    numbered = np.zeros_like(mask)  # Segments are numbered consecutively.
    for number, label in enumerate(present, start=1):
        numbered[mask == label] = number
    return Segmentation(
        source_images=[_read_source(header, stack.geometry.spacing_mm[2]) for header in stack.headers],
        pixel_array=numbered,
        segmentation_type=SegmentationTypeValues.BINARY,
        segment_descriptions=_describe_segments(request, present),
        series_instance_uid=UID(),
        series_number=_SERIES_NUMBER,
        sop_instance_uid=UID(),
        instance_number=1,
        manufacturer=_MANUFACTURER,
        manufacturer_model_name=request.algorithm or _MANUFACTURER,
        software_versions=request.version,
        device_serial_number="1",
        series_description="GTVp and GTVn",
        content_label="GTV",
    )


def _read_source(header: DicomHeader, slice_spacing_mm: float) -> Any:
    """Read a slice of the CT with all attributes that highdicom copies into the segmentation."""
    from pydicom import dcmread

    dataset = dcmread(header.path, stop_before_pixels=True)
    for keyword in _MAY_BE_EMPTY:
        if keyword not in dataset:
            setattr(dataset, keyword, "")
    if header.get("SliceThickness") is None:
        dataset.SliceThickness = round(slice_spacing_mm, 6)
    return dataset


def _describe_segments(request: SegmentationRequest, present: Sequence[int]) -> list[Any]:
    from highdicom import UID, AlgorithmIdentificationSequence
    from highdicom.seg import SegmentAlgorithmTypeValues, SegmentDescription
    from pydicom.sr.codedict import codes

    algorithm = None
    if request.algorithm is not None:
        family = codes.DCM.ArtificialIntelligence
        algorithm = AlgorithmIdentificationSequence(name=request.algorithm, version=request.version, family=family)
    kind = SegmentAlgorithmTypeValues.MANUAL if algorithm is None else SegmentAlgorithmTypeValues.AUTOMATIC
    return [
        SegmentDescription(
            segment_number=number,
            segment_label=labels.NAMES[label],
            segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
            segmented_property_type=getattr(codes.SCT, _PROPERTY_TYPES[label]),
            algorithm_type=kind,
            algorithm_identification=algorithm,
            tracking_id=labels.NAMES[label],
            tracking_uid=UID(),
        )
        for number, label in enumerate(present, start=1)
    ]
