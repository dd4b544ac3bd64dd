"""Effect of the rules on lesions on a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from contract import labels

# In `DecidedLesions.places`, beside the labels: a lesion that the rules dropped, and what a relabelled voxel adds.
DROPPED: Final = 3
RELABELLED: Final = 4
_TOUCHING: Final = np.ones((3, 3, 3), dtype=np.int8)
_Labels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class DroppedLesion:
    """A lesion that a rule dropped; `centroid_mm` is (x, y, z) in LPS, `rule` its name and `limit` its value."""

    label: int
    volume_ml: float
    mean_probability: float
    centroid_mm: tuple[float, float, float]
    rule: str
    value: float | None
    limit: float | bool

    def as_json(self) -> dict[str, Any]:
        return {
            "label": labels.NAMES[self.label],
            "volume_ml": self.volume_ml,
            "mean_probability": self.mean_probability,
            "centroid_mm": list(self.centroid_mm),
            "rule": self.rule,
            "value": self.value,
            "limit": self.limit,
        }


@dataclass(frozen=True)
class DecidedLesions:
    """The fate of each lesion voxel, and the lesions behind it.

    Attributes:
        places: (z, y, x) on the segmenter's grid: 0 outside lesions, `DROPPED`, or the label, plus `RELABELLED` in
            lesions of both labels that became one.
        dropped: the dropped lesions.
        remaining: number of the others.
        relabelled: number of those that became one lesion of one label.
        skipped: rules that could not be applied.
    """

    places: _Labels
    dropped: tuple[DroppedLesion, ...]
    remaining: int
    relabelled: int
    skipped: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For the record of the uncertainty."""
        return {
            "remaining": self.remaining,
            "relabelled": self.relabelled,
            "dropped": [lesion.as_json() for lesion in self.dropped],
            "skipped": list(self.skipped),
        }

    def summary(self) -> str:
        """One line for the log."""
        counts: dict[str, int] = {}
        for lesion in self.dropped:
            what = f"{labels.NAMES[lesion.label]} by {lesion.rule}"
            counts[what] = counts.get(what, 0) + 1
        why = f" ({', '.join(f'{number} {what}' for what, number in counts.items())})" if counts else ""
        total = self.remaining + len(self.dropped)
        text = f"{len(self.dropped)} of {total} lesions dropped{why}, {self.relabelled} relabelled"
        if total and not self.remaining:
            text += "; no lesion is left"
        return text + "".join(f"; {rule} not applied without a PET in SUV" for rule in self.skipped)

    def applied_to(self, mask: _Labels) -> _Labels:
        """Another mask of the case on the same grid, such as that of a single network, with the same decisions.

        A component that touches dropped lesions alone is removed; one that touches a relabelled lesion, and no lesion
        of the other label, gets its label.
        """
        result = mask.copy()
        numbered, _ = ndimage.label(mask > 0, structure=_TOUCHING)
        for number, box in enumerate(ndimage.find_objects(numbered), start=1):
            inside = numbered[box] == number
            fates = set(np.unique(self.places[box][inside]).tolist()) - {0}
            kept = fates - {DROPPED}
            if fates and not kept:
                result[box][inside] = 0
            elif max(kept, default=0) > RELABELLED and len({fate % RELABELLED for fate in kept}) == 1:
                result[box][inside] = kept.pop() % RELABELLED
        return result
