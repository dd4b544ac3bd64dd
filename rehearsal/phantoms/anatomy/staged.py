"""Tumour and nodal stages of the oropharynx, and patients whose lesions are drawn to have a drawn stage.

Stages follow from the planned lesions by the AJCC/UICC manual, 7th edition, in which HPV status does not change them.
Where a node finds no room, the patient has another stage than the one drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from contract import labels
from rehearsal.phantoms.anatomy.body import Body
from rehearsal.phantoms.anatomy.bones import Bones, bones_of
from rehearsal.phantoms.anatomy.canvas import Frame
from rehearsal.phantoms.anatomy.heights import LUNG_APEX
from rehearsal.phantoms.anatomy.lesions import (
    GAP_MM,
    Disease,
    Lesion,
    above_lungs,
    add_reactive_nodes,
    random_gtvp,
    random_node,
    random_node_mm,
)
from rehearsal.phantoms.anatomy.shapes import Floats, Point, point
from rehearsal.phantoms.anatomy.surfaces import Surface, largest_diameter_mm, scaled

T_SHARES: Final = {"T0": 0.04, "T1": 0.20, "T2": 0.34, "T3": 0.22, "T4": 0.20}
N_SHARES: Final = {"N0": 0.21, "N1": 0.17, "N2": 0.53, "N3": 0.09}
# Largest diameters in mm, drawn uniformly. They stay a voxel away from the limits of the stages.
PRIMARY_MM: Final = {"T1": (15.0, 18.8), "T2": (21.2, 38.5), "T3": (41.5, 54.0), "T4": (26.0, 56.0)}
N1_MM: Final = (12.0, 28.5)
LARGE_N2_MM: Final = (32.0, 55.0)
N3_MM: Final = (63.0, 74.0)
SMALLEST_NODE_MM, LARGEST_FURTHER_NODE_MM = 10.0, 45.0
# Half axes of a node above 6 cm: matted nodes reach down along the vessels.
N3_ASPECT: Final = (0.78, 0.86, 1.45)
# The middle of the throat, where a large tumour touches no bone; x of the left side.
THROAT: Final[Point] = (8.0, -12.0, -3.0)
# Bone that a T4 tumour invades: frequency, where the tumour starts and which way it grows, x of the left side.
INVASIONS: Final[dict[str, tuple[float, str, Point, Point]]] = {
    "mandible": (0.65, "tonsil", (17.0, -12.0, 0.0), (1.0, -0.25, -0.1)),
    "hard palate": (0.15, "soft palate", (9.0, -18.0, 14.0), (0.1, -0.35, 1.0)),
    "vertebra": (0.20, "posterior wall", (8.0, 2.0, -2.0), (0.0, 1.0, 0.0)),
}
# Share of a T4 tumour that lies in bone.
INVADED_SHARE: Final = (0.03, 0.10)
FURTHEST_MM: Final = 45
# Smallest distance of a primary tumour's centre from the midline, so that it has a side.
OFF_MIDLINE_MM: Final = 6.0
_DRAWS: Final = 40
_PULLS: Final = 10
# Largest diameter in mm of T1 and T2.
T_LIMITS_MM: Final = ((20.0, "T1"), (40.0, "T2"))
N1_LIMIT_MM: Final = 30.0
N2_LIMIT_MM: Final = 60.0


@dataclass(frozen=True)
class _Patient:
    """What lesions are fitted into."""

    frame: Frame
    bones: Bones
    side: int
    cystic: bool
    enhancement: float


def random_staged_disease(rng: np.random.Generator, contrast: bool, frame: Frame, body: Body) -> Disease:
    """Draw a patient's stages and lesions; without a primary tumour there is at least one node."""
    patient = _Patient(
        frame=frame,
        bones=bones_of(body, frame, rng),
        side=1 if rng.random() < 0.5 else -1,
        cystic=bool(rng.random() < 0.35),
        enhancement=float(rng.uniform(20, 35)) if contrast else 0.0,
    )
    t_stage, n_stage = _draw(rng, T_SHARES), _draw(rng, N_SHARES)
    if t_stage == "T0" and n_stage == "N0":
        n_stage = "N2"
    lesions = [] if t_stage == "T0" else [_primary(rng, patient, t_stage)]
    for diameter_mm, side in _nodes(rng, n_stage):
        _add_node(rng, patient, lesions, diameter_mm, side * patient.side)
    add_reactive_nodes(rng, lesions, frame)
    return Disease(tuple(lesions), patient.cystic)


