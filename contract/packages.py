"""Read model packages: unpack them, and check their manifest and the files that it lists."""

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
    compute_content_digest,
    list_editions,
    load_edition,
    parse_edition,
    remove_scoring,
)
from contract.editions.inputs import CT_AND_PET
from contract.errors import Finding, ModelPackageError, make_read_error
from contract.io.files import (
    MAX_JSON_BYTES,
    decode_text,
    list_folder,
    parse_json,
    read_bytes,
    read_json,
    suggest_folder,
)

# Version 2 marks a package in which a network has its labels in another order. A reader of version 1 refuses such a
# package instead of ignoring that order.
FORMAT_VERSION: Final = 1
REORDERED_FORMAT_VERSION: Final = 2
MANIFEST: Final = "manifest.json"
# Keys of the manifest that contain free text, which may have several lines.
_SENTENCES: Final = frozenset({"purpose", "intended_use", "training_data", "licence", "own_edition"})
_MAX_NAME_LENGTH: Final = 200
# A package may contain several trainings of several configurations; a prediction runs every network.
_MAX_FOLDS: Final = 200
_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")
# The folder of the heads. The files of custom heads are in folders below it.
HEADS_FOLDER: Final = "heads"
CHANNELS: Final = CT_AND_PET
# Keys of a configuration: for each channel of the network its number among the manifest's channels, and for each output
# its number among the manifest's labels. A configuration without them has the manifest's order.
CHANNEL_NUMBERS: Final = "channels"
LABEL_NUMBERS: Final = "labels"
# Part of the scan that determined the scale of an image (z-score, 0 to 1) in training: head and neck, or the whole
# scan.
NormalisedOver = Literal["region", "scan"]


class FileEntry(Document):
    """Checksum and size in bytes of a file in a package."""

    sha256: str
    size: Annotated[int, Field(ge=0)]


class PackageIdentity(Document):
    """Name of a package and sha256 of its manifest, which contains the sha256 of every other file."""

    name: str
    manifest_sha256: str

    def __str__(self) -> str:
        return f"{self.name}, manifest sha256 {self.manifest_sha256[:12]}"


class PostprocessingRules(Document):
    """Rules on the lesions of a mask; the defaults change nothing.

    A lesion is a 26-connected component of one label on the network's grid. Its probability is the sum of the
    probabilities of GTVp and GTVn. A voxel is foreground if the larger of these two probabilities exceeds t / (1 - t)
    times the probability of the background, with the threshold t.
    """

    foreground_threshold: float = Field(0.5, gt=0, lt=1, description="threshold of the foreground")
    largest_gtvp_only: bool = Field(False, description="largest GTVp only")
    gtvp_volume_ml: float = Field(0.0, ge=0, le=1e6, description="GTVp, minimum volume in ml")
    gtvn_volume_ml: float = Field(0.0, ge=0, le=1e6, description="GTVn, minimum volume in ml")
    gtvn_mean_probability: float = Field(0.0, ge=0, le=1, description="GTVn, minimum mean probability")
    gtvn_suv_max: float = Field(0.0, ge=0, le=1e6, description="GTVn, minimum SUVmax")
    gtvn_total_ml: float = Field(0.0, ge=0, le=1e6, description="GTVn, minimum total volume of a case in ml")

    def as_json(self) -> dict[str, Any]:
        """Return the rules that differ from the defaults."""
        return self.model_dump(exclude_defaults=True)

    @classmethod
    def describe_rule(cls, rule: str) -> str:
        """Describe a rule in words, for log, record and report."""
        return cls.model_fields[rule].description or rule


NO_RULES: Final = PostprocessingRules()


class MinLesionSizes(Document):
    """Volumes in ml of the smallest 26-connected parts of GTVp and GTVn that count as a lesion.

    Smaller parts do not enter the number, shape, position and stage of lesions. The default is about the volume of a
    sphere 6 mm in diameter.
    """

    gtvp_ml: float = Field(0.1, ge=0, le=1e3)
    gtvn_ml: float = Field(0.1, ge=0, le=1e3)

    def get_ml(self, label: int) -> float:
        """Return the volume for a label."""
        return self.gtvp_ml if label == labels.GTVP else self.gtvn_ml


DEFAULT_MIN_LESION_SIZES: Final = MinLesionSizes()


