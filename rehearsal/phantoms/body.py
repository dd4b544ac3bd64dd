"""One patient's body: heights of the organs, tissue values, physiological uptake, and the parts that are painted.

Medians, spreads and correlations of the heights come from 150 real FDG PET/CTs with segmented organs
(MIC-DKFZ/autopet-3-submission).

CT values are the usual HU of each tissue. Medians of uptake are typical SUV of a fasting adult an hour after FDG,
rounded, with lognormal spread. Neither is fitted to data.

Parts are in anatomical millimetres: x to the left, y to the back, z upwards. The origin is the middle of the oropharynx
at the height of the tonsils. Sizes are rounded values of an adult. Rows of the tables are knots of a
`SuperellipseStack`: z, centre x, centre y, radius x, radius y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rehearsal.phantoms.canvas import (
    Arch,
    BodyPart,
    Capsule,
    Ellipsoid,
    Heights,
    Knots,
    SuperellipseStack,
    add_mirror_image,
)

FAT_HU, MUSCLE_HU, BONE_HU, MARROW_HU = -95.0, 55.0, 700.0, 220.0
# Anatomical heights, in mm, at which the shapes are painted.
BRAIN_TOP: Final = 159.0
GLANDS_TOP: Final = 58.0
BRAIN_BOTTOM: Final = 24.0
GLANDS_BOTTOM: Final = -50.0
LUNG_APEX: Final = -125.0
HEART_TOP: Final = -195.0
LIVER_TOP: Final = -281.0
LUNGS_BOTTOM: Final = -349.0
BLADDER_BOTTOM: Final = -679.0
# Beyond the last landmark at both ends the heights are not stretched.
_BEYOND_MM: Final = 2000.0
# Relative size of the body: mean and standard deviation over women and men.
_SIZE_MEAN, _SIZE_SD = 0.985, 0.044

BRAIN: Final = Ellipsoid((0, 5, 99), (65, 84, 60))
CEREBELLUM: Final = Ellipsoid((0, 44, 52), (46, 36, 28))
# fmt: off
_TORSO: Knots = (
    (72, 0, 38, 58, 60), (50, 0, 33, 61, 61), (28, 0, 28, 61, 61), (-20, 0, 24, 60, 62), (-60, 0, 26, 60, 60),
    (-90, 0, 28, 66, 60), (-112, 0, 30, 95, 64),
    (-130, 0, 30, 140, 70), (-150, 0, 30, 180, 80), (-175, 0, 28, 200, 90), (-225, 0, 25, 190, 98),
    (-280, 0, 22, 170, 105), (-360, 0, 18, 158, 105), (-450, 0, 16, 152, 106), (-560, 0, 18, 158, 108),
    (-660, 0, 20, 175, 110), (-712, 0, 20, 178, 105), (-732, 0, 20, 176, 100),
)
_CHEST: Knots = (
    (-122, 0, 42, 10, 9), (-132, 0, 40, 48, 30), (-145, 0, 36, 82, 50), (-170, 0, 30, 110, 68), (-215, 0, 24, 132, 82),
    (-265, 0, 20, 140, 88), (-322, 0, 18, 140, 88), (-346, 0, 18, 136, 84),
)
# fmt: on
_TABLE_END: Final = -900.0


def draw_heights(rng: np.random.Generator, size: float) -> Heights:
    """Draw a patient's heights; `size` is the body's relative size, on which the trunk's heights depend."""
    tall = float(np.clip((size - _SIZE_MEAN) / _SIZE_SD, -2.6, 2.6))
    head, face, neck, heart, lungs, liver, pelvis = (float(value) for value in np.clip(rng.normal(0, 1, 7), -2.6, 2.6))
    brain_mm = float(np.clip(126 + 3.5 * tall + 11.5 * head, 100, 152))
    glands_top_mm = float(np.clip(37 + 5 * head + 11.5 * face, 12, min(66.0, brain_mm - 50)))
    glands_bottom_mm = float(np.clip(78 + 9.6 * neck, 52, 102))
    apex_mm = float(np.clip(132 + 14 * tall, max(94.0, glands_bottom_mm + 28), 164))
    heart_mm = max(202 + 17 * tall + 11 * heart, apex_mm + 45)
    lungs_mm = max(354 + 1.2 * (heart_mm - 202) + 18 * lungs, heart_mm + 95)
    liver_mm = lungs_mm - float(np.clip(64 + 13 * liver, 32, 95))
    bladder_mm = max(686 + 31 * tall + 23 * pelvis, lungs_mm + 220)
    below_brain = (
        (BLADDER_BOTTOM - _BEYOND_MM, bladder_mm + _BEYOND_MM),
        (BLADDER_BOTTOM, bladder_mm),
        (LUNGS_BOTTOM, lungs_mm),
        (LIVER_TOP, liver_mm),
        (HEART_TOP, heart_mm),
        (LUNG_APEX, apex_mm),
        (GLANDS_BOTTOM, glands_bottom_mm),
        (BRAIN_BOTTOM, 0.0),
        (GLANDS_TOP, -glands_top_mm),
        (BRAIN_TOP, -brain_mm),
        (BRAIN_TOP + _BEYOND_MM, -brain_mm - _BEYOND_MM),
    )
    return Heights(tuple((height, BRAIN_BOTTOM - mm) for height, mm in below_brain))


