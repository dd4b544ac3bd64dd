"""Put a finished nnU-Net training into a model package that the algorithm runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from algorithm.heads.linear import LinearHead, parse_head
from algorithm.heads.measure import clinical_names, image_features
from algorithm.heads.methods import METHODS
from baseline.package.axes import axes_of, turned_axes
from baseline.package.checkpoint import Checkpoint, read_checkpoint
from baseline.package.export import Contents, Member, export_archive, export_folder
from baseline.package.nnunet_results import Results, check_same_training, read_results, trained_plans
from contract.archives import SUFFIX
from contract.editions import load_edition
from contract.errors import ModelPackageError
from contract.files import read_json
from contract.images.geometry import Geometry

PURPOSE: Final = "research; not a medical device"
# These normalise by what the image itself holds.
_OWN_SCALE: Final = ("ZScoreNormalization", "RescaleTo01Normalization")


@dataclass(frozen=True)
class Request:
    """What to package.

    Attributes:
        nnunet: nnU-Net's folders of results: one, or several that make one ensemble, the most valuable first.
        heads: JSON file of heads, or None for a package that segments only.
        output: `*.tar.gz` for an archive, any other name for a folder.
        folds: numbers or `all`, of each folder; None takes every numbered fold.
        checkpoint: `final` or `best`.
        name: the package's name; None takes the folders'.
        trust_checkpoint: read checkpoints that hold more than tensors and numbers.
        normalised_over: what the training images were, from which a z-score takes mean and spread: whole scans
            (`scan`), or images cut to the head and neck as `hecktor train prepare` cuts them (`region`).
    """

    nnunet: tuple[Path, ...]
    heads: Path | None
    output: Path
    folds: tuple[str, ...] | None = None
    checkpoint: str = "final"
    name: str | None = None
    trust_checkpoint: bool = False
    normalised_over: str = "scan"


@dataclass(frozen=True)
class Packaged:
    """A package that was written and verified, and what its maker should know."""

    path: Path
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Trained:
    """One folder of results, its first checkpoint, and its plans with the trained configuration alone."""

    results: Results
    first: Checkpoint
    plans: Mapping[str, Any]

    def member(self, trust: bool) -> Member:
        return Member(self.plans, self.first.configuration, _checkpoints(self.results, self.first, trust))

    def mirror_axes(self) -> tuple[int, ...]:
        """Of (z, y, x)."""
        return turned_axes(self.first.mirror_axes, axes_of(self.plans))

    def described(self, checkpoint: str) -> dict[str, Any]:
        return {
            "trainer": self.first.trainer,
            "plans": self.plans["plans_name"],
            "folds": list(self.results.checkpoints),
            "checkpoint": checkpoint,
        }


def package_training(request: Request) -> Packaged:
    """Check, convert, write and verify.

    Raises:
        ModelPackageError: results or heads are not what the algorithm can run, or do not go together.
        OutputError: the package cannot be written.
    """
    heads = {} if request.heads is None else read_heads(request.heads)
    trained = [_trained(folder, request) for folder in request.nnunet]
    described = [one.described(request.checkpoint) for one in trained]
    contents = Contents(
        [one.member(request.trust_checkpoint) for one in trained],
        heads,
        {
            "name": request.name or " + ".join(one.results.name for one in trained),
            "purpose": PURPOSE,
            "normalised_over": request.normalised_over,
            # An axis along which one network was never mirrored is left to none.
            "mirror_axes": sorted(set.intersection(*(set(one.mirror_axes()) for one in trained))),
            "training": described[0] if len(described) == 1 else {"members": described},
        },
    )
    export = export_archive if request.output.name.endswith(SUFFIX) else export_folder
    return Packaged(export(request.output, contents), _notes(trained[0].plans, request.normalised_over))


def _trained(folder: Path, request: Request) -> _Trained:
    results = read_results(folder, request.folds, request.checkpoint)
    first = read_checkpoint(next(iter(results.checkpoints.values())), trust=request.trust_checkpoint)
    return _Trained(results, first, trained_plans(results.plans, first.configuration))


def read_heads(path: Path) -> dict[str, LinearHead]:
    """Heads by name from one JSON object, each as `LinearHead.as_json` writes it or as `hecktor train heads` keeps it.

    Raises:
        ModelPackageError: no object, an unknown name or feature, a malformed head, or an HPV head without threshold.
    """
    content = read_json(path, error=ModelPackageError)
    answers = [answer for algorithm in load_edition().algorithms for answer in algorithm.heads]
    known = sorted({method.head_name(answer) for method in METHODS.values() for answer in answers})
    if not isinstance(content, dict) or not content or not set(content) <= set(known):
        found = ", ".join(map(repr, content)) if isinstance(content, dict) else type(content).__name__
        raise ModelPackageError(path.name, f"found {found or 'nothing'}", f"heads named {', '.join(known)}")
    heads = {name: parse_head(_plain(record), f"{path.name}: {name}") for name, record in content.items()}
    features = known_features()
    for name, head in heads.items():
        unknown = [term.feature for term in head.terms if term.feature not in features]
        if unknown:
            raise ModelPackageError(
                path.name, f"{name}: feature {unknown[0]!r} is unknown", f"one of {', '.join(sorted(features))}"
            )
        binary = {method.head_name(answer) for method in METHODS.values() for answer in answers if answer.is_binary}
        if head.threshold is None and name in binary:
            raise ModelPackageError(path.name, f"{name}: no threshold", "a number on the logit's scale")
    return heads


def _plain(record: Any) -> Any:
    """The head of a record of `hecktor train heads`, which holds its results beside it."""
    return record["head"] if isinstance(record, dict) and "head" in record else record


def known_features() -> frozenset[str]:
    """The names of all features that the algorithm measures."""
    empty = np.zeros((1, 1, 1), dtype=np.float32)
    grid = Geometry((1, 1, 1), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    return frozenset(image_features(empty.astype(np.uint8), empty, empty, grid)) | frozenset(
        clinical_names(load_edition().clinical)
    )


def _notes(plans: Mapping[str, Any], normalised_over: str) -> tuple[str, ...]:
    """What the entrant should know although nothing is wrong."""
    (configuration,) = plans["configurations"].values()
    schemes = [scheme for scheme in configuration["normalization_schemes"] if scheme in _OWN_SCALE]
    if not schemes:
        return ()
    taken_from = "the whole scan" if normalised_over == "scan" else "the region of head and neck"
    note = (
        f"{' and '.join(dict.fromkeys(schemes))}: the scale is taken from {taken_from}, as --normalised-over "
        f"{normalised_over} says of the training images (docs/model-package.md)"
    )
    return (note,)


def _checkpoints(results: Results, first: Checkpoint, trust: bool) -> Iterator[Checkpoint]:
    for path in results.checkpoints.values():
        checkpoint = read_checkpoint(path, trust=trust)
        check_same_training(checkpoint, first, results.plans)
        yield checkpoint
