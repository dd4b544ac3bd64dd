"""Convert a finished nnU-Net training into a model package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from algorithm.heads.documents import Head
from algorithm.heads.feature_hook import folders_of
from algorithm.heads.head_hook import check_custom_heads, folders_of_code
from algorithm.heads.measure import clinical_names, image_feature_names
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
from baseline.package.export import PackageContents, export_contents
from baseline.package.members import CustomMember, EnsembleMember, custom_member
from baseline.package.nnunet_results import NnunetResults, check_same_training, read_results, read_trained_plans
from baseline.package.trained_order import TrainedOrder, read_trained_order
from baseline.postprocessing.record import pack_rules
from baseline.preparation import read_training_edition
from baseline.release.cases import list_head_specs
from baseline.work import WorkFolders
from contract.code import Code
from contract.editions import Edition, content_digest, load_edition, remove_scoring
from contract.errors import ModelPackageError
from contract.io.files import read_json
from contract.packages import HEADS_FOLDER, make_edition_entries

# Schemes that normalise by statistics of the image itself.
_OWN_SCALE: Final = ("ZScoreNormalization", "RescaleTo01Normalization")

_Given = TypeVar("_Given")


@dataclass(frozen=True)
class PackageRequest:
    """Inputs and options of a package.

    Attributes:
        nnunet: nnU-Net's results folders: one, or several for an ensemble, the best first; none with a network of one's
            own alone.
        heads: JSON file of heads, or None for a package that segments only.
        output: `*.tar.gz` for an archive, another name for a folder.
        folds: numbers or `all`, of each folder; None stands for every numbered fold.
        checkpoint: `final` or `best`.
        name: the package's name; None stands for the folders'.
        trust_checkpoint: accept checkpoints with more than tensors and numbers.
        normalised_over: extent of the training images, over which a z-score takes mean and standard deviation: whole
            scans (`scan`), or the head and neck as `hecktor train prepare` crops it (`region`).
        edition: name of the edition, or path of its declaration; it defines the heads. None stands for that of the
            working directory that holds the heads, else for the default one.
        channels: numbers of the trainings' channels by name, such as CT and PET: one entry for all, or one for each
            folder; none if each `dataset.json` has these names.
        labels: numbers of GTVp and GTVn in the same way.
        postprocessing: `postprocessing.json` of `hecktor train postprocess`; None keeps every lesion.
        code: folders of the user's own code.
        network: class of the user's own network, such as `my_model:Network`; None stands for `Network` of `code`.
        weights: for each fold the folder that the user's own network is made from; none packs no such network.
        task: algorithm of the edition, if its algorithms have different channels.
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
class _Trained:
    """A results folder, its first checkpoint, and its plans with only the trained configuration."""

    results: NnunetResults
    first: Checkpoint
    plans: Mapping[str, Any]
    order: TrainedOrder

    @property
    def configuration(self) -> Mapping[str, Any]:
        trained: Mapping[str, Any] = self.plans["configurations"][self.first.configuration]
        return trained

    def member(self, trust: bool) -> EnsembleMember:
        return EnsembleMember(self.plans, self.first.configuration, self._checkpoints(trust))

    def _checkpoints(self, trust: bool) -> Iterator[Checkpoint]:
        for path in self.results.checkpoints.values():
            checkpoint = _read_checkpoint(path, self.results, trust)
            check_same_training(checkpoint, self.first)
            yield checkpoint

    def as_json(self, checkpoint: str) -> dict[str, Any]:
        plans, folds, order = self.plans["plans_name"], list(self.results.checkpoints), self.order.as_json()
        return {"trainer": self.first.trainer, "plans": plans, "folds": folds, "checkpoint": checkpoint, **order}

    def notes(self) -> Iterator[str]:
        for file, record in (("plans.json", self.first.plans), ("dataset.json", self.first.dataset)):
            if not record:
                yield f"{file} of {self.results.name} is taken as it is: {self.first.name} does not record its own"


def _find_mirrored_axes(trained: _Trained) -> set[int]:
    """Return the axes of the image (z, y, x) along which a training was mirrored."""
    axes = read_axes(trained.configuration, trained.plans)
    return {axes[axis] for axis in trained.first.mirror_axes}


