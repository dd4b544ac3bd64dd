"""Every boundary of the 7th edition's T and N, on both sides of it."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.answers import RestoredMask, _classes_of_mask
from algorithm.case.read import Case
from algorithm.heads.documents import Features
from algorithm.heads.staging import staged
from algorithm.masks.segmentation import Segmentation, Segmented
from contract.editions import load_edition
from contract.editions.declaration import RULES
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient

EDITION = load_edition("hecktor2026")


def primary(diameter_mm: float, bone_contact: float | None = 0.0) -> Features:
    return {"gtvp_diameter_mm": diameter_mm, "gtvp_bone_contact": bone_contact}


def nodes(*diameters_mm: float, contralateral: float | None = 0.0, bilateral: float = 0.0) -> Features:
    """Nodes by diameter, the largest first."""
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
        (primary(3), "T1"),
        (primary(20), "T1"),
        (primary(20.1), "T2"),
        (primary(40), "T2"),
        (primary(40.1), "T3"),
        (primary(90), "T3"),
        (primary(90, 0.049), "T3"),
        (primary(90, 0.05), "T4"),
        (primary(15, 0.05), "T4"),  # invasion counts at any size
        (primary(15, None), "T1"),
        ({"gtvp_diameter_mm": 30.0}, "T2"),
        ({"gtvp_diameter_mm": None, "gtvp_bone_contact": None}, None),
        ({"age_years": 61.0}, None),
    ],
)
def test_t_by_diameter_and_bone(features: Features, expected: str | None) -> None:
    assert staged("t_stage_7th", features) == expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (nodes(), "N0"),
        (nodes(12), "N1"),
        (nodes(30), "N1"),
        (nodes(30.1), "N2"),
        (nodes(60), "N2"),
        (nodes(60.1), "N3"),
        (nodes(61, 12), "N3"),
        (nodes(12, 61), "N3"),  # the second by volume may be the longer one
        (nodes(20, 31), "N2"),
        (nodes(20, 12), "N2"),
        (nodes(20, 5), "N2"),
        (nodes(20, 4.9), "N1"),  # of several parts those of 5 mm and more count
        (nodes(4), "N1"),
        (nodes(4, 3), "N2"),  # none of them has 5 mm: all count
        ({"age_years": 61.0}, None),
    ],
)
def test_n_by_number_and_diameter(features: Features, expected: str | None) -> None:
    assert staged("n_stage_7th", features) == expected


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
    assert staged("n_stage_7th", nodes(12, contralateral=contralateral, bilateral=bilateral)) == expected


def test_rules_give_classes_of_the_declared_answers() -> None:
    """Every declared rule is known, and gives a class of the answer that declares it."""
    features = {**primary(30), **nodes(12)}
    assert {rule: staged(rule, features) for rule in RULES} == {"t_stage_7th": "T2", "n_stage_7th": "N1"}
    for answer in EDITION.algorithm().heads:
        assert not answer.rule or staged(answer.rule, features) in answer.classes
    with pytest.raises(KeyError, match="t_stage_8th"):
        staged("t_stage_8th", features)


@pytest.mark.parametrize(("volume_ml", "t", "n"), [(0.04, None, "N0"), (0.099, None, "N0"), (0.1, "T4", "N2")])
def test_a_speck_decides_no_stage(volume_ml: float, t: str | None, n: str) -> None:
    """Below 0.1 ml neither a primary that touches bone nor a contralateral node counts."""
    features = {**primary(15, 0.5), **nodes(12, contralateral=1.0)}
    features |= {"gtvp_volume_ml": volume_ml, "gtvn_largest_ml": volume_ml}
    assert (staged("t_stage_7th", features), staged("n_stage_7th", features)) == (t, n)


@pytest.mark.parametrize(("voxels", "t", "n"), [(1, ("T4",), "N0"), (2, ("T4",), "N0"), (3, (), None)])
def test_a_speck_in_the_written_mask_decides_no_stage(voxels: int, t: tuple[str, ...], n: str | None) -> None:
    """Voxels of 0.04 ml: three of them are 0.12 ml, more than 0.1; a second node of one voxel adds nothing."""
    grid = Geometry((8, 8, 8), (4.0, 4.0, 2.5), (0.0, 0.0, 0.0))
    array = np.zeros(grid.array_shape, np.uint8)
    array[1, 1, 1 : 1 + voxels], array[4, 4, 1 : 1 + voxels], array[7, 7, 7] = 1, 2, 2
    image = np.zeros(grid.array_shape, np.float32)
    segmentation = Segmentation.from_mask(array, image, None, grid)
    restored = RestoredMask(Segmented(Case(Volume(image, grid), None, Patient()), segmentation), array)
    answers = {answer.name: answer for answer in EDITION.algorithm().heads}
    assert _classes_of_mask(answers["t_stage"], restored) == (None, t)
    assert _classes_of_mask(answers["n_stage"], restored)[0] == n
