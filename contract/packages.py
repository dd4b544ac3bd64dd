"""Model packages: their manifest, unpacking, and size and sha256 of every file that the manifest lists."""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from contract import labels
from contract.archives import read_member, unpack
from contract.code import Code
from contract.documents import Document, Text, check_texts, parse_document
from contract.editions import (
    DEFAULT_EDITION,
    Algorithm,
    Edition,
    content_digest,
    list_editions,
    load_edition,
    parse_edition,
    remove_scoring,
)
from contract.editions.inputs import CT_AND_PET
from contract.errors import Finding, HecktorError, ModelPackageError, make_read_error
from contract.io.files import (
    MAX_JSON_BYTES,
    decode_text,
    list_folder,
    parse_json,
    read_bytes,
    read_json,
    suggest_folder,
)

FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
# Keys of the manifest that hold sentences.
_SENTENCES: Final = frozenset({"purpose", "intended_use", "training_data", "licence", "own_edition"})
_MAX_NAME_LETTERS: Final = 200
# Several trainings of several configurations; a prediction passes through every network.
_MAX_FOLDS: Final = 200
_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")
# The folder of the heads; an entrant's own ones have their files in folders below it.
HEADS_FOLDER: Final = "heads"
CHANNELS: Final = CT_AND_PET
# Source of an image's own scale (z-score, 0 to 1) in training: the region of head and neck, or the whole scan.
NormalisedOver = Literal["region", "scan"]


class FileEntry(Document):
    """Checksum and size in bytes of a package's file."""

    sha256: str
    size: Annotated[int, Field(ge=0)]


class PackageIdentity(Document):
    """A package's name, and the sha256 of its manifest, which holds those of all its files."""

    name: str
    manifest_sha256: str

    def __str__(self) -> str:
        return f"{self.name}, manifest sha256 {self.manifest_sha256[:12]}"


class PostprocessingRules(Document):
    """Rules on the lesions of a mask; the defaults change nothing.

    A lesion is a 26-connected component of one label on the network's grid. Its probability is that of the foreground,
    GTVp plus GTVn. A voxel is foreground if the larger of its two foreground probabilities exceeds t / (1 - t) times
    that of the background, with the threshold t.
    """

    foreground_threshold: float = Field(0.5, gt=0, lt=1, description="threshold of the foreground")
    largest_gtvp_only: bool = Field(False, description="largest GTVp only")
    gtvp_volume_ml: float = Field(0.0, ge=0, le=1e6, description="GTVp, minimum volume in ml")
    gtvn_volume_ml: float = Field(0.0, ge=0, le=1e6, description="GTVn, minimum volume in ml")
    gtvn_mean_probability: float = Field(0.0, ge=0, le=1, description="GTVn, minimum mean probability")
    gtvn_suv_max: float = Field(0.0, ge=0, le=1e6, description="GTVn, minimum SUVmax")

    def as_json(self) -> dict[str, Any]:
        """The rules that differ from the defaults."""
        return self.model_dump(exclude_defaults=True)

    @classmethod
    def describe_rule(cls, rule: str) -> str:
        """A rule in words, for log, record and report."""
        return cls.model_fields[rule].description or rule


NO_RULES: Final = PostprocessingRules()


class MinLesionSizes(Document):
    """Smallest 26-connected parts of GTVp and GTVn, in ml, that count as a lesion.

    Smaller ones are specks: they have no number, shape, position and stage. The defaults are a sphere of 6 mm.
    """

    gtvp_ml: float = Field(0.1, ge=0, le=1e3)
    gtvn_ml: float = Field(0.1, ge=0, le=1e3)

    def get_ml(self, label: int) -> float:
        """The limit of a label."""
        return self.gtvp_ml if label == labels.GTVP else self.gtvn_ml


DEFAULT_MIN_LESION_SIZES: Final = MinLesionSizes()


class DscCalibration(Document):
    """A monotone map from the networks' expected DSC of a label to the DSC of out-of-fold masks.

    Values between nodes are interpolated, others take the DSC of the nearest node.
    """

    expected: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]
    dsc: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_order(self) -> DscCalibration:
        rises = all(first < second for first, second in pairwise(self.expected))
        if not rises or list(self.dsc) != sorted(self.dsc) or len(self.dsc) != len(self.expected):
            raise ValueError("as many rising numbers of expected as numbers of dsc that do not fall")
        return self

    def calibrate(self, expected: float) -> float:
        """Return the DSC for an expected DSC."""
        place = bisect_right(self.expected, expected)
        if place == 0:
            return self.dsc[0]
        if place == len(self.expected):
            return self.dsc[-1]
        low, high = self.expected[place - 1 : place + 1]
        share = (expected - low) / (high - low)
        return self.dsc[place - 1] + share * (self.dsc[place] - self.dsc[place - 1])