def staged_extent(disease: Disease, frame: Frame) -> tuple[float, float]:
    """Patient z below and above which no tumour and no metastatic node reaches."""
    places = [(frame.to_patient(one.place)[2], largest_diameter_mm(one) / 2) for one in disease.lesions if one.label]
    return min(z - reach for z, reach in places), max(z + reach for z, reach in places)


def _draw(rng: np.random.Generator, shares: dict[str, float]) -> str:
    return str(rng.choice(list(shares), p=list(shares.values())))


def _primary(rng: np.random.Generator, patient: _Patient, stage: str) -> Lesion:
    """A primary tumour of this stage; one that cannot avoid bone altogether touches as little as possible."""
    best: tuple[float, Lesion] | None = None
    for _ in range(_DRAWS):
        size_mm = float(rng.uniform(*PRIMARY_MM[stage]))
        lesion = scaled(random_gtvp(rng, patient.side, patient.enhancement, _ball_ml(0.85 * size_mm)), size_mm)
        if stage == "T4":
            grown = _grown_into_bone(rng, patient, lesion)
            if grown is not None:
                return grown
            continue
        touched, lesion = _away_from_bone(patient, lesion)
        if touched == 0:
            return lesion
        if best is None or touched < best[0]:
            best = touched, lesion
    if best is None:
        raise RuntimeError("no tumour could be grown into bone")
    return best[1]


def _away_from_bone(patient: _Patient, lesion: Lesion) -> tuple[float, Lesion]:
    """The lesion moved to the middle of the throat as far as needed, and the share of it in or next to bone."""
    points = _filled(lesion)
    x, y, z = lesion.place
    start = patient.side * max(patient.side * x, OFF_MIDLINE_MM), y, z
    middle = np.multiply(THROAT, (patient.side, 1, 1))
    for pull in np.linspace(0, 1, _PULLS):
        place = point((1 - pull) * np.asarray(start) + pull * middle)
        touched = patient.bones.share(points + _centre(patient, place), with_margin=True)
        if touched == 0:
            break
    return touched, replace(lesion, place=place)


def _grown_into_bone(rng: np.random.Generator, patient: _Patient, lesion: Lesion) -> Lesion | None:
    """The lesion moved from the mucosa towards a bone until the drawn share of it lies in bone; None if none does."""
    bone = _draw(rng, {name: share for name, (share, *_) in INVASIONS.items()})
    _, site, start, direction = INVASIONS[bone]
    mirror = (patient.side, 1, 1)
    step = np.multiply(direction, mirror) / np.linalg.norm(direction)
    points, wanted = _filled(lesion), float(rng.uniform(*INVADED_SHARE))
    for distance in range(FURTHEST_MM):
        place = point(np.multiply(start, mirror) + distance * step)
        share = patient.bones.share(points + _centre(patient, place))
        if share >= wanted:
            invades = share <= 2 * INVADED_SHARE[1]
            return replace(lesion, place=place, site=site, invades_bone=True) if invades else None
    return None


def _nodes(rng: np.random.Generator, stage: str) -> list[tuple[float, int]]:
    """Largest diameter in mm and side of each node; side 1 is the primary's, -1 the other."""
    if stage == "N0":
        return []
    if stage == "N1":
        return [(float(rng.uniform(*N1_MM)), 1)]
    if stage == "N3":
        further = [(_further_mm(rng), _side(rng)) for _ in range(int(rng.integers(0, 3)))]
        return [(float(rng.uniform(*N3_MM)), 1), *further]
    kind = rng.random()
    if kind < 0.20:
        return [(float(rng.uniform(*LARGE_N2_MM)), 1)]
    if kind < 0.28:
        return [(_further_mm(rng), -1)]
    count = int(rng.choice((2, 3, 4, 5), p=(0.45, 0.30, 0.15, 0.10)))
    sides = [1] * count if kind < 0.62 else [1, -1, *(_side(rng) for _ in range(count - 2))]
    return [(_further_mm(rng), side) for side in sides]


def _further_mm(rng: np.random.Generator) -> float:
    return float(np.clip(random_node_mm(rng), SMALLEST_NODE_MM, LARGEST_FURTHER_NODE_MM))


def _side(rng: np.random.Generator) -> int:
    return 1 if rng.random() < 0.7 else -1


