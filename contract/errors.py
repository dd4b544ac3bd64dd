"""One exception tree for everything that a submitter may read.

The tree::

    HecktorError            one plain line: file, what was found, what was expected
    |-- InputError          an input image or ehr.json cannot be used
    |-- ModelPackageError   the model package is incomplete or was altered
    |-- OutputError         the answer could not be written, or breaks the contract
    |-- GroundTruthError    the evaluation's reference data cannot be used
    |-- PredictionError     a submitted prediction cannot be used
    |-- MetricError         a metric is undefined for this cohort (no comparable pair, one class only)
    |-- TimeLimitError      the time limit leaves no room for an answer
    `-- EngineError         no container engine, or the engine failed

Any other exception is a bug of ours and keeps its stack trace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass


def printable(text: str) -> str:
    """The text with a replacement character for what no log, file or data base can take, such as half a character."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


@dataclass(frozen=True)
class Finding:
    """Something odd that is no error: a warning as fields, from which the sentence is made.

    `what` names the file or option, `found` what is odd about it, `action` what is done about it.
    """

    what: str
    found: str
    expected: str = ""
    action: str = ""

    def __str__(self) -> str:
        return sentence(self.what, self.found, self.expected) + (f"; {self.action}" if self.action else "")


def sentence(what: str, found: str = "", expected: str = "") -> str:
    """`what: found, expected expected`, without the parts that are empty."""
    return what + (f": {found}" if found else "") + (f", expected {expected}" if expected else "")


class HecktorError(Exception):
    """An error that a user can fix; its message is one line and is safe to show to a submitter.

    Args:
        what: the file, option or case at fault, or a whole sentence.
        found: what was found there.
        expected: what was expected instead.
    """

    def __init__(self, what: str, found: str = "", expected: str = "") -> None:
        self.what, self.found, self.expected = what, found, expected
        self.message = printable(" ".join(sentence(what, found, expected).split()))
        super().__init__(what, found, expected)

    def __str__(self) -> str:
        return self.message


class InputError(HecktorError):
    """An input image or `ehr.json` cannot be used."""


class ModelPackageError(HecktorError):
    """The model package is incomplete, altered, or of another format version."""


class OutputError(HecktorError):
    """The answer could not be written, or it breaks the challenge's contract."""


class GroundTruthError(HecktorError):
    """The evaluation's reference data cannot be used."""


class PredictionError(HecktorError):
    """A submitted prediction cannot be used."""


class MetricError(HecktorError):
    """A metric is undefined for this cohort."""


class TimeLimitError(HecktorError):
    """The time limit leaves no room for an answer."""


class EngineError(HecktorError):
    """No container engine answers, or the engine failed."""


def run_main(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run a command's `main` so that a `HecktorError` becomes one last line on stderr and exit status 1.

    Grand Challenge shows the submitter the last non-empty line of stderr, so nothing is printed after it.
    Any other exception propagates with its trace.
    """
    try:
        return main(argv)
    except HecktorError as error:
        sys.stdout.flush()
        sys.stderr.write(f"error: {error.message}\n")
        sys.stderr.flush()
        return 1
