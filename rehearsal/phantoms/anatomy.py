"""The body as painted parts in anatomical millimetres: x to the left, y to the back, z upwards.

The origin is the middle of the oropharynx at the height of the tonsils. Sizes are those of an adult, rounded;
uptake follows what FDG shows in a fasting patient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rehearsal.phantoms.shapes import Arch, Capsule, Column, Ellipsoid, Part, Point, Shape

FAT_HU, MUSCLE_HU, BONE_HU, MARROW_HU = -95.0, 55.0, 700.0, 220.0
TORSO: tuple[tuple[float, float, float, float, float], ...] = (
    (72, 0, 36, 44, 52), (50, 0, 32, 52, 56), (28, 0, 27, 60, 60), (-20, 0, 24, 60, 62), (-60, 0, 26, 60, 60),
    (-90, 0, 28, 66, 60), (-112, 0, 30, 95, 64),
    (-130, 0, 30, 140, 70), (-150, 0, 30, 180, 80), (-175, 0, 28, 200, 90), (-230, 0, 25, 190, 98),
    (-300, 0, 22, 170, 105), (-450, 0, 18, 158, 105), (-560, 0, 16, 152, 106), (-680, 0, 18, 158, 108),
    (-790, 0, 20, 175, 110), (-850, 0, 20, 178, 105), (-870, 0, 20, 176, 100),
)
CHEST: tuple[tuple[float, float, float, float, float], ...] = (
    (-122, 0, 42, 10, 9), (-132, 0, 40, 48, 30), (-150, 0, 36, 82, 50), (-180, 0, 30, 110, 68), (-240, 0, 24, 132, 82),
    (-320, 0, 20, 140, 88), (-430, 0, 18, 140, 88), (-470, 0, 18, 136, 84),
)


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
    """What one patient's body is like: switches and values drawn once.

    ``arms`` is "down" or "up"; ``metal`` holds places of dental metal; ``dentate`` is False without teeth.
    """

    uptake: Uptake
    fat_mm: float
    contrast_hu: float
    arms: str
    dentate: bool
    metal: tuple[Point, ...]
    tonsil_size: tuple[float, float]
    table_y: float
    jaw_drop_mm: float


def _random_uptake(rng: np.random.Generator) -> Uptake:
    def around(median: float, sigma: float, low: float, high: float) -> float:
        return float(np.clip(median * np.exp(sigma * rng.standard_normal()), low, high))

    tonsil = around(3.4, 0.25, 2.2, 5.5)
    # One tonsil lighting up alone is what a threshold mistakes for a tumour.
    asymmetry = float(rng.uniform(1.4, 2.0)) if rng.random() < 0.25 else float(rng.uniform(0.9, 1.15))
    sides = (tonsil * asymmetry, tonsil) if rng.random() < 0.5 else (tonsil, tonsil * asymmetry)
    return Uptake(
        brain=around(9.5, 0.18, 6.5, 14), tonsil_left=sides[0], tonsil_right=sides[1],
        parotid=around(2.2, 0.25, 1.2, 4), submandibular=around(2.8, 0.25, 1.5, 5),
        larynx=around(2.4, 0.35, 1.2, 6), tongue=around(2.2, 0.35, 1.0, 6), adenoid=around(2.6, 0.3, 1.3, 5),
        muscle=around(0.65, 0.15, 0.4, 1.2), marrow=around(1.3, 0.2, 0.8, 2.5), blood=around(1.5, 0.12, 1.0, 2.2),
        heart=around(4.5, 0.6, 1.5, 13), liver=around(2.2, 0.12, 1.5, 3), kidney=around(5.5, 0.25, 3, 10),
        bladder=around(20, 0.4, 8, 45),
        brown_fat=float(rng.uniform(3, 8)) if rng.random() < 0.06 else 0.0,
    )


def random_body(rng: np.random.Generator, contrast: bool, arms_up: bool) -> Body:
    """Draw a body; the same generator state gives the same body."""
    dentate = bool(rng.random() < 0.8)
    metal: list[Point] = []
    if dentate and rng.random() < 0.4:
        for _ in range(int(rng.integers(1, 5))):
            angle = float(rng.uniform(0.15, np.pi - 0.15))
            height = float(rng.choice([2.0, 14.0])) + float(rng.uniform(-3, 3))
            metal.append((26 * float(np.cos(angle)), -42 - 33 * float(np.sin(angle)), height))
    return Body(
        uptake=_random_uptake(rng),
        fat_mm=float(rng.uniform(4, 13)),
        contrast_hu=float(rng.uniform(90, 190)) if contrast else 0.0,
        arms="up" if arms_up else "down",
        dentate=dentate,
        metal=tuple(metal),
        tonsil_size=(float(rng.uniform(0.8, 1.15)), float(rng.uniform(0.8, 1.15))),
        table_y=float(rng.uniform(128, 140)),
        jaw_drop_mm=float(rng.uniform(-2, 6)),
    )


def _mirrored(part: Part) -> Iterator[Part]:
    yield part
    shape = part.shape
    mirrored: Shape
    if isinstance(shape, Ellipsoid):
        mirrored = replace(shape, centre=_flip(shape.centre))
    elif isinstance(shape, Capsule):
        mirrored = replace(shape, start=_flip(shape.start), end=_flip(shape.end))
    elif isinstance(shape, Column):
        mirrored = replace(shape, knots=tuple((z, -x, y, rx, ry) for z, x, y, rx, ry in shape.knots))
    else:
        raise TypeError(f"no mirror image of {shape!r}")
    yield replace(part, shape=mirrored)


def _flip(point: Point) -> Point:
    return -point[0], point[1], point[2]


def body_parts(body: Body) -> Iterator[Part]:
    """All parts in painting order; the caller's canvas drops those out of its field."""
    yield from _table(body)
    yield from _outline(body)
    yield from _trunk(body)
    yield from _neck(body)
    yield from _skull(body)
    yield from _face(body)
    yield from _jaws(body)
    yield from _pharynx(body)
    yield from _spine(body)