class Manifest(Document):
    """The manifest of a model package.

    Attributes:
        format_version: version of the package format.
        name: name of the package.
        purpose: what the package may be used for.
        intended_use: tasks and users.
        training_data: description of the training data.
        licence: licence of the package.
        edition: the challenge's edition.
        own_edition: its document if it is none of this project's.
        channels: CT and PET, or the images of MR and the structures of masks that the networks of one task see.
        labels: names of the mask's labels.
        configuration: the nnU-Net configuration whose grid has the answer.
        folds: weight files, the most valuable first; of an entrant's own network a folder.
        fold_configurations: configuration of each fold; None if all have `configuration`.
        mirror_axes: axes (z, y, x) of test-time augmentation.
        average: quantity that the passes average.
        normalised_over: source of an image's own scale in training.
        resampling: by `hecktor train prepare`, or by nnU-Net from the whole scan.
        postprocessing: rules on lesions; None for the label with the highest probability.
        smallest_lesions: volumes below which a part of the mask is no lesion for features and stages.
        fallbacks: values for answers whose head fails, by head.
        expected_dsc: maps of the expected DSC by label, from out-of-fold masks; a label without one keeps it.
        training: patients, centres, folds, seed and plan of the training.
        networks_from: the package whose networks were reused.
        out_of_fold: metric and setting of each head.
        cross_validation: metrics of each head's cross-validations.
        code: sha256 of each folder of an entrant's code that the package was made with, by its name.
        files: checksum and size of every other file.
    """

    format_version: Literal[1]
    name: Text
    purpose: Text
    intended_use: str | None = None
    training_data: str | None = None
    licence: str | None = None
    edition: str
    own_edition: dict[str, Any] | None = None
    channels: list[str]
    labels: dict[str, str]
    configuration: str
    folds: Annotated[list[str], Field(min_length=1, max_length=_MAX_FOLDS)]
    fold_configurations: list[str] | None = None
    mirror_axes: list[Literal[0, 1, 2]] = Field(default_factory=list)
    average: Literal["logits", "probabilities"] = "logits"
    normalised_over: NormalisedOver = "region"
    resampling: Literal["grid", "nnunet"] = "grid"
    postprocessing: PostprocessingRules | None = None
    smallest_lesions: MinLesionSizes = DEFAULT_MIN_LESION_SIZES
    fallbacks: dict[str, Any] = Field(default_factory=dict)
    expected_dsc: dict[Literal["GTVp", "GTVn"], DscCalibration] = Field(default_factory=dict)
    training: dict[str, Any] | None = None
    networks_from: dict[str, Any] | None = None
    out_of_fold: dict[str, Any] | None = None
    cross_validation: dict[str, Any] | None = None
    code: dict[str, str] = Field(default_factory=dict)
    files: dict[str, FileEntry]

    @model_validator(mode="after")
    def _check(self) -> Manifest:
        names = {str(value): name for value, name in labels.NAMES.items()}
        for key, wanted in (("channels", self._known_channels()), ("labels", [names])):
            if (value := getattr(self, key)) not in wanted:
                expected = " or ".join(map(repr, wanted))
                raise ModelPackageError(f"{MANIFEST}.{key}", f"found {value!r}", expected)
        if len(set(self.folds)) < len(self.folds):
            twice = next(name for place, name in enumerate(self.folds) if name in self.folds[:place])
            raise ModelPackageError(f"{MANIFEST}.folds", f"found {twice!r} twice", "each fold once")
        for name in self.code:
            if not name.isidentifier():
                expected = "the name of an importable folder, such as my_model"
                raise ModelPackageError(f"{MANIFEST}.code", f"found {name!r}", expected)
        if len(self.configurations) != len(self.folds):
            found = f"found {self.fold_configurations!r}"
            raise ModelPackageError(f"{MANIFEST}.fold_configurations", found, f"{len(self.folds)}, one for each fold")
        return self

    def _known_channels(self) -> list[list[str]]:
        """The channels of each of the edition's algorithms."""
        if self.own_edition is None and self.edition not in list_editions():
            return [list(CHANNELS)]
        own = self.own_edition
        edition = load_edition(self.edition) if own is None else parse_edition(own, f"{MANIFEST}.own_edition")
        return [list(channels) for channels in dict.fromkeys(one.channels for one in edition.algorithms)]

    @property
    def configurations(self) -> tuple[str, ...]:
        """The nnU-Net configuration of each fold."""
        return tuple(self.fold_configurations or [self.configuration] * len(self.folds))

    def as_json(self) -> dict[str, Any]:
        """The keys that were given."""
        return self.model_dump(mode="json", exclude_unset=True)


