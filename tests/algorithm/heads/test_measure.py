"""Features of a mask that is small enough to count by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from algorithm.heads.measure import clinical_features, measure_image_features
from algorithm.heads.structure import THRESHOLD_NAMES
from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.patient import Patient, parse_ehr
from tests.conftest import EHR

# Voxels of 2 x 5 x 10 mm, 0.1 ml each.
GRID = Geometry((6, 5, 4), (2.0, 5.0, 10.0), (0.0, 0.0, 0.0))

CLINICAL = load_edition().clinical


def make_scene() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a GTVp of two voxels, a node of one, and a node of three voxels, two of them touching only by a corner."""
    mask = np.zeros(GRID.array_shape, np.uint8)
    ct = np.zeros(GRID.array_shape, np.float32)
    pet = np.ones(GRID.array_shape, np.float32)
    mask[0, 0, 0:2] = 1
    ct[0, 0, 0:2], pet[0, 0, 0:2] = (40, 60), (10, 3)
    mask[3, 4, 5] = 2
    mask[0, 3, 3] = mask[1, 4, 4] = mask[1, 4, 5] = 2
    pet[3, 4, 5], pet[0, 3, 3], pet[1, 4, 4], pet[1, 4, 5] = 4, 6, 8, 2
    return mask, ct, pet


def test_by_hand() -> None:
    """Centres of GTVp (0.5, 0, 0) and the far node (5, 4, 3) in voxels: 9, 20 and 30 mm apart, 37.2 mm in all."""
    mask, ct, pet = make_scene()
    features = measure_image_features(mask, ct, pet, GRID)
    expected = {
        "gtvp_volume_ml": 0.2,
        "gtvp_suv_max": 10,
        "gtvp_suv_mean": 6.5,
        "gtvp_tlg": 1.3,  # (10 + 3) * 0.1
        "gtvp_cold_share": 0.5,  # 3 < 0.4 * 10
        "gtvp_hu_mean": 50,
        "gtvp_hu_sd": 10,
        "gtvn_volume_ml": 0.4,
        "gtvn_suv_max": 8,
        "gtvn_suv_mean": 5,
        "gtvn_tlg": 2.0,
        "gtvn_cold_share": 0.25,  # 2 < 0.4 * 8
        "gtvn_hu_mean": 0,
        "gtvn_hu_sd": 0,
        "gtvn_count": 2,
        "gtvn_largest_ml": 0.3,
        "total_volume_ml": 0.6,
        "total_lesion_glycolysis": 3.3,
        "spread_mm": np.sqrt(9**2 + 20**2 + 30**2),
    }
    assert {key: features[key] for key in expected} == pytest.approx(expected)


def test_every_feature_is_listed_in_the_documentation() -> None:
    mask, ct, pet = make_scene()
    document = (Path(__file__).parents[3] / "docs" / "heads.md").read_text()
    listed = set(re.findall(r"`([a-z0-9_.]+)`", document))
    names = {*measure_image_features(mask, ct, pet, GRID), *clinical_features(Patient(), CLINICAL)}
    assert names <= listed, names - listed


def test_without_lesions() -> None:
    """Volumes and glycolysis are 0; features inside or between lesions are missing."""
    _, ct, pet = make_scene()
    features = measure_image_features(np.zeros(GRID.array_shape, np.uint8), ct, pet, GRID)
    zero = {name for name, value in features.items() if value == 0}
    assert {name for name, value in features.items() if value is not None} == zero
    assert zero == {
        "n_stage_7th",
        *(f"{part}_{key}" for part in ("gtvp", "gtvn") for key in ("volume_ml", "tlg", *THRESHOLD_NAMES)),
        *THRESHOLD_NAMES,
        *("gtvn_count", "gtvn_count_5mm", "gtvn_count_10mm", "gtvn_largest_ml", "gtvn_bilateral"),
        *("total_volume_ml", "total_lesion_glycolysis", "spread_mm"),
    }


def test_pet_features_are_missing_without_a_pet() -> None:
    mask, ct, pet = make_scene()
    features, full = measure_image_features(mask, ct, None, GRID), measure_image_features(mask, ct, pet, GRID)
    missing = {name for name, value in features.items() if value is None and full[name] is not None}
    assert missing == {name for name in full if "suv" in name or "tlg" in name or "mtv" in name or "cold" in name} | {
        "total_lesion_glycolysis"
    }
    assert features["gtvp_hu_mean"] == 50


def test_clinical_variables_as_numbers() -> None:
    record = EHR | {"Performance Status": 2, "Treatment": 0, "M-stage": "M1", "CenterID": "CHUM"}
    full = clinical_features(parse_ehr(record, "ehr.json", CLINICAL).patient, CLINICAL)
    assert full == {
        "age_years": 61.0, "gender": 1.0, "tobacco": 0.0, "alcohol": 1.0, "performance_status": 2.0,
        "treatment": 0.0, "m1": 1.0,
    }  # fmt: skip
    assert clinical_features(Patient({"m_stage": "M0"}), CLINICAL)["m1"] == 0.0
    assert set(clinical_features(Patient(), CLINICAL).values()) == {None}