def _table(body: Body) -> Iterator[Part]:
    y = body.table_y
    yield Part(Column(((260, 0, y + 22, 210, 22), (-1250, 0, y + 22, 210, 22)), 4.0), 120.0, 0.0, leaning=False)
    yield Part(Column(((260, 0, y + 22, 206, 18), (-1250, 0, y + 22, 206, 18)), 4.0), -890.0, 0.0, leaning=False)
    yield Part(Ellipsoid((0, 112, 70), (95, 20, 90), 4.0), -940.0, 0.0)


def _outline(body: Body) -> Iterator[Part]:
    muscle = body.uptake.muscle
    if body.arms == "down":
        yield from _mirrored(Part(Capsule((195, 30, -175), (228, 35, -470), 42, 34), 20.0, 0.3))
        yield from _mirrored(Part(Capsule((228, 35, -470), (215, 20, -760), 34, 22), 20.0, 0.3))
        yield from _mirrored(Part(Capsule((195, 30, -175), (228, 35, -470), 32, 26), MUSCLE_HU, muscle, 2.0))
        yield from _mirrored(Part(Capsule((195, 30, -175), (228, 35, -760), 11, 9), BONE_HU, 0.6))
    else:
        yield from _mirrored(Part(Capsule((175, 30, -165), (150, 30, 60), 45, 36), 20.0, 0.3))
        yield from _mirrored(Part(Capsule((150, 30, 60), (70, 20, 230), 34, 22), 20.0, 0.3))
        yield from _mirrored(Part(Capsule((175, 30, -165), (150, 30, 60), 34, 27), MUSCLE_HU, muscle, 2.0))
        yield from _mirrored(Part(Capsule((175, 30, -165), (150, 30, 60), 11, 9), BONE_HU, 0.6))
    yield Part(Column(TORSO, 2.4), 0.0, 0.3, 1.5)
    yield Part(Column(TORSO, 2.4, 2.5), FAT_HU, 0.3, 1.5)
    yield Part(Column(TORSO, 2.4, body.fat_mm), MUSCLE_HU, muscle, 2.5)
    yield from _mirrored(Part(Capsule((95, 20, -850), (90, 15, -1250), 88, 72), FAT_HU, 0.3))
    yield from _mirrored(Part(Capsule((95, 20, -850), (90, 15, -1250), 78, 62), MUSCLE_HU, muscle, 3.0))
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
    yield from _mirrored(Part(Column(lung, 2.2), -840.0, 0.45, 3.0))
    yield Part(Ellipsoid((22, -12, -375), (58, 48, 55)), blood_hu, uptake.heart, 2.0)
    yield Part(Ellipsoid((24, -12, -378), (36, 28, 34)), blood_hu, uptake.blood)
    yield Part(Column(((-225, 8, 20, 26, 30), (-270, 8, 18, 18, 24), (-320, 8, 25, 14, 16))), blood_hu, uptake.blood)
    yield from _mirrored(Part(Capsule((20, -55, -150), (150, 5, -140), 8, 7), 420.0, 0.8))
    yield from _mirrored(Part(Ellipsoid((135, 75, -230), (45, 9, 60)), 350.0, 0.9))
    yield from _mirrored(Part(Ellipsoid((170, 30, -172), (25, 24, 25)), 380.0, 0.8))
    abdomen = ((-465, 0, 10, 132, 82), (-560, 0, 5, 130, 85), (-680, 0, 5, 132, 85), (-760, 0, 5, 110, 75))
    yield Part(Column(abdomen), -85.0, 0.4)
    yield Part(Ellipsoid((-62, 5, -480), (70, 72, 62)), 60 + 0.4 * body.contrast_hu, uptake.liver, 3.0)
    yield Part(Ellipsoid((88, 40, -475), (30, 38, 42)), 50 + 0.4 * body.contrast_hu, 1.9, 2.0)
    yield Part(Ellipsoid((50, -25, -480), (45, 35, 35)), 25.0, 2.0, 4.0)
    yield from _mirrored(Part(Ellipsoid((62, 58, -555), (26, 24, 52)), 35 + body.contrast_hu, uptake.kidney, 1.5))
    yield Part(Ellipsoid((0, -30, -630), (95, 42, 75)), 15.0, 1.4, 9.0)
    yield Part(Capsule((12, 36, -320), (8, 30, -650), 11, 9), blood_hu, uptake.blood)
    yield from _pelvis(body)