class DscCalibration(Document):
    """A monotone map from the DSC of a label that the networks expect to the DSC of out-of-fold masks.

    Between nodes the map is linear; beyond them it is constant.
    """

    expected: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]
    dsc: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_order(self) -> DscCalibration:
        is_increasing = all(first < second for first, second in pairwise(self.expected))
        if not is_increasing or list(self.dsc) != sorted(self.dsc) or len(self.dsc) != len(self.expected):
            raise ValueError("increasing numbers in expected, and as many numbers in dsc that never decrease")
        return self

    def calibrate(self, expected: float) -> float:
        """Map an expected DSC to the DSC of out-of-fold masks."""
        node = bisect_right(self.expected, expected)
        if node == 0:
            return self.dsc[0]
        if node == len(self.expected):
            return self.dsc[-1]
        low, high = self.expected[node - 1 : node + 1]
        fraction = (expected - low) / (high - low)
        return self.dsc[node - 1] + fraction * (self.dsc[node] - self.dsc[node - 1])


class Manifest(Document):
    """The manifest of a model package.

    Attributes:
        format_version: Version of the package format; 2 if a network has the labels in another order.
        name: Name of the package.
        purpose: Purpose for which the package may be used.
        intended_use: Tasks and users.
        training_data: Description of the training data.
        licence: Licence of the package.
        edition: Name of the challenge's edition.
        own_edition: Document of a custom edition.
        channels: Input channels of the networks, see `Algorithm.channels`.
        labels: Names of the mask's labels.
        configuration: The nnU-Net configuration on whose grid the mask is computed.
        folds: Weight files, or folders of custom networks. The most valuable fold comes first.
        fold_configurations: Configuration of each fold; None if all folds have `configuration`.
        mirror_axes: Axes (z, y, x) of test-time augmentation.
        average: Quantity that is averaged over the passes.
        normalised_over: Part of the scan that determined the scale of an image in training.
        resampling: "grid" if `hecktor train prepare` resampled the training images, "nnunet" if nnU-Net did.
        postprocessing: Rules on lesions; None for the label with the highest probability.
        smallest_lesions: Volumes of the smallest lesions that features and stages count.
        fallbacks: Values for answers whose head fails, by head.
        expected_dsc: Maps of the expected DSC by label. The expected DSC of another label is not changed.
        training: Patients, centres, folds, seed and plan of the training.
        networks_from: The package whose networks were reused.
        out_of_fold: Metric and setting of each head.
        cross_validation: Metrics of each head's cross-validations.
        code: The sha256 of each folder of user code that was used to make the package, by the folder's name.
        files: Checksum and size of every other file.
    """

    format_version: Literal[1, 2]
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
        possible_channels = self._list_possible_channels()
        if self.channels not in possible_channels:
            expected = " or ".join(map(repr, possible_channels))
            raise ModelPackageError(f"{MANIFEST}.channels", f"found {self.channels!r}", expected)
        names = {str(label): name for label, name in labels.NAMES.items()}
        if self.labels != names:
            raise ModelPackageError(f"{MANIFEST}.labels", f"found {self.labels!r}", repr(names))
        for place, fold in enumerate(self.folds):
            if fold in self.folds[:place]:
                raise ModelPackageError(f"{MANIFEST}.folds", f"found {fold!r} twice", "each fold once")
        for name in self.code:
            if not name.isidentifier():
                expected = "the name of an importable folder, such as my_model"
                raise ModelPackageError(f"{MANIFEST}.code", f"found {name!r}", expected)
        if len(self.configurations) != len(self.folds):
            expected = f"{len(self.folds)}, one for each fold"
            raise ModelPackageError(f"{MANIFEST}.fold_configurations", f"found {self.fold_configurations!r}", expected)
        return self

    def _list_possible_channels(self) -> list[list[str]]:
        """List the channels of the edition's algorithms, without repetitions."""
        if self.own_edition is not None:
            edition = parse_edition(self.own_edition, f"{MANIFEST}.own_edition")
        elif self.edition in list_editions():
            edition = load_edition(self.edition)
        else:
            return [list(CHANNELS)]
        return [list(channels) for channels in dict.fromkeys(algorithm.channels for algorithm in edition.algorithms)]

    @property
    def configurations(self) -> tuple[str, ...]:
        """The nnU-Net configuration of each fold."""
        return tuple(self.fold_configurations or [self.configuration] * len(self.folds))

    def as_json(self) -> dict[str, Any]:
        """Return the keys that the file contains."""
        return self.model_dump(mode="json", exclude_unset=True)


@contextmanager
def open_package(package: Path) -> Iterator[Path]:
    """Yield the folder of a model package. A `.tar.gz` is unpacked to a temporary folder for the duration of the block.

    Raises:
        ModelPackageError: The path is not a model package.
    """
    check_is_package(package)
    if package.is_dir():
        yield package
        return
    with tempfile.TemporaryDirectory(prefix="hecktor-model-", ignore_cleanup_errors=True) as folder:
        unpack(package, Path(folder))
        yield Path(folder)


