"""Convert a finished nnU-Net training, custom networks, or both into a model package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from algorithm.heads.documents import Head
from algorithm.heads.feature_hook import list_feature_folders
from algorithm.heads.head_hook import check_custom_heads, list_head_folders
from algorithm.heads.measure import clinical_names, list_image_features
from algorithm.heads.values import check_head
from algorithm.network.package import RESAMPLING_FUNCTIONS, RESAMPLING_KEYS, read_axes
from baseline.heads.fitting import (
    OUT_OF_FOLD_MASKS,
    HeadRecord,
    collect_fallbacks,
    describe_masks,
    make_lesion_size_entry,
    read_fitted_heads,
)
from baseline.network.checkpoint import Checkpoint, read_checkpoint
from baseline.own_features import load_fitted_hooks
from baseline.package.card import DEFAULTS
from baseline.package.custom_network import CustomMember, load_custom_member
from baseline.package.existing import NnunetResults, check_same_training, read_results, read_trained_plans
from baseline.package.export import EnsembleMember, PackageContents, export_contents
from baseline.package.numbering import Numbering, read_numbering
from baseline.postprocessing.record import pack_rules
from baseline.release.cases import list_head_specs
from baseline.work import WorkFolders, read_training_edition
from contract.code import Code
from contract.editions import Edition, compute_content_digest, load_edition, remove_scoring
from contract.errors import ModelPackageError
from contract.io.files import read_json
from contract.packages import HEADS_FOLDER, make_edition_entries

# Schemes that normalise by statistics of the image itself.
_IMAGE_SCHEMES: Final = ("ZScoreNormalization", "RescaleTo01Normalization")

_Option = TypeVar("_Option")


@dataclass(frozen=True)
class PackageRequest:
    """Inputs and options of a package.

    Attributes:
        nnunet: nnU-Net's results folders: one, or several for an ensemble, the best first; empty for a package with
            only a custom network.
        heads: JSON file of heads, or None for a package that segments only.
        output: `*.tar.gz` for an archive, another name for a folder.
        folds: Numbers or `all`, for each results folder; None takes every numbered fold.
        checkpoint: `final` or `best`.
        name: The package's name; None takes the names of the folders.
        trust_checkpoint: Accept checkpoints with more than tensors and numbers.
        normalised_over: Extent of the training images, over which a z-score takes mean and standard deviation: whole
            scans (`scan`), or the head and neck as `hecktor train prepare` crops it (`region`).
        edition: Name of the edition, or path of its declaration; it defines the heads. None takes the edition of the
            working directory that contains the heads, otherwise the default edition.
        channels: Numbers of the trainings' channels by name, such as CT and PET: one entry for all, or one for each
            folder; None if each `dataset.json` has these names.
        labels: Numbers of GTVp and GTVn in the same way.
        postprocessing: `postprocessing.json` of `hecktor train postprocess`; None keeps every lesion.
        code: Folders of custom code.
        network: Class of the custom network, such as `my_model:Network`; None takes `Network` of `code`.
        weights: For each fold the folder that the custom network is made from; None packs no such network.
        task: Algorithm of the edition, if its algorithms have different channels.
    """

    nnunet: tuple[Path, ...]
    heads: Path | None
    output: Path
    folds: tuple[str, ...] | None = None
    checkpoint: str = "final"
    name: str | None = None
    trust_checkpoint: bool = False
    normalised_over: str = "scan"
    edition: str | None = None
    channels: tuple[Mapping[str, int], ...] | None = None
    labels: tuple[tuple[int, ...], ...] | None = None
    postprocessing: Path | None = None
    code: tuple[Path, ...] | None = None
    network: str | None = None
    weights: tuple[Path, ...] | None = None
    task: str | None = None


@dataclass(frozen=True)
class WrittenPackage:
    """A written and verified package, with notes for its author."""

    path: Path
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Training:
    """A results folder, its first checkpoint, its plans with only the trained configuration, and its numbering."""

    results: NnunetResults
    first: Checkpoint
    plans: Mapping[str, Any]
    numbering: Numbering

    @property
    def configuration(self) -> Mapping[str, Any]:
        configuration: Mapping[str, Any] = self.plans["configurations"][self.first.configuration]
        return configuration

    @property
    def mirror_axes(self) -> set[int]:
        """Return the axes of the image (z, y, x) along which the training was mirrored."""
        axes = read_axes(self.configuration, self.plans)
        return {axes[axis] for axis in self.first.mirror_axes}

    def to_member(self, trust: bool) -> EnsembleMember:
        return EnsembleMember(self.plans, self.first.configuration, self._read_checkpoints(trust))

    def _read_checkpoints(self, trust: bool) -> Iterator[Checkpoint]:
        """Read the checkpoints one after the other; raise `ModelPackageError` for a checkpoint of another training."""
        for path in self.results.checkpoints.values():
            checkpoint = _read_checkpoint(path, self.results, trust)
            check_same_training(checkpoint, self.first)
            yield checkpoint

    def to_manifest(self, checkpoint: str) -> dict[str, Any]:
        return {
            "trainer": self.first.trainer,
            "plans": self.plans["plans_name"],
            "folds": list(self.results.checkpoints),
            "checkpoint": checkpoint,
            **self.numbering.to_manifest(),
        }

    def list_notes(self) -> list[str]:
        """Return a note for each file that no checkpoint confirms."""
        files = {"plans.json": self.first.plans, "dataset.json": self.first.dataset}
        return [
            f"{file} of {self.results.name} is taken as it is: {self.first.name} has no copy of it"
            for file, record in files.items()
            if not record
        ]


def package_training(request: PackageRequest) -> WrittenPackage:
    """Check the results, convert them, and write and verify the package.

    Raises:
        HecktorError: A training, a head or an option does not fit the package, or the package cannot be written.
    """
    edition = _select_edition(request).select_for_training(request.task)
    channels = edition.algorithms[0].channels
    code = Code.from_folders(request.code or ())
    heads: dict[str, Head] = {}
    head_entries: dict[str, Any] = {}
    if request.heads is not None:
        heads, head_entries = pack_heads(request.heads, edition, code)
    mask_entry, mask_notes = _describe_masks_of_heads(request, head_entries.pop("training", {}))
    rules, rule_notes = pack_rules(request.postprocessing, request.heads, edition)
    custom = None
    if request.weights:
        custom = load_custom_member(code, request.network, request.weights, channels)
    check_custom_heads(heads.values(), code)
    custom_folders = {*list_feature_folders(heads.values()), *list_head_folders(heads.values())}
    digests = {name: code.digest(name) for name in sorted(custom_folders)}
    trainings = _read_trainings(request, channels)
    resampling = _choose_resampling(trainings, request.normalised_over)
    code.check_used()

    records = [training.to_manifest(request.checkpoint) for training in trainings]
    mirror_axes = [training.mirror_axes for training in trainings]
    members: list[EnsembleMember | CustomMember] = [
        training.to_member(request.trust_checkpoint) for training in trainings
    ]
    names = [training.results.name for training in trainings]
    if custom is not None:
        records.append({"network": custom.reference, "folds": len(custom.folders)})
        mirror_axes.append(set(custom.declaration.mirror_axes))
        members.append(custom)
        names.append(custom.reference)
    description = {
        "name": request.name or " + ".join(names),
        "purpose": DEFAULTS["purpose"],
        **make_edition_entries(edition),
        "channels": list(channels),
        **head_entries,
        **({"postprocessing": rules} if rules else {}),
        "normalised_over": request.normalised_over,
        "resampling": resampling,
        "average": "logits",  # as nnU-Net averages folds and mirrors
        # Only axes along which every network was mirrored.
        "mirror_axes": sorted(set.intersection(*mirror_axes)),
        **({"code": digests} if digests else {}),
        "training": (records[0] if len(records) == 1 else {"members": records}) | mask_entry,
    }
    contents = PackageContents(
        members,
        heads,
        description,
        features=[] if request.heads is None else load_fitted_hooks(request.heads.parent, heads.values(), code),
        code=code,
        custom_folder=None if request.heads is None else request.heads.parent / HEADS_FOLDER,
    )
    notes = [*_note_normalisation(trainings, custom, request.normalised_over), *rule_notes, *mask_notes]
    for training in trainings:
        notes += training.list_notes()
    return WrittenPackage(export_contents(request.output, contents), tuple(notes))


def _choose_resampling(trainings: Sequence[_Training], normalised_over: str) -> str:
    """Return `nnunet` for trainings on whole scans that resample by nnU-Net's own functions, otherwise `grid`."""
    functions = [training.configuration.get(key) for training in trainings for key in RESAMPLING_KEYS]
    is_known = bool(functions) and all(function in RESAMPLING_FUNCTIONS for function in functions)
    return "nnunet" if is_known and normalised_over == "scan" else "grid"


