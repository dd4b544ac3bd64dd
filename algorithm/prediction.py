"""The request for one case, its answers, and the record of the run that made them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from algorithm.case.read import CaseSource
from algorithm.heads.methods import BASELINE, Method
from algorithm.masks.segmentation import CaseSegmentation, MaskSource
from contract.editions import Algorithm, Edition
from contract.editions.answers import ClassValue
from contract.errors import Finding
from contract.images.geometry import Geometry
from contract.packages import PackageIdentity

RECORD_VERSION: Final = 3
HeadValue = float | ClassValue
# Of a risk or class: from the mask by a rule, the training's value in the manifest, or the edition's declaration.
FallbackSource = MaskSource | Literal["rule", "training", "declaration"]


@dataclass(frozen=True)
class PredictRequest:
    """One case to answer.

    Attributes:
        edition: gives the inputs and the clinical variables.
        algorithm: gives the answers.
        method: the baseline or a comparator.
        source: the platform's `/input` folder, plain files, or scans in memory.
        output_dir: the platform's `/output` folder; None writes no files there.
        device: "auto", "cpu" or "cuda".
        time_limit_s: seconds for the case, `spent_s` included; None sets no limit.
        max_passes: limit on the passes of the network; None makes all that fit the time.
        probabilities_dir: folder for the probabilities (`algorithm.masks.segmentation`); None writes none.
        record_path: JSON file for the run record; None writes none.
        mask_path: image file for the mask, for an algorithm that answers only a mask, without an `output_dir`.
        is_shipped: no model package was given, so the shipped one answers.
        code: folders of user code; the code of the image is used if there are no folders.
        limits_card: take no more of a card than the platform's has, as the edition's limit demands.
        contours_path: mask of the lesions in place of those that the network would find; None without one.
    """

    edition: Edition
    algorithm: Algorithm
    method: Method
    source: CaseSource
    output_dir: Path | None
    device: str
    time_limit_s: float | None
    spent_s: float = 0.0
    max_passes: int | None = None
    probabilities_dir: Path | None = None
    record_path: Path | None = None
    mask_path: Path | None = None
    is_shipped: bool = False
    code: tuple[Path, ...] = ()
    contours_path: Path | None = None
    limits_card: bool = False

    @property
    def uses_package(self) -> bool:
        """Return whether the method needs a model package for this algorithm."""
        return self.method.segmenter == "network" or bool(self.algorithm.head_specs)


@dataclass(frozen=True)
class Fallback:
    """The source of what replaced an answer, and the reason."""

    by: FallbackSource
    why: str


@dataclass(frozen=True)
class CaseAnswers:
    """The answers of a case.

    Attributes:
        segmented: the case with the segmentation behind the answers, and what it comes from.
        mask: labels on the CT's grid, None for an algorithm without a mask.
        values: risks and classes by name.
        fallbacks: the fallbacks by the name of the answer.
        notes: lines for the log, such as features that are missing.
        probabilities: of the second of two classes, by name, from a head with calibration.
        are_declared: whether no feature was measured, so that the values come from the training or the declaration.
    """

    segmented: CaseSegmentation
    mask: npt.NDArray[np.uint8] | None
    values: Mapping[str, HeadValue]
    fallbacks: Mapping[str, Fallback] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    are_declared: bool = False

    @property
    def geometry(self) -> Geometry:
        """Return the CT's grid."""
        return self.segmented.case.scan.geometry


class Stages:
    """Seconds by stage, ordered by the end of the stages; a stage does not count the stages inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner_s = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the block as stage `name`."""
        begun_s, outer_s = time.monotonic(), self._inner_s
        self._inner_s = 0.0
        try:
            yield
        finally:
            spent_s = time.monotonic() - begun_s
            self.seconds[name] = self.seconds.get(name, 0.0) + spent_s - self._inner_s
            self._inner_s = outer_s + spent_s


