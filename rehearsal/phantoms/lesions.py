"""Tumours, metastatic nodes and reactive nodes, their uneven surfaces, and the T and N stages.

Volumes and uptake of the primary tumour follow the HECKTOR overviews (median 7 to 11 ml, SUVmax around 15). Node
counts, sizes and levels, and the frequencies of faint, necrotic and cystic lesions, are invented within the clinical
range. Stages follow the AJCC/UICC manual, 7th edition, oropharynx.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final

import numpy as np

from contract import labels
from rehearsal.phantoms.body import LUNG_APEX
from rehearsal.phantoms.canvas import Floats, Frame, Point, to_point

GTVP_MEDIAN_ML, GTVP_LOG_SIGMA = 7.0, 1.1
GTVP_RANGE_ML = (1.0, 80.0)
NO_GTVP_SHARE = 0.05
NODE_COUNT_SHARES = (0.18, 0.28, 0.22, 0.14, 0.09, 0.05, 0.04)
NODE_RANGE_MM = (4.0, 40.0)
NODE_MEDIAN_MM, NODE_LOG_SIGMA = 17.0, 0.45
# Fraction of patients with nodes that have matted nodes above 6 cm, which reach down along the vessels; the diameter of
# a ball of the same volume, about 1.46 times smaller than the largest diameter; and the relative half axes.
MATTED_SHARE = 0.08
MATTED_RANGE_MM = (46.0, 50.0)
MATTED_ASPECT = (0.78, 0.86, 1.45)
# Fraction of primary tumours that grow from the tonsil into the mandible, and their end's distance from the midline.
INVADING_SHARE = 0.2
MANDIBLE_MM = 45.0
# Any other primary tumour ends before the mandible if it has room, and its centre is on one side of the midline.
MAX_GTVP_END_MM = 36.0
MIN_GTVP_CENTRE_MM = 6.0
# Maximum distance between the surface of a node and its centre, in radii.
MAX_REACH_RADII = 1.2
# Minimum gap between lesions.
GAP_MM = 3.0
# Frequency and anatomical place (x of the left side, y, z); x is mirrored for the right side.
GTVP_SITES: dict[str, tuple[float, Point]] = {
    "tonsil": (0.45, (19, -6, 4)),
    "base of tongue": (0.40, (9, -18, -9)),
    "soft palate": (0.07, (7, -13, 23)),
    "posterior wall": (0.08, (5, 3, -2)),
}
NODE_LEVELS: dict[str, tuple[float, Point]] = {
    "II": (0.55, (37, 13, -8)),
    "III": (0.30, (34, 9, -50)),
    "IV": (0.15, (28, 10, -92)),
}


# Natural log of the largest extent of a surface, in radii.
MAX_HEIGHT = 0.6
# Largest diameter in mm of T1 and T2.
T_LIMITS_MM: Final = ((20.0, "T1"), (40.0, "T2"))
N1_LIMIT_MM, N2_LIMIT_MM = 30.0, 60.0


@dataclass(frozen=True)
class Lesion:
    """One lesion.

    Attributes:
        label: Label of the mask, 0 for a reactive node.
        place: Centre (x, y, z) in anatomical mm.
        aspect: Relative half axes (x, y, z).
        suv: Uptake of the rim before blurring.
        core_share: Size of a dead or cystic core relative to the lesion; 0 without a core.
        shape_seed: Seed of the surface.
        invades_bone: Whether the lesion replaces bone; otherwise it ends at bone.
    """

    label: int
    site: str
    place: Point
    volume_ml: float
    aspect: Point
    bumpiness: float
    suv: float
    hu: float
    core_share: float
    shape_seed: int
    invades_bone: bool = False

    @property
    def radius_mm(self) -> float:
        """Return the radius of a ball of the same volume."""
        return float((self.volume_ml * 750 / np.pi) ** (1 / 3))


@dataclass(frozen=True)
class Disease:
    """All lesions of one patient, the primary tumour first; `cystic` says whether nodes tend to be cystic."""

    lesions: tuple[Lesion, ...]
    cystic: bool

    @property
    def gtvp_ml(self) -> float:
        """Return the planned volume of the primary tumour, 0 if there is no primary tumour."""
        return sum(lesion.volume_ml for lesion in self.lesions if lesion.label == labels.GTVP)

    @property
    def nodes(self) -> tuple[Lesion, ...]:
        """Return the metastatic nodes."""
        return tuple(lesion for lesion in self.lesions if lesion.label == labels.GTVN)

    @property
    def gtvn_ml(self) -> float:
        """Return the planned volume of all metastatic nodes."""
        return sum(node.volume_ml for node in self.nodes)

    @property
    def cystic_share(self) -> float:
        """Return the fraction of the metastatic nodes' volume that lies in nodes with a core."""
        with_core = sum(node.volume_ml for node in self.nodes if node.core_share > 0)
        return with_core / self.gtvn_ml if self.nodes else 0.0


