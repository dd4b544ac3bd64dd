"""T and N by the rule of the 7th edition, from the measures of the kept lesions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithm.heads.features.location import NODE_MM, bilateral, contralateral, neighbours, offset_mm
from algorithm.heads.features.shape import diameter_mm, mesh
from algorithm.heads.features.structure import structure_of
from algorithm.heads.staging import staged
from algorithm.masks.postprocessing import LesionMeasures
from contract import labels
from contract.images.volumes import Volume

RULES = ("t_stage_7th", "n_stage_7th")
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LesionStaging:
    """Values of each lesion that the rules use: volume, diameter, offset from the midline, bone contact, centre."""

    volume_ml: npt.NDArray[np.float64]
    diameter_mm: npt.NDArray[np.float64]
    offset_mm: list[float | None]
    bone_contact: list[float | None]
    centre_mm: npt.NDArray[np.float64]

    def stages(self, primary: _Flags, nodes: _Flags) -> tuple[float, ...]:
        """Numbers in T and N for the kept lesions; NaN for T without a primary.

        The primary's bone contact and side are those of its largest lesion.
        """
        of_primary, of_nodes = np.flatnonzero(primary), np.flatnonzero(nodes)
        largest = max(of_primary, key=lambda row: float(self.volume_ml[row]), default=None)
        sized = [row for row in of_nodes if self.diameter_mm[row] >= NODE_MM]
        offsets = [self.offset_mm[row] for row in (sized or of_nodes)]
        features: dict[str, Any] = {
            "gtvp_diameter_mm": None if largest is None else self._extent_mm(of_primary),
            "gtvp_bone_contact": None if largest is None else self.bone_contact[largest],
            "gtvn_count": float(len(of_nodes)),
            "gtvn_count_5mm": float(len(sized)),
            "gtvn_largest_diameter_mm": float(self.diameter_mm[of_nodes].max(initial=0.0)),
            "gtvn_bilateral": bilateral(offsets),
            "gtvn_contralateral": contralateral(None if largest is None else self.offset_mm[largest], offsets),
        }
        stages = (staged(rule, features) for rule in RULES)
        return tuple(np.nan if stage is None else float(stage[1:]) for stage in stages)

    def _extent_mm(self, rows: npt.NDArray[np.intp]) -> float:
        """The largest diameter; of several lesions that of two centres plus both radii."""
        diameters, centres = self.diameter_mm[rows], self.centre_mm[rows]
        apart = np.linalg.norm(centres[:, None] - centres, axis=2) + (diameters[:, None] + diameters) / 2
        return float(apart.max())


def measure_staging(measures: LesionMeasures, ct: Volume) -> LesionStaging:
    """Measure each lesion on the network's grid."""
    structures = [structure_of(measures.numbers == row + 1, ct.geometry) for row in range(len(measures.label))]
    known = [one for one in structures if one is not None]
    primary = measures.label == labels.GTVP
    contact = [
        neighbours(one, ct.array)["bone_contact"] if of_primary else None
        for one, of_primary in zip(known, primary, strict=True)
    ]
    return LesionStaging(
        measures.volume_ml,
        np.array([diameter_mm(mesh(one)[0]) for one in known], dtype=np.float64),
        [offset_mm(one, ct.array, ct.geometry) for one in known],
        contact,
        np.array([one.centre_mm for one in known], dtype=np.float64).reshape(-1, 3),
    )
