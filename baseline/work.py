"""File layout of a training's working directory: one prepared data set, and the results of each plan."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from algorithm.network.backbones import BACKBONES
from contract.errors import HecktorError
from contract.files import read_json
from contract.packages import HEADS

DATASET_ID: Final = 101
DATASET_NAME: Final = f"Dataset{DATASET_ID}_HECKTOR"
PLANS_NAME: Final = "hecktorPlans"
CONFIGURATION: Final = "3d_fullres"
# Backbone -> nnU-Net configuration; those that nnU-Net does not plan inherit everything except the architecture.
CONFIGURATIONS: Final = {
    name: f"{CONFIGURATION}_{name}" if backbone.design else CONFIGURATION for name, backbone in BACKBONES.items()
}
# Name of the trainer's class in nnU-Net's results folder, and of the file with the time of a network's epochs.
TRAINER: Final = "HecktorTrainer"
TRAINING_TIME: Final = "training_time.json"
# The plan whose files lie in the working directory itself; those of other plans lie below `plans`.
DEFAULT_PLAN: Final = "plan"
# In place of a folder of masks: the release's own.
REFERENCE: Final = "reference"
# Between the plans of an ensemble.
JOINED: Final = "+"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
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
    """Paths of one plan in the working directory `root`. A file is written once everything it describes is complete.

    Patients, splits and checks are shared by all plans, prepared and preprocessed images by the plans of one spacing.
    All other files are the plan's own, below `self.root`. `name` may join several plans, as in `a+b`: an ensemble has
    no networks of its own, and its prepared images are those of the plan with the smallest voxels.

    Raises:
        HecktorError: a name with characters other than letters, digits, points, hyphens and underscores.
    """

    def __init__(self, root: Path, name: str = DEFAULT_PLAN) -> None:
        names = tuple(sorted({checked_name(one) for one in name.split(JOINED)}))
        self.name, self.shared = JOINED.join(names), root
        self.members = (self,) if len(names) == 1 else tuple(WorkFolders(root, one) for one in names)
        shared = root
        if self.name != DEFAULT_PLAN:
            root = shared / "plans" / self.name
        self.root = root
        self.spacing_json = root / "spacing.json"  # the spacing of a plan that has prepared images of its own
        images = _finest_images(self.members) if self.is_ensemble else _images(shared, self.spacing_json)
        self.images: Path = images
        self.checks = shared / "checks"  # problems of each patient's images
        self.problems_json = shared / "problems.json"
        self.cases_json = shared / "cases.json"
        self.digests_json = shared / "digests.json"  # of files that were read once, see `baseline/release/keys.py`
        self.splits_json = shared / "splits.json"
        self.prepare_json = images / "prepare.json"  # options, versions, counts, excluded patients
        self.plan_json = root / "plan.json"
        self.plan_log = root / "plan.log"  # what nnU-Net prints while it plans
        self.networks = root / "networks"  # a copy of the package given with --networks
        self.features_json = root / "features.json"
        self.heads_json = root / "heads.json"
        self.own_heads = root / HEADS
        self.cross_validation_json = root / "cross_validation.json"
        self.report = root / "report"
        self.report_json = self.report / "report.json"
        self.segmentation = self.report / "task1"  # evaluation of the out-of-fold masks
        self.measured = root / "out_of_fold"
        self.masks = self.measured / "masks"  # in the layout of a submission
        self.unfiltered = self.measured / "unfiltered"  # masks and features before postprocessing
        self.unfiltered_features_json = self.unfiltered / "features.json"
        self.own_features_json = self.measured / "own_features.json"  # of an entrant's code
        self.postprocessing_json = root / "postprocessing.json"
        self.exported_json = root / "exported.json"  # the package that was written last
        self.nnunet = images / "nnunet"
        self.raw = self.nnunet / "raw" / DATASET_NAME
        self.preprocessed = self.nnunet / "preprocessed" / DATASET_NAME
        self.results = root / "nnunet" / "results" / DATASET_NAME
        self.plans_name = PLANS_NAME if self.name == DEFAULT_PLAN else f"{PLANS_NAME}_{self.name}"
        self.plans = self.preprocessed / f"{self.plans_name}.json"

    @property
    def name_option(self) -> str:
        """The option of the command line that chooses the plan, with a blank before it; empty for the default plan."""
        return "" if self.name == DEFAULT_PLAN else f" --name {self.name}"

    @property
    def is_ensemble(self) -> bool:
        """Whether the name joins several plans."""
        return len(self.members) > 1

    def others(self) -> list[WorkFolders]:
        """The other plans of the working directory, sorted by name; ensembles are not among them."""
        plans = [one for one in planned(self.shared) if not one.is_ensemble]
        return [one for one in plans if one.name != self.name and one.plan_json.is_file()]

    def of_reference_masks(self) -> WorkFolders:
        """The same directory with the features and heads of the reference masks, beside those of automatic masks.

        An outcome network, which sees automatic masks, is not among them.
        """
        other = WorkFolders(self.shared, self.name)
        other.measured = self.root / "reference_masks"
        other.masks = other.measured / "masks"
        other.features_json = other.measured / "features.json"
        other.own_features_json = other.measured / "own_features.json"
        other.heads_json = other.measured / "heads.json"
        other.own_heads = other.measured / HEADS
        other.cross_validation_json = other.measured / "cross_validation.json"
        return other

    def mask(self, patient_id: str) -> Path:
        """A patient's out-of-fold mask on the CT's own grid."""
        return self.masks / f"{patient_id}.nii.gz"

    def unfiltered_mask(self, patient_id: str) -> Path:
        """The same mask before postprocessing."""
        return self.unfiltered / "masks" / f"{patient_id}.nii.gz"

    def probabilities(self, patient_id: str) -> Path:
        """A patient's out-of-fold probabilities: `gtvp` and `gtvn`, uint8 of 255, (z, y, x) on the network's grid."""
        return self.measured / "probabilities" / f"{patient_id}.npz"

    def features(self, patient_id: str) -> Path:
        """A patient's unfiltered features; written after mask and probabilities, so the file stands for all."""
        return self.measured / "features" / f"{patient_id}.json"

    def uncertainty(self, patient_id: str) -> Path:
        """The uncertainty record of a patient's out-of-fold mask."""
        return self.measured / "uncertainty" / f"{patient_id}.json"

    def fold(self, fold: int, backbone: str = "unet") -> Path:
        """Folder of the checkpoints of one network."""
        return self.results / f"{TRAINER}__{self.plans_name}__{CONFIGURATIONS[backbone]}" / f"fold_{fold}"

    def final(self, fold: int, backbone: str = "unet") -> Path:
        """The checkpoint that exists once a network is trained."""
        return self.fold(fold, backbone) / "checkpoint_final.pth"

    def read(self, path: Path) -> Any:
        """Read a JSON file of this directory.

        Raises:
            HecktorError: the file is absent; the message names the step that writes it.
        """
        if not path.is_file():
            option = "" if path.parent == self.shared else self.name_option
            step = _STEPS.get(path.name, "plan")
            raise HecktorError(path.name, f"not found in {self.root.name}", f"`hecktor train {step}{option}` before")
        return read_json(path)