def draw_disease(rng: np.random.Generator, contrast: bool, frame: Frame) -> Disease:
    """Draw all lesions of a patient with little overlap; without a primary tumour there is at least one node.

    Gaps are measured in the patient's `frame`, and no node reaches into the lungs.
    """
    main_side = 1 if rng.random() < 0.5 else -1
    cystic = bool(rng.random() < 0.35)
    enhancement = float(rng.uniform(20, 35)) if contrast else 0.0
    lesions: list[Lesion] = []
    if rng.random() >= NO_GTVP_SHARE:
        volume_ml = _draw_lognormal(rng, GTVP_MEDIAN_ML, GTVP_LOG_SIGMA, *GTVP_RANGE_ML)
        lesions.append(draw_gtvp(rng, main_side, enhancement, volume_ml))
    count = int(rng.choice(len(NODE_COUNT_SHARES), p=NODE_COUNT_SHARES))
    if count and rng.random() < MATTED_SHARE:
        _place(lesions, [_draw_matted_node(rng, main_side, cystic, enhancement) for _ in range(30)], frame)
    for _ in range(max(count, 0 if lesions else 1)):
        nodes = [draw_node(rng, main_side, cystic, enhancement, _draw_node_mm(rng)) for _ in range(30)]
        _place(lesions, nodes, frame)
    for _ in range(int(rng.integers(1, 7))):
        _place(lesions, [_draw_reactive_node(rng) for _ in range(10)], frame)
    return Disease(tuple(lesions), cystic)


def compute_lesion_extent(disease: Disease, frame: Frame) -> tuple[float, float]:
    """Compute patient z of the lower and the upper end of all tumours and metastatic nodes."""
    places = [(frame.to_patient(lesion.place)[2], lesion.radius_mm) for lesion in disease.lesions if lesion.label]
    return min(z - radius for z, radius in places), max(z + radius for z, radius in places)


def _place(lesions: list[Lesion], candidates: list[Lesion], frame: Frame) -> None:
    """Append the first candidate that keeps the gap to all lesions; without such a candidate nothing is appended."""
    places = [(frame.to_patient(lesion.place), lesion.radius_mm) for lesion in lesions]
    for candidate in candidates:
        raised = _raise_above_lungs(candidate, frame)
        centre = frame.to_patient(raised.place)
        distances = [float(np.linalg.norm(np.subtract(centre, place))) - raised.radius_mm for place, _ in places]
        gaps = [distance - radius for distance, (_, radius) in zip(distances, places, strict=True)]
        if all(gap > GAP_MM for gap in gaps):
            lesions.append(raised)
            return


def _raise_above_lungs(lesion: Lesion, frame: Frame) -> Lesion:
    """Raise a lesion that would reach below the lungs' apices."""
    x, y, z = lesion.place
    reach = MAX_REACH_RADII * max(1.0, lesion.aspect[2]) * lesion.radius_mm
    lowest = float(frame.anatomical_height(frame.height_mm(LUNG_APEX) + reach))
    return replace(lesion, place=(x, y, max(z, lowest)))


def _pick(rng: np.random.Generator, table: dict[str, tuple[float, Point]]) -> tuple[str, Point]:
    names = list(table)
    name = names[int(rng.choice(len(names), p=[table[key][0] for key in names]))]
    return name, table[name][1]


def _draw_lognormal(rng: np.random.Generator, median: float, sigma: float, low: float, high: float) -> float:
    return float(np.clip(median * np.exp(sigma * rng.standard_normal()), low, high))


def draw_gtvp(rng: np.random.Generator, side: int, enhancement: float, volume: float) -> Lesion:
    """Draw a primary tumour of a volume in ml; `side` is 1 for the left and -1 for the right."""
    invades = rng.random() < INVADING_SHARE
    site, (x, y, z) = ("tonsil", GTVP_SITES["tonsil"][1]) if invades else _pick(rng, GTVP_SITES)
    radius = (volume * 750 / np.pi) ** (1 / 3)
    jitter = rng.normal(0, (2.0, 2.0, 4.0))
    aspect = np.exp(rng.normal(0, 0.14, 3))
    reach = radius * aspect[0] / np.prod(aspect) ** (1 / 3)
    # A large tumour grows towards the midline, not through the skin.
    x = MANDIBLE_MM - reach if invades else max(min(x + jitter[0], MAX_GTVP_END_MM - reach), MIN_GTVP_CENTRE_MM)
    faint = rng.random() < 0.10
    suv = float(rng.uniform(5.0, 7.0)) if faint else _draw_lognormal(rng, 15.5 * (volume / 8) ** 0.1, 0.38, 7, 40)
    return Lesion(
        label=labels.GTVP,
        site=site,
        place=to_point((side * x, y + jitter[1] - 0.1 * radius, z + jitter[2])),
        volume_ml=volume,
        aspect=to_point(aspect),
        bumpiness=float(rng.uniform(0.08, 0.16)),
        suv=suv,
        hu=float(rng.uniform(80, 95)) + enhancement,
        core_share=float(rng.uniform(0.35, 0.6)) if volume > 6 and rng.random() < 0.25 else 0.0,
        shape_seed=int(rng.integers(2**31)),
        invades_bone=invades,
    )


