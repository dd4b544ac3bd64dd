"""T and N by the rule of the 7th edition, from the kept lesions of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from algorithm.heads.features.nodes import NODE_MM
from algorithm.heads.features.places import MIDLINE_MM
from algorithm.heads.staging import INVASION_SHARE, N_LIMITS_MM, T_LIMITS_MM
from baseline.decisions.tables import Floats, Integers, LesionTable
from contract import labels

_Flags = npt.NDArray[np.bool_]
_Sums = Callable[[_Flags, Floats], Floats]


@dataclass(frozen=True)
class Staging:
    """Values of each lesion that the rules of `algorithm.heads.staging` use.

    The primary's bone contact and side are those of its largest lesion. The diameter of a primary of several lesions is
    the largest distance of two centres plus both radii. `pairs` are two lesions of a patient, with this length.
    """

    column: Mapping[str, Floats]
    patient: Integers
    patients: int
    pairs: Integers
    pairs_mm: Floats

    def stages(self, primary: _Flags, nodes: _Flags, sums: _Sums) -> tuple[Floats, Floats]:
        """Numbers in T and N for each row of (settings, lesions); NaN for T without a primary, or without diameters."""
        if np.isnan(self.column["diameter_mm"]).all():
            unknown = np.full((len(primary), self.patients), np.nan)
            return unknown, unknown
        return self._t_stage(primary), self._n_stage(primary, nodes, sums)

    def _largest(self, kept: _Flags, values: Floats) -> Floats:
        """The largest value of the kept lesions of each patient, -inf without any, (settings, patients)."""
        result = np.full((len(kept), self.patients), -np.inf)
        if self.patient.size:
            starts = np.flatnonzero(np.diff(self.patient, prepend=-1))
            known = np.where(kept, values, -np.inf)
            result[:, self.patient[starts]] = np.maximum.reduceat(known, starts, axis=1)
        return result

    def _of_largest(self, kept: _Flags, values: Floats) -> Floats:
        """A value of the largest kept lesion of each patient, NaN without any."""
        volume = self.column["volume_ml"]
        largest = kept & (volume == self._largest(kept, volume)[:, self.patient])
        found = self._largest(largest, np.where(np.isnan(values), -np.inf, values))
        return np.where(np.isfinite(found), found, np.nan)

    def _t_stage(self, primary: _Flags) -> Floats:
        diameter = self._largest(primary, self.column["diameter_mm"])
        for (one, other), length in zip(self.pairs, self.pairs_mm, strict=True):
            both, patient = primary[:, one] & primary[:, other], self.patient[one]
            diameter[both, patient] = np.maximum(diameter[both, patient], length)
        stage = 1.0 + sum((diameter > limit).astype(np.float64) for limit in T_LIMITS_MM)
        contact = self._of_largest(primary, self.column["bone_contact"])
        stage = np.where(contact >= INVASION_SHARE, 4.0, stage)
        return np.where(np.isfinite(diameter), stage, np.nan)

    def _n_stage(self, primary: _Flags, nodes: _Flags, sums: _Sums) -> Floats:
        diameters, offsets = self.column["diameter_mm"], self.column["offset_mm"]
        ones = np.ones(len(self.patient))
        count, sized = sums(nodes, ones), nodes & (diameters >= NODE_MM)
        large = sums(sized, ones)
        largest = self._largest(nodes, diameters)
        counted = np.where((large > 0)[:, self.patient], sized, nodes)
        left, right = (sums(counted & side, ones) > 0 for side in (offsets > MIDLINE_MM, offsets < -MIDLINE_MM))
        primary_mm = self._of_largest(primary, offsets)
        across = np.where(primary_mm > MIDLINE_MM, right, np.where(primary_mm < -MIDLINE_MM, left, left & right))
        several = np.where(large > 0, large, count) > 1
        second = several | (largest > N_LIMITS_MM[0]) | across
        stage = np.where(largest > N_LIMITS_MM[1], 3.0, np.where(second, 2.0, 1.0))
        return np.where(count == 0, 0.0, stage)


def staging_of(
    tables: Sequence[LesionTable], column: Mapping[str, Floats], patient: Integers, patients: int
) -> Staging:
    """The staging of all patients, whose lesions stand in `column` one patient after the other."""
    pairs: list[tuple[int, int]] = []
    lengths: list[float] = []
    first = 0
    for table in tables:
        size = len(table.values)
        primary = np.flatnonzero(column["label"][first : first + size] == labels.GTVP)
        for place, one in enumerate(primary):
            for other in primary[place + 1 :]:
                apart = float(np.linalg.norm(table.centres_mm[one] - table.centres_mm[other]))
                radii = (column["diameter_mm"][first + one] + column["diameter_mm"][first + other]) / 2
                pairs.append((first + int(one), first + int(other)))
                lengths.append(apart + float(radii))
        first += size
    as_pairs = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return Staging(column, patient, patients, as_pairs, np.array(lengths, dtype=np.float64))
