"""The state of one case, its answers, and their files, which are valid at every moment."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from algorithm.case.inputs import Notices
from algorithm.deadline import Deadline, StoppedError
from algorithm.heads.documents import Head
from algorithm.heads.head_hook import list_custom_heads
from algorithm.heads.values import check_head
from algorithm.masks.segmentation import CaseSegmentation, MaskSource
from algorithm.network.loaded_package import LoadedPackage
from algorithm.request import PredictRequest, list_answer_paths, remove_earlier_answers
from contract import platform
from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from contract.errors import ModelPackageError, OutputError
from contract.images.geometry import Geometry
from contract.images.metaimage import unpack_mask
from contract.images.volumes import encode_mask, write_mask
from contract.io.files import format_json, write_files
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes

LOGGER = logging.getLogger("hecktor")
HeadValue = float | ClassValue
# Of a risk or class: from the mask by a rule, the training's value in the manifest, or the edition's declaration.
FallbackSource = MaskSource | Literal["rule", "training", "declaration"]


@dataclass(frozen=True)
class Fallback:
    """The source of what replaced an answer, and the reason."""

    by: FallbackSource
    why: str


@dataclass(frozen=True)
class CaseAnswers:
    """The answers of a case.

    Attributes:
        segmented: The case with the segmentation behind the answers, and what it comes from.
        mask: Labels on the CT's grid, None for an algorithm without a mask.
        values: Risks and classes by name.
        fallbacks: The fallbacks by the name of the answer.
        notes: Lines for the log, such as features that are missing.
        probabilities: Of the second of two classes, by name, from a head with calibration.
        are_declared: Whether no feature was measured, so that the values come from the training or the declaration.
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
        started_s, outer_s = time.monotonic(), self._inner_s
        self._inner_s = 0.0
        try:
            yield
        finally:
            spent_s = time.monotonic() - started_s
            self.seconds[name] = self.seconds.get(name, 0.0) + spent_s - self._inner_s
            self._inner_s = outer_s + spent_s


class RunContext:
    """The state of one case that its steps share; its clock starts now."""

    def __init__(self, request: PredictRequest, loaded: LoadedPackage) -> None:
        self.request, self.loaded = request, loaded
        self.deadline = Deadline(request.time_limit_s, spent_s=request.spent_s)
        self.stages, self.notices = Stages(), Notices()
        self.output = AnswerFiles(request, self.stages)
        self.has_measured = False  # whether answers from measured features have been written
        self.awaits_user_code = False  # whether the attempt with user code has begun and not ended
        self._logged: set[str] = set()

    @property
    def min_lesion_sizes(self) -> MinLesionSizes:
        """Return the volumes below which a part of the mask is no lesion: the package's, or the defaults."""
        return self.loaded.manifest.smallest_lesions if self.request.uses_package else DEFAULT_MIN_LESION_SIZES

    @property
    def has_user_code(self) -> bool:
        """Return whether the package names user code and the task has heads."""
        if not (self.request.uses_package and self.request.algorithm.head_specs):
            return False
        return bool(self.loaded.manifest.code)  # readable even if the rest of the package is not

    def asks_user_code(self) -> bool:
        """Return whether custom features are measured or a custom head answers; True if the package is unreadable."""
        try:
            package = self.loaded.package
            heads = [package.head(self.request.method.head_name(spec)) for spec in self.request.algorithm.head_specs]
        except ModelPackageError:
            return True
        return bool(package.features) or any(list_custom_heads(head) for head in heads)

    def find_head(self, spec: AnswerSpec) -> Head:
        """Return the head of a risk or class. Raises `ModelPackageError` if it is missing or cannot give the answer."""
        name = self.request.method.head_name(spec)
        head = self.loaded.package.head(name)
        check_head(spec, head, name)
        return head

    def log_once(self, message: str, problem: BaseException | None = None) -> None:
        """Log a warning, with the trace of an exception, the first time that it occurs in the case."""
        if message not in self._logged:
            self._logged.add(message)
            LOGGER.warning("%s", message, exc_info=problem)


class AnswerFiles:
    """The answers of a case so far: better answers replace all files of the answers before.

    Every file is valid at any moment, even if the process is killed. A request without an output keeps its answers
    only in memory.
    """

    def __init__(self, request: PredictRequest, stages: Stages) -> None:
        self._request, self._stages, self._lock = request, stages, threading.Lock()
        self._answers: CaseAnswers | None = None
        self._packed_mask: bytes | None = None
        self._is_closed = False
        self._has_written = False

    @property
    def answers(self) -> CaseAnswers | None:
        """Return the answers on disk, None before the first ones."""
        return self._answers

    def write(self, answers: CaseAnswers) -> None:
        """Write all answers or none; the mask stays compressed in memory until the answers are final.

        Raises:
            OutputError: A file cannot be written.
            StoppedError: The output is closed.
        """
        with self._lock:
            if self._is_closed:
                raise StoppedError("the answers are final")
            self._has_written = True
            with self._stages("write"):
                self._packed_mask = self._write_files(answers)
            self._answers = replace(answers, mask=None)

    def close(self) -> CaseAnswers | None:
        """Return the answers on disk, which no thread replaces from now on; wait for a write in progress."""
        with self._lock:
            self._is_closed = True
            if self._answers is not None and self._packed_mask is not None:
                mask = unpack_mask(self._packed_mask, self._answers.geometry)
                self._answers, self._packed_mask = replace(self._answers, mask=mask), None
            return self._answers

    def remove(self) -> None:
        """Close, and remove the files of a case that failed."""
        self.close()
        if self._has_written:
            with suppress(OutputError):  # the failure itself is reported
                remove_earlier_answers(self._request)

    def _write_files(self, answers: CaseAnswers) -> bytes | None:
        """Write the files and return the packed mask."""
        request, mask = self._request, answers.mask
        packed = None if mask is None else encode_mask(platform.MASK_FILE_NAME, mask, answers.geometry)
        if request.mask_path is not None and mask is not None:
            write_mask(request.mask_path, mask, answers.geometry)
        contents = {}
        if request.output_dir is not None:
            paths = list_answer_paths(request.algorithm, request.output_dir)
            if request.algorithm.mask_spec is not None and packed is not None:
                contents[paths[request.algorithm.mask_spec.name]] = packed
            contents |= {paths[name]: format_json(value).encode() for name, value in answers.values.items()}
        # The platform expects nothing but the answers in their folders, so partial files are written elsewhere.
        write_files(contents, partials=request.output_dir)
        return packed
