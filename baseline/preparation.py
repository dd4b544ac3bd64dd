"""Document `prepare.json`: options, versions and counts of the prepared data, excluded patients and corrections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, Field

from baseline.work import WorkFolders
from contract.documents import Document, parse_document
from contract.editions import DEFAULT_EDITION, Edition, load_edition, parse_edition
from contract.errors import HecktorError, InputError
from contract.io.files import PHANTOM_MARKER
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes

Spacing = tuple[float, float, float]
Counts = dict[str, int | dict[str, int]]
# Spacing of the preset `short`.
DEFAULT_SPACING_MM: Final = (3.0, 3.0, 3.0)
# Next step in messages about files of the release that are not found.
MOVED: Final = "where the release is now: `hecktor train prepare --release DIR`"


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
        estimate_suv: Whether PETs in Bq/ml without a plausible factor are scaled by the body.
        allow_missing: Answers whose outcome the tables may lack.
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
        smallest_lesions: Minimum lesion sizes by the reference's lesions.
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
    """Read `prepare.json`; raise `HecktorError` before `hecktor train prepare`, or for a damaged file."""
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
    """Check that the release holds phantoms, because no preset is chosen for patients.

    The preset `short` is for trials: for patients it would take days and give poor masks.

    Raises:
        HecktorError: The folder does not exist, or the release was not made by `hecktor phantoms`.
    """
    if not Path(release).is_dir():
        raise InputError(Path(release).name, "found no such folder", "the folder of a release")
    if not (Path(release) / PHANTOM_MARKER).is_file():
        problem = f"not given, and {Path(release).name} holds no phantoms"
        expected = "nnunet, resenc-m or resenc-l (short, a small network at 3 mm, is for trials)"
        raise HecktorError("--preset", problem, expected)


def resolve_spacing(
    work: WorkFolders,
    options: PrepareOptions,
    default: Spacing | None = None,
    show: Callable[[str], object] = lambda _: None,
) -> Spacing:
    """Resolve the spacing (x, y, z) to prepare: the requested spacing, the prepared images' spacing, or `default`.

    Without a default it is 3 mm for phantoms. `show` gets a line if the prepared images have another spacing than
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
