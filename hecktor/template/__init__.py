"""A model of your own: put your code into these classes and remove those that you do not need.

The algorithm finds them by name, such as `my_model:Network`, in the folder that `--code` gives or that the image was
built with. None of them needs an import of this project. docs/own-model.md says what happens if one fails.
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
    """Segments patches. The project reads, localises, resamples, tiles, mirrors, averages and restores around it.

    Attributes:
        spacing_mm: voxel spacing (x, y, z) of the grid on which it works.
        patch: voxels (z, y, x) of a patch.
        channels: pairs of "CT" (HU) or "PET" (SUV) and a normalisation: a window (low, high) that becomes 0 to 1, one
            of nnU-Net's by name, such as "ZScoreNormalization", or a function of an array (z, y, x).
        labels: names of the outputs, among them background, GTVp and GTVn; others count as background.
        mirror_axes: axes of (z, y, x) along which a patch may be mirrored for further passes.
        returns: "logits", or "probabilities" that sum to 1.
        half_precision: call it under torch's autocast.
    """

    spacing_mm = (4.0, 4.0, 4.0)
    patch = (48, 48, 48)
    channels = (("CT", (-160.0, 240.0)), ("PET", (0.0, 20.0)))
    labels = ("background", "GTVp", "GTVn")
    mirror_axes = ()
    returns = "probabilities"
    half_precision = False

    def __init__(self, folder: Path, device: str) -> None:
        """Load the network from the files in `folder` (`hecktor package --weights`) onto a device such as "cuda"."""
        self.threshold = float(json.loads((folder / "settings.json").read_text())["threshold"])
        self.device = device

    def __call__(self, patch: torch.Tensor) -> torch.Tensor:
        """Outputs (batch, label, z, y, x) of a normalised patch (batch, channel, z, y, x), on the same device."""
        hot = (patch[:, 1] > self.threshold).float()
        return torch.stack([1 - hot, hot, torch.zeros_like(hot)], dim=1)


class Features:
    """Measures numbers of your own, once on the masks of the training and in each case; heads get them beside ours.

    Attributes:
        names: name and unit of each; heads know the first as `my_model:suv_spread`.
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
        """Each name with its number, or None where it cannot be measured.

        `mask` (0 background, 1 GTVp, 2 GTVn), `ct` in HU, `pet` in SUV and `dose` in Gy are (z, y, x) on one grid of
        `spacing_mm` (x, y, z); PET and dose may be None. `clinical` has the edition's variables, None where missing.
        """
        del ct, dose, spacing_mm, clinical  # this one needs the uptake alone
        tumour = mask > 0
        if pet is None or not tumour.any():
            return {"suv_spread": None}
        return {"suv_spread": float(pet[tumour].std())}


class Head:
    """Predicts one answer from features. It is fitted, cross-validated and compared like the project's own heads."""

    kinds = ("risk",)  # answers that it can give: "risk", "class" or both

    def __init__(self, target: Any) -> None:
        """`target` has the answer's `name`, its `kind` and the names of its `classes`."""
        self.target = target
        self.fill = 0.0

    def fit(self, features: pd.DataFrame, outcomes: pd.DataFrame, rng: np.random.Generator) -> None:
        """Fit on patients in rows, NaN where a feature is missing; docs/heads.md names the columns.

        The columns of `outcomes` are `days` and `event` of a risk, `class` (a number) of a class.
        """
        del outcomes, rng  # this head only needs the median
        self.fill = float(np.nan_to_num(features["total_volume_ml"].median()))

    def predict(self, features: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Risks (patients,), higher for an earlier event; of a class one score, or (patients, classes) of several."""
        volume_ml = np.asarray(features["total_volume_ml"].fillna(self.fill), dtype=np.float64)
        return np.log(volume_ml + 1)

    def save(self, folder: Path) -> None:
        """Write what `load` needs into `folder`, as plain data."""
        (folder / "head.json").write_text(json.dumps({"fill": self.fill}))

    @classmethod
    def load(cls, folder: Path) -> Head:
        """Read what `save` wrote."""
        head = cls(None)
        head.fill = float(json.loads((folder / "head.json").read_text())["fill"])
        return head