@dataclass(frozen=True)
class Uptake:
    """Physiological SUV of one patient."""

    brain: float
    tonsil_left: float
    tonsil_right: float
    parotid: float
    submandibular: float
    larynx: float
    tongue: float
    adenoid: float
    muscle: float
    marrow: float
    blood: float
    heart: float
    liver: float
    kidney: float
    bladder: float
    brown_fat: float


@dataclass(frozen=True)
class Body:
    """Properties of one patient's body; `dentate` says whether the patient has teeth."""

    uptake: Uptake
    fat_mm: float
    contrast_hu: float
    dentate: bool
    tonsil_size: tuple[float, float]
    table_y: float
    jaw_drop_mm: float


def _draw_uptake(rng: np.random.Generator) -> Uptake:
    def around(median: float, sigma: float, low: float, high: float) -> float:
        return float(np.clip(median * np.exp(sigma * rng.standard_normal()), low, high))

    tonsil = around(3.4, 0.25, 2.2, 5.5)
    # A threshold mistakes unilateral uptake of a tonsil for a tumour.
    asymmetry = float(rng.uniform(1.4, 2.0)) if rng.random() < 0.25 else float(rng.uniform(0.9, 1.15))
    sides = (tonsil * asymmetry, tonsil) if rng.random() < 0.5 else (tonsil, tonsil * asymmetry)
    return Uptake(
        brain=around(9.5, 0.18, 6.5, 14),
        tonsil_left=sides[0],
        tonsil_right=sides[1],
        parotid=around(2.2, 0.25, 1.2, 4),
        submandibular=around(2.8, 0.25, 1.5, 5),
        larynx=around(2.4, 0.35, 1.2, 6),
        tongue=around(2.2, 0.35, 1.0, 6),
        adenoid=around(2.6, 0.3, 1.3, 5),
        muscle=around(0.65, 0.15, 0.4, 1.2),
        marrow=around(1.3, 0.2, 0.8, 2.5),
        blood=around(1.5, 0.12, 1.0, 2.2),
        heart=around(4.5, 0.6, 1.5, 13),
        liver=around(2.2, 0.12, 1.5, 3),
        kidney=around(5.5, 0.25, 3, 10),
        bladder=around(20, 0.4, 8, 45),
        brown_fat=float(rng.uniform(3, 8)) if rng.random() < 0.06 else 0.0,
    )


def draw_body(rng: np.random.Generator, contrast: bool) -> Body:
    """Draw a body; the same generator state gives the same body."""
    return Body(
        uptake=_draw_uptake(rng),
        fat_mm=float(rng.uniform(4, 13)),
        contrast_hu=float(rng.uniform(90, 190)) if contrast else 0.0,
        dentate=bool(rng.random() < 0.8),
        tonsil_size=(float(rng.uniform(0.8, 1.15)), float(rng.uniform(0.8, 1.15))),
        table_y=float(rng.uniform(120, 148)),
        jaw_drop_mm=float(rng.uniform(-2, 6)),
    )


def build_body_parts(body: Body) -> Iterator[BodyPart]:
    """Yield all parts in painting order; the canvas ignores parts outside its field."""
    yield from _build_table(body)
    yield from _build_outline(body)
    yield from _build_trunk(body)
    yield from _build_neck(body)
    yield from _build_skull(body)
    yield from _build_face(body)
    yield from _build_jaws(body)
    yield from _build_pharynx(body)
    yield from _build_spine(body)


