"""A training's working directory: its files, and the document `prepare.json` about the prepared data.

The working directory contains the prepared data set, the networks of one plan and their results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, Field

from algorithm.network.backbones import BACKBONES
from contract.documents import Document, parse_document
from contract.editions import DEFAULT_EDITION, Edition, load_edition, parse_edition
from contract.errors import HecktorError, InputError, ModelPackageError
from contract.io.files import PHANTOM_MARKER, read_json
from contract.packages import DEFAULT_MIN_LESION_SIZES, HEADS_FOLDER, MANIFEST, MinLesionSizes

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
# Value of `--masks` that selects the release's reference masks.
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

Spacing = tuple[float, float, float]
Counts = dict[str, int | dict[str, int]]
# Spacing of the preset `short`.
DEFAULT_SPACING_MM: Final = (3.0, 3.0, 3.0)
# Next step in messages about files of the release that are not found.
MOVED: Final = "where the release is now: `hecktor train prepare --release DIR`"


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
        self.networks = root / "networks"  # a copy of the package of --networks
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
        """Return the same directory with the features and heads of the reference masks, in a separate folder."""
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

        The file contains `gtvp` and `gtvn`, uint8 with 255 for 1, (z, y, x) on the network's grid.
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
            raise HecktorError(path.name, f"not found in {self.root.name}", f"`hecktor train {step}` first")


def require_nnunet_results(folder: Path) -> None:
    """Check that the folder contains nnU-Net's results; otherwise raise `ModelPackageError`."""
    if (folder / MANIFEST).is_file():
        raise ModelPackageError(folder.resolve().name, "found a model package", "nnU-Net's results")
    if not (folder / "plans.json").is_file():
        raise ModelPackageError(folder.name, "no plans.json", NNUNET_RESULTS)


@dataclass(frozen=True)
class PrepareOptions:
    """Options that determine the prepared data.

    Attributes:
        release: Folder of the release.
        spacing_mm: Spacing of the networks, (x, y, z). None keeps the spacing of the prepared images. If there are no
            prepared images, None takes the plan's spacing, or without a plan 3 mm, for phantoms only.
        folds: Number of balanced folds.
        seed: Seed of splits, training and heads.
        keep_going: Whether cases with errors are excluded; otherwise they end the preparation.
        edition: Name of an edition, or path of its file.
        suv_factors: Table of factors for PETs in Bq/ml.
        estimate_suv: Whether PETs in Bq/ml without a plausible factor are scaled by the uptake of muscle and fat.
        allow_missing: Answers whose outcome may be missing in the tables.
        task: Algorithm whose networks are trained; None if one network serves all algorithms of the edition.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    release: str
    spacing_mm: Spacing | None = None
    folds: int = 5
    seed: int = 0
    keep_going: bool = False
    edition: str = DEFAULT_EDITION
    suv_factors: str | None = None
    estimate_suv: bool = False
    allow_missing: tuple[str, ...] = ()
    task: str | None = None

    def training_edition(self) -> Edition:
        """Load the edition, with only the algorithm of `task` if the networks of its algorithms differ.

        Raises:
            HecktorError: The edition cannot be loaded or has no such task.
        """
        return load_edition(self.edition).select_for_training(self.task)


class Preparation(Document):
    """The content of `prepare.json`.

    Attributes:
        options: Options of the preparation, with the spacing.
        versions: Versions of the libraries, by name.
        counts: Numbers of patients, by centre and with each outcome; of errors and warnings of the check; of patients
            that were written in this run.
        left_out: Patients excluded because of errors.
        removed: Removed files of other patients.
        mask_outside_region: Fraction of the reference inside the region that inference segments, for patients with a
            fraction below 1.
        corrections: Corrections of the images, by patient.
        smallest_lesions: Minimum lesion sizes, from the lesions of the references.
        data: Digest of the prepared images.
        seconds: Time of the check and of the preparation.
        own_edition: Document of a custom edition; None for an edition of the package.
    """

    options: PrepareOptions
    versions: dict[str, str] = Field(default_factory=dict)
    counts: Counts = Field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    mask_outside_region: dict[str, float] = Field(default_factory=dict)
    corrections: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    smallest_lesions: MinLesionSizes = DEFAULT_MIN_LESION_SIZES
    data: str = ""
    seconds: dict[str, float] = Field(default_factory=dict)
    own_edition: dict[str, Any] | None = None

    @property
    def spacing_mm(self) -> Spacing:
        assert self.options.spacing_mm is not None  # noqa: S101  `prepare_release` chose it
        return self.options.spacing_mm


def read_preparation(work: WorkFolders) -> Preparation:
    """Read `prepare.json`; raise `HecktorError` if it is damaged, or if `prepare` has not been run."""
    return parse_document(work.read(work.prepare_json), Preparation, work.prepare_json.name)


def read_release_folder(work: WorkFolders) -> Path:
    """Read the folder of the release, where `prepare` last found it."""
    return Path(read_preparation(work).options.release)


def read_training_edition(work: WorkFolders) -> Edition:
    """Read the edition for which the working directory was prepared."""
    preparation = read_preparation(work)
    options = preparation.options
    if preparation.own_edition is None:
        return options.training_edition()
    return parse_edition(preparation.own_edition).select_for_training(options.task)


def read_min_lesion_sizes(work: WorkFolders) -> MinLesionSizes:
    """Read the minimum lesion sizes of this training."""
    return read_preparation(work).smallest_lesions


def require_phantoms(release: str) -> None:
    """Check that the release contains phantoms, because no preset is chosen for patients.

    The preset `short` is for trials: for patients it would take days and give poor masks.

    Raises:
        HecktorError: The folder does not exist, or the release was not made by `hecktor phantoms`.
    """
    if not Path(release).is_dir():
        raise InputError(Path(release).name, "found no such folder", "the folder of a release")
    if not (Path(release) / PHANTOM_MARKER).is_file():
        problem = f"not given, and {Path(release).name} contains no phantoms"
        expected = "nnunet, resenc-m or resenc-l (short, a small network at 3 mm, is for trials)"
        raise HecktorError("--preset", problem, expected)


def resolve_spacing(
    work: WorkFolders,
    options: PrepareOptions,
    default: Spacing | None = None,
    show: Callable[[str], object] = lambda _: None,
) -> Spacing:
    """Resolve the spacing (x, y, z) to prepare: the requested spacing, the prepared images' spacing, or `default`.

    Without a default it is 3 mm for phantoms. `show` is called if the prepared images have another spacing than
    `default`. Nothing is written.

    Raises:
        HecktorError: The spacing is unknown, or networks were trained on images of another spacing.
    """
    requested = options.spacing_mm
    prepared = read_preparation(work).spacing_mm if work.prepare_json.is_file() else None
    if prepared is None and requested is None and default is None:
        require_phantoms(options.release)
        return DEFAULT_SPACING_MM
    if prepared is None or requested == prepared:
        return requested or default or DEFAULT_SPACING_MM
    if requested is None:
        if default is not None and prepared != default:
            present, preset = format_spacing(prepared), format_spacing(default)
            show(f"spacing: the prepared images keep {present} mm; the preset has {preset} mm")
        return prepared
    if any(work.results.rglob("checkpoint_*.pth")):
        trained = format_spacing(prepared)
        problem = f"found {format_spacing(requested)}, and networks trained on images of {trained} mm"
        raise HecktorError("--spacing-mm", problem, "that spacing, or a new working directory")
    return requested


def format_spacing(spacing: Spacing) -> str:
    """Format the spacing as `--spacing-mm` takes it."""
    return " ".join(f"{step:g}" for step in spacing)
