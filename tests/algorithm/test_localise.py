"""The region holds every reference voxel, whatever the field of view; unsure means larger, never small and wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from algorithm.localise import LONGEST_UNSURE_MM, Region, localise
from algorithm.notices import Notices
from algorithm.read import Case, clean_ct
from contract.geometry import Geometry
from contract.images import Volume
from contract.patient import Patient
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import make_case
from rehearsal.phantoms.protocol import coarsened
from rehearsal.phantoms.scanner import Rendered, render


def coarse_phantom(index: int, field_of_view: str) -> Rendered:
    case = make_case(31, index, CENTRES, field_of_view)
    return render(replace(case, protocol=coarsened(case.protocol, 8)))


def region_of(ct: Volume) -> Region:
    return localise(Case(clean_ct(ct, "CT", Notices()), None, Patient()))


def lesion_points_mm(mask: Volume) -> np.ndarray:
    index = np.argwhere(mask.array > 0)[:, ::-1]
    matrix = mask.geometry.index_to_physical_matrix()
    return np.asarray(index @ matrix[:3, :3].T + matrix[:3, 3])


@pytest.mark.parametrize("field_of_view", ["whole_body", "head_and_neck", "head", "cut"])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_region_holds_every_lesion_and_lies_in_the_scan(field_of_view: str, index: int) -> None:
    found = coarse_phantom(index, field_of_view)
    region = region_of(found.ct)
    points = lesion_points_mm(found.mask)
    assert np.all(points >= region.lower_mm)
    assert np.all(points <= region.upper_mm)
    corners = found.ct.geometry.corners_mm()
    assert np.all(region.lower_mm >= corners.min(0) - 1e-6)
    assert np.all(region.upper_mm <= corners.max(0) + 1e-6)
    assert region.volume_litres < 0.3 * 0.3 * LONGEST_UNSURE_MM


def turned(volume: Volume, axes: tuple[int, ...]) -> Volume:
    """The same patient stored in other directions: array axes (z, y, x) flipped, the header saying so."""
    geometry = volume.geometry
    last, signs = [0, 0, 0], [1.0, 1.0, 1.0]
    for axis in axes:
        last[2 - axis], signs[2 - axis] = geometry.size[2 - axis] - 1, -1.0
    origin = (geometry.index_to_physical_matrix() @ [*last, 1])[:3]
    direction = tuple(float(v) for v in (np.asarray(geometry.direction).reshape(3, 3) * signs).ravel())
    flipped = Geometry(geometry.size, geometry.spacing_mm, (origin[0], origin[1], origin[2]), direction)
    return Volume(np.flip(volume.array, axes).copy(), flipped)


@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 1, 2)])
def test_the_order_of_voxels_in_the_file_makes_no_difference(axes: tuple[int, ...]) -> None:
    ct = coarse_phantom(1, "head_and_neck").ct
    plain, other = region_of(ct), region_of(turned(ct, axes))
    assert plain.found_by == other.found_by == "brain case"
    np.testing.assert_allclose([other.lower_mm, other.upper_mm], [plain.lower_mm, plain.upper_mm], atol=8.0)


GRID = Geometry((40, 40, 60), (8.0, 8.0, 10.0), (-160.0, -160.0, -300.0))


@pytest.mark.parametrize("hu", [-1024, 0, 1500])
def test_a_scan_without_anatomy_is_taken_as_far_as_it_goes(hu: int) -> None:
    """600 mm of nothing, of water or of bone: unsure, and the upper 450 mm at most."""
    region = region_of(Volume(np.full(GRID.array_shape, hu, np.int16), GRID))
    assert not region.sure
    assert region.upper_mm[2] == pytest.approx(295.0)
    assert region.upper_mm[2] - region.lower_mm[2] <= LONGEST_UNSURE_MM + 8


def test_a_small_scan_is_taken_whole() -> None:
    grid = Geometry((20, 20, 10), (8.0, 8.0, 10.0), (0.0, 0.0, 0.0))
    region = region_of(Volume(np.full(grid.array_shape, 40, np.int16), grid))
    corners = grid.corners_mm()
    np.testing.assert_allclose([region.lower_mm, region.upper_mm], [corners.min(0), corners.max(0)], atol=4.0)
