"""Table, body outline with arms and legs, chest, abdomen and pelvis, as painted parts.

Rows of the tables are knots of a `Column`: z, centre x, centre y, radius x, radius y, in anatomical mm.
"""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.phantoms.anatomy.body import BONE_HU, FAT_HU, MUSCLE_HU, Body
from rehearsal.phantoms.anatomy.shapes import Capsule, Column, Ellipsoid, Knots, Part, mirrored

# fmt: off
TORSO: Knots = (
    (72, 0, 36, 44, 52), (50, 0, 32, 52, 56), (28, 0, 27, 60, 60), (-20, 0, 24, 60, 62), (-60, 0, 26, 60, 60),
    (-90, 0, 28, 66, 60), (-112, 0, 30, 95, 64),
    (-130, 0, 30, 140, 70), (-150, 0, 30, 180, 80), (-175, 0, 28, 200, 90), (-230, 0, 25, 190, 98),
    (-300, 0, 22, 170, 105), (-450, 0, 18, 158, 105), (-560, 0, 16, 152, 106), (-680, 0, 18, 158, 108),
    (-790, 0, 20, 175, 110), (-850, 0, 20, 178, 105), (-870, 0, 20, 176, 100),
)
CHEST: Knots = (
    (-122, 0, 42, 10, 9), (-132, 0, 40, 48, 30), (-150, 0, 36, 82, 50), (-180, 0, 30, 110, 68), (-240, 0, 24, 132, 82),
    (-320, 0, 20, 140, 88), (-430, 0, 18, 140, 88), (-470, 0, 18, 136, 84),
)
# fmt: on


def trunk_parts(body: Body) -> Iterator[Part]:
    """The parts that head and neck are painted over, in painting order."""
    yield from _table(body)
    yield from _outline(body)
    yield from _trunk(body)


def _table(body: Body) -> Iterator[Part]:
    y = body.table_y
    yield Part(Column(((260, 0, y + 22, 210, 22), (-1250, 0, y + 22, 210, 22)), 4.0), 120.0, 0.0, leaning=False)
    yield Part(Column(((260, 0, y + 22, 206, 18), (-1250, 0, y + 22, 206, 18)), 4.0), -890.0, 0.0, leaning=False)
    yield Part(Ellipsoid((0, 112, 70), (95, 20, 90), 4.0), -940.0, 0.0)


def _outline(body: Body) -> Iterator[Part]:
    muscle = body.uptake.muscle
    if body.arms == "down":
        yield from mirrored(Part(Capsule((195, 30, -175), (228, 35, -470), 42, 34), 20.0, 0.3))
        yield from mirrored(Part(Capsule((228, 35, -470), (215, 20, -760), 34, 22), 20.0, 0.3))
        yield from mirrored(Part(Capsule((195, 30, -175), (228, 35, -470), 32, 26), MUSCLE_HU, muscle, 2.0))
        yield from mirrored(Part(Capsule((195, 30, -175), (228, 35, -760), 11, 9), BONE_HU, 0.6))
    else:
        yield from mirrored(Part(Capsule((175, 30, -165), (150, 30, 60), 45, 36), 20.0, 0.3))
        yield from mirrored(Part(Capsule((150, 30, 60), (70, 20, 230), 34, 22), 20.0, 0.3))
        yield from mirrored(Part(Capsule((175, 30, -165), (150, 30, 60), 34, 27), MUSCLE_HU, muscle, 2.0))
        yield from mirrored(Part(Capsule((175, 30, -165), (150, 30, 60), 11, 9), BONE_HU, 0.6))
    yield Part(Column(TORSO, 2.4), 0.0, 0.3, 1.5)
    yield Part(Column(TORSO, 2.4, 2.5), FAT_HU, 0.3, 1.5)
    yield Part(Column(TORSO, 2.4, body.fat_mm), MUSCLE_HU, muscle, 2.5)
    yield from mirrored(Part(Capsule((95, 20, -850), (90, 15, -1250), 88, 72), FAT_HU, 0.3))
    yield from mirrored(Part(Capsule((95, 20, -850), (90, 15, -1250), 78, 62), MUSCLE_HU, muscle, 3.0))
    yield Part(Ellipsoid((0, 5, 96), (78, 97, 72)), 10.0, 0.4)
    yield Part(Ellipsoid((0, -35, 32), (68, 62, 66), 2.6), 0.0, 0.4, 1.5)
    yield Part(Ellipsoid((0, -35, 32), (63, 57, 62), 2.6), -60.0, 0.4, 2.0)
    yield Part(Ellipsoid((0, -88, 45), (13, 22, 20)), 0.0, 0.4)


