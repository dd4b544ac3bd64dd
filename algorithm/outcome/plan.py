"""The plan of an outcome network, its inputs and answers, in a file beside its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from contract.documents import Document, parse_document, read_document
from contract.errors import ModelPackageError
from contract.packages import MANIFEST, read_manifest

# Key of the manifest in version 0.2, prefix of the features, and file of the plan.
KEY: Final = "outcome_network"
PREFIX: Final = "outcome_"
PLAN: Final = "plan.json"
_Size = Annotated[int, Field(gt=0, le=256)]


class OutcomeTask(Document):
    """One answer: a risk or two classes give one number (`classes` is empty), more classes one each.

    `ends_days` are the ends of the intervals of a risk that was trained by multi-task logistic regression, ascending;
    the last interval is open. It is empty for a risk that was trained by Cox's likelihood.
    """

    answer: str
    classes: tuple[str, ...] = ()
    ends_days: tuple[Annotated[float, Field(gt=0)], ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, such as `outcome_rfs` or `outcome_t_stage_T1`."""
        return tuple(f"{PREFIX}{self.answer}_{name}" for name in self.classes) or (f"{PREFIX}{self.answer}",)

    @property
    def outputs(self) -> int:
        """Number of the network's outputs for this answer."""
        return len(self.ends_days) or len(self.features)


class OutcomePlan(Document):
    """A ResNet-18 on a cube at the tumour.

    Attributes:
        voxels: edge of the cube.
        spacing_mm: size of its voxels.
        width: channels of the first stage; each later stage has twice as many.
        clinical: clinical features that join before the last layer.
        tasks: the answers.
        joint: trained jointly with a segmentation: the network sees CT and PET, but no mask.
    """

    voxels: _Size
    spacing_mm: Annotated[float, Field(ge=0.1, le=20)]
    width: _Size
    clinical: tuple[str, ...]
    tasks: Annotated[tuple[OutcomeTask, ...], Field(min_length=1)]
    joint: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of all tasks, in order."""
        return tuple(name for task in self.tasks for name in task.features)


class _Entry(Document):
    """The manifest's entry in version 0.2: the plan and a list of weight files."""

    plan: OutcomePlan
    folds: Annotated[tuple[str, ...], Field(min_length=1)]


def folds_of_version_0_2(entry: Any, files: Mapping[str, Path]) -> tuple[Path, ...]:
    """The weight files that the manifest of an earlier package names.

    Raises:
        ModelPackageError: the entry is no outcome network, or the manifest lists no file of a fold.
    """
    parsed = parse_document(entry, _Entry, f"{MANIFEST}.{KEY}", error=ModelPackageError)
    for fold in parsed.folds:
        if fold not in files:
            raise ModelPackageError(MANIFEST, f"does not list {fold}", "an entry with size and sha256")
    return tuple(files[fold] for fold in parsed.folds)


def plan_of(fold: Path) -> OutcomePlan:
    """The plan in a fold's folder; the manifest's for a file of version 0.2. Raises `ModelPackageError`."""
    if fold.is_file():
        entry = read_manifest(fold.parents[1]).outcome_network
        return parse_document(entry, _Entry, f"{MANIFEST}.{KEY}", error=ModelPackageError).plan
    return read_document(fold / PLAN, OutcomePlan, error=ModelPackageError)
