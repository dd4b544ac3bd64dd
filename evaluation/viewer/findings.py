"""The list of lesions in case.json: those of the reference and of each team, with what matched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from contract import labels
from evaluation.metrics.rules import MaskRules
from evaluation.viewer.lesions import ListedLesion, lesions_of, match
from evaluation.viewer.listing import facts
from evaluation.viewer.sampling import values_at
from evaluation.viewer.scene import NamedMask, Scene

# Of each mask: a poor network predicts thousands of specks.
MOST_LESIONS: Final = 200

Status = str | dict[str, str]


@dataclass(frozen=True)
class LesionList:
    """Lesions as plain data, the reference in one line, and notes on lesions that are left out."""

    entries: Sequence[dict[str, Any]]
    facts: str
    notes: Sequence[str]


def list_lesions(scene: Scene, rules: MaskRules) -> LesionList:
    """The lesions of every mask, the largest first; the reference's stand before the teams'.

    A reference lesion has the status `found` or `missed` for each team, a team's own lesion `true` or `false`.
    """
    reference, *teams = scene.masks
    uptake = partial(values_at, scene.pet.volume) if scene.pet is not None and scene.pet.unit == "SUV" else None
    matched = {team.name: match(reference.voxels, team.voxels, rules) for team in teams}
    of_masks = [lesions_of(mask.voxels, uptake) for mask in scene.masks]
    entries: list[dict[str, Any]] = []
    notes = []
    for mask, lesions in zip(scene.masks, of_masks, strict=True):
        if len(lesions) > MOST_LESIONS:
            notes.append(f"{mask.name}: the largest {MOST_LESIONS} of {len(lesions)} lesions are listed")
        for place, lesion in enumerate(lesions[:MOST_LESIONS], start=1):
            status: Status = {name: "found" if lesion.number in one.dsc else "missed" for name, one in matched.items()}
            if not mask.is_reference:
                status = "true" if lesion.number in matched[mask.name].predicted else "false"
            entries.append(_entry(mask, place, lesion, status))
    return LesionList(entries, _facts(of_masks[0]), notes)


def _entry(mask: NamedMask, place: int, lesion: ListedLesion, status: Status) -> dict[str, Any]:
    x, y, z = lesion.point_mm
    return {
        "id": f"{mask.name}-{place}",
        "label": labels.NAMES[lesion.label],
        "source": mask.name,
        "volume_ml": round(lesion.volume_ml, 4),
        "suv_max": None if lesion.suv_max is None else round(lesion.suv_max, 3),
        "centroid_ras_mm": [round(-x, 3), round(-y, 3), round(z, 3)],
        "status": status,
    }


def _facts(reference: Sequence[ListedLesion]) -> str:
    gtvp, gtvn = ([one.volume_ml for one in reference if one.label == label] for label in labels.FOREGROUND)
    return facts(sum(gtvp), sum(gtvn), len(gtvn))
