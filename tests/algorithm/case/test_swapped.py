"""CT and PET that are swapped."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.case.inputs import Notices
from algorithm.case.read import Case, CaseVolumes, WrongScanError, read_case
from contract.editions import load_edition
from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

GRID = Geometry((32, 32, 16), (4.0, 4.0, 4.0), (0.0, 0.0, 0.0))


def make_ct() -> Volume:
    """Make a CT of air, fat and muscle."""
    hu = np.full(GRID.array_shape, -1000, np.int16)
    hu[:, 6:26, 6:26], hu[:, 9:23, 9:23] = -100, 50
    return Volume(hu, GRID)


def make_pet() -> Volume:
    """Make a PET in Bq/ml."""
    activity = np.zeros(GRID.array_shape, np.float32)
    activity[:, 6:26, 6:26], activity[4:8, 12:15, 12:15] = 2000, 30000
    return Volume(activity, GRID)


def make_padded_pet() -> Volume:
    """Make a PET that is padded with -1024."""
    image = make_pet()
    image.array[:, :6] = -1024
    return image


def read(ct: Volume, pet: Volume, edition: str, *, tolerant: bool) -> tuple[Case, Notices]:
    notices, chosen = Notices(), load_edition(edition)
    return read_case(CaseVolumes(ct, pet, {}), chosen, chosen.algorithms[0], notices, tolerant=tolerant), notices


@pytest.mark.parametrize(("edition", "tolerant"), [("hecktor2025", False), ("hecktor2026", True)])
def test_swapped_ct_and_pet_are_refused(edition: str, tolerant: bool) -> None:
    """Even an edition with fallbacks has no image to continue with."""
    with pytest.raises(WrongScanError, match=r"PET: the values of a CT .* CT and PET are swapped"):
        read(make_pet(), make_ct(), edition, tolerant=tolerant)


def test_a_second_ct_in_place_of_the_pet_leaves_the_ct() -> None:
    with pytest.raises(InputError, match="PET: the values of a CT"):
        read(make_ct(), make_ct(), "hecktor2025", tolerant=False)
    case, notices = read(make_ct(), make_ct(), "hecktor2026", tolerant=True)
    assert case.pet is None
    assert any("the values of a CT" in finding.found for finding in notices.findings)


def test_a_pet_padded_with_the_air_of_a_ct_is_a_pet() -> None:
    """No value is near a CT's fat."""
    case, _ = read(make_ct(), make_padded_pet(), "hecktor2025", tolerant=False)
    assert case.pet is not None
