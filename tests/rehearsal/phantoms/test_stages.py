"""Stages from sizes, numbers and sides of planned lesions, and from invasion of bone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial.distance import pdist

from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, make_case, widen_ct_pixels
from rehearsal.phantoms.lesions import Disease, Lesion, largest_diameter_mm, n_stage, t_stage
from rehearsal.phantoms.rendering import render


def make_lesion(label: int, diameter_mm: float, x_mm: float, aspect: tuple[float, float, float] = (1, 1, 1)) -> Lesion:
    """Make a smooth lesion with the volume of a ball of this diameter."""
    volume_ml = float(np.pi / 6 * diameter_mm**3 / 1000)
    return Lesion(label, "tonsil", (x_mm, 0.0, 0.0), volume_ml, aspect, 1e-6, 10.0, 80.0, 0.0, 1)


def make_disease(*lesions: Lesion) -> Disease:
    return Disease(lesions, cystic=False)


@pytest.mark.parametrize(
    ("diameter_mm", "stage"), [(19.7, "T1"), (20.3, "T2"), (39.5, "T2"), (40.5, "T3"), (55.0, "T3")]
)
def test_t_stage_by_size(diameter_mm: float, stage: str) -> None:
    assert t_stage(make_disease(make_lesion(1, diameter_mm, 19.0), make_lesion(2, 60.0, 30.0))) == stage


def test_t_stage_of_an_elongated_tumour() -> None:
    """With half axes 2 : 1 : 1 at 15 mm ball diameter the longest axis is 15 * 2 / 2 ** (1/3) = 23.8 mm."""
    assert t_stage(make_disease(make_lesion(1, 15.0, 19.0, (2.0, 1.0, 1.0)))) == "T2"


@pytest.mark.parametrize("diameter_mm", [12.0, 50.0])
def test_invasion_of_bone_is_t4_at_any_size(diameter_mm: float) -> None:
    assert t_stage(make_disease(replace(make_lesion(1, diameter_mm, 19.0), invades_bone=True))) == "T4"


@pytest.mark.parametrize("aspect", [(1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (0.78, 0.86, 1.45)])
def test_largest_diameter_of_an_ellipsoid(aspect: tuple[float, float, float]) -> None:
    """Its longest axis is the ball's diameter, here 30 mm, times the largest aspect over the cube root of their
    product.

    Surface and volume are exact to half a per cent.
    """
    expected = 30 * max(aspect) / np.prod(aspect) ** (1 / 3)
    assert largest_diameter_mm(make_lesion(1, 30.0, 19.0, aspect)) == pytest.approx(expected, rel=0.008)


def test_without_a_primary_there_is_no_t_stage() -> None:
    assert t_stage(make_disease(make_lesion(2, 30.0, 30.0), make_lesion(0, 8.0, -30.0))) is None


@pytest.mark.parametrize(
    ("nodes", "stage"),
    [
        ((), "N0"),
        (((29.6, 30.0),), "N1"),
        (((30.4, 30.0),), "N2"),
        (((10.0, -30.0),), "N2"),
        (((10.0, 30.0), (12.0, 31.0)), "N2"),
        (((59.4, 30.0),), "N2"),
        (((60.6, 30.0),), "N3"),
    ],
    ids=["none", "one small", "one large", "contralateral", "two", "nearly 6 cm", "above 6 cm"],
)
def test_n_stage_by_number_size_and_side(nodes: tuple[tuple[float, float], ...], stage: str) -> None:
    """The primary tumour lies on the left; reactive nodes on the right do not count."""
    metastases = [make_lesion(2, diameter, x) for diameter, x in nodes]
    assert n_stage(make_disease(make_lesion(1, 25.0, 19.0), *metastases, make_lesion(0, 8.0, -30.0))) == stage


def test_a_single_node_without_a_primary_is_ipsilateral() -> None:
    assert n_stage(make_disease(make_lesion(2, 20.0, -30.0))) == "N1"


def find_case(stage: str) -> PhantomCase:
    """Return the first patient of a cohort with this stage."""
    cases = (make_case(21, index, CENTRES, "head_and_neck") for index in range(300))
    return next(case for case in cases if stage in (t_stage(case.disease), n_stage(case.disease)))


@pytest.mark.parametrize("stage", ["T3", "T4", "N3"])
def test_the_rendered_mask_has_the_stage(stage: str) -> None:
    """Distances between voxel centres are shorter than the surface's by up to a voxel's diagonal.

    Tumours of T4 meet bone that they have not replaced, with at least 3% of their surface.
    """
    case = find_case(stage)
    rendered = render(replace(case, protocol=widen_ct_pixels(case.protocol)))
    spacing_mm, label = np.array(rendered.mask.geometry.spacing_mm[::-1]), 2 if stage == "N3" else 1
    components, _ = ndimage.label(rendered.mask.array == label, np.ones((3, 3, 3)))
    lesion = components == 1 + int(np.bincount(components.ravel())[1:].argmax())
    if stage == "T4":
        rim = ndimage.binary_dilation(lesion, np.ones((3, 3, 3))) & ~lesion
        assert (rendered.ct.array[rim] > 250).mean() > 0.03
        return
    size_mm = pdist(np.argwhere(lesion & ~ndimage.binary_erosion(lesion)) * spacing_mm).max()
    assert size_mm > (60 if stage == "N3" else 40) - np.linalg.norm(spacing_mm)
