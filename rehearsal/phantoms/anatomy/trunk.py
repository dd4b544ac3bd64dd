"""Table, body outline, chest, abdomen and pelvis, as painted parts.

Rows of the tables are knots of a `Column`: z, centre x, centre y, radius x, radius y, in anatomical mm.
"""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.phantoms.anatomy.body import BONE_HU, FAT_HU, MUSCLE_HU, Body
from rehearsal.phantoms.anatomy.shapes import Capsule, Column, Ellipsoid, Knots, Part, mirrored

# fmt: off
TORSO: Knots = (
    (72, 0, 38, 58, 60), (50, 0, 33, 61, 61), (28, 0, 28, 61, 61), (-20, 0, 24, 60, 62), (-60, 0, 26, 60, 60),
    (-90, 0, 28, 66, 60), (-112, 0, 30, 95, 64),
    (-130, 0, 30, 140, 70), (-150, 0, 30, 180, 80), (-175, 0, 28, 200, 90), (-225, 0, 25, 190, 98),
    (-280, 0, 22, 170, 105), (-360, 0, 18, 158, 105), (-450, 0, 16, 152, 106), (-560, 0, 18, 158, 108),
    (-660, 0, 20, 175, 110), (-712, 0, 20, 178, 105), (-732, 0, 20, 176, 100),
)
CHEST: Knots = (
    (-122, 0, 42, 10, 9), (-132, 0, 40, 48, 30), (-145, 0, 36, 82, 50), (-170, 0, 30, 110, 68), (-215, 0, 24, 132, 82),
    (-265, 0, 20, 140, 88), (-322, 0, 18, 140, 88), (-346, 0, 18, 136, 84),
)
# fmt: on
TABLE_END = -900.0


def trunk_parts(body: Body) -> Iterator[Part]:
    """The parts that head and neck are painted over, in painting order."""
    yield from _table(body)
    yield from _outline(body)
    yield from _trunk(body)


def _table(body: Body) -> Iterator[Part]:
    y = body.table_y
    yield Part(Column(((260, 0, y + 22, 210, 22), (TABLE_END, 0, y + 22, 210, 22)), 4.0), 120.0, 0.0, leaning=False)
    yield Part(Column(((260, 0, y + 22, 206, 18), (TABLE_END, 0, y + 22, 206, 18)), 4.0), -890.0, 0.0, leaning=False)
    yield Part(Ellipsoid((0, 112, 70), (95, 20, 90), 4.0), -940.0, 0.0)


def _outline(body: Body) -> Iterator[Part]:
    muscle = body.uptake.muscle
    yield Part(Column(TORSO, 2.4), 0.0, 0.3, 1.5)
    yield Part(Column(TORSO, 2.4, 2.5), FAT_HU, 0.3, 1.5)
    yield Part(Column(TORSO, 2.4, body.fat_mm), MUSCLE_HU, muscle, 2.5)
    yield Part(Ellipsoid((0, 5, 96), (78, 97, 72)), 10.0, 0.4)
    yield Part(Ellipsoid((0, -35, 32), (68, 62, 66), 2.6), 0.0, 0.4, 1.5)
    yield Part(Ellipsoid((0, -35, 32), (63, 57, 62), 2.6), -60.0, 0.4, 2.0)
    yield Part(Ellipsoid((0, -26, -26), (50, 40, 31), 2.4), 0.0, 0.4, 1.5)
    yield Part(Ellipsoid((0, -26, -26), (46, 36, 27), 2.4), -60.0, 0.4, 2.0)
    yield Part(Ellipsoid((0, -88, 45), (13, 22, 20)), 0.0, 0.4)


def _trunk(body: Body) -> Iterator[Part]:
    uptake, blood_hu = body.uptake, 42.0 + body.contrast_hu
    yield Part(Column(CHEST, 2.2), 250.0, 1.0)
    for row in range(9):
        # Gaps of muscle between slanting ribs.
        yield Part(Ellipsoid((0, 28, -165.0 - 22 * row), (142, 96, 7)), MUSCLE_HU, uptake.muscle)
    yield Part(Column(CHEST, 2.2, 7.0), -70.0, 0.6)
    lung = tuple((z, 0.58 * rx, y, 0.44 * rx, 0.9 * ry) for z, _, y, rx, ry in CHEST)
    yield from mirrored(Part(Column(lung, 2.2), -840.0, 0.45, 3.0))
    yield Part(Ellipsoid((22, -12, -257), (58, 48, 62)), blood_hu, uptake.heart, 2.0)
    yield Part(Ellipsoid((24, -12, -260), (36, 28, 38)), blood_hu, uptake.blood)
    yield Part(Column(((-160, 8, 20, 24, 28), (-180, 8, 18, 18, 24), (-215, 8, 25, 14, 16))), blood_hu, uptake.blood)
    yield from mirrored(Part(Capsule((20, -55, -150), (150, 5, -140), 8, 7), 420.0, 0.8))
    yield from mirrored(Part(Ellipsoid((135, 75, -230), (45, 9, 60)), 350.0, 0.9))
    yield from mirrored(Part(Ellipsoid((170, 30, -172), (25, 24, 25)), 380.0, 0.8))
    abdomen = ((-348, 0, 10, 132, 82), (-445, 0, 5, 130, 85), (-560, 0, 5, 132, 85), (-635, 0, 5, 110, 75))
    yield Part(Column(abdomen), -85.0, 0.4)
    yield Part(Ellipsoid((-62, 5, -361), (70, 72, 80)), 60 + 0.4 * body.contrast_hu, uptake.liver, 3.0)
    yield Part(Ellipsoid((88, 40, -360), (30, 38, 42)), 50 + 0.4 * body.contrast_hu, 1.9, 2.0)
    yield Part(Ellipsoid((50, -25, -365), (45, 35, 35)), 25.0, 2.0, 4.0)
    yield from mirrored(Part(Ellipsoid((62, 58, -440), (26, 24, 52)), 35 + body.contrast_hu, uptake.kidney, 1.5))
    yield Part(Ellipsoid((0, -30, -510), (95, 42, 75)), 15.0, 1.4, 9.0)
    yield Part(Capsule((12, 36, -210), (8, 30, -530), 11, 9), blood_hu, uptake.blood)
    yield from _pelvis(body)


def _pelvis(body: Body) -> Iterator[Part]:
    yield from mirrored(Part(Ellipsoid((85, 45, -575), (48, 40, 55)), 400.0, 1.0))
    yield from mirrored(Part(Ellipsoid((75, 35, -580), (42, 36, 52)), MUSCLE_HU, body.uptake.muscle))
    yield from mirrored(Part(Capsule((55, -20, -690), (105, 25, -662), 14, 22), 380.0, 0.9))
    yield from mirrored(Part(Capsule((115, 25, -672), (110, 20, -732), 16, 16), BONE_HU, 0.6))
    yield Part(Ellipsoid((0, -25, -649), (42, 34, 30)), 8.0, body.uptake.bladder)