def package_training(request: PackageRequest) -> WrittenPackage:
    """Check the results, convert them, and write and verify the package."""
    edition = _edition(request).select_for_training(request.task)
    channels = edition.algorithms[0].channels
    code = Code.from_folders(request.code or ())
    heads, of_heads = ({}, {}) if request.heads is None else pack_heads(request.heads, edition, code)
    masks_of_heads, about_masks = _masks_of_heads(request, of_heads.pop("training", {}))
    rules, about_rules = pack_rules(request.postprocessing, request.heads, edition)
    custom = custom_member(code, request.network, request.weights or (), channels)
    check_custom_heads(heads.values(), code)
    named = {*folders_of(heads.values()), *folders_of_code(heads.values())}
    digests = {name: code.digest(name) for name in sorted(named)}
    trained = _all_trained(request, channels)
    resampling = _resampling(trained, request.normalised_over)
    code.check_used()
    training = [one.as_json(request.checkpoint) for one in trained]
    mirror_axes = [_find_mirrored_axes(one) for one in trained]
    members: list[EnsembleMember | CustomMember] = [one.member(request.trust_checkpoint) for one in trained]
    names = [one.results.name for one in trained]
    if custom is not None:
        training.append({"network": custom.reference, "folds": len(custom.folders)})
        mirror_axes.append(set(custom.declaration.mirror_axes))
        members.append(custom)
        names.append(custom.reference)
    contents = PackageContents(
        members,
        heads,
        {
            "name": request.name or " + ".join(names),
            "purpose": DEFAULTS["purpose"],
            **make_edition_entries(edition),
            "channels": list(channels),
            **of_heads,
            **({"postprocessing": rules} if rules else {}),
            "normalised_over": request.normalised_over,
            "resampling": resampling,
            "average": "logits",  # as nnU-Net averages folds and mirrors
            # Only axes along which every network was mirrored.
            "mirror_axes": sorted(set.intersection(*mirror_axes)),
            **({"code": digests} if digests else {}),
            "training": (training[0] if len(training) == 1 else {"members": training}) | masks_of_heads,
        },
        features=[] if request.heads is None else load_fitted_hooks(request.heads.parent, heads.values(), code),
        code=code,
        custom_folder=None if request.heads is None else request.heads.parent / HEADS_FOLDER,
    )
    about = _notes(trained, custom, request.normalised_over), about_rules, about_masks
    notes = [note for some in (*about, *(one.notes() for one in trained)) for note in some]
    return WrittenPackage(export_contents(request.output, contents), tuple(notes))


def _resampling(trained: Sequence[_Trained], normalised_over: str) -> str:
    """`nnunet` for trainings on whole scans by functions of nnU-Net's own, else `grid`."""
    known = all(one.configuration.get(key) in RESAMPLING_FUNCTIONS for one in trained for key in RESAMPLING_KEYS)
    return "nnunet" if trained and known and normalised_over == "scan" else "grid"


def _all_trained(request: PackageRequest, names: tuple[str, ...]) -> list[_Trained]:
    """The trainings in the order of their folders; with several, an error names the folder."""
    channels = _one_each("--channels", request.channels, len(request.nnunet))
    lesions = _one_each("--labels", request.labels, len(request.nnunet))
    trained = []
    for folder, of_channels, of_labels in zip(request.nnunet, channels, lesions, strict=True):
        try:
            trained.append(_trained(folder, request, of_channels, of_labels, names))
        except ModelPackageError as problem:
            if len(request.nnunet) == 1:
                raise
            name, expected = "/".join(folder.resolve().parts[-2:]), problem.expected
            if problem.what in ("--channels", "--labels"):
                expected += f"; repeat {problem.what} if the trainings differ"
            raise ModelPackageError(f"{name}: {problem.what}", problem.found, expected) from None
    return trained


def _one_each(option: str, given: Sequence[_Given] | None, folders: int) -> Sequence[_Given | None]:
    if given is None or len(given) == 1:
        return [given[0] if given else None] * folders
    if len(given) != folders:
        found = f"found {len(given)} of them for {folders} --nnunet"
        raise ModelPackageError(option, found, "one for all, or one for each in the same order")
    return given


def _trained(
    folder: Path,
    request: PackageRequest,
    channels: Mapping[str, int] | None,
    lesions: tuple[int, ...] | None,
    names: tuple[str, ...],
) -> _Trained:
    results = read_results(folder, request.folds, request.checkpoint)
    first = _read_checkpoint(next(iter(results.checkpoints.values())), results, request.trust_checkpoint)
    # What a checkpoint records is what it was trained with, whatever became of the files beside it.
    plans = read_trained_plans(first.plans or results.plans, first.configuration)
    order = read_trained_order(first.dataset or results.dataset, channels, lesions, names)
    plans["configurations"][first.configuration] |= order.as_configuration()
    return _Trained(results, first, plans, order)


