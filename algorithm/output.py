"""The state of one case, its answers, and their files, which are complete and valid at any moment."""

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
# The source of a fallback. For a risk or class it is a rule applied to the mask, the value of the training in the
# manifest, or the value that the edition declares.
FallbackSource = MaskSource | Literal["rule", "training", "declaration"]


@dataclass(frozen=True)
class Fallback:
    """The source of the value that replaced an answer, and the reason."""

    by: FallbackSource
    why: str


@dataclass(frozen=True)
class CaseAnswers:
    """The answers of a case.

    Attributes:
        segmented: The case with the segmentation behind the answers, and the source of the segmentation.
        mask: Labels (z, y, x) on the CT's grid; None for an algorithm without a mask.
        values: Risks and classes by the name of the answer.
        fallbacks: The fallbacks by the name of the answer.
        notes: Lines for the log, such as features that are missing.
        probabilities: Probability of the second of two classes, by the name of the answer, from heads with calibration.
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
    """The seconds spent in each stage, in the order in which the stages ended; nested stages are not counted twice."""

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
        """Return the minimum volumes of components that count as lesions: the package's volumes, or the defaults."""
        return self.loaded.manifest.smallest_lesions if self.request.uses_package else DEFAULT_MIN_LESION_SIZES

    @property
    def has_user_code(self) -> bool:
        """Return whether the package names user code and the task has heads."""
        if not (self.request.uses_package and self.request.algorithm.head_specs):
            return False
        return bool(self.loaded.manifest.code)  # readable even if the rest of the package is not

    def asks_user_code(self) -> bool:
        """Return whether the package has custom features or custom heads; True if the package cannot be read."""
        try:
            package = self.loaded.package
            heads = [package.head(self.request.method.head_name(spec)) for spec in self.request.algorithm.head_specs]
        except ModelPackageError:
            return True
        return bool(package.features) or any(list_custom_heads(head) for head in heads)

    def find_head(self, spec: AnswerSpec) -> Head:
        """Return the head of a risk or class; raise `ModelPackageError` if it is missing or does not fit the answer."""
        name = self.request.method.head_name(spec)
        head = self.loaded.package.head(name)
        check_head(spec, head, name)
        return head

    def log_once(self, message: str, problem: BaseException | None = None) -> None:
        """Log a warning, with the traceback of an exception, unless the case has logged the same warning before."""
        if message not in self._logged:
            self._logged.add(message)
            LOGGER.warning("%s", message, exc_info=problem)


class AnswerFiles:
    """The answers of a case written so far; `write` replaces all files of the previous answers.

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
        """Return the answers written so far, without the mask until `close`; None if there are none."""
        return self._answers

    def write(self, answers: CaseAnswers) -> None:
        """Write all answers or none; the mask is kept compressed in memory until `close`.

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
        """Wait for a write in progress, refuse later ones, and return the final answers; None if there are none."""
        with self._lock:
            self._is_closed = True
            if self._answers is not None and self._packed_mask is not None:
                mask = unpack_mask(self._packed_mask, self._answers.geometry)
                self._answers, self._packed_mask = replace(self._answers, mask=mask), None
            return self._answers

    def remove(self) -> None:
        """Close the output, and remove the files of a case that failed."""
        self.close()
        if self._has_written:
            with suppress(OutputError):  # the failure itself is reported
                remove_earlier_answers(self._request)

    def _write_files(self, answers: CaseAnswers) -> bytes | None:
        """Write the files, and return the compressed mask; None without a mask."""
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
