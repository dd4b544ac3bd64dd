"""Network inputs from a patient's images."""

from __future__ import annotations

import copy
import logging
from dataclasses import replace

import numpy as np
import pytest

from algorithm.case.inputs import Notices
from algorithm.case.read import Case
from algorithm.deadline import NoPassFitsError
from algorithm.network.package import ModelPackage
from algorithm.network.passes import choose_passes
from algorithm.network.preprocessing import make_network_channels, make_scan_channels, normalise
from algorithm.region.grids import make_grid_over
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient


def test_channels_are_normalised_as_the_plans_say(package: ModelPackage) -> None:
    """CT: clipped to the training percentiles -1000 and 1000, then (x - 0) / 400. PET: z-score over the region."""
    ct = np.array([-2000, -400, 0, 800, 3000, 0, 0, 0], np.float32).reshape(2, 2, 2)
    pet = np.array([0, 1, 2, 3, 4, 5, 6, 7], np.float32).reshape(2, 2, 2)
    data = normalise((ct, pet), package)
    np.testing.assert_allclose(data[0].ravel(), [-2.5, -1, 0, 2, 2.5, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(data[1].ravel(), (np.arange(8) - 3.5) / np.std(np.arange(8)), atol=1e-5)
    assert data.dtype == np.float32
    assert ct.min() == -2000


def test_an_empty_pet_gives_finite_numbers(package: ModelPackage) -> None:
    zero = np.zeros((4, 4, 4), np.float32)
    assert np.isfinite(normalise((zero, zero), package)).all()


def test_air_and_no_uptake_beyond_the_scans() -> None:
    scan = Geometry((10, 10, 10), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0))
    case = Case(
        Volume(np.full((10, 10, 10), 40, np.int16), scan), Volume(np.ones((10, 10, 10), np.float32), scan), Patient()
    )
    grid = make_grid_over((-30.0, 0.0, 0.0), (27.0, 27.0, 27.0), (3.0, 3.0, 3.0))
    ct, pet = make_network_channels(case, grid)
    assert (ct[4, 4, 0], pet[4, 4, 0], ct[4, 4, -1], pet[4, 4, -1]) == (-1024.0, 0.0, 40.0, 1.0)
    assert not make_network_channels(Case(case.scan, None, case.patient), grid)[1].any()


def test_a_package_may_take_the_scale_from_the_whole_scan(package: ModelPackage) -> None:
    """The PET is 1 in 5 of 25 slices and 0 elsewhere: mean 0.2, spread sqrt(0.2 x 0.8) = 0.4; 1 becomes 2, 0 -0.5.

    CT is scaled by the training's intensities.
    """
    over_scan = replace(package, manifest=package.manifest.model_copy(update={"normalised_over": "scan"}))
    grid = Geometry((10, 10, 25), (4.0, 4.0, 4.0), (0.0, 0.0, 0.0))
    pet = np.zeros((25, 10, 10), np.float32)
    pet[20:] = 1
    case = Case(Volume(np.full(pet.shape, 40, np.int16), grid), Volume(pet, grid), Patient())
    region = (np.full((2, 2, 2), 40, np.float32), np.ones((2, 2, 2), np.float32))
    scan = make_scan_channels(case, over_scan)
    assert scan is not None
    data = normalise(region, over_scan, scan)
    np.testing.assert_allclose(data[1], 2.0, atol=1e-5)
    np.testing.assert_allclose(data[0], normalise(region, package)[0])
    assert make_scan_channels(case, package) is None


def test_networks_that_see_only_the_pet_need_one(package: ModelPackage, caplog: pytest.LogCaptureFixture) -> None:
    plans = copy.deepcopy(dict(package.plans))
    plans["configurations"]["3d_fullres"]["architecture"]["sees"] = "PET"
    pet_only = replace(package, plans=plans)
    with pytest.raises(NoPassFitsError, match="no network can be used without a PET"):
        choose_passes(pet_only, has_pet=False, max_passes=2, notices=Notices())
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "PET: no usable image, expected one for networks that see only the PET; 4 of 4 passes left out"
    ]
