"""A custom model: put your code into these classes and remove the classes that you do not need.

The algorithm finds the classes by name, such as `my_model:Network`. They are in the folder of the option `--code`, or
in the folder with which the image was built. No class needs to import this project. docs/own-model.md describes what
happens if a class fails.
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

    The project reads the images, finds the head and neck region, resamples it, cuts it into patches, mirrors and
    averages them, and restores the mask on the CT's grid.

    Attributes:
        spacing_mm: Voxel spacing (x, y, z) of the patches.
        patch: Number of voxels (z, y, x) of a patch.
        channels: Pairs of an image, "CT" (HU) or "PET" (SUV), and its normalisation. A normalisation is a window
            (low, high) that is scaled to 0 to 1, the name of a normalisation of nnU-Net, such as
            "ZScoreNormalization", or a function of an array (z, y, x).
        labels: Names of the outputs, among them background, GTVp and GTVn. Any other label counts as background.
        mirror_axes: Axes of (z, y, x) along which a patch may be mirrored for further passes.
        returns: "logits", or "probabilities" that sum to 1.
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
        """Load the network from `folder`, the folder of `hecktor package --weights`, onto a device such as "cuda"."""
        self.threshold = float(json.loads((folder / "settings.json").read_text())["threshold"])
        self.device = device

    def __call__(self, patch: torch.Tensor) -> torch.Tensor:
        """Compute the outputs of normalised patches.

        Args:
            patch: Patches (batch, channel, z, y, x).

        Returns:
            Outputs (batch, label, z, y, x) on the same device.
        """
        hot = (patch[:, 1] > self.threshold).float()
        return torch.stack([1 - hot, hot, torch.zeros_like(hot)], dim=1)


class Features:
    """Custom features, which heads get in addition to the project's features.

    They are measured once for each patient of the training, and in each new case.

    Attributes:
        names: Name and unit of each feature. Heads know the first feature as `my_model:suv_spread`.
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
            ct: HU on the grid of the mask.
            pet: SUV on the grid of the mask; None without a PET.
            dose: Gy on the grid of the mask; None without a dose.
            spacing_mm: Voxel spacing (x, y, z) of the grid.
            clinical: The edition's clinical variables; None for a missing value.

        Returns:
            A number for each name, or None if the feature cannot be measured.
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
        kinds: Kinds of answers that the head can predict: "risk", "class" or both.
    """

    kinds = ("risk",)

    def __init__(self, target: Any) -> None:
        """Create a head for the answer `target`, which has a `name`, a `kind` and the names of its `classes`."""
        self.target = target
        self.fill = 0.0

    def fit(self, features: pd.DataFrame, outcomes: pd.DataFrame, rng: np.random.Generator) -> None:
        """Fit the head.

        Args:
            features: One row a patient, NaN for a missing feature; docs/heads.md names the columns.
            outcomes: One row a patient. The columns are `days` and `event` for a risk, and `class` (a number) for a
                class.
            rng: Source of randomness, so that a training can be repeated.
        """
        del outcomes, rng  # This head only needs the median of a feature.
        self.fill = float(np.nan_to_num(features["total_volume_ml"].median()))

    def predict(self, features: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Predict the answer of each patient.

        Returns:
            For a risk, numbers of shape (patients,), higher for an earlier event. For a class, scores of shape
            (patients,) if there are two classes, or (patients, classes) if there are more.
        """
        volume_ml = np.asarray(features["total_volume_ml"].fillna(self.fill), dtype=np.float64)
        return np.log(volume_ml + 1)

    def save(self, folder: Path) -> None:
        """Write the data that `load` needs into `folder`, as plain data without code."""
        (folder / "head.json").write_text(json.dumps({"fill": self.fill}))

    @classmethod
    def load(cls, folder: Path) -> Head:
        """Read the head that `save` wrote."""
        head = cls(None)
        head.fill = float(json.loads((folder / "head.json").read_text())["fill"])
        return head
