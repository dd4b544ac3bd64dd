"""All patients' tables as arrays, and the counts of many settings of the rules at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from algorithm.decisions.apply import LOWEST
from algorithm.decisions.rules import Decisions
from baseline.decisions.matching import MatchGroup, match_groups
from baseline.decisions.stages import Staging, staging_of
from baseline.decisions.tables import COLUMNS, Floats, Integers, PatientTables, Thresholds
from contract import labels
from evaluation.metrics.rules import MaskRules

Flags = npt.NDArray[np.bool_]
# Settings that are counted at once.
_AT_ONCE: Final = 64


@dataclass(frozen=True)
class Counts:
    """Counts of settings, each (settings, patients): voxels of either label common with the reference and predicted,
    predicted and true nodes, and the numbers in the stages by rule, NaN without one.
    """

    gtvp_common: Floats
    gtvp_predicted: Floats
    gtvn_common: Floats
    gtvn_predicted: Floats
    nodes: Floats
    true_nodes: Floats
    t_stage: Floats
    n_stage: Floats

    def rows(self, chosen: Integers | slice) -> Counts:
        """The counts of some settings."""
        return Counts(*(getattr(self, field.name)[chosen] for field in fields(self)))


class _Arrays:
    """The lesions of all patients at one pair of thresholds."""

    def __init__(self, patients: Sequence[PatientTables], thresholds: Thresholds, rules: MaskRules) -> None:
        tables = [patient.tables[thresholds] for patient in patients]
        sizes = [len(table.values) for table in tables]
        self.patient = np.repeat(np.arange(len(patients)), sizes)
        values = np.concatenate([table.values for table in tables])
        self.column = {name: values[:, number] for number, name in enumerate(COLUMNS)}
        self.primary, self.node = (self.column["label"] == label for label in labels.FOREGROUND)
        # Lower rank: larger; of equal volumes the first, as in inference.
        self.rank = np.argsort(np.argsort(-self.column["volume_ml"], kind="stable"), kind="stable").astype(np.float64)
        self.groups: list[MatchGroup] = []
        first = 0
        for patient, (table, one) in enumerate(zip(tables, patients, strict=True)):
            self.groups += match_groups(table, one.node_voxels, rules, first, patient)
            first += len(table.values)
        self.staging: Staging = staging_of(tables, self.column, self.patient, len(patients))
        everyone = np.arange(len(self.patient)), self.patient
        self.by_patient = coo_array((np.ones(len(self.patient)), everyone), shape=(len(self.patient), len(patients)))

    def sums(self, kept: Flags, column: Floats) -> Floats:
        """The sum of a column over the kept lesions of each patient, (settings, patients)."""
        return np.asarray((self.by_patient.T @ (kept * column).T).T)

    def kept(self, settings: Sequence[Decisions]) -> Flags:
        """True for each lesion of the mask that each setting keeps, (settings, lesions)."""
        share, merged = self.column["other_share"], self.column["merged"] > 0
        one_label = share < _values(settings, "one_label_share")
        kept = (share == 0) | (merged == one_label)
        for own, rules in ((self.primary, LOWEST[labels.GTVP]), (self.node, LOWEST[labels.GTVN])):
            for rule, name in rules.items():
                limits = _values(settings, rule)
                if limits.any():  # NaN, an unknown uptake, passes
                    kept &= ~(own & (self.column[name] < limits))
        distances = [setting.gtvn_distance_mm for setting in settings]
        farthest = np.array([np.inf if value is None else value for value in distances])[:, None]
        kept &= ~(self.node & (self.column["distance_mm"] > farthest))
        across = self.node & (self.column["contralateral"] > 0)
        kept &= ~(across & (self.column["mean_probability"] < _values(settings, "gtvn_contralateral_probability")))
        return self._largest_only(kept, [setting.largest_gtvp_only for setting in settings])

    def _largest_only(self, kept: Flags, wanted: Sequence[bool]) -> Flags:
        rows = np.flatnonzero(wanted)
        if rows.size == 0 or self.patient.size == 0:
            return kept
        ranks = np.where(kept[rows] & self.primary, self.rank, np.inf)
        starts = np.flatnonzero(np.diff(self.patient, prepend=-1))
        first = np.minimum.reduceat(ranks, starts, axis=1)
        number = np.cumsum(np.diff(self.patient, prepend=-1) > 0) - 1
        kept[rows] &= ~self.primary | (ranks == first[:, number])
        return kept


class Cohort:
    """Patients with a reference, and the counts of any setting over them."""

    def __init__(self, patients: Sequence[PatientTables], rules: MaskRules) -> None:
        self.patients = tuple(patients)
        self._rules = rules
        self._arrays: dict[Thresholds, _Arrays] = {}
        self.centres = np.array([patient.centre for patient in patients])
        self.gtvp_voxels, self.gtvn_voxels = (
            np.array([getattr(patient, f"{name}_voxels") for patient in patients], dtype=np.float64)
            for name in ("gtvp", "gtvn")
        )
        self.nodes = np.array([patient.node_voxels.size for patient in patients], dtype=np.float64)
        self.voxel_mm3 = np.array([patient.voxel_mm3 for patient in patients])

    def counts(self, settings: Sequence[Decisions]) -> Counts:
        """Counts of settings that share their thresholds, in order."""
        arrays = self._of(settings[0].thresholds)
        parts = [_counts(arrays, settings[at : at + _AT_ONCE]) for at in range(0, len(settings), _AT_ONCE)]
        return Counts(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Counts)))

    def _of(self, thresholds: Thresholds) -> _Arrays:
        if thresholds not in self._arrays:
            self._arrays[thresholds] = _Arrays(self.patients, thresholds, self._rules)
        return self._arrays[thresholds]


def _values(settings: Sequence[Decisions], rule: str) -> Floats:
    return np.array([getattr(setting, rule) for setting in settings], dtype=np.float64)[:, None]


def _counts(arrays: _Arrays, settings: Sequence[Decisions]) -> Counts:
    kept, column = arrays.kept(settings), arrays.column
    primary, nodes = kept & arrays.primary, kept & arrays.node
    true = np.zeros((len(settings), arrays.by_patient.shape[1]))
    for group in arrays.groups:
        true[:, group.patient] += group.true(nodes)
    t_stage, n_stage = arrays.staging.stages(primary, nodes, arrays.sums)
    return Counts(
        arrays.sums(primary, column["in_gtvp"]),
        arrays.sums(primary, column["voxels"]),
        arrays.sums(nodes, column["in_gtvn"]),
        arrays.sums(nodes, column["voxels"]),
        arrays.sums(nodes, np.ones(len(arrays.patient))),
        true,
        t_stage,
        n_stage,
    )
