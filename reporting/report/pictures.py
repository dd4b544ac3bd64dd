"""Draw a picture of each patient: CT and PET in three planes, with the contours of the reference and of every team."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from contract import labels
from contract.errors import HecktorError, PredictionError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, replace_nonfinite
from evaluation.inputs.masks import read_labels, read_prediction
from evaluation.metrics.overlap import Floats
from evaluation.results.task import TaskResults
from reporting.analyses.scans import PatientFiles
from reporting.analyses.sources import (
    NOT_COMPARED,
    ScoredMasks,
    collect_scored_masks,
    describe_absent_masks,
    find_mask_task,
    find_masks,
    list_scored,
    require_cases,
    select_case_masks,
)
from reporting.page.html import CT_WINDOW_HU, PET_SHOWN_SUV, REFERENCE_COLOUR
from reporting.viewer.lesions import find_lesions, measure_lesions
from reporting.viewer.region import resample_volume, to_mm

Picture: TypeAlias = npt.NDArray[np.float32]

FIELD_MM: Final = 171.0
PIXEL_MM: Final = 0.75
_PIXELS: Final = int(FIELD_MM / PIXEL_MM)
_CONNECTIVITY: Final = 26


@dataclass(frozen=True)
class View:
    """The direction of a plane.

    Attributes:
        name: The name of the direction.
        normal: The LPS axis perpendicular to the plane: 0 for x, 1 for y, 2 for z.
        left: The letter at the left edge of the picture.
        right: The letter at the right edge.
        top: The letter at the upper edge.
        bottom: The letter at the lower edge.
    """

    name: str
    normal: int
    left: str
    right: str
    top: str
    bottom: str


# The radiological convention: the patient's right side is on the left, and the front of sagittal planes is on the left.
VIEWS: Final = (
    View("axial", 2, left="R", right="L", top="A", bottom="P"),
    View("coronal", 1, left="R", right="L", top="S", bottom="I"),
    View("sagittal", 0, left="A", right="P", top="S", bottom="I"),
)


@dataclass(frozen=True)
class Plane:
    """A square of `FIELD_MM` in the direction of a view, with a point (LPS) in its middle."""

    view: View
    centre_mm: Floats


def compute_grid_centre_mm(geometry: Geometry) -> Floats:
    """Return the point (LPS) in the middle of a grid."""
    return to_mm(geometry, (np.asarray(geometry.size) - 1) / 2)


def cut_plane(volume: Volume, plane: Plane, outside: float, label: int | None = None) -> Picture:
    """Interpolate a volume linearly in a plane.

    Args:
        volume: The scan or mask.
        plane: The plane.
        outside: The value beyond the volume.
        label: A label of a mask. The picture then shows the fraction of each pixel that has this label.

    Returns:
        The square picture; its rows run from top to bottom.
    """
    view = plane.view
    size = [_PIXELS] * 3
    size[view.normal] = 1
    x, y, z = (plane.centre_mm - PIXEL_MM * (np.asarray(size) - 1) / 2).tolist()
    grid = Geometry((size[0], size[1], size[2]), (PIXEL_MM,) * 3, (x, y, z))
    picture = np.squeeze(resample_volume(volume, grid, sitk.sitkLinear, outside, label), axis=2 - view.normal)
    # Rows of coronal and sagittal planes run along z, upwards in the patient.
    return picture if view.name == "axial" else picture[::-1]


# The primary tumour has solid lines and nodes have dashed lines, in the reference and in predictions.
LINE_STYLES: Final = {labels.GTVP: "solid", labels.GTVN: "dashed"}
# The name of the reference among the contours; no team has an empty name.
REFERENCE: Final = ""
_REFERENCE_WIDTH: Final = 2.4
_PREDICTION_WIDTH: Final = 1.2
_PET_OPACITY: Final = 0.65
_INCHES: Final = 3.6


@dataclass(frozen=True)
class PictureRequest:
    """A patient to draw.

    Attributes:
        files: The scans and masks.
        colours: The colour of each team.
        pet: A PET in SUV that replaces the file, which may be in Bq/ml; None to read the file.
        scored: The figures of the scored masks, to compare with the masks; None to compare nothing.
        teams_without_mask: Teams that have masks of other cases, but no mask of this case.
        draws_contours: Whether the contours are drawn into the picture. Otherwise the page lays them over it.
    """

    files: PatientFiles
    colours: Mapping[str, str]
    pet: Volume | None = None
    scored: ScoredMasks | None = None
    teams_without_mask: tuple[str, ...] = ()
    draws_contours: bool = False


@dataclass(frozen=True)
class PatientPicture:
    """The picture of a patient.

    Attributes:
        case: The patient.
        jpeg: The picture as a JPEG file.
        notes: Lines about masks that could not be drawn.
        contours: The SVG paths of GTVp and GTVn in pixels of the picture, by team (`REFERENCE` for the reference).
    """

    case: str
    jpeg: bytes
    notes: tuple[str, ...]
    contours: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def plan_pictures(
    scans: Sequence[PatientFiles],
    results: Sequence[TaskResults],
    mask_folders: Mapping[str, Path],
    colours: Mapping[str, str],
    max_pictures: int,
) -> tuple[list[PictureRequest], list[str]]:
    """Plan the pictures of the scored cases.

    Args:
        scans: The scans of the cohort.
        results: The results of each task.
        mask_folders: Folders of masks by team, which replace the masks in the results.
        colours: The colour of each team.
        max_pictures: The maximum number of pictures.

    Returns:
        The patients to draw, and lines about what is missing.

    Raises:
        HecktorError: No scan was scored, or a folder in `mask_folders` has no mask of a scored case.
    """
    task = find_mask_task(results)
    masks = find_masks(task, list(colours), mask_folders)
    scored_scans, scored_masks = list_scored(scans, results), collect_scored_masks(task)
    cases = [files.case for files in scored_scans]
    for team in mask_folders:
        require_cases(f"--masks {team}", masks[team], cases)
    requests = []
    for files in scored_scans[:max_pictures]:
        predictions = select_case_masks(masks, files.case)
        request = PictureRequest(
            replace(files, predictions=predictions),
            colours,
            scored=scored_masks.get(files.case),
            teams_without_mask=tuple(team for team in masks if team not in predictions),
        )
        requests.append(request)
    is_limited = len(requests) < len(cases)
    notes = [
        describe_absent_masks(task, masks, cases),
        f"pictures of {len(requests)} of {len(cases)} cases (--max-patients)" if is_limited else "",
        NOT_COMPARED if task is not None and not scored_masks else "",
    ]
    return requests, [note for note in notes if note]


def draw_patient(request: PictureRequest) -> PatientPicture:
    """Draw the planes through the reference's largest GTVp and its largest GTVn.

    If the reference has no lesion, the planes go through the lesions of the first prediction that has lesions, or
    through the middle of the CT. A prediction that is unusable or was not scored is reported in the notes.

    Raises:
        HecktorError: A scan or the reference cannot be read, or the reference is not the scored one.
    """
    files = request.files
    reference = read_labels(files.reference, HecktorError)
    if request.scored is not None:
        request.scored.check_reference(reference, files.reference.name)
    ct = replace_nonfinite(read_volume(files.ct), 0.0)[0]
    pet = replace_nonfinite(read_volume(files.pet), 0.0)[0] if request.pet is None else request.pet
    predictions, notes = _read_predictions(request, reference)
    points = _find_lesion_points([reference, *predictions.values()])
    if not points:
        points = [("no lesion", compute_grid_centre_mm(ct.geometry))]
    # The reference is last, so that it is drawn above the predictions.
    masks = {**predictions, REFERENCE: reference}
    colours = {REFERENCE: REFERENCE_COLOUR, **request.colours} if request.draws_contours else {}
    jpeg, contours = _draw_picture((ct, pet), masks, points, colours)
    return PatientPicture(files.case, jpeg, tuple(notes), contours)


def draw_without_predictions(request: PictureRequest) -> PatientPicture:
    """Draw a patient without the predictions, because the process that read them died."""
    picture = draw_patient(replace(request, files=replace(request.files, predictions={})))
    return replace(picture, notes=("the process that drew the predictions died, so they are not shown",))


def _read_predictions(request: PictureRequest, reference: Volume) -> tuple[dict[str, Volume], list[str]]:
    """Read each team's mask, and return the usable masks and lines about the other masks."""
    predictions: dict[str, Volume] = {}
    notes = []
    for team, path in request.files.predictions.items():
        try:
            predictions[team] = _read_prediction(request, team, path, reference)
        except PredictionError as problem:
            notes.append(f"{team}: {problem.message}")
    if request.teams_without_mask:
        notes.append(f"no mask of {', '.join(request.teams_without_mask)}")
    return predictions, notes


