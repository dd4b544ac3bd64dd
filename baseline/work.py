"""File layout of a training's working directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.files import read_json

DATASET_ID: Final = 101
DATASET_NAME: Final = f"Dataset{DATASET_ID}_HECKTOR"
PLANS_NAME: Final = "hecktorPlans"
CONFIGURATION: Final = "3d_fullres"
# Backbone -> nnU-Net configuration; all but the first inherit everything except the architecture.
CONFIGURATIONS: Final = {"unet": CONFIGURATION, "segresnet": f"{CONFIGURATION}_segresnet"}
# The step of `hecktor train` that writes each file.
_STEPS: Final = {
    "cases.json": "prepare",
    "splits.json": "prepare",
    "prepare.json": "prepare",
    "plan.json": "plan",
    f"{PLANS_NAME}.json": "plan",
    "heads.json": "heads",
    "cross_validation.json": "heads",
}


@dataclass(frozen=True)
class WorkFolders:
    """Paths in the working directory `root`. A file is written once everything it describes is complete."""

    root: Path

    @property
    def checks(self) -> Path:
        """Folder of the problems found in each patient's images."""
        return self.root / "checks"

    @property
    def problems_json(self) -> Path:
        """All problems of the release."""
        return self.root / "problems.json"

    @property
    def cases_json(self) -> Path:
        """The prepared patients."""
        return self.root / "cases.json"

    @property
    def splits_json(self) -> Path:
        """The cross-validation splits."""
        return self.root / "splits.json"

    @property
    def prepare_json(self) -> Path:
        """Options, versions, counts and excluded patients of the step `prepare`."""
        return self.root / "prepare.json"

    @property
    def plan_json(self) -> Path:
        """Options of the network plan and the key of its inputs."""
        return self.root / "plan.json"

    @property
    def training(self) -> Path:
        """Folder of the training page and of each network's curves."""
        return self.root / "training"

    @property
    def features_json(self) -> Path:
        """Features measured on the out-of-fold masks."""
        return self.root / "features.json"

    @property
    def heads_json(self) -> Path:
        """The fitted heads."""
        return self.root / "heads.json"

    @property
    def cross_validation_json(self) -> Path:
        """Cross-validated performance of the heads."""
        return self.root / "cross_validation.json"

    @property
    def report(self) -> Path:
        """Folder of the training report."""
        return self.root / "report"

    @property
    def report_json(self) -> Path:
        """Figures of the training report."""
        return self.report / "report.json"

    @property
    def segmentation(self) -> Path:
        """Folder of the evaluation of the out-of-fold masks."""
        return self.report / "task1"

    @property
    def masks(self) -> Path:
        """Folder of the out-of-fold masks, in the layout of a submission."""
        return self.root / "out_of_fold" / "masks"

    def mask(self, patient_id: str) -> Path:
        """A patient's out-of-fold mask on the CT's own grid."""
        return self.masks / f"{patient_id}.nii.gz"

    def features(self, patient_id: str) -> Path:
        """A patient's features; written after the mask, so the file stands for both."""
        return self.root / "out_of_fold" / "features" / f"{patient_id}.json"

    def uncertainty(self, patient_id: str) -> Path:
        """The uncertainty record of a patient's out-of-fold mask."""
        return self.root / "out_of_fold" / "uncertainty" / f"{patient_id}.json"

    @property
    def nnunet(self) -> Path:
        """Parent of nnU-Net's folders `raw`, `preprocessed` and `results`."""
        return self.root / "nnunet"

    @property
    def raw(self) -> Path:
        """nnU-Net's raw data set."""
        return self.nnunet / "raw" / DATASET_NAME

    @property
    def preprocessed(self) -> Path:
        """nnU-Net's plans, splits and preprocessed images."""
        return self.nnunet / "preprocessed" / DATASET_NAME

    @property
    def results(self) -> Path:
        """nnU-Net's checkpoints and logs."""
        return self.nnunet / "results" / DATASET_NAME

    @property
    def plans(self) -> Path:
        """nnU-Net's plans file."""
        return self.preprocessed / f"{PLANS_NAME}.json"

    def fold(self, fold: int, backbone: str = "unet") -> Path:
        """Folder of the checkpoints of one network."""
        return self.results / f"ShortTrainer__{PLANS_NAME}__{CONFIGURATIONS[backbone]}" / f"fold_{fold}"

    def final(self, fold: int, backbone: str = "unet") -> Path:
        """The checkpoint that exists once a network is trained."""
        return self.fold(fold, backbone) / "checkpoint_final.pth"

    def read(self, path: Path) -> Any:
        """Read a JSON file of this directory.

        Raises:
            HecktorError: the file is absent; the message names the step that writes it.
        """
        if not path.is_file():
            raise HecktorError(
                path.name, f"not found in {self.root.name}", f"`hecktor train {_STEPS[path.name]}` before"
            )
        return read_json(path)