def _read_checkpoint(path: Path, results: NnunetResults, trust: bool) -> Checkpoint:
    """A checkpoint; if it does not record its configuration, as of custom trainers, the folder's name gives it."""
    checkpoint = read_checkpoint(path, trust=trust)
    if checkpoint.configuration:
        return checkpoint
    if results.configuration not in results.plans.get("configurations", {}):
        expected = "one, or a results folder named Trainer__Plans__Configuration"
        raise ModelPackageError(checkpoint.name, "records no configuration", expected)
    return replace(checkpoint, configuration=results.configuration)


def _edition(request: PackageRequest) -> Edition:
    """The edition of the option, else that of the heads' training, else the default one.

    Raises:
        ModelPackageError: the heads were fitted for another declaration of the option's edition.
    """
    # At most reference_masks/heads.json.
    above = [] if request.heads is None else list(map(WorkFolders, request.heads.resolve().parents[:2]))
    trained = next((read_training_edition(work) for work in above if work.prepare_json.is_file()), None)
    if request.edition is None:
        return trained or load_edition()
    edition = load_edition(request.edition)
    if trained is None or trained.name != edition.name or trained.content is None or edition.content is None:
        return edition
    given, fitted = (content_digest(remove_scoring(one)) for one in (edition.content, trained.content))
    if given != fitted:
        found = f"found {edition.name!r} with another declaration (sha256 {given})"
        raise ModelPackageError("--edition", found, f"that of the training of --heads (sha256 {fitted})")
    return edition


def pack_heads(path: Path, edition: Edition, code: Code | None = None) -> tuple[dict[str, Head], dict[str, Any]]:
    """Heads by name, and their entries of the manifest, from a JSON object of heads or a training's `heads.json`.

    `code` measures the entrant's own features that the heads name; it must be given for them.
    """
    content = read_json(path, error=ModelPackageError)
    answer_of = {name: one for one in list_head_specs(edition) for name in (one.head, f"{one.head}_clinical")}
    if not isinstance(content, dict) or not content or not set(content) <= set(answer_of):
        found = ", ".join(map(repr, content)) if isinstance(content, dict) else type(content).__name__
        raise ModelPackageError(path.name, f"found {found or 'nothing'}", f"heads named {', '.join(sorted(answer_of))}")
    records = read_fitted_heads(content, path.name)
    heads = {name: one.head if isinstance(one, HeadRecord) else one for name, one in records.items()}
    hooks = load_fitted_hooks(path.parent, heads.values(), code or Code({}))
    measured = image_feature_names() | frozenset(clinical_names(edition.clinical))
    features = measured.union(*(one.units for one in hooks))
    for name, head in heads.items():
        unknown = [feature for feature in head.features if feature not in features]
        if unknown:
            names = ", ".join(sorted(features))
            raise ModelPackageError(path.name, f"{name}: feature {unknown[0]!r} is unknown", f"one of {names}")
        check_head(answer_of[name], head, name)
    fallbacks = collect_fallbacks(edition, records)
    entries = ({"fallbacks": fallbacks} if fallbacks else {}) | make_lesion_size_entry(records)
    masks = describe_masks(records)
    return heads, entries | ({"training": {"heads_fitted_on": masks}} if masks else {})


def _masks_of_heads(request: PackageRequest, entry: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The manifest's entry of the masks of the heads; a note where they are those of one training of several."""
    if request.heads is None or entry.get("heads_fitted_on") != OUT_OF_FOLD_MASKS:
        return entry, ()
    work = request.heads.resolve().parent
    others = [folder for folder in request.nnunet if work not in folder.resolve().parents]
    if len(request.nnunet) < 2 or not others:
        return entry, ()
    alone = f"{OUT_OF_FOLD_MASKS} of {work.name} alone"
    note = f"heads: fitted on {alone}; `hecktor train heads --average` fits them on those of all networks"
    return {"heads_fitted_on": alone}, (note,)


def _notes(trained: Sequence[_Trained], custom: CustomMember | None, normalised_over: str) -> tuple[str, ...]:
    used = [scheme for one in trained for scheme in one.configuration["normalization_schemes"]]
    used += [channel.normalisation for channel in custom.declaration.channels] if custom else []
    schemes = dict.fromkeys(scheme for scheme in used if scheme in _OWN_SCALE)
    taken_from = "the whole scan" if normalised_over == "scan" else "the region of head and neck"
    option = f"--normalised-over {normalised_over}; docs/own-model.md"
    return (f"{' and '.join(schemes)}: normalised over {taken_from} ({option})",) if schemes else ()
