"""Frames of enhanced multi-frame CT and PET as headers of single slices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from contract.errors import InputError
from convert.dicom.headers import DicomHeader, tag_name

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

# SOP classes of enhanced and legacy converted enhanced images.
ENHANCED_CT: Final = ("1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.2.2")
ENHANCED_PET: Final = ("1.2.840.10008.5.1.4.1.1.130", "1.2.840.10008.5.1.4.1.1.128.1")
_SHARED, _PER_FRAME = "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"
_MAPPINGS: Final = "RealWorldValueMappingSequence"
# UCUM codes of DICOM's CID 84 and 85: Bq/ml, g/ml{SUVbw}, cm2/ml{SUVbsa}; older files begin with the braces.
_UNITS: Final = re.compile(r"(?:\{suv([\w()]+)\})?(bq|g|cm2)/ml(?:\{suv([\w()]+)\})?")
_UNIT_NAMES: Final = {"bq": "BQML", "g": "GML", "cm2": "CM2ML"}
_CORRECTIONS: Final = (("AttenuationCorrected", "ATTN"), ("DecayCorrected", "DECY"), ("ScatterCorrected", "SCAT"))


def split_frames(header: DicomHeader) -> tuple[DicomHeader, ...]:
    """Headers of the frames of an enhanced CT or PET, with the attributes of single slices; other headers unchanged.

    The functional groups of a frame override the shared ones. For PET, units and rescaling come from the mapping to
    SUV by weight, else to another SUV, else to Bq/ml, else from Units or RescaleType.

    Raises:
        InputError: no functional groups, or more or fewer than frames.
    """
    sop_class = header.text("SOPClassUID")
    if sop_class not in ENHANCED_CT + ENHANCED_PET:
        return (header,)
    header.required(_PER_FRAME, "one item for each frame")
    frames = header.dataset[_PER_FRAME].value
    count = int(header.number("NumberOfFrames", "the number of frames"))
    if count != len(frames):
        found = f"found {tag_name('NumberOfFrames')} {count} and {len(frames)} items in {tag_name(_PER_FRAME)}"
        raise InputError(header.name, found, "one item for each frame")
    shared = header.dataset.get(_SHARED) or []
    headers = []
    for index, own in enumerate(frames):
        dataset = _flat(header.dataset, [*shared[:1], own])
        if sop_class in ENHANCED_PET:
            _add_corrections(dataset)
            _add_units(dataset)
        headers.append(DicomHeader(f"{header.name} frame {index + 1}", header.path, dataset, frame=index))
    return tuple(headers)


def _flat(image: Dataset, groups: list[Dataset]) -> Dataset:
    """Attributes of the image and, with precedence, of the functional groups of one frame."""
    from pydicom.datadict import tag_for_keyword
    from pydicom.dataset import Dataset

    left_out = {tag_for_keyword(keyword) for keyword in (_SHARED, _PER_FRAME)}
    flat = Dataset({tag: image.get_item(tag) for tag in image.keys() - left_out})
    for group in groups:
        for sequence in group:
            if sequence.keyword == _MAPPINGS:
                flat[sequence.tag] = sequence
            elif sequence.VR == "SQ" and sequence.value:
                flat.update({element.tag: element for element in sequence.value[0]})
    return flat


def _add_corrections(dataset: Dataset) -> None:
    """CorrectedImage and DecayCorrection of single slices, unless the file has them."""
    known = [(keyword, word) for keyword, word in _CORRECTIONS if keyword in dataset]
    if known and "CorrectedImage" not in dataset:
        words = [word for keyword, word in known if str(dataset.get(keyword)).upper() == "YES"]
        dataset.CorrectedImage = words or ["NONE"]
    if "DecayCorrected" in dataset and "DecayCorrection" not in dataset:
        dataset.DecayCorrection = "START" if str(dataset.DecayCorrected).upper() == "YES" else "NONE"


def _add_units(dataset: Dataset) -> None:
    """Units, SUVType, slope and intercept of single slices from the best mapping to real-world values."""
    mappings = [entry for item in dataset.get(_MAPPINGS) or [] if (entry := _mapping(item)) is not None]
    if mappings:
        _, units, suv_type, item = min(mappings, key=lambda entry: entry[0])
        dataset.Units, dataset.SUVType = units, suv_type
        dataset.RescaleSlope, dataset.RescaleIntercept = item.RealWorldValueSlope, item.RealWorldValueIntercept
    elif "Units" not in dataset and dataset.get("RescaleType") in _UNIT_NAMES.values():
        dataset.Units = dataset.RescaleType


def _mapping(item: Dataset) -> tuple[int, str, str, Dataset] | None:
    """Rank, units and SUVType of a linear mapping to SUV or Bq/ml, None for others."""
    codes = item.get("MeasurementUnitsCodeSequence") or []
    code = str(codes[0].get("CodeValue") or codes[0].get("LongCodeValue") or "") if codes else ""
    match = _UNITS.fullmatch(code.strip().lower())
    if match is None or "RealWorldValueSlope" not in item or "RealWorldValueIntercept" not in item:
        return None
    units, suv_type = _UNIT_NAMES[match[2]], re.sub(r"\W", "", match[1] or match[3] or "").upper()
    if (units == "BQML") == bool(suv_type):  # g/ml alone is no SUV
        return None
    return (2 if units == "BQML" else int(suv_type != "BW")), units, suv_type, item
