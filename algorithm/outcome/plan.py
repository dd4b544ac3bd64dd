"""Inputs and answers of an outcome network, a part of the package's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from contract.documents import Document, parse_document
from contract.errors import ModelPackageError

# Key of the manifest, folder of the package, and prefix of the features.
KEY: Final = "outcome_network"
FOLDER: Final = "outcome"
PREFIX: Final = "outcome_"
# CT, PET, GTVp and GTVn.
CHANNELS: Final = 4
_Size = Annotated[int, Field(gt=0, le=256)]


class OutcomeTask(Document):
    """One answer: a risk or two classes give one number (`classes` is empty), more classes one each."""

    answer: str
    classes: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, such as `outcome_rfs` or `outcome_t_stage_T1`."""
        return tuple(f"{PREFIX}{self.answer}_{name}" for name in self.classes) or (f"{PREFIX}{self.answer}",)


class OutcomePlan(Document):
    """A ResNet-18 on a cube at the tumour.

    Attributes:
        voxels: edge of the cube.
        spacing_mm: size of its voxels.
        width: channels of the first stage; each later stage has twice as many.
        clinical: clinical features that join before the last layer.
        tasks: the answers.
    """

    voxels: _Size
    spacing_mm: Annotated[float, Field(ge=0.1, le=20)]
    width: _Size
    clinical: tuple[str, ...]
    tasks: Annotated[tuple[OutcomeTask, ...], Field(min_length=1)]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of all tasks, in the order of the network's outputs."""
        return tuple(name for task in self.tasks for name in task.features)


class _Entry(Document):
    """The manifest's entry: the plan and a list of weight files."""

    plan: OutcomePlan
    folds: Annotated[tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True)
class OutcomeFolds:
    """The plan and one weights file for each fold."""

    plan: OutcomePlan
    files: tuple[Path, ...]

    def entry(self) -> dict[str, Any]:
        """The manifest's entry."""
        return _Entry(plan=self.plan, folds=tuple(f"{FOLDER}/{path.name}" for path in self.files)).model_dump(
            mode="json"
        )


def outcome_folds(entry: Mapping[str, Any] | None, files: Mapping[str, Path], name: str) -> OutcomeFolds | None:
    """The outcome network of a package by the manifest's entry, None without one; `files` are the verified ones.

    Raises:
        ModelPackageError: the entry is no outcome network, or the manifest lists no file of a fold.
    """
    if entry is None:
        return None
    parsed = parse_document(entry, _Entry, f"{name}.{KEY}", error=ModelPackageError)
    for fold in parsed.folds:
        if fold not in files:
            raise ModelPackageError(name, f"does not list {fold}", "an entry with size and sha256")
    return OutcomeFolds(parsed.plan, tuple(files[fold] for fold in parsed.folds))
