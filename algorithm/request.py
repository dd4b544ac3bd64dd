"""The request for one case: its method, its files and its limits; and the removal of what an earlier run left there.

Importing this module imports no library.
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
        segmenter: Finds the lesions; "threshold" is a case's fallback, None is for only clinical variables.
        needs: Modality of an input that the method needs; None for any.
        kinds: Kinds of answers that the method gives itself; for other risks and classes it gives their fallbacks.
        head_suffix: Added to the name of an answer's head in the model package.
    """

    name: str
    segmenter: Literal["network", "threshold"] | None
    kinds: tuple[Kind, ...]
    head_suffix: str = ""
    needs: Modality | None = None

    def head_name(self, answer: AnswerSpec) -> str:
        """Name of the model package's head for a risk or class answer.

        Raises:
            ModelPackageError: The method reads no heads of this kind.
        """
        if answer.kind not in self.kinds:
            raise ModelPackageError(f"method {self.name!r}", f"no head for {answer.name}")
        return answer.head + self.head_suffix

    def answers(self, algorithm: Algorithm) -> bool:
        """Return whether the method can give every answer of the algorithm, by itself or by a fallback for a head."""
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
        edition: Gives the inputs and the clinical variables.
        algorithm: Gives the answers.
        method: The baseline or a comparator.
        source: The platform's `/input` folder, plain files, or scans in memory.
        output_dir: The platform's `/output` folder; None writes no files there.
        device: "auto", "cpu" or "cuda".
        time_limit_s: Seconds for the case, `spent_s` included; None sets no limit.
        max_passes: Limit on the passes of the network; None makes all that fit the time.
        probabilities_dir: Folder for the probabilities (`algorithm.masks.segmentation`); None writes none.
        record_path: JSON file for the run record; None writes none.
        mask_path: Image file for the mask, for an algorithm that answers only a mask, without an `output_dir`.
        is_shipped: No model package was given, so the shipped one answers.
        code: Folders of user code; the code of the image is used if there are no folders.
        limits_card: Take no more of a card than the platform's has, as the edition's limit demands.
        contours_path: Mask of the lesions in place of those that the network would find; None without one.
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
    limits_card: bool = False
    whole_scan: bool = False

    @property
    def uses_package(self) -> bool:
        """Return whether the method needs a model package for this algorithm."""
        return self.method.segmenter == "network" or bool(self.algorithm.head_specs)


def list_answer_paths(algorithm: Algorithm, output_dir: Path) -> dict[str, Path]:
    """Return the file of each answer, by its name."""
    paths = {answer.name: answer.socket.path_under(output_dir) for answer in algorithm.answers}
    if (mask := algorithm.mask_spec) is not None:
        paths[mask.name] /= platform.MASK_FILE_NAME
    return paths


def remove_answers(paths: Iterable[Path], output_dir: Path | None = None) -> None:
    """Remove the files that a task writes, which would look like this case's if it fails; files of other tasks stay.

    Of the folders below `output_dir`, those that are empty then go as well.

    Raises:
        OutputError: A file cannot be removed, such as one of another user.
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
    """Remove what an earlier case wrote, which would look like this one's if the case fails. Raises `OutputError`."""
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(option, f"{path.name} cannot be replaced ({problem.strerror})", "a file") from None


def remove_earlier_answers(request: PredictRequest) -> None:
    """Remove the files that the task of the request writes. Raises `OutputError`."""
    paths = [] if request.mask_path is None else [request.mask_path]
    if request.output_dir is not None:
        paths += list_answer_paths(request.algorithm, request.output_dir).values()
    remove_answers(paths, request.output_dir)
