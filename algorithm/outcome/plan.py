"""Inputs and answers of an outcome network, as plain data of the package's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from contract.errors import ModelPackageError

# Key of the manifest, folder of the package, and prefix of the features.
KEY: Final = "outcome_network"
FOLDER: Final = "outcome"
PREFIX: Final = "outcome_"
# CT, PET, GTVp and GTVn.
CHANNELS: Final = 4
_LARGEST: Final = {"voxels": 256, "width": 256}


@dataclass(frozen=True)
class OutcomeTask:
    """One answer: a risk or two classes give one number (`classes` is empty), more classes one each."""

    answer: str
    classes: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, such as `outcome_rfs` or `outcome_t_stage_T1`."""
        return tuple(f"{PREFIX}{self.answer}_{name}" for name in self.classes) or (f"{PREFIX}{self.answer}",)


@dataclass(frozen=True)
class OutcomePlan:
    """A ResNet-18 on a cube at the tumour.

    Attributes:
        voxels: edge of the cube.
        spacing_mm: size of its voxels.
        width: channels of the first stage; each later stage has twice as many.
        clinical: clinical features that join before the last layer.
        tasks: the answers.
    """

    voxels: int
    spacing_mm: float
    width: int
    clinical: tuple[str, ...]
    tasks: tuple[OutcomeTask, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of all tasks, in the order of the network's outputs."""
        return tuple(name for task in self.tasks for name in task.features)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class OutcomeFolds:
    """The plan and one weights file for each fold."""

    plan: OutcomePlan
    files: tuple[Path, ...]

    def entry(self) -> dict[str, Any]:
        """The manifest's entry."""
        return {"plan": self.plan.as_json(), "folds": [f"{FOLDER}/{path.name}" for path in self.files]}


def parse_plan(content: Any, name: str) -> OutcomePlan:
    """Read a plan from JSON. Raises `ModelPackageError`."""
    try:
        tasks = tuple(OutcomeTask(str(task["answer"]), tuple(map(str, task["classes"]))) for task in content["tasks"])
        clinical = tuple(map(str, content["clinical"]))
        sizes = {key: content[key] for key in ("voxels", "width")}
        spacing_mm = content["spacing_mm"]
    except (KeyError, TypeError, AttributeError) as problem:
        found = f"not a plan of an outcome network ({type(problem).__name__}: {problem})"
        raise ModelPackageError(name, found, "voxels, spacing_mm, width, clinical and tasks") from None
    for key, value in sizes.items():
        if not isinstance(value, int) or not 0 < value <= _LARGEST[key]:
            raise ModelPackageError(name, f"{key} {value!r} of the outcome network", f"1 to {_LARGEST[key]}")
    if isinstance(spacing_mm, bool) or not isinstance(spacing_mm, int | float) or not 0.1 <= spacing_mm <= 20:
        raise ModelPackageError(name, f"spacing_mm {spacing_mm!r} of the outcome network", "0.1 to 20")
    if not tasks:
        raise ModelPackageError(name, "an outcome network without tasks", "at least one")
    return OutcomePlan(sizes["voxels"], float(spacing_mm), sizes["width"], clinical, tasks)


def outcome_folds(entry: Mapping[str, Any] | None, files: Mapping[str, Path], name: str) -> OutcomeFolds | None:
    """The outcome network of a package by the manifest's entry, None without one; `files` are the verified ones.

    Raises:
        ModelPackageError: the entry is no outcome network, or the manifest lists no file of a fold.
    """
    if entry is None:
        return None
    folds = entry.get("folds")
    if not isinstance(folds, list) or not folds:
        raise ModelPackageError(name, f"{KEY} {str(entry)[:40]!r}", "a plan and a list of weight files")
    for fold in folds:
        if fold not in files:
            raise ModelPackageError(name, f"does not list {fold}", "an entry with size and sha256")
    return OutcomeFolds(parse_plan(entry.get("plan"), name), tuple(files[fold] for fold in folds))
