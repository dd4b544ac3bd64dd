"""Boundaries of the 7th edition's T and N, on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.answers import _find_possible_classes
from algorithm.case.read import Case
from algorithm.heads.documents import Features
from algorithm.heads.measure import measure_image_features
from algorithm.heads.values import derive_stage, find_absent_structures, find_possible_classes
from algorithm.masks.segmentation import CaseSegmentation, MaskSource, Segmentation
from contract.editions import load_edition
from contract.editions.answers import RULES
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes
from contract.patient import Patient

EDITION = load_edition("hecktor2026")
# Voxels of 0.04 ml.
GRID = Geometry((8, 8, 8), (4.0, 4.0, 2.5), (0.0, 0.0, 0.0))


def describe_primary(diameter_mm: float, bone_contact: float | None = 0.0) -> Features:
    return {"gtvp_diameter_mm": diameter_mm, "gtvp_bone_contact": bone_contact}


def describe_nodes(*diameters_mm: float, contralateral: float | None = 0.0, bilateral: float = 0.0) -> Features:
    """Describe nodes by diameter, the largest first."""
    first, second, *_ = (*diameters_mm, None, None)
    return {
        "gtvn_count": float(len(diameters_mm)),
        "gtvn_count_5mm": float(sum(diameter >= 5 for diameter in diameters_mm)),
        "gtvn_largest_diameter_mm": first,
        "gtvn_second_diameter_mm": second,
        "gtvn_contralateral": contralateral,
        "gtvn_bilateral": bilateral,
    }


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (describe_primary(20), "T1"),
        (describe_primary(20.1), "T2"),
        (describe_primary(40), "T2"),
        (describe_primary(40.1), "T3"),
        (describe_primary(90, 0.049), "T3"),
        (describe_primary(15, 0.05), "T4"),  # invasion counts at any size
        (describe_primary(15, None), "T1"),
        ({"gtvp_diameter_mm": 30.0}, "T2"),
        ({"gtvp_diameter_mm": None, "gtvp_bone_contact": None}, None),
        ({"age_years": 61.0}, None),
    ],
)
def test_t_by_diameter_and_bone(features: Features, expected: str | None) -> None:
    assert derive_stage("t_stage_7th", features) == expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (describe_nodes(), "N0"),
        (describe_nodes(30), "N1"),
        (describe_nodes(30.1), "N2"),
        (describe_nodes(60), "N2"),
        (describe_nodes(60.1), "N3"),
        (describe_nodes(12, 61), "N3"),  # the second by volume may be the longer one
        (describe_nodes(20, 5), "N2"),
        (describe_nodes(20, 4.9), "N1"),  # with several parts, parts of 5 mm and more count
        (describe_nodes(4), "N1"),
        (describe_nodes(4, 3), "N2"),  # none of them has 5 mm: all count
        ({"age_years": 61.0}, None),
    ],
)
def test_n_by_number_and_diameter(features: Features, expected: str | None) -> None:
    assert derive_stage("n_stage_7th", features) == expected


@pytest.mark.parametrize(
    ("contralateral", "bilateral", "expected"),
    [
        (1.0, 0.0, "N2"),  # a single contralateral node
        (0.0, 0.0, "N1"),
        (0.0, 1.0, "N1"),  # the primary's side decides if it is known
        (None, 1.0, "N2"),
        (None, 0.0, "N1"),
    ],
)
def test_n_by_side(contralateral: float | None, bilateral: float, expected: str) -> None:
    assert derive_stage("n_stage_7th", describe_nodes(12, contralateral=contralateral, bilateral=bilateral)) == expected


def test_rules_give_classes_of_the_declared_answers() -> None:
    """Declared rules are known, and give a class of the answer that declares them."""
    features = {**describe_primary(30), **describe_nodes(12)}
    assert {rule: derive_stage(rule, features) for rule in RULES} == {"t_stage_7th": "T2", "n_stage_7th": "N1"}
    for answer in EDITION.find_algorithm().head_specs:
        assert not answer.rule or derive_stage(answer.rule, features) in answer.classes
    with pytest.raises(KeyError, match="t_stage_8th"):
        derive_stage("t_stage_8th", features)


def make_mask(primary_voxels: int, node_voxels: int) -> np.ndarray:
    """Mark a primary and a node of some voxels in a row, and a second node of one voxel, on `GRID`."""
    array = np.zeros(GRID.array_shape, np.uint8)
    array[1, 1, 1 : 1 + primary_voxels], array[4, 4, 1 : 1 + node_voxels], array[7, 7, 7] = 1, 2, 2
    return array


SMALLEST = MinLesionSizes(gtvp_ml=0.05, gtvn_ml=0.13)


@pytest.mark.parametrize(
    ("voxels", "smallest", "t", "n"),
    [
        (2, DEFAULT_MIN_LESION_SIZES, None, 0),
        (3, DEFAULT_MIN_LESION_SIZES, 4, 1),
        (1, SMALLEST, None, 0),
        (2, SMALLEST, 4, 0),
        (3, SMALLEST, 4, 0),
        (4, SMALLEST, 4, 1),
    ],
)
def test_a_speck_decides_no_stage(voxels: int, smallest: MinLesionSizes, t: int | None, n: int) -> None:
    """Voxels of 0.04 ml: 0.12 ml are above 0.1, below 0.13. Bone everywhere makes any primary T4."""
    image = np.full(GRID.array_shape, 500, np.float32)
    features = measure_image_features(make_mask(voxels, voxels), image, None, GRID, smallest=smallest)
    assert (features["t_stage_7th"], features["n_stage_7th"]) == (t, n)


def test_specks_change_no_number_shape_or_position() -> None:
    """The primary and the node have 0.16 ml; a voxel of 0.04 ml of either label elsewhere changes only volumes."""
    image = np.full(GRID.array_shape, 40, np.float32)
    mask = make_mask(4, 4)
    mask[7, 7, 7] = 0
    whole = measure_image_features(mask, image, None, GRID)
    mask[7, 7, 7], mask[7, 1, 1] = 2, 1
    changed = {name for name, value in measure_image_features(mask, image, None, GRID).items() if value != whole[name]}
    assert changed == {"gtvp_volume_ml", "gtvn_volume_ml", "total_volume_ml"}


@pytest.mark.parametrize("voxels", [(0, 0), (2, 3), (3, 2), (3, 3), (5, 1)])
def test_training_and_inference_leave_the_same_classes(voxels: tuple[int, int]) -> None:
    """On one grid the written mask and its features exclude the same classes. Voxels of 0.04 ml: three of them are
    0.12 ml, more than 0.1; a second node of one voxel adds nothing.
    """
    array, image = make_mask(*voxels), np.zeros(GRID.array_shape, np.float32)
    case, mask = Case(Volume(image, GRID), None, Patient()), Segmentation.from_mask(array, image, None, GRID)
    segmented = CaseSegmentation(case, MaskSource.NETWORK, mask)
    heads = [answer for answer in EDITION.find_algorithm().head_specs if answer.rule]
    absent = find_absent_structures(measure_image_features(array, image, None, GRID))
    expected = {answer.name: find_possible_classes(answer, absent) for answer in heads}
    assert _find_possible_classes(heads, segmented, array, DEFAULT_MIN_LESION_SIZES) == expected
    primary, node = voxels
    stages = ("T1", "T2", "T3", "T4")[: 4 if primary >= 3 else 3]
    assert expected == {"t_stage": stages, "n_stage": ("N1", "N2", "N3") if node >= 3 else ("N0",)}