def _pelvis(body: Body) -> Iterator[Part]:
    yield from _mirrored(Part(Ellipsoid((85, 45, -700), (48, 40, 55)), 400.0, 1.0))
    yield from _mirrored(Part(Ellipsoid((75, 35, -705), (42, 36, 52)), MUSCLE_HU, body.uptake.muscle))
    yield from _mirrored(Part(Capsule((55, -20, -820), (105, 25, -790), 14, 22), 380.0, 0.9))
    yield from _mirrored(Part(Capsule((115, 25, -800), (95, 10, -1250), 16, 13), BONE_HU, 0.6))
    yield from _mirrored(Part(Capsule((115, 25, -830), (95, 10, -1250), 8, 7), -30.0, 0.6))
    yield Part(Ellipsoid((0, -25, -790), (42, 34, 32)), 8.0, body.uptake.bladder)


def _neck(body: Body) -> Iterator[Part]:
    uptake, vein_hu = body.uptake, 42.0 + body.contrast_hu
    # Fat planes between the muscles, which nodes and tumours fill.
    yield from _mirrored(Part(Capsule((36, 12, 20), (34, 14, -100), 15, 16), FAT_HU, 0.35, 3.0))
    yield from _mirrored(Part(Capsule((52, 38, -40), (70, 35, -120), 10, 18), FAT_HU, 0.35, 3.0))
    yield Part(Ellipsoid((0, -50, -38), (30, 18, 8)), FAT_HU, 0.35, 2.0)
    yield from _mirrored(Part(Capsule((54, 30, 38), (20, -22, -128), 10, 8), 60.0, uptake.muscle, 1.0))
    yield from _mirrored(Part(Capsule((26, 10, 40), (24, 5, -70), 3.5, 4), vein_hu, uptake.blood))
    yield from _mirrored(Part(Capsule((24, 5, -70), (16, 5, -150), 4, 4.5), vein_hu, uptake.blood))
    yield from _mirrored(Part(Capsule((33, 14, 38), (31, 8, -70), 5, 6), 42 + 0.9 * body.contrast_hu, uptake.blood))
    yield from _mirrored(Part(Capsule((31, 8, -70), (24, 5, -150), 6, 7), 42 + 0.9 * body.contrast_hu, uptake.blood))
    yield from _mirrored(Part(Ellipsoid((17, -12, -100), (9, 10, 22)), 95 + 0.5 * body.contrast_hu, 1.4, 1.0))
    if body.uptake.brown_fat:
        yield from _mirrored(Part(Ellipsoid((75, 38, -112), (22, 9, 11)), None, uptake.brown_fat, 4.0))
        yield from _mirrored(Part(Ellipsoid((60, 45, -80), (8, 8, 14)), None, uptake.brown_fat, 3.0))


