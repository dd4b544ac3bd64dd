"""Regions hold every reference voxel in any field of view; an unsure region is larger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from algorithm.case.inputs import Notices
from algorithm.case.read import Case, clean_ct, clean_pet
from algorithm.region.localise import MAX_UNSURE_LENGTH_MM, Region, localise
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from contract.patient import Patient
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import coarsen_protocol, make_case
from rehearsal.phantoms.rendering import Rendered
from tests.rehearsal.phantoms.variants import KINDS, vary


def render_phantom(kind: str, index: int) -> Rendered:
    case = make_case(31, index, CENTRES)
    case = replace(case, protocol=coarsen_protocol(case.protocol, 8))
    return vary(case, kind, np.random.default_rng((31, index, KINDS.index(kind))))


def find_region(ct: Volume) -> Region:
    return localise(Case(clean_ct(ct, "CT", Notices()), None, Patient()))


def find_lesion_points_mm(mask: Volume) -> np.ndarray:
    index = np.argwhere(mask.array > 0)[:, ::-1]
    matrix = mask.geometry.index_to_physical_matrix()
    return np.asarray(index @ matrix[:3, :3].T + matrix[:3, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_the_region_holds_every_lesion_and_lies_in_the_scan(kind: str) -> None:
    """An unsure region has at most 450 x 300 x 300 mm, a sure one 382 x 290 x 250 mm. HU and SUV give no notice."""
    scan, notices = render_phantom(kind, 0), Notices()
    ct = clean_ct(scan.ct, "CT", notices)
    region = localise(Case(ct, clean_pet(scan.pet, ct, "PET", notices), Patient()))
    assert notices.findings == []
    points = find_lesion_points_mm(scan.mask)
    assert len(points)
    assert np.all(points >= region.lower_mm)
    assert np.all(points <= region.upper_mm)
    corners = scan.ct.geometry.corners_mm()
    assert np.all(region.lower_mm >= corners.min(0) - 1e-6)
    assert np.all(region.upper_mm <= corners.max(0) + 1e-6)
    assert region.volume_litres <= (0.25 * 0.29 * 382 if region.sure else 0.3 * 0.3 * MAX_UNSURE_LENGTH_MM) + 1e-6


@pytest.mark.shared
@pytest.mark.parametrize("patient", ["STS_001", "STS_035"])
def test_real_scans_of_limbs_are_unsure(sts_scans: Path, patient: str) -> None:
    """Both scans are cropped to a limb without brain and lungs. The region is the body, at most 193 x 206 x 197 mm."""
    images = (read_volume(sts_scans / patient / f"{name}_image.nii.gz") for name in ("CT", "PET"))
    ct, pet = images
    ct = clean_ct(ct, "CT", Notices())
    region = localise(Case(ct, clean_pet(pet, ct, "PET", Notices()), Patient()))
    assert (region.sure, region.found_by) == (False, "body outline")
    assert region.has_no_landmark
    tumour = find_lesion_points_mm(read_volume(sts_scans / patient / "CT_mask.nii.gz"))
    assert np.all(tumour >= region.lower_mm)
    assert np.all(tumour <= region.upper_mm)


def flip_axes(volume: Volume, axes: tuple[int, ...]) -> Volume:
    """Flip array axes (z, y, x) of the volume and its header, so that the patient is the same."""
    geometry = volume.geometry
    last, signs = [0, 0, 0], [1.0, 1.0, 1.0]
    for axis in axes:
        last[2 - axis], signs[2 - axis] = geometry.size[2 - axis] - 1, -1.0
    origin = (geometry.index_to_physical_matrix() @ [*last, 1])[:3]
    direction = tuple(float(v) for v in (np.asarray(geometry.direction).reshape(3, 3) * signs).ravel())
    flipped = Geometry(geometry.size, geometry.spacing_mm, (origin[0], origin[1], origin[2]), direction)
    return Volume(np.flip(volume.array, axes).copy(), flipped)


def test_without_a_pet_a_brain_is_not_sure_and_the_order_of_voxels_in_the_file_makes_no_difference() -> None:
    """On real CTs without a PET the brain's lower end is 52 to 115 mm too high, so the region is larger, too."""
    ct = render_phantom("head and neck", 1).ct
    plain = find_region(ct)
    assert (plain.found_by, plain.sure) == ("brain case", False)
    assert plain.upper_mm[0] - plain.lower_mm[0] == pytest.approx(340)
    for axes in ((0,), (1, 2)):
        flipped = find_region(flip_axes(ct, axes))
        assert flipped.found_by == "brain case"
        np.testing.assert_allclose([flipped.lower_mm, flipped.upper_mm], [plain.lower_mm, plain.upper_mm], atol=8.0)


GRID = Geometry((40, 40, 60), (8.0, 8.0, 10.0), (-160.0, -160.0, -300.0))


@pytest.mark.parametrize("hu", [-1024, 1500])
def test_a_scan_without_anatomy_is_the_region(hu: int) -> None:
    """With 600 mm of air or bone the region is unsure, and has the upper 450 mm at most."""
    region = find_region(Volume(np.full(GRID.array_shape, hu, np.int16), GRID))
    assert not region.sure
    assert region.upper_mm[2] == pytest.approx(295.0)
    assert region.upper_mm[2] - region.lower_mm[2] <= MAX_UNSURE_LENGTH_MM + 8


def test_a_small_scan_is_the_region() -> None:
    grid = Geometry((20, 20, 10), (8.0, 8.0, 10.0), (0.0, 0.0, 0.0))
    region = find_region(Volume(np.full(grid.array_shape, 40, np.int16), grid))
    corners = grid.corners_mm()
    np.testing.assert_allclose([region.lower_mm, region.upper_mm], [corners.min(0), corners.max(0)], atol=4.0)
