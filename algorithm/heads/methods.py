"""Methods: the baseline network, or a plain comparator. A method declares how it segments and which heads it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.answers import KINDS, Kind
from contract.editions.inputs import MR, Modality
from contract.errors import HecktorError, ModelPackageError


@dataclass(frozen=True)
class Method:
    """A way to answer a case.

    Attributes:
        name: name on the command line.
        segmenter: finds the lesions; "threshold" is a case's fallback, None is for only clinical variables.
        needs: modality of an input that the method needs; None for any.
        kinds: kinds of answers that the method gives itself; for other risks and classes it gives their fallbacks.
        head_suffix: added to the name of an answer's head in the model package.
    """

    name: str
    segmenter: Literal["network", "threshold"] | None
    kinds: tuple[Kind, ...]
    head_suffix: str = ""
    needs: Modality | None = None

    def head_name(self, answer: AnswerSpec) -> str:
        """Name of the model package's head for a risk or class answer.

        Raises:
            ModelPackageError: the method reads no heads of this kind.
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


def method_for(name: str, edition: Edition, algorithm: Algorithm) -> Method:
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