def _build_table(body: Body) -> Iterator[BodyPart]:
    y = body.table_y
    yield BodyPart(
        SuperellipseStack(((260, 0, y + 22, 210, 22), (_TABLE_END, 0, y + 22, 210, 22)), 4.0), 120.0, 0.0, leaning=False
    )
    yield BodyPart(
        SuperellipseStack(((260, 0, y + 22, 206, 18), (_TABLE_END, 0, y + 22, 206, 18)), 4.0),
        -890.0,
        0.0,
        leaning=False,
    )
    yield BodyPart(Ellipsoid((0, 112, 70), (95, 20, 90), 4.0), -940.0, 0.0)


def _build_outline(body: Body) -> Iterator[BodyPart]:
    muscle = body.uptake.muscle
    yield BodyPart(SuperellipseStack(_TORSO, 2.4), 0.0, 0.3, 1.5)
    yield BodyPart(SuperellipseStack(_TORSO, 2.4, 2.5), FAT_HU, 0.3, 1.5)
    yield BodyPart(SuperellipseStack(_TORSO, 2.4, body.fat_mm), MUSCLE_HU, muscle, 2.5)
    yield BodyPart(Ellipsoid((0, 5, 96), (78, 97, 72)), 10.0, 0.4)
    yield BodyPart(Ellipsoid((0, -35, 32), (68, 62, 66), 2.6), 0.0, 0.4, 1.5)
    yield BodyPart(Ellipsoid((0, -35, 32), (63, 57, 62), 2.6), -60.0, 0.4, 2.0)
    yield BodyPart(Ellipsoid((0, -26, -26), (50, 40, 31), 2.4), 0.0, 0.4, 1.5)
    yield BodyPart(Ellipsoid((0, -26, -26), (46, 36, 27), 2.4), -60.0, 0.4, 2.0)
    yield BodyPart(Ellipsoid((0, -88, 45), (13, 22, 20)), 0.0, 0.4)


def _build_trunk(body: Body) -> Iterator[BodyPart]:
    uptake, blood_hu = body.uptake, 42.0 + body.contrast_hu
    yield BodyPart(SuperellipseStack(_CHEST, 2.2), 250.0, 1.0)
    for row in range(9):
        # Gaps of muscle between slanting ribs.
        yield BodyPart(Ellipsoid((0, 28, -165.0 - 22 * row), (142, 96, 7)), MUSCLE_HU, uptake.muscle)
    yield BodyPart(SuperellipseStack(_CHEST, 2.2, 7.0), -70.0, 0.6)
    lung = tuple((z, 0.58 * rx, y, 0.44 * rx, 0.9 * ry) for z, _, y, rx, ry in _CHEST)
    yield from add_mirror_image(BodyPart(SuperellipseStack(lung, 2.2), -840.0, 0.45, 3.0))
    yield BodyPart(Ellipsoid((22, -12, -257), (58, 48, 62)), blood_hu, uptake.heart, 2.0)
    yield BodyPart(Ellipsoid((24, -12, -260), (36, 28, 38)), blood_hu, uptake.blood)
    yield BodyPart(
        SuperellipseStack(((-160, 8, 20, 24, 28), (-180, 8, 18, 18, 24), (-215, 8, 25, 14, 16))), blood_hu, uptake.blood
    )
    yield from add_mirror_image(BodyPart(Capsule((20, -55, -150), (150, 5, -140), 8, 7), 420.0, 0.8))
    yield from add_mirror_image(BodyPart(Ellipsoid((135, 75, -230), (45, 9, 60)), 350.0, 0.9))
    yield from add_mirror_image(BodyPart(Ellipsoid((170, 30, -172), (25, 24, 25)), 380.0, 0.8))
    abdomen = ((-348, 0, 10, 132, 82), (-445, 0, 5, 130, 85), (-560, 0, 5, 132, 85), (-635, 0, 5, 110, 75))
    yield BodyPart(SuperellipseStack(abdomen), -85.0, 0.4)
    yield BodyPart(Ellipsoid((-62, 5, -361), (70, 72, 80)), 60 + 0.4 * body.contrast_hu, uptake.liver, 3.0)
    yield BodyPart(Ellipsoid((88, 40, -360), (30, 38, 42)), 50 + 0.4 * body.contrast_hu, 1.9, 2.0)
    yield BodyPart(Ellipsoid((50, -25, -365), (45, 35, 35)), 25.0, 2.0, 4.0)
    yield from add_mirror_image(
        BodyPart(Ellipsoid((62, 58, -440), (26, 24, 52)), 35 + body.contrast_hu, uptake.kidney, 1.5)
    )
    yield BodyPart(Ellipsoid((0, -30, -510), (95, 42, 75)), 15.0, 1.4, 9.0)
    yield BodyPart(Capsule((12, 36, -210), (8, 30, -530), 11, 9), blood_hu, uptake.blood)
    yield from _build_pelvis(body)