def checked_name(name: str) -> str:
    """The name of a plan. Raises HecktorError for one that is no plain file name."""
    if not _NAME.fullmatch(name):
        expected = "letters, digits, points, hyphens and underscores, at most 64, beginning with a letter or digit"
        raise HecktorError("name of a plan", f"found {name!r}", expected)
    return name


def planned(root: Path) -> list[WorkFolders]:
    """Every plan and ensemble in a working directory, the default one first, then sorted by name."""
    folders = sorted(path for path in (root / "plans").glob("*") if path.is_dir())
    names = [path.name for path in folders if all(_NAME.fullmatch(one) for one in path.name.split(JOINED))]
    return [WorkFolders(root, name) for name in (DEFAULT_PLAN, *names)]


def fineness(spacing_mm: Sequence[float]) -> tuple[float, ...]:
    """Sorting key of spacings (x, y, z) in mm: the smallest voxel comes first."""
    # Sorted, so that permuted spacings have exactly one volume; the spacing itself then decides.
    return (math.prod(sorted(spacing_mm)), *spacing_mm)


def _finest_images(plans: Sequence[WorkFolders]) -> Path:
    """Folder of the prepared images with the smallest voxels; that of the first plan before all are prepared."""
    prepared = {plan.images: plan.prepare_json for plan in plans}
    if len(prepared) == 1 or not all(path.is_file() for path in prepared.values()):
        return plans[0].images
    return min(prepared, key=lambda images: fineness(read_json(prepared[images])["options"]["spacing_mm"]))


def _images(shared: Path, spacing_json: Path) -> Path:
    """Folder of the prepared images: the working directory, unless the plan has a spacing of its own."""
    if not spacing_json.is_file():
        return shared
    return shared / "spacings" / "x".join(f"{step:g}" for step in read_json(spacing_json)["spacing_mm"])