def check_is_package(path: Path) -> None:
    """Check that a path is a folder with a manifest, or a file that may be an archive.

    Raises:
        ModelPackageError: The path is neither. The message says what it is instead, and which command helps.
    """
    name = path.name or path.resolve().name
    if not path.exists():
        raise ModelPackageError(name, "not found", "a model package, as a folder or .tar.gz")
    if path.suffix == ".pth":
        raise ModelPackageError(name, "found a checkpoint", "a model package; `hecktor package` makes one")
    if path.is_dir() and not (path / MANIFEST).is_file():
        # In nnU-Net's results fold_* are folders; in a package they are files.
        if any(fold.is_dir() for level in ("", "*/", "*/*/") for fold in path.glob(f"{level}fold_*")):
            expected = "a model package; `hecktor package --nnunet` makes one"
            raise ModelPackageError(name, "found nnU-Net's results", expected)
        _check_is_unpacked(path)
        nearby = suggest_folder(path, lambda folder: (folder / MANIFEST).is_file())
        raise ModelPackageError(name, f"no {MANIFEST}{nearby}", "a model package")


def _check_is_unpacked(folder: Path) -> None:
    """Raise `ModelPackageError` if a folder contains the archive of a package instead of its files."""
    archives = [path for path in list_folder(folder) if path.name.endswith(_ARCHIVES) and path.is_file()]
    if archives:
        problem = f"found the archive {archives[0].name}, which is not unpacked"
        command = shlex.join(("tar", "-xzf", str(archives[0]), "-C", str(folder)))
        expected = f"its content in a folder: {command} (the platform unpacks an uploaded model itself)"
        raise ModelPackageError(str(folder), problem, expected)


def read_identity(package: Path) -> PackageIdentity:
    """Read the name and checksum of a package, which is a folder or a `.tar.gz`.

    Raises:
        ModelPackageError: The path is not a model package.
    """
    content = _read_manifest_bytes(package)
    name = str(_parse_manifest(content).get("name", ""))
    return PackageIdentity(name=name, manifest_sha256=hashlib.sha256(content).hexdigest())


# Names that release 0.2 had, for scripts that import them.
package_folder = open_package
package_identity = read_identity


def chosen_edition(name_or_file: str | None, package: Path | None) -> Edition:
    """Load the edition that `--edition` names, otherwise the edition of the package, otherwise the default edition.

    Args:
        name_or_file: Value of `--edition`; None without the option.
        package: A folder or a `.tar.gz`; None without a package.

    Raises:
        HecktorError: The edition does not exist, the path is not a model package, or the package does not contain the
            document of its edition.
    """
    if name_or_file is not None or package is None:
        return load_edition(name_or_file or DEFAULT_EDITION)
    manifest = _parse_manifest(_read_manifest_bytes(package))
    name = manifest.get("edition")
    if name in list_editions():
        return load_edition(name)
    document = manifest.get("own_edition")
    if not isinstance(document, dict):
        expected = f"one of {', '.join(list_editions())}, or its file as --edition"
        raise ModelPackageError(MANIFEST, f"found edition {name!r}", expected)
    return parse_edition(document, f"{MANIFEST}.own_edition")


def make_edition_hint(edition: Edition, option: str | None, package: Path | None) -> str:
    """Name the package from which the edition was read, for the error about a task that the edition does not have.

    Returns:
        The end of a message; empty if `--edition` named the edition or there is no package.
    """
    if option is not None or package is None:
        return ""
    return f" (the package {package} has the edition {edition.name}; --edition names another one)"


def _parse_manifest(content: bytes) -> dict[str, Any]:
    text = decode_text(content, MANIFEST, "a JSON file", error=ModelPackageError)
    manifest = parse_json(text, MANIFEST, error=ModelPackageError)
    if not isinstance(manifest, dict):
        raise ModelPackageError(MANIFEST, f"found a {type(manifest).__name__}", "an object")
    _check_names(manifest)
    return manifest


def _check_names(manifest: Mapping[str, Any]) -> None:
    """Check that all strings are single printable lines, except the free texts about the package."""
    names = {key: value for key, value in manifest.items() if key not in _SENTENCES}
    check_texts(names, MANIFEST, ModelPackageError)
    check_texts(names.get("name"), f"{MANIFEST}.name", ModelPackageError, _MAX_NAME_LENGTH)