def _build_pelvis(body: Body) -> Iterator[BodyPart]:
    yield from add_mirror_image(BodyPart(Ellipsoid((85, 45, -575), (48, 40, 55)), 400.0, 1.0))
    yield from add_mirror_image(BodyPart(Ellipsoid((75, 35, -580), (42, 36, 52)), MUSCLE_HU, body.uptake.muscle))
    yield from add_mirror_image(BodyPart(Capsule((55, -20, -690), (105, 25, -662), 14, 22), 380.0, 0.9))
    yield from add_mirror_image(BodyPart(Capsule((115, 25, -672), (110, 20, -732), 16, 16), BONE_HU, 0.6))
    yield BodyPart(Ellipsoid((0, -25, -649), (42, 34, 30)), 8.0, body.uptake.bladder)


def _build_neck(body: Body) -> Iterator[BodyPart]:
    uptake, vein_hu = body.uptake, 42.0 + body.contrast_hu
    # Fat planes between the muscles, which nodes and tumours fill.
    yield from add_mirror_image(BodyPart(Capsule((36, 12, 20), (34, 14, -100), 15, 16), FAT_HU, 0.35, 3.0))
    yield from add_mirror_image(BodyPart(Capsule((52, 38, -40), (70, 35, -120), 10, 18), FAT_HU, 0.35, 3.0))
    yield BodyPart(Ellipsoid((0, -46, -40), (30, 18, 8)), FAT_HU, 0.35, 2.0)
    yield from add_mirror_image(BodyPart(Capsule((54, 30, 38), (20, -22, -128), 10, 8), 60.0, uptake.muscle, 1.0))
    yield from add_mirror_image(BodyPart(Capsule((26, 10, 40), (24, 5, -70), 3.5, 4), vein_hu, uptake.blood))
    yield from add_mirror_image(BodyPart(Capsule((24, 5, -70), (16, 5, -150), 4, 4.5), vein_hu, uptake.blood))
    yield from add_mirror_image(
        BodyPart(Capsule((33, 14, 38), (31, 8, -70), 5, 6), 42 + 0.9 * body.contrast_hu, uptake.blood)
    )
    yield from add_mirror_image(
        BodyPart(Capsule((31, 8, -70), (24, 5, -150), 6, 7), 42 + 0.9 * body.contrast_hu, uptake.blood)
    )
    yield from add_mirror_image(
        BodyPart(Ellipsoid((17, -12, -100), (9, 10, 22)), 95 + 0.5 * body.contrast_hu, 1.4, 1.0)
    )
    if body.uptake.brown_fat:
        yield from add_mirror_image(BodyPart(Ellipsoid((75, 38, -112), (22, 9, 11)), None, uptake.brown_fat, 4.0))
        yield from add_mirror_image(BodyPart(Ellipsoid((60, 45, -80), (8, 8, 14)), None, uptake.brown_fat, 3.0))


def _build_skull(body: Body) -> Iterator[BodyPart]:
    yield BodyPart(Ellipsoid((0, 5, 98), (72, 91, 66)), 950.0, 0.6)
    yield BodyPart(Ellipsoid((0, 44, 50), (52, 42, 32)), 900.0, 0.6)
    yield BodyPart(BRAIN, 30.0, body.uptake.brain, 1.0)
    yield BodyPart(Ellipsoid((0, 5, 97), (52, 70, 44)), 28.0, 0.62 * body.uptake.brain, 4.0)
    yield from add_mirror_image(BodyPart(Ellipsoid((14, 5, 100), (9, 14, 10)), 36.0, 1.05 * body.uptake.brain))
    yield from add_mirror_image(BodyPart(Ellipsoid((7, 0, 108), (4, 26, 8)), 6.0, 2.0))
    yield BodyPart(Ellipsoid((0, -12, 42), (56, 45, 6)), 600.0, 1.0, 2.0)
    yield BodyPart(CEREBELLUM, 34.0, 0.9 * body.uptake.brain, 1.0)
    yield BodyPart(Capsule((0, 20, 70), (0, 38, 31), 11, 7), 32.0, 0.6 * body.uptake.brain)
    yield from add_mirror_image(BodyPart(Ellipsoid((42, 14, 49), (24, 11, 9)), 900.0, 0.6))
    yield from add_mirror_image(BodyPart(Ellipsoid((58, 24, 38), (10, 15, 16)), 300.0, 0.6))
    yield from add_mirror_image(BodyPart(Ellipsoid((58, 24, 38), (6, 10, 11)), -550.0, 0.3, 3.0))
    yield from add_mirror_image(BodyPart(Capsule((52, 4, 48), (80, 4, 48), 3, 4), -900.0, 0.0))