def _skull(body: Body) -> Iterator[Part]:
    yield Part(Ellipsoid((0, 5, 98), (73, 92, 66)), 950.0, 0.6)
    yield Part(Ellipsoid((0, 5, 99), (67, 86, 60)), 30.0, body.uptake.brain, 1.0)
    yield Part(Ellipsoid((0, 5, 97), (52, 70, 44)), 28.0, 0.62 * body.uptake.brain, 4.0)
    yield from _mirrored(Part(Ellipsoid((14, 5, 100), (9, 14, 10)), 36.0, 1.05 * body.uptake.brain))
    yield from _mirrored(Part(Ellipsoid((7, 0, 108), (4, 26, 8)), 6.0, 2.0))
    yield Part(Ellipsoid((0, 48, 58), (44, 34, 19)), 34.0, 0.9 * body.uptake.brain, 1.0)
    yield Part(Ellipsoid((0, -5, 42), (56, 52, 6)), 600.0, 1.0, 2.0)
    yield Part(Capsule((0, 20, 70), (0, 36, 36), 11, 7), 32.0, 0.6 * body.uptake.brain)
    yield from _mirrored(Part(Ellipsoid((42, 14, 49), (24, 11, 9)), 900.0, 0.6))
    yield from _mirrored(Part(Ellipsoid((58, 24, 38), (10, 15, 16)), 300.0, 0.6))
    yield from _mirrored(Part(Ellipsoid((58, 24, 38), (6, 10, 11)), -550.0, 0.3, 3.0))
    yield from _mirrored(Part(Capsule((52, 4, 48), (80, 4, 48), 3, 4), -900.0, 0.0))


def _face(body: Body) -> Iterator[Part]:
    yield Part(Ellipsoid((0, -58, 52), (44, 28, 30)), 500.0, 0.9, 2.0)
    yield from _mirrored(Part(Ellipsoid((25, -56, 44), (15, 18, 16)), -950.0, 0.1, 1.5))
    yield Part(Ellipsoid((0, -52, 52), (11, 36, 20)), -700.0, 0.5, 3.0)
    yield Part(Ellipsoid((0, -83, 96), (20, 5, 9)), -900.0, 0.1, 2.0)
    yield from _mirrored(Part(Capsule((58, -15, 47), (44, -62, 50), 4, 5), BONE_HU, 0.6))
    yield from _mirrored(Part(Ellipsoid((32, -62, 74), (21, 25, 19)), 500.0, 0.8))
    yield from _mirrored(Part(Ellipsoid((32, -66, 74), (18, 26, 16)), -80.0, 0.4))
    yield from _mirrored(Part(Ellipsoid((32, -76, 74), (12, 12, 12)), 12.0, 0.9))
    yield from _mirrored(Part(Ellipsoid((52, -12, 18), (9, 20, 32)), 60.0, body.uptake.muscle, 1.0))
    yield from _mirrored(Part(Ellipsoid((36, -14, 22), (8, 18, 22)), 60.0, body.uptake.muscle, 1.0))
    yield from _mirrored(Part(Ellipsoid((55, 12, 20), (11, 16, 26)), -5.0, body.uptake.parotid, 1.5))


def _jaws(body: Body) -> Iterator[Part]:
    drop = body.jaw_drop_mm
    low = -drop
    for grow, hu in ((0.0, 1100.0), (-2.6, 250.0)):
        yield from _mirrored(Part(Capsule((49, -2, 44), (45, -14, -2 + low), 6 + grow, 7 + grow), hu, 0.7))
        yield from _mirrored(Part(Capsule((45, -14, -2 + low), (24, -72, -14 + low), 7 + grow, 7 + grow), hu, 0.7))
        yield from _mirrored(Part(Capsule((24, -72, -14 + low), (0, -82, -15 + low), 7 + grow, 8 + grow), hu, 0.7))
    yield Part(Ellipsoid((0, -38, 6), (27, 37, 25), 2.4), 50.0, 0.9, 1.0)
    yield Part(Ellipsoid((0, -36, 2), (20, 30, 18)), 65.0, body.uptake.tongue, 3.0)
    yield Part(Ellipsoid((0, -45, 27), (22, 26, 2.5)), -800.0, 0.2, 2.0)
    yield Part(Ellipsoid((0, -45, 33), (25, 30, 3)), 600.0, 0.8)
    yield Part(Arch((0, -42, 22), (28, 36), 5, 6), 500.0, 0.8)
    yield Part(Arch((0, -42, -6 + low), (28, 36), 5, 6), 500.0, 0.8)
    if body.dentate:
        yield Part(Arch((0, -42, 13), (27, 35), 4, 6, 9), 2100.0, 0.4)
        yield Part(Arch((0, -42, 2 + low), (27, 35), 4, 6, 9), 2000.0, 0.4)
    for spot in body.metal:
        yield Part(Ellipsoid(spot, (4, 4, 4)), 3071.0, 0.4)


