"""A custom model: put your code into these classes, and remove the classes that you do not need.

Pass this folder to the commands by the option `--code`, which also copies the folder into images. The algorithm finds
the classes by their names, such as `my_model:Network`. No class needs to import this project. docs/own-model.md
describes what happens if a class fails.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    import pandas as pd


class Network:
    """A network that segments patches.

    The project reads the images, finds the region of head and neck, resamples it to `spacing_mm`, and cuts it into
    patches. It averages the outputs of overlapping and mirrored patches, and resamples the mask to the CT's grid.

    Attributes:
        spacing_mm: Voxel spacing (x, y, z) of the patches.
        patch: Number of voxels (z, y, x) of a patch.
        channels: For each input channel the image, "CT" (HU) or "PET" (SUV), and its normalisation. A normalisation is
            a window (low, high), which is clipped and scaled to 0 to 1; the name of one of nnU-Net's normalisations,
            such as "ZScoreNormalization"; or a function that takes and returns an array (z, y, x).
        labels: Names of the outputs in their order: background, GTVp and GTVn; any other output counts as background.
        mirror_axes: Axes along which patches may be mirrored in additional passes: 0 for z, 1 for y, 2 for x.
        returns: What the network returns: "logits", or "probabilities" that sum to 1 in each voxel.
        half_precision: Whether the network is called under torch's autocast.
    """

    spacing_mm = (4.0, 4.0, 4.0)
    patch = (48, 48, 48)
    channels = (("CT", (-160.0, 240.0)), ("PET", (0.0, 20.0)))
    labels = ("background", "GTVp", "GTVn")
    mirror_axes = ()
    returns = "probabilities"
    half_precision = False

    def __init__(self, folder: Path, device: str) -> None:
        """Load the network onto a device.

        Args:
            folder: Copy of the folder that was packaged by `hecktor package --weights`.
            device: Device of the network, such as "cuda" or "cpu".
        """
        # The PET is scaled from SUV 0 to 20, so that 0.25 means SUV 5.
        self.threshold = float(json.loads((folder / "settings.json").read_text())["threshold"])
        self.device = device

    def __call__(self, patch: torch.Tensor) -> torch.Tensor:
        """Compute the outputs of normalised patches.

        Args:
            patch: Patches (batch, channel, z, y, x), with the channels in the order of `channels`.

        Returns:
            Outputs (batch, label, z, y, x) on the same device, with the labels in the order of `labels`.
        """
        hot = (patch[:, 1] > self.threshold).float()
        return torch.stack([1 - hot, hot, torch.zeros_like(hot)], dim=1)


class Features:
    """Custom features, which the heads use in addition to the project's features.

    They are measured once for each training patient, and for each new case.

    Attributes:
        names: Name and unit of each feature. Heads see the feature below as the column `my_model:suv_spread`.
    """

    names: ClassVar[dict[str, str]] = {"suv_spread": "SUV"}

    def measure(
        self,
        mask: npt.NDArray[np.uint8],
        ct: npt.NDArray[np.float32],
        pet: npt.NDArray[np.float32] | None,
        dose: npt.NDArray[np.float32] | None,
        spacing_mm: tuple[float, float, float],
        clinical: dict[str, float | None],
    ) -> dict[str, float | None]:
        """Measure the features of one case.

        Args:
            mask: Labels (z, y, x): 0 background, 1 GTVp, 2 GTVn.
            ct: CT in HU on the grid of the mask.
            pet: PET in SUV on the grid of the mask; None if the case has no usable PET.
            dose: Planned dose in Gy on the grid of the mask; None if the case has no dose.
            spacing_mm: Voxel spacing (x, y, z) of the grid.
            clinical: Clinical variables of the edition by name; None for a missing value.

        Returns:
            A number for each name; None if the feature cannot be measured.
        """
        del ct, dose, spacing_mm, clinical  # This feature only needs the uptake in the mask.
        tumour = mask > 0
        if pet is None or not tumour.any():
            return {"suv_spread": None}
        return {"suv_spread": float(pet[tumour].std())}


class Head:
    """A model that predicts one answer from features.

    It is fitted, cross-validated and compared in the same way as the project's heads.

    Attributes:
        kinds: Kinds of answers that the head predicts: "risk", "class" or both.
    """

    kinds = ("risk",)

    def __init__(self, target: Any) -> None:
        """Create a head for the answer `target`, which has a `name`, a `kind` and the names of its `classes`."""
        self.target = target
        self.median_ml = 0.0

    def fit(self, features: pd.DataFrame, outcomes: pd.DataFrame, rng: np.random.Generator) -> None:
        """Fit the head.

        Args:
            features: One row for each patient, NaN for a missing feature; docs/heads.md lists the columns.
            outcomes: One row for each patient. For a risk, the columns are `days`, the follow-up time, and `event`, 1
                for an observed event. For a class, the column is `class`, the index of the class in `target.classes`.
            rng: Random generator; take all random numbers from it, so that the training is reproducible.
        """
        del outcomes, rng  # This head only needs the median of a feature.
        self.median_ml = float(np.nan_to_num(features["total_volume_ml"].median()))

    def predict(self, features: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Predict the answer for each patient.

        Args:
            features: One row for each patient, with the same columns as in `fit`.

        Returns:
            For a risk, numbers of shape (patients,); a higher number means an earlier event. For two classes, scores of
            shape (patients,); a higher score means the second class. For more classes, a score for each class, shape
            (patients, classes).
        """
        volume_ml = np.asarray(features["total_volume_ml"].fillna(self.median_ml), dtype=np.float64)
        return np.log(volume_ml + 1)

    def save(self, folder: Path) -> None:
        """Write what `load` needs into `folder`, as plain data without code."""
        (folder / "head.json").write_text(json.dumps({"median_ml": self.median_ml}))

    @classmethod
    def load(cls, folder: Path) -> Head:
        """Read the head that `save` wrote."""
        head = cls(None)
        head.median_ml = float(json.loads((folder / "head.json").read_text())["median_ml"])
        return head
