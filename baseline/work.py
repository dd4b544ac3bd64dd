"""File layout of a training's working directory, and the check of a folder of nnU-Net's own results.

The working directory holds the prepared data set, the networks of one plan and their results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from algorithm.network.backbones import BACKBONES
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import read_json
from contract.packages import HEADS_FOLDER, MANIFEST

DATASET_ID: Final = 101
DATASET_NAME: Final = f"Dataset{DATASET_ID}_HECKTOR"
PLANS_NAME: Final = "hecktorPlans"
CONFIGURATION: Final = "3d_fullres"
# nnU-Net configuration of each backbone. Configurations that nnU-Net does not plan inherit everything except the
# architecture.
CONFIGURATIONS: Final = {
    name: f"{CONFIGURATION}_{name}" if backbone.design else CONFIGURATION for name, backbone in BACKBONES.items()
}
# Name of the trainer's class in nnU-Net's results folder.
TRAINER: Final = "HecktorTrainer"
# File with the time of a network's epochs.
TRAINING_TIME: Final = "training_time.json"
# Selects the release's reference masks in place of a folder of masks.
REFERENCE: Final = "reference"
NNUNET_RESULTS: Final = "nnU-Net's results, DatasetXXX_Name/Trainer__Plans__3d_fullres with plans.json and fold_*"
# The step of `hecktor train` that writes each file.
_STEPS: Final = {
    "cases.json": "prepare",
    "splits.json": "prepare",
    "prepare.json": "prepare",
    "plan.json": "plan",
    f"{PLANS_NAME}.json": "plan",
    "postprocessing.json": "postprocess",
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
        self.digests_json = root / "digests.json"  # of files that were read once, see `baseline/cache.py`
        self.splits_json = root / "splits.json"
        self.prepare_json = root / "prepare.json"  # options, versions, counts, excluded patients
        self.plan_json = root / "plan.json"
        self.plan_log = root / "plan.log"  # what nnU-Net prints while it plans
        self.networks = root / "networks"  # a copy of the package given with --networks
        self.features_json = root / "features.json"
        self.heads_json = root / "heads.json"
        self.custom_heads = root / HEADS_FOLDER
        self.cross_validation_json = root / "cross_validation.json"
        self.report = root / "report"
        self.report_json = self.report / "report.json"
        self.segmentation = self.report / "task1"  # evaluation of the out-of-fold masks
        self.measured = root / "out_of_fold"
        self.masks = self.measured / "masks"  # in the layout of a submission
        self.unfiltered = self.measured / "unfiltered"  # masks and features before postprocessing
        self.unfiltered_features_json = self.unfiltered / "features.json"
        self.custom_features_json = self.measured / "custom_features.json"
        self.postprocessing_json = root / "postprocessing.json"
        self.nnunet = root / "nnunet"
        self.raw = self.nnunet / "raw" / DATASET_NAME
        self.preprocessed = self.nnunet / "preprocessed" / DATASET_NAME
        self.results = root / "nnunet" / "results" / DATASET_NAME
        self.plans = self.preprocessed / f"{PLANS_NAME}.json"

    def with_reference_masks(self) -> WorkFolders:
        """Return the same directory with the features and heads of the reference masks, in a folder of their own."""
        folders = WorkFolders(self.root)
        folders.measured = self.root / "reference_masks"
        folders.masks = folders.measured / "masks"
        folders.features_json = folders.measured / "features.json"
        folders.custom_features_json = folders.measured / "custom_features.json"
        folders.heads_json = folders.measured / "heads.json"
        folders.custom_heads = folders.measured / HEADS_FOLDER
        folders.cross_validation_json = folders.measured / "cross_validation.json"
        return folders

    def mask(self, patient_id: str) -> Path:
        """Return the path of a patient's out-of-fold mask on the CT's own grid."""
        return self.masks / f"{patient_id}.nii.gz"

    def raw_mask(self, patient_id: str) -> Path:
        """Return the path of the out-of-fold mask before postprocessing."""
        return self.unfiltered / "masks" / f"{patient_id}.nii.gz"

    def probabilities(self, patient_id: str) -> Path:
        """Return the path of a patient's out-of-fold probabilities.

        The file holds `gtvp` and `gtvn`, uint8 with 255 for 1, (z, y, x) on the network's grid.
        """
        return self.measured / "probabilities" / f"{patient_id}.npz"

    def features(self, patient_id: str) -> Path:
        """Return the path of a patient's unfiltered features, which are written after mask and probabilities."""
        return self.measured / "features" / f"{patient_id}.json"

    def fold(self, fold: int, backbone: str = "unet") -> Path:
        """Return the folder of the checkpoints of one network."""
        return self.results / f"{TRAINER}__{PLANS_NAME}__{CONFIGURATIONS[backbone]}" / f"fold_{fold}"

    def final(self, fold: int, backbone: str = "unet") -> Path:
        """Return the path of the checkpoint that exists once a network is trained."""
        return self.fold(fold, backbone) / "checkpoint_final.pth"

    def read(self, path: Path) -> Any:
        """Read a JSON file of this directory.

        Raises:
            HecktorError: The file is absent; the message names the step that writes it.
        """
        self.require(path)
        return read_json(path)

    def require(self, path: Path) -> None:
        """Check that a file of this directory exists.

        Raises:
            HecktorError: The file is absent; the message names the step that writes it.
        """
        if not path.is_file():
            step = _STEPS.get(path.name, "plan")
            raise HecktorError(path.name, f"not found in {self.root.name}", f"`hecktor train {step}` before")


def require_nnunet_results(folder: Path) -> None:
    """Check that the folder holds nnU-Net's results; otherwise raise `ModelPackageError`."""
    if (folder / MANIFEST).is_file():
        raise ModelPackageError(folder.resolve().name, "found a model package", "nnU-Net's results")
    if not (folder / "plans.json").is_file():
        raise ModelPackageError(folder.name, "no plans.json", NNUNET_RESULTS)