def _add_node(
    rng: np.random.Generator, patient: _Patient, lesions: list[Lesion], diameter_mm: float, side: int
) -> None:
    """Append a node of this size where it keeps its distance from the other lesions and from bone, or none."""
    for attempt in range(_DRAWS):
        node = _random_node(rng, patient, diameter_mm, side)
        # Small nodes lie beside bone, as elsewhere; a large one that bone cuts would lose its size.
        limit = 0.02 + 0.10 * attempt / _DRAWS
        if all(_gap_mm(patient.frame, node, other) > GAP_MM for other in lesions) and (
            patient.bones.share(_filled(node) + _centre(patient, node.place)) <= limit
        ):
            lesions.append(node)
            return


def _random_node(rng: np.random.Generator, patient: _Patient, diameter_mm: float, side: int) -> Lesion:
    node = random_node(rng, side, patient.cystic, patient.enhancement, 0.9 * diameter_mm)
    x, y, z = node.place
    if diameter_mm >= N3_MM[0]:
        node = replace(node, site="III", aspect=point(np.multiply(N3_ASPECT, np.exp(rng.normal(0, 0.04, 3)))))
        x, y, z = 34.0 + float(rng.normal(0, 2)), 14.0 + float(rng.normal(0, 4)), float(rng.uniform(-75, -25))
    node = scaled(replace(node, place=(side * abs(x), y, z)), diameter_mm)
    return _clear_of_lungs(patient.frame, node)


def _clear_of_lungs(frame: Frame, node: Lesion) -> Lesion:
    """The node, raised if its lower half would reach below the lungs' apices."""
    node = above_lungs(node, frame)
    lowest = float(frame.anatomical_height(frame.height_mm(LUNG_APEX) + largest_diameter_mm(node) / 2))
    x, y, z = node.place
    return replace(node, place=(x, y, max(z, lowest)))


def _gap_mm(frame: Frame, one: Lesion, other: Lesion) -> float:
    """Distance between two lesions along the line of their centres."""
    line = np.subtract(frame.to_patient(other.place), frame.to_patient(one.place)).astype(np.float32)
    distance = float(np.linalg.norm(line))
    return distance - _reach_mm(one, line / distance) - _reach_mm(other, line / distance)


def _reach_mm(lesion: Lesion, direction: Floats) -> float:
    """Distance of the lesion's surface from its centre, that of its ellipsoid with its largest diameter."""
    aspect = np.asarray(lesion.aspect) / max(lesion.aspect)
    return largest_diameter_mm(lesion) / 2 / float(np.linalg.norm(direction / aspect))


def _filled(lesion: Lesion) -> Floats:
    """Points (n, 3) spread over the lesion's volume, relative to its centre in mm."""
    points = Surface(lesion, (0.0, 0.0, 0.0)).points_mm()
    # Shells of equal volume, so that a share of the points is a share of the volume.
    shells = np.cbrt((np.arange(8) + 0.9) / 8)
    return np.asarray((points[None] * shells[:, None, None]).reshape(-1, 3), dtype=np.float32)


def _centre(patient: _Patient, place: Point) -> Floats:
    return np.asarray(patient.frame.to_patient(place), dtype=np.float32)


def _ball_ml(diameter_mm: float) -> float:
    return float(np.pi / 6 * diameter_mm**3 / 1000)


def t_stage(disease: Disease) -> str | None:
    """T1 up to 2 cm, T2 up to 4 cm, T3 above, T4 with invasion of bone; None without a primary tumour."""
    primary = [lesion for lesion in disease.lesions if lesion.label == labels.GTVP]
    if not primary:
        return None
    if any(lesion.invades_bone for lesion in primary):
        return "T4"
    size_mm = max(largest_diameter_mm(lesion) for lesion in primary)
    return next((stage for limit_mm, stage in T_LIMITS_MM if size_mm <= limit_mm), "T3")


def n_stage(disease: Disease) -> str:
    """N0 without nodes, N1 for one ipsilateral node up to 3 cm, N3 with a node above 6 cm, otherwise N2.

    Ipsilateral means on the side of the primary tumour. Without one, a single node counts as ipsilateral.
    """
    if not disease.nodes:
        return "N0"
    size_mm = max(largest_diameter_mm(node) for node in disease.nodes)
    if size_mm > N2_LIMIT_MM:
        return "N3"
    sides = {lesion.place[0] > 0 for lesion in disease.lesions if lesion.label != labels.BACKGROUND}
    return "N1" if len(disease.nodes) == 1 and len(sides) == 1 and size_mm <= N1_LIMIT_MM else "N2"
