"""The models of metrics.json and of the observers.json that `hecktor study observers` writes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from contract.documents import Document, Text, make_document_error
from contract.errors import HecktorError, OutputError
from contract.io.files import MAX_JSON_BYTES, format_json, read_json
from contract.platform import METRICS_JSON

METRICS_FORMAT: Final = 2
MAX_METRICS_BYTES: Final = 32 * MAX_JSON_BYTES
# The option of an evaluation inside bounding boxes. Its value is the checksum of the file with the boxes.
IN_BOX: Final = "bounding_boxes_sha256"
FIGURES: Final = ("value", "ci95_low", "ci95_high")

AnyResult = TypeVar("AnyResult", bound=Document)
Count = Annotated[int, Field(ge=0)]


class MetricFigures(Document):
    """A metric's value and 95% interval. JSON has no infinity: `infinite` names the figures that are infinite.

    `ci95_half_width`, half the interval's length, is only for the platform's leaderboard; null without an interval.
    """

    value: float | None
    ci95_low: float | None
    ci95_high: float | None
    ci95_half_width: float | None = None
    infinite: list[Literal["value", "ci95_low", "ci95_high"]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_interval(self) -> MetricFigures:
        if any(getattr(self, name) is not None for name in self.infinite):
            raise ValueError("null in place of each infinite figure")
        if self.ci95_low is not None and self.ci95_high is not None and self.ci95_low > self.ci95_high:
            raise ValueError("an interval with its lower end first")
        return self

    @classmethod
    def from_values(cls, value: float | None, low: float | None = None, high: float | None = None, **more: Any) -> Self:
        """Make the figures from values that may be infinite; `more` has the other fields of a subclass."""
        # The sum with zero turns -0.0 into 0.0.
        numbers = [None if figure is None else figure + 0.0 for figure in (value, low, high)]
        figures: dict[str, Any] = dict(zip(FIGURES, numbers, strict=True))
        infinite = [name for name, figure in figures.items() if figure is not None and math.isinf(figure)]
        if infinite:
            figures |= {**dict.fromkeys(infinite, None), "infinite": infinite}
        return cls(**figures, **more)

    def figure(self, part: str = "value") -> float | None:
        """Return the value or an end of the interval, which may be infinite; None if it is undefined."""
        figure: float | None = math.inf if part in self.infinite else getattr(self, part)
        return figure

    @property
    def figures(self) -> tuple[float | None, float | None, float | None]:
        """The value and both ends of its interval, which may be infinite."""
        return self.figure(), self.figure("ci95_low"), self.figure("ci95_high")


class CentreValue(Document):
    """A metric's value in one centre."""

    value: float | None


class CentreBlock(Document):
    """The cases of one centre and every metric of only these cases."""

    cases: Count
    names: list[str] = Field(default_factory=list)
    aggregates: dict[str, CentreValue]


class FailedCase(Document):
    """A case with an unusable prediction, and the reason."""

    case: Text
    why: str | None = None


class CaseCounts(Document):
    """The number of cases that count, and the names of the other cases. Files without rows contain only the numbers."""

    in_ground_truth: Count = 0
    used: Count = 0
    answered: Count = 0
    missing: list[str] = Field(default_factory=list)
    failed: list[FailedCase] = Field(default_factory=list)
    skipped: dict[str, list[str] | Count] = Field(default_factory=dict)
    unknown: list[str] = Field(default_factory=list)
    duplicate: list[str] = Field(default_factory=list)