def _read_trainings(request: PackageRequest, names: tuple[str, ...]) -> list[_Training]:
    """Read the trainings in the order of their folders; `names` are the edition's channels.

    Raises:
        ModelPackageError: A training cannot be packaged. If there are several trainings, the message names its folder.
    """
    channels = _repeat_option("--channels", request.channels, len(request.nnunet))
    lesions = _repeat_option("--labels", request.labels, len(request.nnunet))
    trainings = []
    for folder, folder_channels, folder_lesions in zip(request.nnunet, channels, lesions, strict=True):
        try:
            results = read_results(folder, request.folds, request.checkpoint)
            first = _read_checkpoint(next(iter(results.checkpoints.values())), results, request.trust_checkpoint)
            # The checkpoint's own record counts: plans.json and dataset.json may have been edited since.
            plans = read_trained_plans(first.plans or results.plans, first.configuration)
            numbering = read_numbering(first.dataset or results.dataset, folder_channels, folder_lesions, names)
        except ModelPackageError as problem:
            if len(request.nnunet) == 1:
                raise
            name, expected = "/".join(folder.resolve().parts[-2:]), problem.expected
            if problem.what in ("--channels", "--labels"):
                expected += f"; repeat {problem.what} if the trainings differ"
            raise ModelPackageError(f"{name}: {problem.what}", problem.found, expected) from None
        plans["configurations"][first.configuration] |= numbering.to_configuration()
        trainings.append(_Training(results, first, plans, numbering))
    return trainings