def _trunk(body: Body) -> Iterator[Part]:
    uptake, blood_hu = body.uptake, 42.0 + body.contrast_hu
    yield Part(Column(CHEST, 2.2), 250.0, 1.0)
    for row in range(15):
        # Gaps of muscle between slanting ribs.
        yield Part(Ellipsoid((0, 28, -165.0 - 22 * row), (142, 96, 7)), MUSCLE_HU, uptake.muscle)
    yield Part(Column(CHEST, 2.2, 7.0), -70.0, 0.6)
    lung = tuple((z, 0.58 * rx, y, 0.44 * rx, 0.9 * ry) for z, _, y, rx, ry in CHEST)
    yield from mirrored(Part(Column(lung, 2.2), -840.0, 0.45, 3.0))
    yield Part(Ellipsoid((22, -12, -375), (58, 48, 55)), blood_hu, uptake.heart, 2.0)
    yield Part(Ellipsoid((24, -12, -378), (36, 28, 34)), blood_hu, uptake.blood)
    yield Part(Column(((-225, 8, 20, 26, 30), (-270, 8, 18, 18, 24), (-320, 8, 25, 14, 16))), blood_hu, uptake.blood)
    yield from mirrored(Part(Capsule((20, -55, -150), (150, 5, -140), 8, 7), 420.0, 0.8))
    yield from mirrored(Part(Ellipsoid((135, 75, -230), (45, 9, 60)), 350.0, 0.9))
    yield from mirrored(Part(Ellipsoid((170, 30, -172), (25, 24, 25)), 380.0, 0.8))
    abdomen = ((-465, 0, 10, 132, 82), (-560, 0, 5, 130, 85), (-680, 0, 5, 132, 85), (-760, 0, 5, 110, 75))
    yield Part(Column(abdomen), -85.0, 0.4)
    yield Part(Ellipsoid((-62, 5, -480), (70, 72, 62)), 60 + 0.4 * body.contrast_hu, uptake.liver, 3.0)
    yield Part(Ellipsoid((88, 40, -475), (30, 38, 42)), 50 + 0.4 * body.contrast_hu, 1.9, 2.0)
    yield Part(Ellipsoid((50, -25, -480), (45, 35, 35)), 25.0, 2.0, 4.0)
    yield from mirrored(Part(Ellipsoid((62, 58, -555), (26, 24, 52)), 35 + body.contrast_hu, uptake.kidney, 1.5))
    yield Part(Ellipsoid((0, -30, -630), (95, 42, 75)), 15.0, 1.4, 9.0)
    yield Part(Capsule((12, 36, -320), (8, 30, -650), 11, 9), blood_hu, uptake.blood)
    yield from _pelvis(body)


def _pelvis(body: Body) -> Iterator[Part]:
    yield from mirrored(Part(Ellipsoid((85, 45, -700), (48, 40, 55)), 400.0, 1.0))
    yield from mirrored(Part(Ellipsoid((75, 35, -705), (42, 36, 52)), MUSCLE_HU, body.uptake.muscle))
    yield from mirrored(Part(Capsule((55, -20, -820), (105, 25, -790), 14, 22), 380.0, 0.9))
    yield from mirrored(Part(Capsule((115, 25, -800), (95, 10, -1250), 16, 13), BONE_HU, 0.6))
    yield from mirrored(Part(Capsule((115, 25, -830), (95, 10, -1250), 8, 7), -30.0, 0.6))
    yield Part(Ellipsoid((0, -25, -790), (42, 34, 32)), 8.0, body.uptake.bladder)