class Provenance(Document):
    """Origin of the figures; `case_set_sha256` is empty in files without rows.

    `own_edition` is the document of a custom edition.
    """

    format: Literal[2]
    version: str = ""
    task: Text
    edition: Text
    own_edition: dict[str, Any] | None = None
    options: dict[str, Any]
    ranked_metrics: list[str] = Field(default_factory=list)
    weighted_sums: dict[str, dict[str, float]] = Field(default_factory=dict)
    case_set_sha256: str = ""
    seed: Count = 0
    interval: str = ""
    bootstraps: Count = 0
    redraws: Count = 0
    redraws_of_extra_metrics: Count = 0

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Check rules by name, or by answer and name."""
        for rules in options.values():
            values = rules.values() if isinstance(rules, dict) else [rules]
            if not all(isinstance(value, str | bool | int | float) for value in values):
                raise ValueError("a string, a number or a boolean for each rule")
        return options


class MetricsJson(Document):
    """An evaluation: metrics.json, which leaderboards read at `aggregates.<metric>.value|ci95_low|ci95_high`.

    `results` contains one row for each case. The keys of a row depend on the kinds of answers, and the scorers check
    them.
    """

    aggregates: dict[str, MetricFigures]
    centres: dict[str, CentreBlock] = Field(default_factory=dict)
    cases: CaseCounts
    warnings: list[str]
    provenance: Provenance
    results: list[dict[str, Any]] = Field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        return self.model_dump(exclude_unset=True)

    def get_rows(self, answer: str, *, several: bool) -> list[dict[str, Any]]:
        """Return the rows of one answer; `several` means that the rows are nested by answer."""
        if not several:
            return self.results
        return [{**row[answer], "case": row["case"]} for row in self.results if answer in row]


class ObserversDocument(Document):
    """Content of the observers.json that `hecktor study observers` writes."""

    study: Literal["observers"]
    version: str = ""
    observers: list[str] = Field(default_factory=list)
    cases: Count = 0
    cases_of_one_observer: list[str] = Field(default_factory=list)
    surface_tolerance_mm: float | None = None
    bootstraps: Count = 0
    seed: Count = 0
    redraws: Count = 0
    aggregates: dict[str, MetricFigures]
    quartiles: dict[str, Any] = Field(default_factory=dict)
    pairs: list[Any] = Field(default_factory=list)


def check_document(content: object, model: type[AnyResult], where: str) -> AnyResult:
    """Validate the content of a results file as `model`; `where` names the file in messages.

    Unlike `contract.documents.parse_document`, this function does not write the content as JSON again, which takes
    seconds for large files.

    Raises:
        HecktorError: The content breaks the model; the message names the place.
    """
    try:
        return model.model_validate(content)
    except ValidationError as problem:
        raise make_document_error(problem, where, HecktorError) from None


def format_document(document: Document) -> str:
    """Return a document as the text of a JSON file, several times faster than `format_json`."""
    try:
        return document.model_dump_json(indent=2, exclude_unset=True) + "\n"
    except PydanticSerializationError:  # half of a surrogate pair, which only `format_json` writes
        return format_json(document.model_dump(exclude_unset=True))


def check_owner(earlier: Path, task: str) -> None:
    """Raise OutputError if this file belongs to another task or another program, so that it is not overwritten."""
    owner = _find_owner(earlier) if earlier.is_file() else ""
    if owner not in {task, ""}:
        expected = f"another --output, or remove {earlier.name} there"
        raise OutputError(earlier.name, f"found the file of {owner}", expected)


def remove_earlier_metrics(output_dir: Path | None, task: str) -> None:
    """Remove an earlier metrics.json of the task, so that it is not taken for the result if this run fails.

    Raises:
        OutputError: The file belongs to another task or another program, or cannot be removed.
    """
    if output_dir is None:
        return
    earlier = output_dir / METRICS_JSON
    check_owner(earlier, task)
    try:
        earlier.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(METRICS_JSON, f"cannot be replaced ({problem.strerror})", "a writable folder") from None


def _find_owner(path: Path) -> str:
    """Return the task of a metrics.json or leaderboard.json, or "another program"; empty for a damaged file."""
    try:
        content = read_json(path, max_bytes=MAX_METRICS_BYTES)
    except HecktorError:
        return ""
    return _find_task(content) or "another program"


def read_task(path: Path) -> str:
    """Return the task of a metrics.json or leaderboard.json; empty for an unreadable or other file."""
    try:
        return _find_task(read_json(path, max_bytes=MAX_METRICS_BYTES))
    except HecktorError:
        return ""


def _find_task(content: Any) -> str:
    """Return the task that the content of a results file states; empty if it states none."""
    origin = content.get("provenance", content) if isinstance(content, dict) else None
    task = origin.get("task") if isinstance(origin, dict) else None
    return task if isinstance(task, str) else ""
