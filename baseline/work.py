"""File layout of a training's working directory."""

from __future__ import annotations

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
    "decisions.json": "decide",
    "heads.json": "heads",
    "cross_validation.json": "heads",
}


class WorkFolders:
    """Paths in the working directory `root`. A file is written once everything it describes is complete."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checks = root / "checks"  # problems of each patient's images
        self.problems_json = root / "problems.json"
        self.cases_json = root / "cases.json"
        self.splits_json = root / "splits.json"
        self.prepare_json = root / "prepare.json"  # options, versions, counts, excluded patients
        self.plan_json = root / "plan.json"
        self.networks = root / "networks"  # a copy of the package given with --networks
        self.training = root / "training"  # the training page and each network's curves
        self.features_json = root / "features.json"
        self.heads_json = root / "heads.json"
        self.cross_validation_json = root / "cross_validation.json"
        self.report = root / "report"
        self.report_json = self.report / "report.json"
        self.segmentation = self.report / "task1"  # evaluation of the out-of-fold masks
        self.measured = root / "out_of_fold"
        self.masks = self.measured / "masks"  # in the layout of a submission
        self.undecided = self.measured / "undecided"  # masks and features before the decisions on lesions
        self.undecided_features_json = self.undecided / "features.json"
        self.decisions_json = root / "decisions.json"
        self.nnunet = root / "nnunet"
        self.raw = self.nnunet / "raw" / DATASET_NAME
        self.preprocessed = self.nnunet / "preprocessed" / DATASET_NAME
        self.results = self.nnunet / "results" / DATASET_NAME
        self.plans = self.preprocessed / f"{PLANS_NAME}.json"

    def of_reference_masks(self) -> WorkFolders:
        """The same directory with the features and heads of the reference masks, beside those of automatic masks."""
        other = WorkFolders(self.root)
        other.measured = self.root / "reference_masks"
        other.features_json = other.measured / "features.json"
        other.heads_json = other.measured / "heads.json"
        other.cross_validation_json = other.measured / "cross_validation.json"
        return other

    def mask(self, patient_id: str) -> Path:
        """A patient's out-of-fold mask on the CT's own grid."""
        return self.masks / f"{patient_id}.nii.gz"

    def undecided_mask(self, patient_id: str) -> Path:
        """The same mask before the decisions on lesions."""
        return self.undecided / "masks" / f"{patient_id}.nii.gz"

    def probabilities(self, patient_id: str) -> Path:
        """A patient's out-of-fold probabilities: `gtvp` and `gtvn`, uint8 of 255, (z, y, x) on the network's grid."""
        return self.measured / "probabilities" / f"{patient_id}.npz"

    def features(self, patient_id: str) -> Path:
        """A patient's undecided features; written after mask and probabilities, so the file stands for all."""
        return self.measured / "features" / f"{patient_id}.json"

    def uncertainty(self, patient_id: str) -> Path:
        """The uncertainty record of a patient's out-of-fold mask."""
        return self.measured / "uncertainty" / f"{patient_id}.json"

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