def _pharynx(body: Body) -> Iterator[Part]:
    uptake = body.uptake
    yield Part(Column(((45, 0, 0, 24, 18), (-45, 0, 0, 24, 18)), 2.5), 55.0, 0.9, 1.5)
    yield Part(Ellipsoid((0, -16, -12), (17, 12, 15)), 58.0, 1.15 * uptake.tongue, 1.5)
    yield from _mirrored(Part(Ellipsoid((27, -26, -24), (9, 14, 12)), 42.0, uptake.submandibular, 1.0))
    for side, suv, size in ((1, uptake.tonsil_left, body.tonsil_size[0]),
                            (-1, uptake.tonsil_right, body.tonsil_size[1])):
        yield Part(Ellipsoid((19.0 * side, -5, 5), (6.5 * size, 9 * size, 12 * size)), 58.0, suv, 0.8)
    yield Part(Ellipsoid((0, -10, 25), (17, 13, 5)), 50.0, 0.4 * (uptake.adenoid + 1.5), 1.0)
    yield Part(Ellipsoid((0, 2, 41), (14, 7, 8)), 52.0, uptake.adenoid, 1.0)
    yield Part(Capsule((0, -10, 52), (0, -8, 36), 9, 8), -980.0, 0.05)
    yield Part(Column(((20, 0, -2, 10, 5), (0, 0, -1, 11, 6), (-25, 0, -1, 13, 6), (-40, 0, -5, 10, 6))), -980.0, 0.05,
               0.8)
    yield Part(Capsule((0, -6, -18), (0, -16, -30), 4, 9), 40.0, 1.1)
    yield Part(Arch((0, -6, -34), (21, 26), 2.5, 3), 450.0, 0.7)
    yield Part(Column(((-44, 0, -12, 22, 20), (-85, 0, -12, 18, 18)), 2.2), 90.0, 1.0, 1.0)
    yield Part(Ellipsoid((0, -10, -62), (13, 14, 7)), 60.0, uptake.larynx, 1.5)
    yield Part(Column(((-38, 0, -12, 9, 6), (-58, 0, -14, 4, 8), (-66, 0, -14, 3, 8), (-76, 0, -12, 8, 9),
                       (-150, 0, 8, 9, 9), (-230, 0, 24, 9, 9))), -980.0, 0.05)
    yield Part(Capsule((2, 12, -85), (4, 32, -330), 6, 7), 35.0, 1.4)


def _spine(body: Body) -> Iterator[Part]:
    uptake = body.uptake
    yield Part(Column(((45, 0, 14, 18, 5), (-110, 0, 16, 22, 6))), 55.0, uptake.muscle)
    yield from _mirrored(Part(Column(((30, 24, 58, 24, 26), (-110, 26, 62, 26, 24))), 58.0, uptake.muscle, 2.0))
    height, size = 38.0, 1.0
    while height > -760:
        y = 26 + 8 * float(np.sin((height + 60) / 60)) if height > -130 else float(np.interp(
            height, (-760, -560, -330, -130), (52, 30, 62, 40)))
        yield from _vertebra(y, height, size, uptake.marrow)
        height -= 17.5 * size
        size = min(size + 0.045, 1.9) if height < -60 else 1.0


def _vertebra(y: float, height: float, size: float, marrow_suv: float) -> Iterator[Part]:
    body = Ellipsoid((0, y, height), (13 * size, 9.5 * size, 7.2 * size), 4.0)
    yield Part(body, 480.0, marrow_suv, 0.5)
    yield Part(replace(body, radii=(11 * size, 7.5 * size, 5.8 * size)), MARROW_HU, marrow_suv)
    canal_y = y + 9.5 * size + 9
    yield Part(Ellipsoid((0, canal_y + 2, height), (17 * size, 13, 7 * size), 3.0), 420.0, 0.8 * marrow_suv, 1.5)
    yield Part(Ellipsoid((0, canal_y, height), (11, 8.5, 9.5 * size), 4.0), 15.0, 0.6)
    yield Part(Capsule((0, canal_y, height - 8 * size), (0, canal_y, height + 8 * size), 5, 5), 38.0, 1.6)
    yield Part(Capsule((0, canal_y + 12, height - 2), (0, canal_y + 27, height - 7), 4, 3.5), 450.0, 0.8 * marrow_suv)