def _read_prediction(request: PictureRequest, team: str, path: Path, reference: Volume) -> Volume:
    if request.scored is None:
        return read_labels(path, PredictionError)
    mask = read_prediction(path, reference.geometry, request.scored.geometry).array
    request.scored.check_prediction(team, mask, path.name)
    return Volume(mask, reference.geometry)


def _find_lesion_points(masks: Sequence[Volume]) -> list[tuple[str, Floats]]:
    """Find a point (LPS) in the largest GTVp and in the largest GTVn of the first mask with a lesion, with its label.

    The list is empty if no mask has a lesion.
    """
    for mask in masks:
        lesions = measure_lesions(find_lesions(mask.array, mask.geometry, _CONNECTIVITY), None)
        points = {lesion.label: lesion.point_mm for lesion in reversed(lesions)}  # the largest lesion is the first
        if points:
            return [(labels.NAMES[label], points[label]) for label in LINE_STYLES if label in points]
    return []


# The context excludes settings of the process: nnU-Net's progress plot leaves seaborn's style and large fonts behind.
@style.context("default", after_reset=True)
def _draw_picture(
    scans: tuple[Volume, Volume],
    masks: Mapping[str, Volume],
    points: Sequence[tuple[str, Floats]],
    colours: Mapping[str, str],
) -> tuple[bytes, dict[str, tuple[str, str]]]:
    """Draw a row of three planes for each point.

    Args:
        scans: CT and PET.
        masks: The masks by team.
        points: The points (LPS) in the middle of the planes, with their names.
        colours: The colour of each team whose contours are drawn into the picture.

    Returns:
        The JPEG file, and the SVG paths of GTVp and GTVn by team.
    """
    figure = Figure(figsize=(len(VIEWS) * _INCHES, len(points) * _INCHES), facecolor="black", dpi=100)
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=0.01, hspace=0.01)
    grid = figure.subplots(len(points), len(VIEWS), squeeze=False)
    contours = dict.fromkeys(masks, ("", ""))
    for row, (title, centre_mm) in zip(grid, points, strict=True):
        for axes, view in zip(row, VIEWS, strict=True):
            plane = Plane(view, centre_mm)
            _draw_scans(axes, scans, plane, title)
            axes.apply_aspect()
            for team, mask in masks.items():
                width = _REFERENCE_WIDTH if team == REFERENCE else _PREDICTION_WIDTH
                primary, nodes = _trace_contours(axes, mask, plane, colours.get(team), width)
                contours[team] = (contours[team][0] + primary, contours[team][1] + nodes)
    target = io.BytesIO()
    figure.savefig(target, format="jpg", facecolor="black", pil_kwargs={"quality": 82, "optimize": True})
    return target.getvalue(), contours


