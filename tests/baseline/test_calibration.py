"""Tests that a monotone map calibrates the expected DSC on out-of-fold masks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithm.prediction import _calibrate_dsc
from baseline.export import compare_probabilities, fit_calibration
from contract.documents import parse_document
from contract.errors import HecktorError
from contract.packages import DscCalibration


def test_the_map_by_hand() -> None:
    """DSC is 0.3 at 0.5, and 0.7 and 0.5 at 0.8 and 0.9, which falls: both become 0.6. Halfway from 0.5 to 0.8 is 0.45."""
    fitted = fit_calibration([(0.9, 0.5), (0.5, 0.3), (0.8, 0.7)])
    assert fitted.expected == pytest.approx((0.5, 0.8, 0.9))
    assert fitted.dsc == pytest.approx((0.3, 0.6, 0.6))
    for expected, dsc in ((0.1, 0.3), (0.5, 0.3), (0.65, 0.45), (0.85, 0.6), (0.9, 0.6), (1.0, 0.6)):
        assert fitted.calibrate(expected) == pytest.approx(dsc)
    assert parse_document(fitted.model_dump(mode="json"), DscCalibration, "manifest.json") == fitted
    assert fit_calibration([(0.7, 0.5)]).calibrate(0.2) == 0.5


def test_the_record_applies_the_map_of_the_package() -> None:
    """GTVp has one voxel, with probability 0.5 of GTVp and 0.25 of each other class: 2 x 0.5 / (1 + 0.5) = 2 / 3
    becomes 0.4. Without a map it is not changed, and a label without a voxel has no DSC.
    """
    logits = np.log(np.array([0.25, 0.5, 0.25], np.float32)).reshape(3, 1, 1, 1)
    for maps, value in (({}, 2 / 3), ({"GTVp": DscCalibration(expected=(0.2,), dsc=(0.4,))}, 0.4)):
        package = SimpleNamespace(manifest=SimpleNamespace(expected_dsc=maps))
        run: Any = SimpleNamespace(loaded=SimpleNamespace(package=package))
        segmentation: Any = SimpleNamespace(logits=logits)
        assert _calibrate_dsc(run, segmentation) == {"GTVp": pytest.approx(value, rel=1e-6), "GTVn": None}


def test_an_optimism_is_removed() -> None:
    """True DSC is 0.15 below the expected DSC, with noise. On other patients the calibrated DSC has no bias and the
    same order.
    """
    rng = np.random.default_rng(0)
    expected = rng.uniform(0.4, 0.95, 400)
    true_dsc = np.clip(expected - 0.15 + rng.normal(0, 0.05, 400), 0, 1)
    fitted = fit_calibration(list(zip(expected[:200], true_dsc[:200], strict=True)))
    calibrated = np.array([fitted.calibrate(value) for value in expected[200:]])
    assert np.mean(expected[200:] - true_dsc[200:]) == pytest.approx(0.15, abs=0.02)
    assert np.mean(calibrated - true_dsc[200:]) == pytest.approx(0, abs=0.02)
    assert (np.diff(calibrated[np.argsort(expected[200:])]) >= 0).all()


def test_pairs_by_hand() -> None:
    """GTVp has probabilities 1, 0.6 and 0.2 in four voxels: expected 2 x 1.6 / (2 + 1.8). The reference is the first
    voxel: DSC 2 / 3. There is no GTVn in the mask.
    """
    gtvp = np.array([255, 153, 51, 0], np.uint8).reshape(1, 2, 2)
    reference = np.array([1, 0, 0, 2], np.uint8).reshape(1, 2, 2)
    pairs = compare_probabilities(gtvp, np.zeros_like(gtvp), reference)
    assert pairs == {"GTVp": (pytest.approx(3.2 / 3.8), pytest.approx(2 / 3))}


@pytest.mark.parametrize(
    ("expected", "dsc"),
    [([0.5, 0.4], [0.1, 0.2]), ([0.4, 0.5], [0.2, 0.1]), ([0.4], [0.1, 0.2]), ([], []), ([2], [0.1])],
)
def test_a_map_that_does_not_rise_is_refused(expected: list[float], dsc: list[float]) -> None:
    with pytest.raises(HecktorError):
        parse_document({"expected": expected, "dsc": dsc}, DscCalibration, "manifest.json")
