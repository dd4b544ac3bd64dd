"""Compare the masks that a page shows with the scored rows, so that no other patient's masks are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, PredictionError
from contract.images.volumes import Volume
from evaluation.metrics.masks import LABELS
from evaluation.results.documents import IN_BOX
from evaluation.results.task import TaskResults

NOT_COMPARED: Final = "the results hold no rows, so it cannot be checked whether these are the scored patients"


@dataclass(frozen=True)
class ScoredMasks:
    """A case's rows by team; `geometry` is the rule for other grids, a box (`in_box`) hides voxels from the rows."""

    rows: Mapping[str, Mapping[str, Any]]
    geometry: str
    in_box: bool

    def check_reference(self, mask: Volume, file: str) -> None:
        """Raise GroundTruthError if this is not the reference that was scored."""
        if found := self._difference(mask.array, next(iter(self.rows.values())), "reference"):
            raise GroundTruthError(file, *found)

    def check_prediction(self, team: str, mask: npt.NDArray[Any], file: str) -> None:
        """Raise PredictionError if this is not the mask of the team that was scored; a team without rows passes."""
        row = self.rows.get(team, {})
        if row.get("error") is not None:
            raise PredictionError(file, "a readable mask", f"none, since it was scored as unusable ({row['error']})")
        if row and (found := self._difference(mask, row, "predicted")):
            raise PredictionError(file, *found)

    def _difference(self, mask: npt.NDArray[Any], row: Mapping[str, Any], part: str) -> tuple[str, str] | None:
        for name, label in LABELS.items():
            count, scored = int(np.count_nonzero(mask == label)), row[f"{name}_{part}_voxels"]
            if count < scored or (count > scored and not self.in_box):
                hint = "is this another cohort?" if part == "reference" else "is this another run?"
                found = f"{count} voxel{'s' * (count != 1)} of {labels.NAMES[label]}"
                return found, f"the {scored} that were scored; {hint}"
        return None


def scored_masks(results: TaskResults | None) -> dict[str, ScoredMasks]:
    """The scored rows of the mask by case; empty without results of a mask, or if no team has rows."""
    if results is None or results.task.mask_spec is None:
        return {}
    name, by_case = results.task.mask_spec.name, dict[str, dict[str, Mapping[str, Any]]]()
    for team in results.all:
        for row in results.rows_of(team, name):
            by_case.setdefault(row["case"], {})[team] = row
    geometry = results.options_of(next(iter(results.teams)), name).get("geometry", "exact")
    in_box = any(IN_BOX in metrics.provenance.options for metrics in results.teams.values())
    return {case: ScoredMasks(rows, geometry, in_box) for case, rows in by_case.items()}
