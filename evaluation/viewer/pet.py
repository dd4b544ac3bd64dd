"""The PET of a case in SUV, as far as its unit is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from contract.errors import InputError
from contract.images.volumes import Volume, read_volume

SUV_WINDOW: Final = (0.0, 10.0)
# The hottest bladder stays below; activity concentrations in Bq/ml start in the thousands.
_LARGEST_SUV: Final = 500.0
_WINDOW_PERCENTILE: Final = 99.5


@dataclass(frozen=True)
class ShownPet:
    """A PET, its unit, and the values shown as the darkest and the brightest."""

    volume: Volume
    unit: str
    window: tuple[float, float]


def read_pet(path: Path, suv_factor: float | None) -> ShownPet:
    """Read a PET in SUV, or in Bq/ml if its values can only be that.

    `suv_factor` is the factor from Bq/ml to SUV of the patient's record; without one (None) Bq/ml are shown as such.

    Raises:
        InputError: it cannot be read, or holds a value that is not finite.
    """
    volume = read_volume(path, np.float32)
    highest = float(volume.array.max())
    if not np.isfinite(highest) or not np.isfinite(volume.array.min()):
        raise InputError(path.name, "a voxel that is not finite", "SUV")
    if highest <= _LARGEST_SUV:
        return ShownPet(volume, "SUV", SUV_WINDOW)
    if suv_factor is not None:
        return ShownPet(Volume(volume.array * np.float32(suv_factor), volume.geometry), "SUV", SUV_WINDOW)
    high = float(np.percentile(volume.array[::2, ::2, ::2], _WINDOW_PERCENTILE))
    return ShownPet(volume, "Bq/ml", (0.0, float(f"{high:.2g}")))
