"""One picture per patient: CT and PET in three planes, with the contours of the reference and of every team."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
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
    """A plane: the LPS axis across it (0 x, 1 y, 2 z), and the letters at the picture's edges."""

    name: str
    normal: int
    left: str
    right: str
    top: str
    bottom: str


# The radiological convention: the patient's right on the left, in sagittal planes the front on the left.
VIEWS: Final = (
    View("axial", 2, left="R", right="L", top="A", bottom="P"),
    View("coronal", 1, left="R", right="L", top="S", bottom="I"),
    View("sagittal", 0, left="A", right="P", top="S", bottom="I"),
)


def centre_of_grid_mm(geometry: Geometry) -> Floats:
    """The middle of a grid in LPS mm."""
    return to_mm(geometry, (np.asarray(geometry.size) - 1) / 2)


def cut(volume: Volume, view: View, centre_mm: Floats, outside: float, label: int | None = None) -> Picture:
    """A square picture of `FIELD_MM` around a point, linearly interpolated; rows run from top to bottom.

    `centre_mm` is the point in the middle, LPS, and `outside` the value beyond the volume. With a `label` the picture
    shows the fraction of each pixel with this label instead of the values.
    """
    size = [_PIXELS] * 3
    size[view.normal] = 1
    x, y, z = (centre_mm - PIXEL_MM * (np.asarray(size) - 1) / 2).tolist()
    plane = Geometry((size[0], size[1], size[2]), (PIXEL_MM,) * 3, (x, y, z))
    picture = np.squeeze(resample_volume(volume, plane, sitk.sitkLinear, outside, label), axis=2 - view.normal)
    # Rows of coronal and sagittal planes run along z, upwards in the patient.
    return picture if view.name == "axial" else picture[::-1]


# Solid for the primary tumour, dashed for nodes, in the reference and in predictions.
LINE_STYLES: Final = {labels.GTVP: "solid", labels.GTVN: "dashed"}
# Names the reference among the contours; no team has an empty name.
REFERENCE: Final = ""
_PET_OPACITY: Final = 0.65
_INCHES: Final = 3.6


@dataclass(frozen=True)
class PictureRequest:
    """A patient to draw, with each team's colour.

    Attributes:
        files: scans and masks.
        colours: by team.
        pet: in SUV, replaces the file's, which may be in Bq/ml.
        scored: what the masks must agree with; None draws them without a comparison.
        without_mask: teams that have masks of other cases, but none of this one.
        drawn: whether the contours are drawn into the picture, instead of lying over it.
    """

    files: PatientFiles
    colours: Mapping[str, str]
    pet: Volume | None = None
    scored: ScoredMasks | None = None
    without_mask: tuple[str, ...] = ()
    drawn: bool = False


@dataclass(frozen=True)
class PatientPicture:
    """A JPEG, notes on masks that could not be drawn, and contours.

    `contours` holds, by team (`REFERENCE` for the reference), the SVG paths of GTVp and GTVn in pixels of the picture.
    """

    case: str
    jpeg: bytes
    notes: tuple[str, ...]
    contours: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def plan_pictures(
    scans: Sequence[PatientFiles],
    results: Sequence[TaskResults],
    given: Mapping[str, Path],
    colours: Mapping[str, str],
    most: int,
) -> tuple[list[PictureRequest], list[str]]:
    """Pictures to draw of the scored cases, at most `most`, and lines on what is missing.

    `given` are folders of masks by team, in place of those in the results. Raises HecktorError: none of the scans was
    scored, or a given folder has no mask of them.
    """
    task = find_mask_task(results)
    masks = find_masks(task, list(colours), given)
    scored_scans, scored = list_scored(scans, results), collect_scored_masks(task)
    cases = [files.case for files in scored_scans]
    for team in given:
        require_cases(f"--masks {team}", masks[team], cases)
    drawn = scored_scans[:most]
    requests = []
    for files in drawn:
        predictions = select_case_masks(masks, files.case)
        without = tuple(team for team in masks if team not in predictions)
        of_case = replace(files, predictions=predictions)
        requests.append(PictureRequest(of_case, colours, None, scored.get(files.case), without))
    lines = [
        describe_absent_masks(task, masks, cases),
        f"pictures of {len(drawn)} of {len(cases)} cases (--max-patients)" if len(drawn) < len(cases) else "",
        NOT_COMPARED if task is not None and not scored else "",
    ]
    return requests, [line for line in lines if line]


def draw_patient(request: PictureRequest) -> PatientPicture:
    """Draw one patient through the reference's GTVp and its largest GTVn.

    Without a lesion in the reference the planes go through the predicted lesions, or through the middle of the CT.
    Raises HecktorError: a scan or the reference cannot be read, or the reference is not the one that was scored. A
    prediction that is unusable or was not scored is a note.
    """
    files = request.files
    reference = read_labels(files.reference, HecktorError)
    if request.scored is not None:
        request.scored.check_reference(reference, files.reference.name)
    ct = replace_nonfinite(read_volume(files.ct), 0.0)[0]
    pet = replace_nonfinite(read_volume(files.pet), 0.0)[0] if request.pet is None else request.pet
    drawn = {REFERENCE: reference}
    notes = []
    for team, path in files.predictions.items():
        try:
            drawn[team] = _prediction(request, team, path, reference)
        except PredictionError as problem:
            notes.append(f"{team}: {problem.message}")
    if request.without_mask:
        notes.append(f"no mask of {', '.join(request.without_mask)}")
    centres = _lesion_points(list(drawn.values())) or [("no lesion", centre_of_grid_mm(ct.geometry))]
    # The reference last, so that it is drawn on top of the others.
    masks = {**{team: mask for team, mask in drawn.items() if team != REFERENCE}, REFERENCE: reference}
    colours = {REFERENCE: REFERENCE_COLOUR, **request.colours}
    jpeg, contours = _picture((ct, pet), masks, centres, colours if request.drawn else {})
    return PatientPicture(files.case, jpeg, tuple(notes), contours)


