"""CT and PET in each other's place, and masks larger than any tumour."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.case.notices import Notices
from algorithm.case.read import Case, CaseVolumes, SwappedError, read_case
from algorithm.conclude import _log_implausible
from contract.editions import load_edition
from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

GRID = Geometry((32, 32, 16), (4.0, 4.0, 4.0), (0.0, 0.0, 0.0))


def scan() -> Volume:
    """A CT of air, fat and muscle."""
    hu = np.full(GRID.array_shape, -1000, np.int16)
    hu[:, 6:26, 6:26], hu[:, 9:23, 9:23] = -100, 50
    return Volume(hu, GRID)


def uptake() -> Volume:
    """A PET in Bq/ml."""
    activity = np.zeros(GRID.array_shape, np.float32)
    activity[:, 6:26, 6:26], activity[4:8, 12:15, 12:15] = 2000, 30000
    return Volume(activity, GRID)


def read(ct: Volume, pet: Volume, edition: str, *, tolerant: bool) -> tuple[Case, Notices]:
    notices, chosen = Notices(), load_edition(edition)
    return read_case(CaseVolumes(ct, pet, {}), chosen, chosen.algorithms[0], notices, tolerant=tolerant), notices


@pytest.mark.parametrize(("edition", "tolerant"), [("hecktor2025", False), ("hecktor2026", True)])
def test_swapped_ct_and_pet_are_refused(edition: str, tolerant: bool) -> None:
    """Where fallbacks replace what a fault prevents, no image is left to go on with either."""
    with pytest.raises(SwappedError, match=r"PET: the values of a CT .* CT and PET are swapped"):
        read(uptake(), scan(), edition, tolerant=tolerant)


def test_a_second_ct_in_place_of_the_pet_leaves_the_ct() -> None:
    with pytest.raises(InputError, match="PET: the values of a CT"):
        read(scan(), scan(), "hecktor2025", tolerant=False)
    case, notices = read(scan(), scan(), "hecktor2026", tolerant=True)
    assert case.pet is None
    assert any("the values of a CT" in finding.found for finding in notices.findings)


def test_a_pet_padded_with_the_air_of_a_ct_is_a_pet() -> None:
    """Resampled with -1024 outside its field; nothing lies where a CT has fat."""
    padded = uptake()
    padded.array[:, :6] = -1024
    case, _ = read(scan(), padded, "hecktor2025", tolerant=False)
    assert case.pet is not None


@pytest.mark.parametrize(("volume_ml", "count"), [(12900.0, 1), (500.1, 1), (500.0, 0), (8.0, 0)])
def test_a_volume_beyond_any_tumour_has_one_line(
    caplog: pytest.LogCaptureFixture, volume_ml: float, count: int
) -> None:
    _log_implausible({"GTVp": {"volume_ml": volume_ml, "count": 1}, "GTVn": {"volume_ml": 20.0, "count": 2}})
    assert [message.split(",")[0] for message in caplog.messages] == [f"mask: GTVp {volume_ml:.0f} ml"] * count