def _draw_scans(axes: Any, scans: tuple[Volume, Volume], plane: Plane, title: str) -> None:
    ct, pet = scans
    window_low, window_high = CT_WINDOW_HU
    ct_picture = cut_plane(ct, plane, outside=-1024.0)
    axes.imshow(ct_picture, cmap="gray", vmin=window_low, vmax=window_high, interpolation="bilinear")
    axes.imshow(colour_pet(cut_plane(pet, plane, outside=0.0)), interpolation="bilinear")
    axes.set_axis_off()
    text = {
        "transform": axes.transAxes,
        "color": "white",
        "fontsize": 10,
        "ha": "center",
        "va": "center",
        "path_effects": [withStroke(linewidth=2, foreground="black")],
    }
    view = plane.view
    axes.text(0.03, 0.5, view.left, **text)
    axes.text(0.97, 0.5, view.right, **text)
    axes.text(0.5, 0.965, view.top, **text)
    axes.text(0.5, 0.035, view.bottom, **text)
    axes.text(0.02, 0.965, f"{view.name}, {title}", **{**text, "fontsize": 8, "ha": "left"})


def colour_pet(suv: Picture) -> npt.NDArray[np.float32]:
    """Return the RGBA colours of a PET plane, which is transparent below the shown range."""
    low, high = PET_SHOWN_SUV
    fraction = np.clip((np.nan_to_num(suv) - low) / (high - low), 0.0, 1.0)
    colours = np.asarray(mpl.colormaps["hot"](0.15 + 0.75 * fraction), dtype=np.float32)
    colours[..., 3] = _PET_OPACITY * np.minimum(1.0, 4 * fraction)
    return colours


def _trace_contours(axes: Any, mask: Volume, plane: Plane, colour: str | None, width: float) -> tuple[str, str]:
    """Trace the outlines of GTVp and GTVn as SVG paths in pixels of the figure, and draw them if there is a colour."""
    paths = []
    for label, dashes in LINE_STYLES.items():
        inside = cut_plane(mask, plane, outside=0.0, label=label)
        if inside.max() <= 0.5:
            paths.append("")
            continue
        lines = axes.contour(inside, levels=[0.5], colors=[colour or "none"], linewidths=width, linestyles=dashes)
        paths.append("".join(_format_path(axes, line) for line in lines.allsegs[0]))
        if colour is None:
            lines.remove()
    primary, nodes = paths
    return primary, nodes


def _format_path(axes: Any, line: Floats) -> str:
    """Format a line of a contour as an SVG path of whole pixels."""
    if not len(line):  # the mask fills the picture
        return ""
    points = np.rint(axes.transData.transform(line)).astype(int)
    has_moved = np.r_[True, (np.diff(points, axis=0) != 0).any(axis=1)]
    height = axes.figure.bbox.height
    return "M" + "L".join(f"{x},{height - y:.0f}" for x, y in points[has_moved].tolist())
