"""True nodes of any choice of lesions: the one-to-one matching of the evaluation, solved once for each choice."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from baseline.decisions.tables import COLUMNS, Floats, Integers, LesionTable
from evaluation.metrics.lesions import match_one_to_one
from evaluation.metrics.rules import MaskRules

_VOXELS = COLUMNS.index("voxels")


@dataclass
class MatchGroup:
    """Lesions and reference nodes of one patient that may match each other and no others.

    Attributes:
        patient: number of the patient.
        lesions: numbers of the lesions in the cohort's arrays.
        pairs: (pair, 2): reference node and place in `lesions` of each pair with a sufficient IoU.
        iou: of each pair.
    """

    patient: int
    lesions: Integers
    pairs: Integers
    iou: Floats
    _known: dict[bytes, int] = field(default_factory=dict)

    def true(self, kept: npt.NDArray[np.bool_]) -> Integers:
        """Number of true nodes for each row of (settings, lesions of the cohort)."""
        chosen = kept[:, self.lesions]
        if len(self.lesions) == 1:
            return chosen[:, 0].astype(np.intp)
        choices, which = np.unique(chosen, axis=0, return_inverse=True)
        return np.array([self._matched(choice) for choice in choices], dtype=np.intp)[which.ravel()]

    def _matched(self, choice: npt.NDArray[np.bool_]) -> int:
        key = choice.tobytes()
        if key not in self._known:
            left = choice[self.pairs[:, 1]]
            self._known[key] = len(match_one_to_one(self.pairs[left, 0], self.pairs[left, 1], self.iou[left]))
        return self._known[key]


def match_groups(
    table: LesionTable, node_voxels: Integers, rules: MaskRules, first: int, patient: int
) -> list[MatchGroup]:
    """The groups of one patient, whose lesions stand from `first` in the cohort's arrays."""
    lesion, node, common = table.overlaps.T
    iou = common / (node_voxels[node] + table.values[lesion, _VOXELS] - common)
    passes = iou > rules.iou_threshold if rules.iou_strict else iou >= rules.iou_threshold
    lesion, node, iou = lesion[passes], node[passes], iou[passes]
    if not iou.size:
        return []
    size = len(table.values) + node_voxels.size
    graph = coo_array((np.ones(iou.size), (lesion, node + len(table.values))), shape=(size, size))
    group = connected_components(graph, directed=False)[1][lesion]
    result = []
    for number in np.unique(group):
        members = group == number
        own, place = np.unique(lesion[members], return_inverse=True)
        result.append(MatchGroup(patient, own + first, np.stack([node[members], place], axis=1), iou[members]))
    return result
