"""The request for one case: its method, its files and its limits; and the removal of files that an earlier run wrote.

Importing this module imports no large library.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from contract import platform
from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.answers import KINDS, Kind
from contract.editions.inputs import MR, Modality
from contract.errors import HecktorError, ModelPackageError, OutputError
from contract.labels import LESIONS

if TYPE_CHECKING:  # imports NumPy
    from algorithm.case.read import CaseSource

PROBABILITY_FILES: Final = tuple(f"{name}_probability.nii.gz" for name in LESIONS)


@dataclass(frozen=True)
class Method:
    """A way to answer a case.

    Attributes:
        name: Name on the command line.
        segmenter: How lesions are segmented: "network"; "threshold", which is also the fallback of the network; or None
            for a method that uses only clinical variables.
        kinds: Kinds of answers that the method computes; other risks and classes get their fallbacks.
        head_suffix: Suffix of the names of its heads in the model package.
        needs: Modality of an input that the edition must have; None for any edition.
    """

    name: str
    segmenter: Literal["network", "threshold"] | None
    kinds: tuple[Kind, ...]
    head_suffix: str = ""
    needs: Modality | None = None

    def head_name(self, answer: AnswerSpec) -> str:
        """Return the name of the model package's head for a risk or class.

        Raises:
            ModelPackageError: The method uses no heads for answers of this kind.
        """
        if answer.kind not in self.kinds:
            raise ModelPackageError(f"method {self.name!r}", f"no head for {answer.name}")
        return answer.head + self.head_suffix

    def answers(self, algorithm: Algorithm) -> bool:
        """Return whether the method gives every answer of the algorithm: computes it, or has a fallback for it."""
        inputs = algorithm.registered_inputs if algorithm.modality == MR else algorithm.inputs
        if self.needs is not None and not any(image.modality == self.needs for image in inputs.values()):
            return False
        return all(answer.kind in self.kinds or self._has_fallback(answer) for answer in algorithm.answers)

    def _has_fallback(self, answer: AnswerSpec) -> bool:
        return self.segmenter is not None and answer.fallback is not None


BASELINE: Final = "baseline"
METHODS: Final[dict[str, Method]] = {
    method.name: method
    for method in (
        Method(BASELINE, "network", KINDS),
        Method("threshold", "threshold", ("mask",), needs="PET"),
        Method("earlier-mask", "threshold", ("mask",), needs="mask"),
        Method("clinical", None, ("risk", "class"), "_clinical"),
    )
}


def find_method(name: str, edition: Edition, algorithm: Algorithm) -> Method:
    """Return the method called `name`. Raises `HecktorError` if it cannot answer `algorithm`."""
    method = METHODS[name]
    if not method.answers(algorithm):
        possible = [
            algorithm_of_edition.name
            for algorithm_of_edition in edition.algorithms
            if method.answers(algorithm_of_edition)
        ]
        expected = " or ".join(possible) or "another method"
        raise HecktorError(f"method {name!r}", f"cannot answer task {algorithm.name}", expected)
    return method


@dataclass(frozen=True)
class PredictRequest:
    """One case to answer.

    Attributes:
        edition: Declares the inputs and the clinical variables.
        algorithm: Declares the answers.
        method: The baseline or a comparator.
        source: The platform's `/input` folder, plain files, or scans in memory.
        output_dir: The platform's `/output` folder; None writes no files there.
        device: "auto", "cpu" or "cuda".
        time_limit_s: Seconds for the case, `spent_s` included; None sets no limit.
        spent_s: Seconds of the time limit that have already passed.
        max_passes: Maximum number of passes of the network; None makes all that fit the time.
        probabilities_dir: Folder for the probabilities (`algorithm.masks.segmentation`); None writes none.
        record_path: JSON file for the run record; None writes none.
        mask_path: Image file for the mask, for an algorithm that answers only a mask, without an `output_dir`.
        is_shipped: Whether the shipped model package answers, because no other one was named or uploaded.
        code: Folders of user code; without folders the code in the image is used.
        contours_path: Mask of lesions to use instead of the network's; None for no such mask.
        limits_gpu_memory: Whether to use no more GPU memory than the platform's GPU has.
        whole_scan: Whether lesions are searched in the whole scan, as nnU-Net does, not only in head and neck.
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
    limits_gpu_memory: bool = False
    whole_scan: bool = False

    @property
    def uses_package(self) -> bool:
        """Return whether the method uses a model package to give the answers of this algorithm."""
        return self.method.segmenter == "network" or bool(self.algorithm.head_specs)


def list_answer_paths(algorithm: Algorithm, output_dir: Path) -> dict[str, Path]:
    """Return the path of each answer's file, by the name of the answer."""
    paths = {answer.name: answer.socket.path_under(output_dir) for answer in algorithm.answers}
    if (mask := algorithm.mask_spec) is not None:
        paths[mask.name] /= platform.MASK_FILE_NAME
    return paths


def remove_answers(paths: Iterable[Path], output_dir: Path | None = None) -> None:
    """Remove answers of an earlier case, so that they cannot be mistaken for answers of a case that fails.

    Their folders below `output_dir` are also removed, if they are then empty.

    Raises:
        OutputError: A file cannot be removed, for example because it belongs to another user.
    """
    for path in paths:
        _remove(path)
        if output_dir is not None and output_dir in path.parent.parents:
            with suppress(OSError):  # not empty, or absent
                path.parent.rmdir()


def _remove(path: Path) -> None:
    try:
        if os.path.lexists(path):  # a read-only disk refuses to remove even an absent file
            path.unlink()
    except OSError as problem:
        actual = f"an earlier answer that cannot be removed ({problem.strerror})"
        raise OutputError(path.name, actual, "a writable folder, or another --output") from None


def remove_earlier(option: str, path: Path) -> None:
    """Remove a file of an earlier case, so that it cannot be mistaken for a file of a case that fails.

    Raises:
        OutputError: The file of the option `option` cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(option, f"{path.name} cannot be replaced ({problem.strerror})", "a file") from None


def remove_earlier_answers(request: PredictRequest) -> None:
    """Remove the answers of an earlier case from the outputs of the request. Raises `OutputError`."""
    paths = [] if request.mask_path is None else [request.mask_path]
    if request.output_dir is not None:
        paths += list_answer_paths(request.algorithm, request.output_dir).values()
    remove_answers(paths, request.output_dir)
