"""Where the out-of-fold masks, features and uncertainties of a training lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OutOfFold:
    """Where what `hecktor train heads` keeps of a patient lies: `masks/<ID>.nii.gz`, `features/<ID>.json`,
    `uncertainty/<ID>.json`.
    """

    root: Path

    @property
    def masks(self) -> Path:
        """The folder of all masks."""
        return self.root / "masks"

    def mask(self, patient_id: str) -> Path:
        """The patient's out-of-fold mask on the CT's own grid, as an entrant would upload it."""
        return self.masks / f"{patient_id}.nii.gz"

    def features(self, patient_id: str) -> Path:
        """The patient's features; the file is written after the mask and stands for both."""
        return self.root / "features" / f"{patient_id}.json"

    def uncertainty(self, patient_id: str) -> Path:
        """How far the patient's mask can be trusted, as the network that made it says itself."""
        return self.root / "uncertainty" / f"{patient_id}.json"
