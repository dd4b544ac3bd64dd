"""Stages from sizes, numbers and sides of planned lesions."""

from __future__ import annotations

import numpy as np
import pytest

from rehearsal.phantoms.anatomy.lesions import Disease, Lesion
from rehearsal.phantoms.anatomy.stages import n_stage, t_stage


def lesion(label: int, diameter_mm: float, x_mm: float, aspect: tuple[float, float, float] = (1, 1, 1)) -> Lesion:
    """A lesion with the volume of a ball of this diameter."""
    volume_ml = float(np.pi / 6 * diameter_mm**3 / 1000)
    return Lesion(label, "tonsil", (x_mm, 0.0, 0.0), volume_ml, aspect, 0.1, 10.0, 80.0, 0.0, 1)


def disease(*lesions: Lesion) -> Disease:
    return Disease(lesions, cystic=False)


@pytest.mark.parametrize(
    ("diameter_mm", "stage"), [(19.9, "T1"), (20.1, "T2"), (39.9, "T2"), (40.1, "T3"), (49.9, "T3"), (50.1, "T4")]
)
def test_t_stage_by_size(diameter_mm: float, stage: str) -> None:
    assert t_stage(disease(lesion(1, diameter_mm, 19.0), lesion(2, 60.0, 30.0))) == stage


def test_t_stage_of_an_elongated_tumour() -> None:
    """Half axes 2 : 1 : 1 at 15 mm ball diameter: the longest axis is 15 * 2 / 2 ** (1/3) = 23.8 mm."""
    assert t_stage(disease(lesion(1, 15.0, 19.0, (2.0, 1.0, 1.0)))) == "T2"


def test_without_a_primary_there_is_no_t_stage() -> None:
    assert t_stage(disease(lesion(2, 30.0, 30.0), lesion(0, 8.0, -30.0))) is None


@pytest.mark.parametrize(
    ("nodes", "stage"),
    [
        ((), "N0"),
        (((29.9, 30.0),), "N1"),
        (((30.1, 30.0),), "N2"),
        (((10.0, -30.0),), "N2"),
        (((10.0, 30.0), (12.0, 31.0)), "N2"),
        (((60.1, 30.0),), "N3"),
    ],
    ids=["none", "one small", "one large", "contralateral", "two", "very large"],
)
def test_n_stage_by_number_size_and_side(nodes: tuple[tuple[float, float], ...], stage: str) -> None:
    """The primary lies on the left; reactive nodes on the right do not count."""
    metastases = [lesion(2, diameter, x) for diameter, x in nodes]
    assert n_stage(disease(lesion(1, 25.0, 19.0), *metastases, lesion(0, 8.0, -30.0))) == stage


def test_a_single_node_without_a_primary_is_ipsilateral() -> None:
    assert n_stage(disease(lesion(2, 20.0, -30.0))) == "N1"