@contextmanager
def open_package(package: Path) -> Iterator[Path]:
    """The folder of a model package; a `.tar.gz` is unpacked to a temporary folder, which is removed at the end.

    Raises:
        ModelPackageError: not a model package.
    """
    check_is_package(package)
    if package.is_dir():
        yield package
        return
    with tempfile.TemporaryDirectory(prefix="hecktor-model-", ignore_cleanup_errors=True) as folder:
        unpack(package, Path(folder))
        yield Path(folder)


def check_is_package(path: Path) -> None:
    """Check that this is a folder with a manifest, or a file that may be an archive. Raises `ModelPackageError`."""
    name = path.name or path.resolve().name
    if not path.exists():
        raise ModelPackageError(name, "not found", "a model package, as a folder or .tar.gz")
    if path.suffix == ".pth":
        raise ModelPackageError(name, "found a checkpoint", "a model package; `hecktor package` makes one")
    if path.is_dir() and not (path / MANIFEST).is_file():
        # A package without its manifest has files named fold_*.
        if any(one.is_dir() for below in ("", "*/", "*/*/") for one in path.glob(f"{below}fold_*")):
            found = "found nnU-Net's results"
            raise ModelPackageError(name, found, "a model package; `hecktor package --nnunet` makes one")
        _refuse_packed(path)
        nearby = suggest_folder(path, lambda one: (one / MANIFEST).is_file())
        raise ModelPackageError(name, f"no {MANIFEST}{nearby}", "a model package")


def _refuse_packed(folder: Path) -> None:
    """Raise `ModelPackageError` for a folder that holds the archive of a package instead of its files."""
    archives = [path for path in list_folder(folder) if path.name.endswith(_ARCHIVES) and path.is_file()]
    if archives:
        found = f"found the archive {archives[0].name}, which is not unpacked"
        unpacking = shlex.join(("tar", "-xzf", str(archives[0]), "-C", str(folder)))
        expected = f"its content in a folder: {unpacking} (the platform unpacks an uploaded model itself)"
        raise ModelPackageError(str(folder), found, expected)


def read_identity(package: Path) -> PackageIdentity:
    """The name and checksum of a package, a folder or a `.tar.gz`.

    Raises:
        ModelPackageError: not a model package.
    """
    content = _manifest_bytes(package)
    return PackageIdentity(
        name=str(_manifest_object(content).get("name", "")), manifest_sha256=hashlib.sha256(content).hexdigest()
    )


def chosen_edition(name_or_file: str | None, package: Path | None) -> Edition:
    """The edition that `--edition` names, else that of the package, a folder or a `.tar.gz`, else the default one.

    Raises:
        HecktorError: no such edition; not a model package, or one of an edition that it does not hold.
    """
    if name_or_file is not None or package is None:
        return load_edition(name_or_file or DEFAULT_EDITION)
    manifest = _manifest_object(_manifest_bytes(package))
    edition, own = manifest.get("edition"), manifest.get("own_edition")
    if edition in list_editions():
        return load_edition(edition)
    if not isinstance(own, dict):
        expected = f"one of {', '.join(list_editions())}, or its file as --edition"
        raise ModelPackageError(MANIFEST, f"found edition {edition!r}", expected)
    return parse_edition(own, f"{MANIFEST}.own_edition")


def make_edition_hint(edition: Edition, option: str | None, package: Path | None) -> str:
    """Return which package gave the edition, for the error of a task that the edition does not have."""
    if option is not None or package is None:
        return ""
    return f" (edition {edition.name} is that of the package {package}; --edition names another one)"


def _manifest_object(content: bytes) -> dict[str, Any]:
    text = decode_text(content, MANIFEST, "a JSON file", error=ModelPackageError)
    manifest = parse_json(text, MANIFEST, error=ModelPackageError)
    if not isinstance(manifest, dict):
        raise ModelPackageError(MANIFEST, f"found a {type(manifest).__name__}", "an object")
    _check_manifest_texts(manifest)
    return manifest


def _check_manifest_texts(manifest: Mapping[str, Any]) -> None:
    """Refuse names that would forge lines of a log; sentences about the package may have several lines."""
    names = {key: value for key, value in manifest.items() if key not in _SENTENCES}
    check_texts(names, MANIFEST, ModelPackageError)
    check_texts(names.get("name"), f"{MANIFEST}.name", ModelPackageError, _MAX_NAME_LETTERS)