def _read_manifest_bytes(package: Path) -> bytes:
    check_is_package(package)
    if package.is_dir():
        return read_bytes(package / MANIFEST, "a JSON file", error=ModelPackageError, max_bytes=MAX_JSON_BYTES)
    return read_member(package, MANIFEST, max_bytes=MAX_JSON_BYTES)


def make_file_entry(path: Path) -> dict[str, Any]:
    """Make the manifest's entry for a file: `sha256` and `size` in bytes."""
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of the package in `root`.

    Raises:
        ModelPackageError: The manifest does not exist, is incomplete, has another format version or unknown keys.
    """
    content = read_json(root / MANIFEST, error=ModelPackageError)
    if isinstance(content, dict):
        version = content.get("format_version", FORMAT_VERSION)
        # Checked before the keys, which may differ in another version.
        if version not in (FORMAT_VERSION, REORDERED_FORMAT_VERSION):
            expected = f"{FORMAT_VERSION} or {REORDERED_FORMAT_VERSION}"
            raise ModelPackageError(MANIFEST, f"format version {version!r}", expected)
        _check_names(content)
    return parse_document(content, Manifest, MANIFEST, error=ModelPackageError)


def check_code(manifest: Manifest, code: Code, *, is_from_option: bool) -> list[Finding]:
    """Check that the user code that a package names is available.

    Args:
        manifest: Manifest of the package.
        code: The available code.
        is_from_option: Whether the code was named by `--code`; then unused code is a finding.

    Returns:
        Findings about code that changed since the package was made, and code that the package does not use, such as
        a custom head without skill.

    Raises:
        ModelPackageError: Code is missing.
    """
    for name in manifest.code:
        if name not in code.folders:
            raise ModelPackageError(MANIFEST, f"found code {name}", f"--code {name}, or an image built with it")
    unused = [name for name in code.folders if is_from_option and name not in manifest.code]
    known = ", ".join(manifest.code) or "none"
    expected = "the code with which the package was made"
    findings = [
        Finding("--code", name, f"code that {manifest.name} names ({known})", "it is not used") for name in unused
    ]
    return findings + [
        Finding(f"code {name}", "another version", expected, "the present code is used")
        for name, digest in manifest.code.items()
        if code.digest(name) != digest
    ]


def make_edition_entries(edition: Edition) -> dict[str, Any]:
    """Make the manifest's entries for an edition, with the document of a custom edition."""
    if edition.content is None or edition.name in list_editions():
        return {"edition": edition.name}
    return {"edition": edition.name, "own_edition": edition.content}


def check_edition(manifest: Manifest, edition: Edition, algorithm: Algorithm | None = None) -> None:
    """Check that a package was made for an edition and, if there is an `algorithm`, for its input channels.

    Raises:
        ModelPackageError: The edition, its declaration or the channels differ.
    """
    if manifest.edition != edition.name:
        raise ModelPackageError(MANIFEST, f"found edition {manifest.edition!r}", repr(edition.name))
    if algorithm is not None and manifest.channels != list(algorithm.channels):
        expected = f"{', '.join(algorithm.channels)}, the images of task {algorithm.name}"
        raise ModelPackageError(MANIFEST, f"found channels {', '.join(manifest.channels)}", expected)
    if manifest.own_edition is None or edition.content is None:
        return
    in_package = remove_scoring(manifest.own_edition)
    in_option = remove_scoring(edition.content)
    if in_package != in_option:
        problem = (
            f"found edition {edition.name!r} with another declaration (sha256 {compute_content_digest(in_package)})"
        )
        expected = f"the declaration of --edition (sha256 {compute_content_digest(in_option)})"
        raise ModelPackageError(MANIFEST, problem, expected)


def verify_files(root: Path, manifest: Manifest) -> dict[str, Path]:
    """Find all files that a manifest lists, and check their size and checksum.

    The shipped packages share their networks: a file that does not exist in a package is read from the package of the
    default edition in the same folder.

    Returns:
        Paths by name.

    Raises:
        ModelPackageError: A file is missing, unreadable or altered, or its name leads out of the package.
    """
    return {name: _verify_file(root, name, entry) for name, entry in manifest.files.items()}


def _verify_file(root: Path, name: str, entry: FileEntry) -> Path:
    """Find a file of a package, and check its size and checksum.

    A file that does not exist in the package is read from the package of the default edition next to it, as in
    `verify_files`.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ModelPackageError(MANIFEST, f"file name {name!r} leads out of the package")
    path = root / name
    shared_path = root.resolve().parent / DEFAULT_EDITION / name
    try:
        if not path.exists() and shared_path.is_file():
            path = shared_path
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
