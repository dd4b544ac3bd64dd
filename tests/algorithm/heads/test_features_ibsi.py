"""Compare features with the published values of the Image Biomarker Standardisation Initiative's digital phantom.

Values and tolerances come from the reference manual (arXiv 1612.07003, chapter "Image features", columns "dig.
phantom"). Where the manual gives no tolerance, the printed digits count.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from algorithm.heads.measure import measure_image_features
from algorithm.heads.structure import Structure, axis_lengths_mm, cut_structure, make_mesh, mesh_volume_mm3
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume
from tests.shared_data import shared

pytestmark = pytest.mark.shared

PUBLISHED = [
    # feature, unit of ours in the manual's, IBSI code, value, tolerance
    ("gtvp_volume_ml", 1000, "YEKZ", 592, 4),
    ("gtvp_surface_mm2", 1, "C0JK", 388, 3),
    ("gtvp_sphericity", 1, "QCFX", 0.843, 0.005),
    ("gtvp_diameter_mm", 1, "L0JK", 13.1, 0.1),
    ("gtvp_elongation", 1, "Q3CK", 0.816, 0.005),
    ("gtvp_flatness", 1, "N17B", 0.749, 0.005),
    ("gtvp_suv_peak", 1, "0F91", 3.10, 0.005),
    ("gtvp_suv_max", 1, "84IY", 6, 0),
    ("gtvp_suv_mean", 1, "Q4LE", 2.15, 0.005),
    ("gtvp_suv_cv", 1, "7TET", 0.812, 0.0005),
    ("gtvp_hu_mean", 1, "Q4LE", 2.15, 0.005),
    ("gtvp_hu_p10", 1, "QG58", 1, 0),
    ("gtvp_hu_median", 1, "Y12H", 1, 0),
    ("gtvp_hu_p90", 1, "8DWT", 4, 0),
]


@pytest.fixture(scope="module")
def phantom() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8], Geometry]:
    folder = shared("data/ibsi_digital_phantom")
    image = read_volume(folder / "phantom.nii.gz", "float32")
    return image.array, read_volume(folder / "mask.nii.gz").array.astype(np.uint8), image.geometry


@pytest.fixture(scope="module")
def features(phantom: tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8], Geometry]) -> dict[str, float | None]:
    image, mask, grid = phantom
    return measure_image_features(mask, image, image, grid)


@pytest.fixture(scope="module")
def lesion(phantom: tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8], Geometry]) -> Structure:
    structure = cut_structure(phantom[1] > 0, phantom[2])
    assert structure is not None
    return structure


@pytest.mark.parametrize(("feature", "unit", "code", "value", "tolerance"), PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_published_value(
    features: dict[str, float | None], feature: str, unit: float, code: str, value: float, tolerance: float
) -> None:
    computed = features[feature]
    assert computed is not None
    assert computed * unit == pytest.approx(value, abs=max(tolerance, 1e-9), rel=0), f"IBSI {code}"


def test_variance(features: dict[str, float | None]) -> None:
    """IBSI ECT3 is 3.05; the feature is its root."""
    assert features["gtvp_hu_sd"] is not None
    assert features["gtvp_hu_sd"] ** 2 == pytest.approx(3.05, abs=0.005)


def test_mesh_volume(lesion: Structure) -> None:
    """IBSI RNU0: 556 mm3, tolerance 4."""
    assert mesh_volume_mm3(*make_mesh(lesion)) == pytest.approx(556, abs=4)


@pytest.mark.parametrize(
    ("axis", "code", "value", "tolerance"), [(0, "TDIC", 11.4, 0.1), (1, "P9VJ", 9.31, 0.06), (2, "7J51", 8.54, 0.05)]
)
def test_axis_lengths(lesion: Structure, axis: int, code: str, value: float, tolerance: float) -> None:
    assert axis_lengths_mm(lesion)[axis] == pytest.approx(value, abs=tolerance), f"IBSI {code}"
