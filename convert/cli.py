"""`hecktor convert`: write a case from a folder of DICOM files, or a mask as a DICOM segmentation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract import labels
from contract.editions import load_edition
from contract.io.locks import lock_output
from contract.options import Parser, add_edition_option, require_files, require_folders

if TYPE_CHECKING:
    from contract.images.geometry import Geometry
    from convert.dicom.structures import ReferenceMask
    from convert.pipeline import ConvertedCase


def main(argv: Sequence[str] | None = None) -> int:
    """Convert a study or a mask, and print a summary; raise `HecktorError` for errors that the user can fix."""
    options = _build_parser().parse_args(argv)
    require_folders(options, "--input")
    if options.format == "seg":
        return _write_segmentation(options)
    from convert.dicom.structures import RoiNames  # after --help: SimpleITK takes a second
    from convert.pipeline import ConvertRequest, convert_dicom

    request = ConvertRequest(
        source=options.input,
        output=options.output,
        edition=load_edition(options.edition),
        ct_series=options.ct_series,
        pet_series=options.pet_series,
        roi_names=RoiNames(tuple(options.gtvp), tuple(options.gtvn)),
    )
    with lock_output(options.output):
        case = convert_dicom(request)
    for finding in case.findings:
        print(f"warning: {finding}", file=sys.stderr)
    print("\n".join(_format_summary(case)))
    return 0


def _write_segmentation(options: argparse.Namespace) -> int:
    """Write a mask as a DICOM segmentation, and print the series that it refers to."""
    require_files(options, "--mask")
    from convert.dicom.segmentation import SegmentationRequest, write_segmentation  # imports SimpleITK

    algorithm = None if options.manual else options.algorithm
    with lock_output(options.output):
        series = write_segmentation(
            SegmentationRequest(options.mask, options.input, options.output, algorithm, metadata.version("hecktor"))
        )
    print(f"{options.output}: segmentation of the CT {series}")
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hecktor convert", description="Convert a DICOM study into a case, or a mask into DICOM.")
    formats = parser.add_subparsers(dest="format", required=True, metavar="dicom|seg")
    dicom = formats.add_parser(
        "dicom",
        help="write a case from a DICOM study with CT and PET",
        description="Write a case in the platform's layout from a DICOM study with CT and PET (docs/formats.md).",
    )
    add = dicom.add_argument
    add("--input", type=Path, required=True, metavar="DIR", help="folder of one study; sub-folders are read too")
    add(
        "--output",
        type=Path,
        required=True,
        metavar="CASE",
        help="new folder of the case, the input of `hecktor predict`",
    )
    add("--ct-series", metavar="UID|TEXT", help="CT series by its UID or description (default: chosen by rule)")
    add("--pet-series", metavar="UID|TEXT", help="PET series by its UID or description (default: chosen by rule)")
    for option, name in (("--gtvp", "GTVp"), ("--gtvn", "GTVn")):
        text = f"name of a {name} structure, * for any text; may be repeated (default: the usual spellings of {name})"
        add(option, action="append", default=[], metavar="NAME", help=text)
    add_edition_option(dicom)
    _add_segmentation(formats)
    return parser


def _add_segmentation(formats: Any) -> None:
    """Add the options of `hecktor convert seg`."""
    seg = formats.add_parser(
        "seg",
        help="write a mask as a DICOM segmentation",
        description="Write a mask as a DICOM segmentation of the CT on whose grid it lies (docs/formats.md).",
    )
    seg.add_argument("--mask", type=Path, required=True, metavar="FILE", help="mask with labels 1 GTVp and 2 GTVn")
    seg.add_argument("--input", type=Path, required=True, metavar="DIR", help="folder of the study with the CT")
    seg.add_argument("--output", type=Path, required=True, metavar="FILE", help="DICOM file to write")
    seg.add_argument(
        "--algorithm",
        default="hecktor",
        metavar="NAME",
        help="name of the algorithm that made the mask (default: hecktor)",
    )
    seg.add_argument("--manual", action="store_true", help="state that a person drew the mask")


def _format_summary(case: ConvertedCase) -> list[str]:
    low, high = case.suv_factors
    factor = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}, by slice"
    ehr = ", ".join(f"{key} {value}" for key, value in case.ehr.items()) or "no variable"
    lines = [
        f"CT   {_format_grid(case.ct)}",
        f"PET  {_format_grid(case.pet)}, highest SUV {case.suv_max:.2f}",
        f"SUV  factor {factor}: {case.suv_derivation}",
        f"EHR  {ehr} (DICOM contains only age, sex and weight)",
    ]
    if case.structures is not None:
        lines += _format_structures(case.structures)
    if case.dose_max_gy is not None:
        lines.append(f"dose highest {case.dose_max_gy:.2f} Gy")
    lines += [f"ignored: {line}" for line in case.ignored]
    return [*lines, f"written: {case.output}"]


def _format_grid(grid: Geometry) -> str:
    size, spacing = " x ".join(map(str, grid.size)), " x ".join(f"{value:.4g}" for value in grid.spacing_mm)
    return f"{size} voxels of {spacing} mm"


def _format_structures(structures: ReferenceMask) -> list[str]:
    lines = []
    for label in labels.FOREGROUND:
        names = [name for name, roi_label in structures.rois if roi_label == label]
        voxels = int((structures.array == label).sum())
        empty = [name for name, roi_label in structures.empty_rois if roi_label == label]
        parts = []
        if names:
            parts.append(f"{', '.join(names)}, {voxels} voxels")
        if empty:
            parts.append(f"{', '.join(empty)} without a closed contour")
        if not parts:
            parts.append(f"no structure of that name; --{labels.NAMES[label].lower()} NAME chooses one")
        lines.append(f"mask {labels.NAMES[label]}: {'; '.join(parts)}")
    if structures.unused_names:
        lines.append(f"mask other structures, not used: {', '.join(structures.unused_names)}")
    return lines
