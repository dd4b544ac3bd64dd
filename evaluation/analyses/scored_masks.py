"""Compare the masks that a page shows with the voxels that were scored, so that it shows no other patient's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import Volume
from evaluation.analyses.sources import IN_BOX, PatientFiles, TaskResults
from evaluation.rows.mask import LABELS

# Spacings in headers are often single precision.
_SAME_VOLUME: Final = 1e-4
NOT_COMPARED: Final = "the results hold no rows, so that nobody can check whether these are the scored patients"
Counts = Mapping[str, int]


@dataclass(frozen=True)
class ScoredMasks:
    """The voxels of one case's masks as the rows state them, by structure.

    Attributes:
        voxel_volume_mm3: of the reference.
        reference: of the reference mask.
        predicted: of each team's mask; for an unusable one, the reason as a text.
        in_box: teams whose masks were compared inside a bounding box, so that the files may hold more voxels.
        geometry: the rule by which a prediction is brought onto the reference's grid.
    """

    voxel_volume_mm3: float
    reference: Counts
    predicted: Mapping[str, Counts | str]
    in_box: frozenset[str]
    geometry: str

    def check_reference(self, mask: Volume, file: str) -> None:
        """Raise GroundTruthError if this is not the reference that was scored."""
        volume = mask.geometry.voxel_volume_mm3
        if not isclose(volume, self.voxel_volume_mm3, rel_tol=_SAME_VOLUME):
            expected = f"those of {self.voxel_volume_mm3:.4g} mm3 that were scored; is this another cohort?"
            raise GroundTruthError(file, f"voxels of {volume:.4g} mm3", expected)
        self._check(mask.array, self.reference, (file, "is this another cohort?", GroundTruthError), bool(self.in_box))

    def check_prediction(self, team: str, mask: npt.NDArray[Any], file: str) -> None:
        """Raise PredictionError if this is not the mask of the team that was scored; a team without rows passes."""
        scored = self.predicted.get(team)
        if isinstance(scored, str):
            raise PredictionError(file, "a readable mask", f"none, since it was scored as unusable ({scored})")
        if scored is not None:
            self._check(mask, scored, (file, "is this another run?", PredictionError), team in self.in_box)

    @staticmethod
    def _check(
        mask: npt.NDArray[Any], scored: Counts, about: tuple[str, str, type[HecktorError]], is_cut: bool
    ) -> None:
        file, hint, error = about
        for name, voxels in scored.items():
            count = int(np.count_nonzero(mask == LABELS[name]))
            if count < voxels or (count > voxels and not is_cut):
                found = f"{count} voxel{'s' * (count != 1)} of {labels.NAMES[LABELS[name]]}"
                raise error(file, found, f"the {voxels} that were scored; {hint}")


def scored_masks(results: TaskResults | None) -> dict[str, ScoredMasks]:
    """What was scored, by case; empty without results of a mask, or if no team has rows."""
    mask = None if results is None else results.task.mask
    if results is None or mask is None:
        return {}
    teams = (*results.teams, *results.unranked_entries)
    rows = {team.team: {row["case"]: row for row in results.rows_of(team, mask.name)} for team in teams}
    in_box = frozenset(team.team for team in teams if IN_BOX in team.provenance.get("options", {}))
    first = {case: row for of_team in rows.values() for case, row in of_team.items()}
    return {
        case: ScoredMasks(
            row["voxel_volume_mm3"],
            _voxels(row, "reference"),
            {team: _predicted(of_team[case]) for team, of_team in rows.items() if case in of_team},
            in_box,
            results.options_of(results.teams[0], mask.name).get("geometry", "exact"),
        )
        for case, row in first.items()
    }


def _predicted(row: Mapping[str, Any]) -> Counts | str:
    return str(row["error"]) if row["error"] is not None else _voxels(row, "predicted")


def _voxels(row: Mapping[str, Any], part: str) -> Counts:
    return {name: row[f"{name}_{part}_voxels"] for name in LABELS}


def only_scored(scans: Sequence[PatientFiles], results: Sequence[TaskResults]) -> list[PatientFiles]:
    """The cases of a cohort that the results hold; all of them if no team has rows.

    Raises HecktorError: none of them is in the results.
    """
    cases = {row["case"] for one in results for team in one.teams for row in team.rows}
    chosen = [files for files in scans if not cases or files.case in cases]
    if not chosen:
        found = f"none of the scored cases, but {_few([files.case for files in scans])}"
        raise HecktorError("--cohort", found, f"the cohort of {_few(sorted(cases))}")
    return chosen


def _few(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{', ...' * (len(names) > 3)}"