@dataclass(frozen=True)
class RunRecord:
    """The record of a case: its answers, what they come from, and what they took.

    `answers` holds risks and classes by answer, None for a mask; `probabilities` the probability of the second of two
    classes;
    `images` sizes and spacings (x, y, z) of CT and PET, None for a PET that is not used; `lesions` volume and number of
    lesions of each label in the written mask, or else in the segmentation; `expected_dsc` the DSC of
    each label by the networks' probabilities, empty without them and after an early end. `fallbacks` names the
    answers given by a fallback, `fallback_by` which one ("PET threshold", "earlier mask", "empty mask", "rule",
    "training", "declaration"), and `fallback_why` the reason. `region` describes the region that was searched
    (`Region.as_json`), None for a method without images. `device` describes what made the passes and is None without
    passes. `package` is the model package, None for a method without one; a notice says if it is the shipped one.
    `seconds` has the finished stages. `time_limit_s` and `left_s` are None without a time limit.
    """

    edition: str
    task: str
    method: str
    device: str | None
    region: Mapping[str, Any] | None
    segmented_by: MaskSource | None
    passes_done: int
    passes_planned: int
    answers: Mapping[str, HeadValue | None]
    fallbacks: tuple[str, ...]
    notices: tuple[Finding, ...]
    seconds: Mapping[str, float]
    peak_memory_mib: float
    gpu_peak_memory_mib: float | None
    time_limit_s: float | None
    left_s: float | None
    fallback_by: Mapping[str, str] = field(default_factory=dict)
    fallback_why: Mapping[str, str] = field(default_factory=dict)
    package: PackageIdentity | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, Any] = field(default_factory=dict)
    lesions: Mapping[str, Any] = field(default_factory=dict)
    expected_dsc: Mapping[str, float | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain data, with its format version."""
        content = asdict(self)
        return {"format_version": RECORD_VERSION, **content, "fallbacks": list(self.fallbacks)} | {
            "notices": [asdict(notice) for notice in self.notices],
            "package": None if self.package is None else self.package.model_dump(),
        }

    def summary(self) -> str:
        """Describe in one line who answered, seconds by stage, passes, memory, fallbacks, notices and left time."""
        parts = [f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items()]
        if self.segmented_by == "network":
            parts.append(f"{self.passes_done} of {self.passes_planned} passes on {self.device}")
        elif self.segmented_by is not None:
            parts.append(f"no pass, by {self.segmented_by}")
        parts.append(f"peak memory {self.peak_memory_mib:.0f} MiB")
        if self.gpu_peak_memory_mib is not None:
            parts.append(f"on the GPU {self.gpu_peak_memory_mib:.0f} MiB")
        if self.fallbacks:
            parts.append(f"fallbacks for {' and '.join(self.fallbacks)}")
        if self.notices:
            parts.append(f"warnings: {len(self.notices)}")
        # The usual method has the name of our baseline, but answers by any networks that the package has.
        by = [] if self.package is None else [f"package {self.package.name}"]
        by += [f"method {self.method}"] if self.package is None or self.method != BASELINE else []
        if self.time_limit_s is not None:
            parts.append(f"{self.left_s:.1f} s of {self.time_limit_s:g} s left")
        return f"{self.task} answered by {', '.join(by)}: {', '.join(parts)}"


@dataclass(frozen=True)
class Prediction:
    """The answers of one case.

    Attributes:
        mask: labels (0 background, 1 GTVp, 2 GTVn) on the CT's grid, uint8 in (z, y, x); None for an algorithm
            without a mask.
        geometry: the CT's grid.
        risks: risk answers by name: higher means earlier recurrence, or days for an answer declared as a time.
        classes: class answers by name, such as True for HPV positive.
        record: how the case was answered.
    """

    mask: npt.NDArray[np.uint8] | None
    geometry: Geometry
    risks: Mapping[str, float]
    classes: Mapping[str, HeadValue]
    record: RunRecord

    def to_dict(self) -> dict[str, Any]:
        """Answers and record as plain data, except `mask`, which stays an array."""
        return {
            "mask": self.mask,
            "risks": dict(self.risks),
            "classes": dict(self.classes),
            "record": self.record.as_json(),
        }