def _prediction(request: PictureRequest, team: str, path: Path, reference: Volume) -> Volume:
    if request.scored is None:
        return read_labels(path, PredictionError)
    mask = read_prediction(path, reference.geometry, request.scored.geometry).array
    request.scored.check_prediction(team, mask, path.name)
    return Volume(mask, reference.geometry)


def without_predictions(request: PictureRequest) -> PatientPicture:
    """The picture of a patient without predictions, for predictions that kill the process that reads them."""
    picture = draw_patient(replace(request, files=replace(request.files, predictions={})))
    return replace(picture, notes=("the process that drew the predictions died, so they are not shown",))


def _lesion_points(masks: Sequence[Volume]) -> list[tuple[str, Floats]]:
    """Names and LPS mm of a point in the largest GTVp and one in the largest GTVn of the first mask with a lesion."""
    for mask in masks:
        lesions = measure_lesions(find_lesions(mask.array, mask.geometry, _CONNECTIVITY), None)
        largest = {one.label: one.point_mm for one in reversed(lesions)}
        if largest:
            return [(labels.NAMES[label], largest[label]) for label in LINE_STYLES if label in largest]
    return []


# Nothing of the process's settings: nnU-Net's progress plot leaves seaborn's style and fonts of 25 points behind.
@style.context("default", after_reset=True)
def _picture(
    scans: tuple[Volume, Volume],
    masks: Mapping[str, Volume],
    centres: Sequence[tuple[str, Floats]],
    colours: Mapping[str, str],
) -> tuple[bytes, dict[str, tuple[str, str]]]:
    """The picture as JPEG, and the contours by team; teams with a colour have theirs in the picture itself."""
    figure = Figure(figsize=(len(VIEWS) * _INCHES, len(centres) * _INCHES), facecolor="black", dpi=100)
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=0.01, hspace=0.01)
    axes = figure.subplots(len(centres), len(VIEWS), squeeze=False)
    paths: dict[str, list[str]] = {team: ["", ""] for team in masks}
    for row, (title, centre_mm) in zip(axes, centres, strict=True):
        for place, view in zip(row, VIEWS, strict=True):
            _draw_plane(place, scans, view, title, centre_mm)
            place.apply_aspect()
            for team, mask in masks.items():
                for number, path in enumerate(_contours(place, mask, view, centre_mm, team, colours)):
                    paths[team][number] += path
    target = io.BytesIO()
    figure.savefig(target, format="jpg", facecolor="black", pil_kwargs={"quality": 82, "optimize": True})
    return target.getvalue(), {team: (primary, nodes) for team, (primary, nodes) in paths.items()}


def _contours(
    axes: Any, mask: Volume, view: View, centre_mm: Floats, team: str, colours: Mapping[str, str]
) -> Iterator[str]:
    """The outlines of GTVp and GTVn as SVG paths in pixels of the figure; drawn if the team has a colour."""
    height = axes.figure.bbox.height
    for label, dashes in LINE_STYLES.items():
        inside = cut(mask, view, centre_mm, outside=0.0, label=label)
        if inside.max() <= 0.5:
            yield ""
            continue
        width = 2.4 if team == REFERENCE else 1.2
        colour = colours.get(team, "none")
        lines = axes.contour(inside, levels=[0.5], colors=[colour], linewidths=width, linestyles=dashes)
        text = ""
        for line in lines.allsegs[0]:
            if not len(line):  # the mask fills the picture
                continue
            points = np.rint(axes.transData.transform(line)).astype(int)
            points = points[np.r_[True, (np.diff(points, axis=0) != 0).any(axis=1)]]
            text += "M" + "L".join(f"{x},{height - y:.0f}" for x, y in points.tolist())
        if team not in colours:
            lines.remove()
        yield text


def _draw_plane(axes: Any, scans: tuple[Volume, Volume], view: View, title: str, centre_mm: Floats) -> None:
    ct, suv = (cut(scan, view, centre_mm, outside) for scan, outside in zip(scans, (-1024.0, 0.0), strict=True))
    axes.imshow(ct, cmap="gray", vmin=CT_WINDOW_HU[0], vmax=CT_WINDOW_HU[1], interpolation="bilinear")
    axes.imshow(pet_colours(suv), interpolation="bilinear")
    axes.set_axis_off()
    text = {
        "transform": axes.transAxes,
        "color": "white",
        "fontsize": 10,
        "ha": "center",
        "va": "center",
        "path_effects": [withStroke(linewidth=2, foreground="black")],
    }
    places = ((0.03, 0.5), (0.97, 0.5), (0.5, 0.965), (0.5, 0.035))
    for (x, y), letter in zip(places, (view.left, view.right, view.top, view.bottom), strict=True):
        axes.text(x, y, letter, **text)
    axes.text(0.02, 0.965, f"{view.name}, {title}", **{**text, "fontsize": 8, "ha": "left"})


def pet_colours(suv: Picture) -> npt.NDArray[np.float32]:
    """RGBA of a PET plane: transparent at the low end of the shown range, opaque at its high end."""
    low, high = PET_SHOWN_SUV
    share = np.clip((np.nan_to_num(suv) - low) / (high - low), 0.0, 1.0)
    colours = np.asarray(mpl.colormaps["hot"](0.15 + 0.75 * share), dtype=np.float32)
    colours[..., 3] = _PET_OPACITY * np.minimum(1.0, 4 * share)
    return colours