def _repeat_option(option: str, values: Sequence[_Option] | None, folders: int) -> Sequence[_Option | None]:
    """Return the value of an option for each folder; a single value applies to all folders, None means no option.

    Raises:
        ModelPackageError: There are several values, but not one for each folder.
    """
    if not values:
        return [None] * folders
    if len(values) == 1:
        return [values[0]] * folders
    if len(values) != folders:
        actual = f"found {len(values)} of them for {folders} --nnunet"
        raise ModelPackageError(option, actual, "one for all, or one for each in the same order")
    return values


def _read_checkpoint(path: Path, results: NnunetResults, trust: bool) -> Checkpoint:
    """Read a checkpoint. Custom trainers may not record the configuration; then the folder's name gives it.

    Raises:
        ModelPackageError: The checkpoint cannot be read, or its configuration is unknown.
    """
    checkpoint = read_checkpoint(path, trust=trust)
    if checkpoint.configuration:
        return checkpoint
    if results.configuration not in results.plans.get("configurations", {}):
        expected = "one, or a results folder named Trainer__Plans__Configuration"
        raise ModelPackageError(checkpoint.name, "records no configuration", expected)
    return replace(checkpoint, configuration=results.configuration)


def _select_edition(request: PackageRequest) -> Edition:
    """Return the edition of the option, otherwise of the heads' training, otherwise the default edition.

    Raises:
        ModelPackageError: The heads were fitted for another declaration of the option's edition.
    """
    # The heads are WORK/heads.json or WORK/reference_masks/heads.json.
    parents = [] if request.heads is None else [WorkFolders(path) for path in request.heads.resolve().parents[:2]]
    trained = next((read_training_edition(work) for work in parents if work.prepare_json.is_file()), None)
    if request.edition is None:
        return trained or load_edition()
    edition = load_edition(request.edition)
    if trained is None or trained.name != edition.name or trained.content is None or edition.content is None:
        return edition
    digest = compute_content_digest(remove_scoring(edition.content))
    trained_digest = compute_content_digest(remove_scoring(trained.content))
    if digest != trained_digest:
        actual = f"found {edition.name!r} with another declaration (sha256 {digest})"
        expected = f"the declaration of the training of --heads (sha256 {trained_digest})"
        raise ModelPackageError("--edition", actual, expected)
    return edition


