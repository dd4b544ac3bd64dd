"""Registration of an earlier MR and its mask to a later one: rigid, then deformable by a B-spline.

For cohorts whose images of two visits are not registered. As HNTS-MRG 2024 did, the images are centred, then a rigid
and a deformable transform are found on the later image, and the rigid one alone is used where the deformable one folds
(overview, data preprocessing methods); here with SimpleITK's own registration in place of Elastix.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import SimpleITK as sitk

from contract.errors import Finding, InputError, OutputError
from contract.images.volumes import (
    Volume,
    finite,
    image_suffix,
    labelled,
    read_volume,
    to_sitk,
    write_mask,
    write_volume,
)

_SUFFIXES: Final = (".mha", ".nii.gz")
_BINS: Final = 48
# Voxels that the metric samples at each resolution.
_SAMPLES: Final = 30_000
_STEPS: Final = 100
# Shrink factors and smoothing in mm of the resolutions, and the distance of the B-spline's control points.
_SHRINK, _SMOOTHING_MM = (4, 2), (3.0, 1.0)
_CONTROL_POINTS_MM: Final = 80.0
# A volume element that shrinks to less is folded.
_SMALLEST_JACOBIAN: Final = 0.1


@dataclass(frozen=True)
class Registration:
    """The earlier visit on the grid of the later image.

    Attributes:
        image: the earlier image, linearly resampled, float32.
        mask: its mask by nearest neighbour, None without one.
        finding: why the rigid transform is used alone, None for a deformable one, or if it was asked for.
    """

    image: Volume
    mask: Volume | None
    finding: Finding | None


def register_files(
    later: Path, earlier: Path, mask: Path | None, image_to: Path, mask_to: Path | None, *, rigid: bool = False
) -> Registration:
    """Register `earlier` and its `mask` to `later` and write them to `image_to` and `mask_to`.

    Raises:
        InputError: a file cannot be used, see `register`.
        OutputError: a file cannot be written.
    """
    for target in (image_to, mask_to):
        if target is not None and image_suffix(target) not in _SUFFIXES:
            raise OutputError(target.name, "found another ending", " or ".join(_SUFFIXES))
    fixed, moving = read_volume(later, "float32"), read_volume(earlier, "float32")
    drawn = None
    if mask is not None:
        drawn = labelled(read_volume(mask), mask.name)
        if differences := drawn.geometry.differences(moving.geometry):
            found = f"not on the grid of {earlier.name} ({differences[0]})"
            raise InputError(mask.name, found, "the mask of this image")
    for path, volume in ((later, fixed), (earlier, moving)):
        if count := finite(volume, 0.0)[1]:
            raise InputError(path.name, f"{count} voxels are NaN or infinite", "numbers")
        if not volume.array.any():
            raise InputError(path.name, "all voxels are zero", "an image")
    registered = register(fixed, moving, drawn, rigid=rigid, name=f"{earlier.name} to {later.name}")
    write_volume(image_to, registered.image)
    if registered.mask is not None and mask_to is not None:
        write_mask(mask_to, registered.mask.array, registered.mask.geometry)
    return registered


def register(
    later: Volume, earlier: Volume, mask: Volume | None = None, *, rigid: bool = False, name: str = "registration"
) -> Registration:
    """The earlier image and its mask on the grid of the later image; with `rigid` without deformation.

    `name` is that of the images in messages.

    Raises:
        InputError: the images cannot be registered, as when they are of different parts of the body.
    """
    fixed, moving = to_sitk(later), to_sitk(earlier)
    try:
        pose = _rigid(fixed, moving)
        bend = None if rigid else _deformable(fixed, moving, pose)
    except RuntimeError as problem:
        reason = next((line for line in str(problem).splitlines()[::-1] if line.strip()), "no reason").strip()
        raise InputError(name, f"cannot be registered ({reason})", "two images of the same neck") from None
    transform, finding = sitk.CompositeTransform([pose]), None
    if bend is not None and _folds(bend, fixed):
        finding = Finding(name, "the deformation folds", "a smooth one", "the rigid transform is used alone")
    elif bend is not None:
        transform.AddTransform(bend)
    image = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, transform, sitk.sitkLinear, 0.0))
    moved = None
    if mask is not None:
        resampled = sitk.Resample(to_sitk(mask), fixed, transform, sitk.sitkNearestNeighbor, 0)
        moved = Volume(sitk.GetArrayFromImage(resampled), later.geometry)
    return Registration(Volume(image, later.geometry), moved, finding)


def _method(fixed: sitk.Image) -> sitk.ImageRegistrationMethod:
    """Mutual information on regular samples, so that equal images give equal transforms."""
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(_BINS)
    method.SetMetricSamplingStrategy(method.REGULAR)
    voxels = [fixed.GetNumberOfPixels() / shrink**3 for shrink in _SHRINK]
    method.SetMetricSamplingPercentagePerLevel([min(1.0, _SAMPLES / count) for count in voxels], seed=1)
    method.SetInterpolator(sitk.sitkLinear)
    method.SetShrinkFactorsPerLevel(_SHRINK)
    method.SetSmoothingSigmasPerLevel(_SMOOTHING_MM)
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOn()
    return method


def _rigid(fixed: sitk.Image, moving: sitk.Image) -> sitk.Transform:
    start: sitk.Transform = sitk.CenteredTransformInitializer(
        fixed, moving, sitk.Euler3DTransform(), sitk.CenteredTransformInitializerFilter.GEOMETRY
    )
    method = _method(fixed)
    method.SetOptimizerAsRegularStepGradientDescent(2.0, 0.01, _STEPS)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetInitialTransform(start, inPlace=True)
    method.Execute(fixed, moving)
    return start


def _deformable(fixed: sitk.Image, moving: sitk.Image, pose: sitk.Transform) -> sitk.Transform:
    lengths = [count * step for count, step in zip(fixed.GetSize(), fixed.GetSpacing(), strict=True)]
    points = [max(round(length / _CONTROL_POINTS_MM), 1) for length in lengths]
    bend: sitk.Transform = sitk.BSplineTransformInitializer(fixed, points)
    method = _method(fixed)
    method.SetOptimizerAsLBFGSB(numberOfIterations=_STEPS // 5, maximumNumberOfFunctionEvaluations=_STEPS // 4)
    method.SetMovingInitialTransform(pose)
    method.SetInitialTransform(bend, inPlace=True)
    method.Execute(fixed, moving)
    return bend


def _folds(bend: sitk.Transform, fixed: sitk.Image) -> bool:
    """Whether a deformation turns tissue inside out or nearly so anywhere, by its Jacobian determinant."""
    coarse = [step * _SHRINK[0] for step in fixed.GetSpacing()]
    size = [max(count // _SHRINK[0], 2) for count in fixed.GetSize()]
    field = sitk.TransformToDisplacementField(
        bend, sitk.sitkVectorFloat64, size, fixed.GetOrigin(), coarse, fixed.GetDirection()
    )
    jacobian = sitk.GetArrayFromImage(sitk.DisplacementFieldJacobianDeterminant(field))
    return float(jacobian.min()) < _SMALLEST_JACOBIAN