def _build_face(body: Body) -> Iterator[BodyPart]:
    yield BodyPart(Ellipsoid((0, -58, 52), (44, 28, 30)), 500.0, 0.9, 2.0)
    yield from add_mirror_image(BodyPart(Ellipsoid((25, -56, 44), (15, 18, 16)), -950.0, 0.1, 1.5))
    yield BodyPart(Ellipsoid((0, -52, 52), (11, 36, 20)), -700.0, 0.5, 3.0)
    yield BodyPart(Ellipsoid((0, -83, 96), (20, 5, 9)), -900.0, 0.1, 2.0)
    yield from add_mirror_image(BodyPart(Capsule((58, -15, 47), (44, -62, 50), 4, 5), BONE_HU, 0.6))
    yield from add_mirror_image(BodyPart(Ellipsoid((32, -62, 74), (21, 25, 19)), 500.0, 0.8))
    yield from add_mirror_image(BodyPart(Ellipsoid((32, -66, 74), (18, 26, 16)), -80.0, 0.4))
    yield from add_mirror_image(BodyPart(Ellipsoid((32, -76, 74), (12, 12, 12)), 12.0, 0.9))
    yield from add_mirror_image(BodyPart(Ellipsoid((52, -12, 18), (9, 20, 32)), 60.0, body.uptake.muscle, 1.0))
    yield from add_mirror_image(BodyPart(Ellipsoid((36, -14, 22), (8, 18, 22)), 60.0, body.uptake.muscle, 1.0))
    yield from add_mirror_image(BodyPart(Ellipsoid((57, 11, 29), (11, 17, 29)), -5.0, body.uptake.parotid, 1.5))


def _build_jaws(body: Body) -> Iterator[BodyPart]:
    drop = body.jaw_drop_mm
    low = -drop
    for grow, hu in ((0.0, 1100.0), (-2.6, 250.0)):
        yield from add_mirror_image(BodyPart(Capsule((49, -2, 44), (45, -14, -2 + low), 6 + grow, 7 + grow), hu, 0.7))
        yield from add_mirror_image(
            BodyPart(Capsule((45, -14, -2 + low), (24, -72, -14 + low), 7 + grow, 7 + grow), hu, 0.7)
        )
        yield from add_mirror_image(
            BodyPart(Capsule((24, -72, -14 + low), (0, -82, -15 + low), 7 + grow, 8 + grow), hu, 0.7)
        )
    yield BodyPart(Ellipsoid((0, -38, 6), (27, 37, 25), 2.4), 50.0, 0.9, 1.0)
    yield BodyPart(Ellipsoid((0, -36, 2), (20, 30, 18)), 65.0, body.uptake.tongue, 3.0)
    yield BodyPart(Ellipsoid((0, -45, 27), (22, 26, 2.5)), -800.0, 0.2, 2.0)
    yield BodyPart(Ellipsoid((0, -45, 33), (25, 30, 3)), 600.0, 0.8)
    yield BodyPart(Arch((0, -42, 22), (28, 36), 5, 6), 500.0, 0.8)
    yield BodyPart(Arch((0, -42, -6 + low), (28, 36), 5, 6), 500.0, 0.8)
    if body.dentate:
        yield BodyPart(Arch((0, -42, 13), (27, 35), 4, 6, 9), 2100.0, 0.4)
        yield BodyPart(Arch((0, -42, 2 + low), (27, 35), 4, 6, 9), 2000.0, 0.4)


