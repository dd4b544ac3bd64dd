"""The plan of an outcome network, its inputs and answers, in a file beside its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from contract.documents import Document, read_document
from contract.errors import ModelPackageError

# Prefix of the features, and file of the plan.
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


def plan_of(fold: Path) -> OutcomePlan:
    """The plan in a fold's folder. Raises `ModelPackageError`."""
    return read_document(fold / PLAN, OutcomePlan, error=ModelPackageError)