def _draw_node_mm(rng: np.random.Generator) -> float:
    """Draw the diameter of a ball with a node's volume."""
    return _draw_lognormal(rng, NODE_MEDIAN_MM, NODE_LOG_SIGMA, *NODE_RANGE_MM)


def draw_node(rng: np.random.Generator, main_side: int, cystic: bool, enhancement: float, diameter: float) -> Lesion:
    """Draw a metastatic node with the volume of a ball of this diameter, usually on the primary tumour's side."""
    site, (x, y, z) = _pick(rng, NODE_LEVELS)
    side = main_side if rng.random() < 0.8 else -main_side
    x = min(x + float(rng.normal(0, 2.5)), 52 - diameter / 2)
    place = (side * x, y + float(rng.normal(0, 4)), z + float(rng.normal(0, 9)))
    core_chance = (0.75 if cystic else 0.08) if diameter > 12 else 0.0
    core = float(rng.uniform(0.55, 0.78)) if rng.random() < core_chance else 0.0
    suv = float(rng.uniform(4.5, 6.0)) if rng.random() < 0.12 else _draw_lognormal(rng, 10.5, 0.4, 6, 32)
    aspect = np.exp(rng.normal(0, 0.10, 3)) * (0.95, 0.95, 1.1)
    return Lesion(
        labels.GTVN,
        site,
        place,
        float(np.pi / 6 * diameter**3 / 1000),
        to_point(aspect),
        float(rng.uniform(0.03, 0.09)),
        suv,
        float(rng.uniform(72, 88)) + enhancement,
        core,
        int(rng.integers(2**31)),
    )


def _draw_matted_node(rng: np.random.Generator, side: int, cystic: bool, enhancement: float) -> Lesion:
    node = draw_node(rng, side, cystic, enhancement, float(rng.uniform(*MATTED_RANGE_MM)))
    x, y, z = NODE_LEVELS["III"][1]
    place = side * (x + float(rng.normal(0, 2))), y + float(rng.normal(5, 4)), z + float(rng.normal(0, 9))
    return replace(node, site="III", aspect=to_point(MATTED_ASPECT * np.exp(rng.normal(0, 0.04, 3))), place=place)


def _draw_reactive_node(rng: np.random.Generator) -> Lesion:
    diameter = float(rng.uniform(4, 9))
    site, (x, y, z) = _pick(rng, NODE_LEVELS)
    side = 1 if rng.random() < 0.5 else -1
    place = (side * (x + float(rng.normal(2, 3))), y + float(rng.normal(4, 5)), z + float(rng.normal(0, 12)))
    return Lesion(
        labels.BACKGROUND,
        site,
        place,
        float(np.pi / 6 * diameter**3 / 1000),
        (0.8, 0.75, 1.7),
        0.03,
        float(rng.uniform(1.5, 3.8)),
        float(rng.uniform(42, 56)),
        0.0,
        int(rng.integers(2**31)),
    )


