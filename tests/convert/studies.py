"""Write DICOM studies from volumes, with the habits of clinics and vendors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import (
    CTImageStorage,
    ExplicitVRLittleEndian,
    PositronEmissionTomographyImageStorage,
    RTDoseStorage,
    RTStructureSetStorage,
    generate_uid,
)
from pydicom.valuerep import DSfloat

from contract.images.geometry import Geometry
from contract.images.volumes import Volume

# Changes a slice; its second argument is the number of the slice, in ascending order of z.
SliceEdit = Callable[[Dataset, int], None]
CT_GRID = Geometry((20, 16, 9), (2.0, 3.0, 4.0), (-19.0, -22.5, 100.0))
PET_GRID = Geometry((10, 12, 6), (4.0, 4.0, 6.0), (-18.0, -22.0, 100.5))
# 370 MBq of F-18, 75 kg, an hour before the scan (test_suv.py): SUV of 1 Bq/ml.
HOUR_FACTOR = 75_000 / (370e6 * math.exp(-math.log(2) * 3600 / 6586.2))


def format_numbers(values: Any) -> list[DSfloat]:
    return [DSfloat(float(value), auto_format=True) for value in np.ravel(values)]


def make_ct_volume(geometry: Geometry = CT_GRID, seed: int = 0) -> Volume:
    """Return HU from -1024 to 2000."""
    array = np.random.default_rng(seed).integers(-1024, 2001, geometry.array_shape)
    return Volume(array.astype(np.int16), geometry)


def make_pet_volume(geometry: Geometry = PET_GRID, seed: int = 1) -> Volume:
    """Return SUV from 0 to 15."""
    array = 15 * np.random.default_rng(seed).random(geometry.array_shape)
    return Volume(array.astype(np.float32), geometry)


def make_rectangle(x: tuple[int, int], y: tuple[int, int], z: int, margin: float = 0.5) -> np.ndarray:
    """Return a contour half a voxel around the voxels `x` and `y` (first and last) of slice `z` of the CT, in mm."""
    corners = [(x[0] - margin, y[0] - margin), (x[1] + margin, y[0] - margin)]
    corners += [(x[1] + margin, y[1] + margin), (x[0] - margin, y[1] + margin)]
    return np.array([np.array([i, j, z]) * CT_GRID.spacing_mm + CT_GRID.origin_mm for i, j in corners])


def make_tracer(**changes: Any) -> Dataset:
    """Return 370 MBq of FDG at 13:00; None removes an attribute."""
    item, code = Dataset(), Dataset()
    code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning = "C-111A1", "SRT", "^18^Fluorine"
    item.RadionuclideCodeSequence = Sequence([code])
    item.Radiopharmaceutical = "FDG"
    item.RadiopharmaceuticalStartTime = "130000"
    item.RadionuclideTotalDose = "370000000"
    item.RadionuclideHalfLife = "6586.2"
    change(item, changes)
    return item


def change(dataset: Dataset, changes: Mapping[str, Any]) -> None:
    """Set attributes; None removes an attribute."""
    for keyword, value in changes.items():
        if value is None:
            if keyword in dataset:
                delattr(dataset, keyword)
        else:
            setattr(dataset, keyword, value)


def edit_slice(index: int, edit: Callable[[Dataset], None] | None = None, **changes: Any) -> SliceEdit:
    """Return an edit of only the slice `index`: a function, and attributes that change."""

    def apply(dataset: Dataset, number: int) -> None:
        if number == index:
            if edit is not None:
                edit(dataset)
            change(dataset, changes)

    return apply


@dataclass
class StudyFolder:
    """Writes the objects of one study into `root`; keyword arguments change attributes of all slices."""

    root: Path
    patient: str = "P1"
    study: str = field(default_factory=generate_uid)
    frame: str = field(default_factory=generate_uid)
    count: int = 0

    def add_ct(
        self,
        volume: Volume | None = None,
        *,
        signed: bool = False,
        description: str = "CT WB",
        edit: SliceEdit = lambda dataset, index: None,
        **changes: Any,
    ) -> list[Path]:
        """Write a CT with intercept -1024, or 0 if `signed`; return its files by slice in ascending order of z."""
        volume = make_ct_volume() if volume is None else volume
        intercept = 0 if signed else -1024
        stored = (volume.array.astype(np.int32) - intercept).astype(np.int16 if signed else np.uint16)
        rescale = [(1.0, float(intercept))] * len(stored)
        common = {"Modality": "CT", "SOPClassUID": CTImageStorage, "SeriesDescription": description}
        common |= {"ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"], "RescaleType": "HU"}
        return self._write_slices(stored, volume.geometry, rescale, common | changes, edit)

    def add_ct_and_pet(self) -> list[Path]:
        """Write both with their defaults; return the files of the CT."""
        paths = self.add_ct()
        self.add_pet()
        return paths

    def add_pet(
        self,
        volume: Volume | None = None,
        *,
        scale: float = HOUR_FACTOR,
        description: str = "PET AC",
        edit: SliceEdit = lambda dataset, index: None,
        tracer: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> list[Path]:
        """Write a PET whose pixels, rescaled by a slope of each slice, times `scale` are the volume's SUV."""
        volume = make_pet_volume() if volume is None else volume
        stored = np.empty(volume.array.shape, dtype=np.int16)
        rescale = []
        for index, suv in enumerate(volume.array):
            slope = float(DSfloat(max(float(suv.max()), 1e-3) / scale / 32767, auto_format=True))
            stored[index] = np.clip(np.rint(suv / scale / slope), 0, 32767)
            rescale.append((slope, 0.0))
        common = {"Modality": "PT", "SOPClassUID": PositronEmissionTomographyImageStorage}
        common |= {"SeriesDescription": description, "ImageType": ["ORIGINAL", "PRIMARY"]}
        common |= {"Units": "BQML", "DecayCorrection": "START", "CorrectedImage": ["DECY", "ATTN", "SCAT"]}
        common["RadiopharmaceuticalInformationSequence"] = Sequence([make_tracer(**(tracer or {}))])
        return self._write_slices(stored, volume.geometry, rescale, common | changes, edit)

    def add_structures(self, ct_files: list[Path], rois: Mapping[str, list[np.ndarray]], **changes: Any) -> Path:
        """Write a structure set of the CT; contours are arrays of points (n, 3) in mm."""
        from pydicom import dcmread

        dataset = self._make_dataset({"Modality": "RTSTRUCT", "SOPClassUID": RTStructureSetStorage})
        series, study, frame = Dataset(), Dataset(), Dataset()
        series.SeriesInstanceUID = dcmread(ct_files[0], stop_before_pixels=True).SeriesInstanceUID
        study.RTReferencedSeriesSequence = Sequence([series])
        frame.FrameOfReferenceUID, frame.RTReferencedStudySequence = self.frame, Sequence([study])
        dataset.ReferencedFrameOfReferenceSequence = Sequence([frame])
        named, drawn = [], []
        for number, (name, contours) in enumerate(rois.items(), 1):
            roi, contour_set = Dataset(), Dataset()
            roi.ROINumber, roi.ROIName, roi.ReferencedFrameOfReferenceUID = number, name, self.frame
            contour_set.ReferencedROINumber, contour_set.ContourSequence = number, Sequence([])
            for points in contours:
                contour = Dataset()
                contour.ContourGeometricType, contour.NumberOfContourPoints = "CLOSED_PLANAR", len(points)
                contour.ContourData = format_numbers(points)
                contour_set.ContourSequence.append(contour)
            named.append(roi)
            drawn.append(contour_set)
        dataset.StructureSetROISequence, dataset.ROIContourSequence = Sequence(named), Sequence(drawn)
        change(dataset, changes)
        return self._save(dataset)

    def add_dose(self, dose_gy: Volume, scaling: float, **changes: Any) -> Path:
        """Write an RT dose of uint32 pixels on its own grid."""
        geometry = dose_gy.geometry
        dataset = self._make_dataset({"Modality": "RTDOSE", "SOPClassUID": RTDoseStorage, "SeriesDescription": "dose"})
        stored = np.rint(dose_gy.array / scaling).astype(np.uint32)
        set_pixels(dataset, stored)
        set_plane(dataset, geometry, np.asarray(geometry.origin_mm))
        dataset.DoseUnits, dataset.DoseSummationType = "GY", "PLAN"
        dataset.DoseGridScaling = DSfloat(scaling)
        dataset.GridFrameOffsetVector = format_numbers(np.arange(geometry.size[2]) * geometry.spacing_mm[2])
        change(dataset, changes)
        return self._save(dataset)

    def _write_slices(self, stored, geometry, rescale, attributes, edit) -> list[Path]:
        series, axes = generate_uid(), np.asarray(geometry.direction).reshape(3, 3)
        paths = []
        for index, pixels in enumerate(stored):
            dataset = self._make_dataset({"SeriesInstanceUID": series})
            set_pixels(dataset, pixels)
            shift = np.array([0.0, 0.0, index * geometry.spacing_mm[2]])
            set_plane(dataset, geometry, np.asarray(geometry.origin_mm) + axes @ shift)
            slope, intercept = rescale[index]
            dataset.RescaleSlope, dataset.RescaleIntercept = format_numbers([slope, intercept])
            dataset.InstanceNumber = index + 1
            change(dataset, attributes)
            edit(dataset, index)
            paths.append(self._save(dataset))
        return paths

    def _make_dataset(self, attributes: Mapping[str, Any]) -> Dataset:
        dataset = Dataset()
        dataset.SOPInstanceUID, dataset.SeriesInstanceUID = generate_uid(), generate_uid()
        dataset.StudyInstanceUID, dataset.FrameOfReferenceUID = self.study, self.frame
        dataset.PatientID, dataset.PatientAge, dataset.PatientSex = self.patient, "061Y", "M"
        dataset.PatientWeight = "75"
        for kind in ("Study", "Series", "Acquisition"):
            setattr(dataset, f"{kind}Date", "20250301")
            setattr(dataset, f"{kind}Time", "140000")
        change(dataset, attributes)
        return dataset

    def _save(self, dataset: Dataset) -> Path:
        self.count += 1
        dataset.file_meta = FileMetaDataset()
        dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        path = self.root / dataset.Modality / f"IM{self.count:04d}.dcm"
        path.parent.mkdir(parents=True, exist_ok=True)
        dataset.save_as(path, enforce_file_format=True)
        return path