def pack_heads(path: Path, edition: Edition, code: Code | None = None) -> tuple[dict[str, Head], dict[str, Any]]:
    """Read the heads of a JSON file and make their entries of the manifest.

    Args:
        path: JSON object of heads, or `heads.json` of a training.
        edition: Its answers name the heads.
        code: Custom code, which is required if heads use custom features.

    Returns:
        Heads by name, and entries of the manifest.

    Raises:
        ModelPackageError: A head has an unknown name or feature, or another form than the answer needs.
    """
    content = read_json(path, error=ModelPackageError)
    specs = {name: spec for spec in list_head_specs(edition) for name in (spec.head, f"{spec.head}_clinical")}
    if not isinstance(content, dict) or not content or not set(content) <= set(specs):
        actual = ", ".join(map(repr, content)) if isinstance(content, dict) else type(content).__name__
        raise ModelPackageError(path.name, f"found {actual or 'nothing'}", f"heads named {', '.join(sorted(specs))}")
    records = read_fitted_heads(content, path.name)
    heads = {name: record.head if isinstance(record, HeadRecord) else record for name, record in records.items()}
    hooks = load_fitted_hooks(path.parent, heads.values(), code or Code({}))
    features = list_image_features() | frozenset(clinical_names(edition.clinical))
    features = features.union(*(hook.units for hook in hooks))
    for name, head in heads.items():
        unknown = [feature for feature in head.features if feature not in features]
        if unknown:
            actual = f"{name}: feature {unknown[0]!r} is unknown"
            raise ModelPackageError(path.name, actual, f"one of {', '.join(sorted(features))}")
        check_head(specs[name], head, name)
    entries: dict[str, Any] = {}
    fallbacks = collect_fallbacks(edition, records)
    if fallbacks:
        entries["fallbacks"] = fallbacks
    entries |= make_lesion_size_entry(records)
    masks = describe_masks(records)
    if masks:
        entries["training"] = {"heads_fitted_on": masks}
    return heads, entries


def _describe_masks_of_heads(request: PackageRequest, entry: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the manifest's entry of the masks on which the heads were fitted, and notes.

    If the heads were fitted on the out-of-fold masks of only one of several trainings, entry and note say so.
    """
    if request.heads is None or entry.get("heads_fitted_on") != OUT_OF_FOLD_MASKS:
        return entry, ()
    work = request.heads.resolve().parent
    is_of_all = all(work in folder.resolve().parents for folder in request.nnunet)
    if len(request.nnunet) < 2 or is_of_all:
        return entry, ()
    masks = f"{OUT_OF_FOLD_MASKS} of {work.name} only"
    note = f"heads: fitted on {masks}; `hecktor train heads --average` fits them on the masks of all networks"
    return {"heads_fitted_on": masks}, (note,)


def _note_normalisation(
    trainings: Sequence[_Training], custom: CustomMember | None, normalised_over: str
) -> tuple[str, ...]:
    """Return a note on the part of a scan that gives mean and standard deviation, if a scheme needs them."""
    schemes = [scheme for training in trainings for scheme in training.configuration["normalization_schemes"]]
    if custom is not None:
        schemes += [channel.normalisation for channel in custom.declaration.channels]
    names = dict.fromkeys(scheme for scheme in schemes if scheme in _IMAGE_SCHEMES)
    if not names:
        return ()
    extent = "the whole scan" if normalised_over == "scan" else "the region of head and neck"
    option = f"--normalised-over {normalised_over}; docs/own-model.md"
    return (f"{' and '.join(names)}: normalised over {extent} ({option})",)