def _build_pharynx(body: Body) -> Iterator[BodyPart]:
    uptake = body.uptake
    yield BodyPart(SuperellipseStack(((45, 0, 0, 24, 18), (-45, 0, 0, 24, 18)), 2.5), 55.0, 0.9, 1.5)
    yield BodyPart(Ellipsoid((0, -16, -12), (17, 12, 15)), 58.0, 1.15 * uptake.tongue, 1.5)
    yield from add_mirror_image(BodyPart(Ellipsoid((28, -32, -33), (9, 15, 17)), 42.0, uptake.submandibular, 1.0))
    for side, suv, size in (
        (1, uptake.tonsil_left, body.tonsil_size[0]),
        (-1, uptake.tonsil_right, body.tonsil_size[1]),
    ):
        yield BodyPart(Ellipsoid((19.0 * side, -5, 5), (6.5 * size, 9 * size, 12 * size)), 58.0, suv, 0.8)
    yield BodyPart(Ellipsoid((0, -10, 25), (17, 13, 5)), 50.0, 0.4 * (uptake.adenoid + 1.5), 1.0)
    yield BodyPart(Ellipsoid((0, 2, 41), (14, 7, 8)), 52.0, uptake.adenoid, 1.0)
    yield BodyPart(Capsule((0, -10, 52), (0, -8, 36), 9, 8), -980.0, 0.05)
    yield BodyPart(
        SuperellipseStack(((20, 0, -2, 10, 5), (0, 0, -1, 11, 6), (-25, 0, -1, 13, 6), (-40, 0, -5, 10, 6))),
        -980.0,
        0.05,
        0.8,
    )
    yield BodyPart(Capsule((0, -6, -18), (0, -16, -30), 4, 9), 40.0, 1.1)
    yield BodyPart(Arch((0, -6, -34), (21, 26), 2.5, 3), 450.0, 0.7)
    yield BodyPart(SuperellipseStack(((-44, 0, -12, 22, 20), (-85, 0, -12, 18, 18)), 2.2), 90.0, 1.0, 1.0)
    yield BodyPart(Ellipsoid((0, -10, -62), (13, 14, 7)), 60.0, uptake.larynx, 1.5)
    yield BodyPart(
        SuperellipseStack(
            (
                (-38, 0, -12, 9, 6),
                (-58, 0, -14, 4, 8),
                (-66, 0, -14, 3, 8),
                (-76, 0, -12, 8, 9),
                (-150, 0, 8, 9, 9),
                (-195, 0, 24, 9, 9),
            )
        ),
        -980.0,
        0.05,
    )
    yield BodyPart(Capsule((2, 12, -85), (4, 32, -290), 6, 7), 35.0, 1.4)


def _build_spine(body: Body) -> Iterator[BodyPart]:
    uptake = body.uptake
    yield BodyPart(SuperellipseStack(((45, 0, 14, 18, 5), (-110, 0, 16, 22, 6))), 55.0, uptake.muscle)
    yield from add_mirror_image(
        BodyPart(SuperellipseStack(((30, 24, 58, 24, 26), (-110, 26, 62, 26, 24))), 58.0, uptake.muscle, 2.0)
    )
    height, size = 15.0, 1.0
    while height > -635:
        y = (
            26 + 8 * float(np.sin((height + 60) / 60))
            if height > -130
            else float(np.interp(height, (-635, -445, -270, -130), (52, 30, 62, 40)))
        )
        yield from _build_vertebra(y, height, size, uptake.marrow)
        height -= 17.5 * size
        size = min(size + 0.045, 1.9) if height < -60 else 1.0


def _build_vertebra(y: float, height: float, size: float, marrow_suv: float) -> Iterator[BodyPart]:
    body = Ellipsoid((0, y, height), (13 * size, 9.5 * size, 7.2 * size), 4.0)
    yield BodyPart(body, 480.0, marrow_suv, 0.5)
    yield BodyPart(replace(body, radii=(11 * size, 7.5 * size, 5.8 * size)), MARROW_HU, marrow_suv)
    canal_y = y + 9.5 * size + 9
    yield BodyPart(Ellipsoid((0, canal_y + 2, height), (17 * size, 13, 7 * size), 3.0), 420.0, 0.8 * marrow_suv, 1.5)
    yield BodyPart(Ellipsoid((0, canal_y, height), (11, 8.5, 9.5 * size), 4.0), 15.0, 0.6)
    yield BodyPart(Capsule((0, canal_y, height - 8 * size), (0, canal_y, height + 8 * size), 5, 5), 38.0, 1.6)
    yield BodyPart(
        Capsule((0, canal_y + 12, height - 2), (0, canal_y + 27, height - 7), 4, 3.5), 450.0, 0.8 * marrow_suv
    )