def set_pixels(dataset: Dataset, pixels: np.ndarray) -> None:
    """Set the pixels of one slice (rows, columns), or of several frames."""
    bits = pixels.dtype.itemsize * 8
    dataset.Rows, dataset.Columns = pixels.shape[-2:]
    if pixels.ndim == 3:
        dataset.NumberOfFrames = len(pixels)
    dataset.BitsAllocated = dataset.BitsStored = bits
    dataset.HighBit, dataset.PixelRepresentation = bits - 1, int(pixels.dtype.kind == "i")
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.PixelData = pixels.tobytes()


def set_plane(dataset: Dataset, geometry: Geometry, position_mm: np.ndarray) -> None:
    axes = np.asarray(geometry.direction).reshape(3, 3)
    dataset.ImagePositionPatient = format_numbers(position_mm)
    dataset.ImageOrientationPatient = format_numbers(axes[:, :2].T)
    dataset.PixelSpacing = format_numbers([geometry.spacing_mm[1], geometry.spacing_mm[0]])


def shuffle_names(paths: list[Path], seed: int = 0) -> None:
    """Give the files each other's names: the names no longer follow the slices."""
    order = np.random.default_rng(seed).permutation(len(paths))
    contents = [path.read_bytes() for path in paths]
    for path, source in zip(paths, order, strict=True):
        path.write_bytes(contents[source])


def compress(paths: list[Path], syntax: str) -> None:
    """Compress files by a transfer syntax of GDCM, such as `JPEG2000Lossless`."""
    import gdcm

    for path in paths:
        reader = gdcm.ImageReader()
        reader.SetFileName(str(path))
        assert reader.Read()
        encoder = gdcm.ImageChangeTransferSyntax()
        encoder.SetTransferSyntax(gdcm.TransferSyntax(getattr(gdcm.TransferSyntax, syntax)))
        encoder.SetInput(reader.GetImage())
        assert encoder.Change()
        writer = gdcm.ImageWriter()
        writer.SetFileName(str(path))
        writer.SetFile(reader.GetFile())
        writer.SetImage(encoder.GetOutput())
        assert writer.Write()
