"""Lesions that postprocessing removed from a mask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from contract import labels

# In `Postprocessed.places`, beside the labels.
REMOVED: Final = 3
# Far more than a patient has: a mask full of noise.
MOST_LISTED: Final = 500
ANY_CORNER: Final = np.ones((3, 3, 3), dtype=np.bool_)
_Labels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RemovedLesion:
    """A removed lesion; `centroid_mm` is (x, y, z) in LPS, `rule` the name of the rule and `limit` its value."""

    label: int
    volume_ml: float
    mean_probability: float
    centroid_mm: tuple[float, float, float]
    rule: str
    value: float
    limit: float | bool

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "label": labels.NAMES[self.label], "centroid_mm": list(self.centroid_mm)}


@dataclass(frozen=True)
class Postprocessed:
    """Effect of the rules on a mask: the removed lesions, the number of kept ones, and rules that could not be applied.

    `places` is (z, y, x) on the segmenter's grid: 0 outside lesions, the label of a kept lesion, or `REMOVED`.
    """

    places: _Labels
    removed: tuple[RemovedLesion, ...]
    remaining: int
    skipped: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For the record of the uncertainty, with the `MOST_LISTED` largest removed lesions."""
        largest = sorted(self.removed, key=lambda lesion: -lesion.volume_ml)[:MOST_LISTED]
        listed = [lesion.as_json() for lesion in sorted(largest, key=lambda lesion: lesion.label)]
        return {"remaining": self.remaining, "removed": listed, "skipped": list(self.skipped)}

    def summary(self) -> str:
        """One line for the log."""
        counts = Counter(f"{labels.NAMES[lesion.label]} by {lesion.rule}" for lesion in self.removed)
        reasons = f" ({', '.join(f'{number} {reason}' for reason, number in counts.items())})" if counts else ""
        total = self.remaining + len(self.removed)
        end = "; no lesion is left" if total and not self.remaining else ""
        end += "".join(f"; {rule} not applied without a PET in SUV" for rule in self.skipped)
        return f"{len(self.removed)} of {total} lesions removed{reasons}{end}"

    def applied_to(self, mask: _Labels) -> _Labels:
        """Another mask of the case on the same grid, such as that of a single network, with the same lesions removed.

        A component that touches removed lesions alone is removed.
        """
        result = mask.copy()
        numbered, _ = ndimage.label(mask > 0, structure=ANY_CORNER)
        for number, box in enumerate(ndimage.find_objects(numbered), start=1):
            inside = numbered[box] == number
            if set(np.unique(self.places[box][inside]).tolist()) - {0} == {REMOVED}:
                result[box][inside] = 0
        return result
