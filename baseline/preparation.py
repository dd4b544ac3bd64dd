"""`prepare.json`: options, spacing, versions and counts of the prepared data, and what was left out or corrected."""

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
# That of the preset `short`.
DEFAULT_MM: Final = (3.0, 3.0, 3.0)
# The next step where files of the release are not found.
MOVED: Final = "where the release is now: `hecktor train prepare --release DIR`"


@dataclass(frozen=True)
class PrepareOptions:
    """Options that determine the prepared data.

    `release` is the folder of the release. `spacing_mm` is the network's, (x, y, z); None keeps that of the prepared
    images, or takes the plan's if there are none (without a plan 3 mm, for phantoms alone). `keep_going` excludes cases
    with errors instead of stopping. `edition` is a name, or the path of a file. `suv_factors` is a table of
    factors for PETs in Bq/ml; `estimate_suv` scales those without a plausible factor by the body. `allow_missing`
    names answers whose outcome the tables may lack. `task` is the algorithm whose networks are trained, None for an
    edition with one network for all.
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
        """The edition, with the one algorithm of `task` where the algorithms' networks differ. Raises HecktorError."""
        return load_edition(self.edition).select_for_training(self.task)


class Preparation(Document):
    """The content of `prepare.json`.

    Attributes:
        options: options of the preparation; the spacing is known.
        versions: of the libraries, by name.
        counts: patients, by centre and with each outcome; errors and warnings of the check; patients written anew.
        left_out: patients excluded because of errors.
        removed: files of other patients that were removed.
        mask_outside_region: by patient, the share of the reference inside the region that inference segments, below 1.
        corrections: of the images, by patient.
        smallest_lesions: smallest parts of a mask that count as a lesion, by the reference's lesions.
        data: digest of the prepared images.
        seconds: time of the check and of the preparation.
        own_edition: document of an edition that is none of the package.
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
    """Read `prepare.json`. Raises `HecktorError` before `hecktor train prepare`, or for a damaged file."""
    return parse_document(work.read(work.prepare_json), Preparation, work.prepare_json.name)


def release_of(work: WorkFolders) -> Path:
    """The folder of the release, where `prepare` last found it."""
    return Path(read_preparation(work).options.release)


def edition_of(work: WorkFolders) -> Edition:
    """The edition for which the working directory was prepared."""
    preparation = read_preparation(work)
    own, options = preparation.own_edition, preparation.options
    return options.training_edition() if own is None else parse_edition(own).select_for_training(options.task)


def smallest_lesions_of(work: WorkFolders) -> MinLesionSizes:
    """The smallest parts of a mask that count as a lesion in this training."""
    return read_preparation(work).smallest_lesions


def require_phantoms(release: str) -> None:
    """Refuse to choose a preset for patients: `short`, a trial's, would cost days and give poor masks.

    Raises:
        HecktorError: no such folder, or the release was not made by `hecktor phantoms`.
    """
    if not Path(release).is_dir():
        raise InputError(Path(release).name, "found no such folder", "the folder of a release")
    if not (Path(release) / PHANTOM_MARKER).is_file():
        found = f"not given, and {Path(release).name} holds no phantoms"
        expected = "nnunet, resenc-m or resenc-l (short, a small network at 3 mm, is for trials)"
        raise HecktorError("--preset", found, expected)


def resolve_spacing(
    work: WorkFolders,
    options: PrepareOptions,
    default: Spacing | None = None,
    show: Callable[[str], object] = lambda _: None,
) -> Spacing:
    """The spacing (x, y, z) to prepare: the requested one, else that of the prepared images, else `default`.

    Without a default it is 3 mm for phantoms. `show` gets a line if the prepared images have another spacing than
    `default`. Nothing is written.

    Raises:
        HecktorError: nothing tells the spacing; or it is not that of the images of trained networks.
    """
    requested = options.spacing_mm
    prepared = read_preparation(work).spacing_mm if work.prepare_json.is_file() else None
    if prepared is None and requested is None and default is None:
        require_phantoms(options.release)
        return DEFAULT_MM
    if prepared is None or requested == prepared:
        return requested or default or DEFAULT_MM
    if requested is None:
        if default is not None and prepared != default:
            show(f"spacing: the prepared images keep {as_text(prepared)} mm; the preset has {as_text(default)} mm")
        return prepared
    if any(work.results.rglob("checkpoint_*.pth")):
        found = f"found {as_text(requested)}, and networks trained on images of {as_text(prepared)} mm"
        raise HecktorError("--spacing-mm", found, "that spacing, or a new working directory")
    return requested


def as_text(spacing: Spacing) -> str:
    """The spacing as `--spacing-mm` takes it."""
    return " ".join(f"{step:g}" for step in spacing)