class Surface:
    """A lesion's uneven surface in patient millimetres, scaled to the planned volume."""

    def __init__(self, lesion: Lesion, centre_mm: Point) -> None:
        rng = np.random.default_rng(lesion.shape_seed)
        self.centre_mm = centre_mm
        self.aspect = np.asarray(lesion.aspect) / np.prod(lesion.aspect) ** (1 / 3)
        self._waves = rng.normal(0, 1.6, (6, 3)).astype(np.float32)
        self._phases = rng.uniform(0, 2 * np.pi, 6).astype(np.float32)
        heights = lesion.bumpiness * rng.normal(0, 1, 6)
        heights *= min(1.0, MAX_HEIGHT / float(np.abs(heights).sum()))
        self._heights = heights.astype(np.float32)
        self._texture = rng.normal(0, 2.5, (4, 3)).astype(np.float32)
        line = np.linspace(-2.2, 2.2, 45, dtype=np.float32)
        unit = self._unit_level(line[None, None, :], line[None, :, None], line[:, None, None])
        volume = float((unit < 1).sum()) * float(line[1] - line[0]) ** 3
        self.radius_mm = lesion.radius_mm * float((4 * np.pi / 3 / max(volume, 0.1)) ** (1 / 3))

    def _unit_level(self, x: Floats, y: Floats, z: Floats) -> Floats:
        height = sum(
            amplitude * np.sin(x * wave[0] + y * wave[1] + z * wave[2] + phase)
            for amplitude, wave, phase in zip(self._heights, self._waves, self._phases, strict=True)
        )
        return np.asarray(np.sqrt(x**2 + y**2 + z**2) * np.exp(-height), dtype=np.float32)

    def _unit_coordinates(self, x: Floats, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
        scaled = [
            ((values - np.float32(centre)) / np.float32(self.radius_mm * aspect)).astype(np.float32)
            for values, centre, aspect in zip((x, y, z), self.centre_mm, self.aspect, strict=True)
        ]
        return scaled[0], scaled[1], scaled[2]

    def level(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """Compute the level: 0 at the centre, 1 on the surface, above 1 outside; coordinates broadcast to (z, y, x)."""
        return self._unit_level(*self._unit_coordinates(x, y, z))

    def texture(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """Compute the uneven uptake as a factor around 0.9, from about 0.6 to 1.1."""
        u, v, w = self._unit_coordinates(x, y, z)
        waves = sum(np.sin(u * wave[0] + v * wave[1] + w * wave[2]) for wave in self._texture)
        return np.asarray(0.9 + 0.08 * waves, dtype=np.float32)

    def points_mm(self) -> Floats:
        """Compute points (n, 3) on the surface: x, y, z relative to the centre, in mm."""
        radii = np.linspace(0.2, 2.2, 201, dtype=np.float32)
        x, y, z = (axis[:, None] * radii for axis in _directions().T)
        inside = self._unit_level(x, y, z) < 1
        half_step = (radii[1] - radii[0]) / 2
        outermost = radii[len(radii) - 1 - np.argmax(inside[:, ::-1], axis=1)] + half_step
        return np.asarray(_directions() * outermost[:, None] * (self.radius_mm * self.aspect), dtype=np.float32)

    def corners(self) -> tuple[Point, Point]:
        """Compute the lowest and the highest corner (x, y, z) of a box around the lesion, in patient mm."""
        reach = self.radius_mm * self.aspect * float(np.exp(MAX_HEIGHT)) + 2
        return to_point(self.centre_mm - reach), to_point(self.centre_mm + reach)


@cache
def _directions() -> Floats:
    """Compute unit vectors (n, 3): the six axes and a spiral around the sphere."""
    heights = np.linspace(-1, 1, 400)
    angles = np.arange(400) * np.pi * (3 - np.sqrt(5))
    rings = np.sqrt(1 - heights**2)
    spiral = np.stack([rings * np.cos(angles), rings * np.sin(angles), heights], axis=1)
    return np.concatenate([np.eye(3), -np.eye(3), spiral]).astype(np.float32)


@lru_cache(maxsize=4096)
def largest_diameter_mm(lesion: Lesion) -> float:
    """Compute the largest distance between two points of the lesion's surface."""
    points = Surface(lesion, (0.0, 0.0, 0.0)).points_mm()
    return float(np.linalg.norm(points[:, None] - points[None], axis=2).max())


def t_stage(disease: Disease) -> str | None:
    """Return T1 up to 2 cm, T2 up to 4 cm, T3 above, T4 with invasion of bone; None without a primary tumour."""
    primary = [lesion for lesion in disease.lesions if lesion.label == labels.GTVP]
    if not primary:
        return None
    if any(lesion.invades_bone for lesion in primary):
        return "T4"
    size_mm = max(largest_diameter_mm(lesion) for lesion in primary)
    return next((stage for limit_mm, stage in T_LIMITS_MM if size_mm <= limit_mm), "T3")


def n_stage(disease: Disease) -> str:
    """Return N0 without nodes, N1 for one ipsilateral node up to 3 cm, N3 with a node above 6 cm, otherwise N2.

    Ipsilateral means on the side of the primary tumour. Without a primary tumour, a single node is ipsilateral.
    """
    if not disease.nodes:
        return "N0"
    size_mm = max(largest_diameter_mm(node) for node in disease.nodes)
    if size_mm > N2_LIMIT_MM:
        return "N3"
    sides = {lesion.place[0] > 0 for lesion in disease.lesions if lesion.label != labels.BACKGROUND}
    return "N1" if len(disease.nodes) == 1 and len(sides) == 1 and size_mm <= N1_LIMIT_MM else "N2"