def _manifest_bytes(package: Path) -> bytes:
    check_is_package(package)
    if package.is_dir():
        return read_bytes(package / MANIFEST, "a JSON file", error=ModelPackageError, max_bytes=MAX_JSON_BYTES)
    return read_member(package, MANIFEST, max_bytes=MAX_JSON_BYTES)


def make_file_entry(path: Path) -> dict[str, Any]:
    """The manifest's entry for a file: `sha256` and `size` in bytes."""
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of the package in `root`.

    Raises:
        ModelPackageError: it is absent, incomplete, of another format version, or has unknown keys.
    """
    content = read_json(root / MANIFEST, error=ModelPackageError)
    if isinstance(content, dict):
        version = content.get("format_version", FORMAT_VERSION)
        if version != FORMAT_VERSION:  # before the keys, which another version may have changed
            raise ModelPackageError(MANIFEST, f"format version {version!r}", f"{FORMAT_VERSION}")
        _check_manifest_texts(content)
    return parse_document(content, Manifest, MANIFEST, error=ModelPackageError)


def check_code(manifest: Manifest, code: Code, *, is_given: bool) -> list[Finding]:
    """Check that the code that a package names is there; findings for code that changed since the package was made.

    `is_given` is true for `--code`, which must then have something to do.

    Raises:
        ModelPackageError: code is missing.
        HecktorError: code was given that the package does not name.
    """
    for name in manifest.code:
        if name not in code.folders:
            raise ModelPackageError(MANIFEST, f"found code {name}", f"--code {name}, or an image built with it")
    for name in code.folders if is_given else ():
        if name not in manifest.code:
            named = ", ".join(manifest.code) or "none"
            raise HecktorError("--code", f"found {name}", f"code that {manifest.name} names ({named})")
    changed = [name for name, digest in manifest.code.items() if code.digest(name) != digest]
    expected, action = "the code with which the package was made", "the present code answers"
    return [Finding(f"code {name}", "another version", expected, action) for name in changed]


def make_edition_entries(edition: Edition) -> dict[str, Any]:
    """The manifest's entries for an edition, with the document of an edition of your own."""
    is_own = edition.content is not None and edition.name not in list_editions()
    return {"edition": edition.name, **({"own_edition": edition.content} if is_own else {})}


def check_edition(manifest: Manifest, edition: Edition, algorithm: Algorithm | None = None) -> None:
    """Check that a package was made for this edition and, if given, its algorithm. Raises `ModelPackageError`."""
    if manifest.edition != edition.name:
        raise ModelPackageError(MANIFEST, f"found edition {manifest.edition!r}", repr(edition.name))
    if algorithm is not None and manifest.channels != list(algorithm.channels):
        expected = f"{', '.join(algorithm.channels)}, the images of task {algorithm.name}"
        raise ModelPackageError(MANIFEST, f"found channels {', '.join(manifest.channels)}", expected)
    if manifest.own_edition is None or edition.content is None:
        return
    mine, theirs = remove_scoring(manifest.own_edition), remove_scoring(edition.content)
    if mine != theirs:
        found = f"found edition {edition.name!r} with another declaration (sha256 {content_digest(mine)})"
        raise ModelPackageError(MANIFEST, found, f"that of --edition (sha256 {content_digest(theirs)})")


def verify_files(root: Path, manifest: Manifest) -> dict[str, Path]:
    """Paths of all files that a manifest lists, by name.

    A file that the package lacks may lie in the default edition's package beside it, with which the shipped packages
    share their networks; its size and checksum are the manifest's all the same.

    Raises:
        ModelPackageError: a file is missing, unreadable or altered, or its name leads out of the package.
    """
    return {name: _verified_file(root, name, entry) for name, entry in manifest.files.items()}


def _verified_file(root: Path, name: str, entry: FileEntry) -> Path:
    own, shared = root / name, root.resolve().parent / DEFAULT_EDITION / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ModelPackageError(MANIFEST, f"file name {name!r} leads out of the package")
    try:
        path = own if own.exists() or not shared.is_file() else shared
        if not path.is_file():
            raise ModelPackageError(name, "not in the model package, though its manifest lists it")
        actual = make_file_entry(path)
    except OSError as problem:
        expected = "a file that every user may read, as after `chmod -R a+rX` of the package"
        raise make_read_error(name, problem, ModelPackageError, expected) from None
    if actual["size"] != entry.size:
        raise ModelPackageError(name, f"{actual['size']} bytes", f"{entry.size}")
    if actual["sha256"] != entry.sha256:
        expected = f"{entry.sha256[:12]}... (checksum mismatch: the file was modified)"
        raise ModelPackageError(name, f"sha256 {actual['sha256'][:12]}...", expected)
    return path
