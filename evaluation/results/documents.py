"""The JSON documents of results as models: metrics.json, and the observers.json of `hecktor study observers`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from contract.documents import Document, Text, make_document_error
from contract.errors import HecktorError, OutputError
from contract.io.files import MAX_JSON_BYTES, read_json
from contract.platform import METRICS_JSON

METRICS_FORMAT: Final = 2
MAX_METRICS_BYTES: Final = 32 * MAX_JSON_BYTES
# The option of an evaluation inside bounding boxes: the checksum of their file.
IN_BOX: Final = "bounding_boxes_sha256"
FIGURES: Final = ("value", "ci95_low", "ci95_high")

AnyResult = TypeVar("AnyResult", bound=Document)
Count = Annotated[int, Field(ge=0)]


class MetricFigures(Document):
    """A metric's value and 95% interval. JSON has no infinity: `infinite` names the figures that are infinite.

    `ci95_half_width`, half the interval's length, is for the platform's leaderboard alone; null without an interval.
    """

    value: float | None
    ci95_low: float | None
    ci95_high: float | None
    ci95_half_width: float | None = None
    infinite: list[Literal["value", "ci95_low", "ci95_high"]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> MetricFigures:
        if any(getattr(self, name) is not None for name in self.infinite):
            raise ValueError("null in place of each infinite figure")
        if self.ci95_low is not None and self.ci95_high is not None and self.ci95_low > self.ci95_high:
            raise ValueError("an interval with its lower end first")
        return self

    @classmethod
    def from_values(cls, value: float | None, low: float | None = None, high: float | None = None, **more: Any) -> Self:
        """Make the figures, which may be infinite."""
        # The sum with zero turns -0.0 into 0.0.
        plain = [None if figure is None else figure + 0.0 for figure in (value, low, high)]
        figures: dict[str, Any] = dict(zip(FIGURES, plain, strict=True))
        if infinite := [name for name, figure in figures.items() if figure is not None and math.isinf(figure)]:
            figures |= {**dict.fromkeys(infinite), "infinite": infinite}
        return cls(**figures, **more)

    def figure(self, part: str = "value") -> float | None:
        """Return a figure, such as the value, infinity included; None if it is undefined."""
        figure: float | None = math.inf if part in self.infinite else getattr(self, part)
        return figure

    @property
    def figures(self) -> tuple[float | None, float | None, float | None]:
        """The value and both ends of its interval, infinity included."""
        return self.figure(), self.figure("ci95_low"), self.figure("ci95_high")


class CentreValue(Document):
    """A metric's value in one centre."""

    value: float | None


class CentreBlock(Document):
    """The cases of one centre and every metric of these cases alone."""

    cases: Count
    names: list[str] = Field(default_factory=list)
    aggregates: dict[str, CentreValue]


class FailedCase(Document):
    """A case with an unusable prediction, and the reason."""

    case: Text
    why: str | None = None


class CaseCounts(Document):
    """The number of cases that count, and the names of all others. Files without rows hold the numbers alone."""

    in_ground_truth: Count = 0
    used: Count = 0
    answered: Count = 0
    missing: list[str] = Field(default_factory=list)
    failed: list[FailedCase] = Field(default_factory=list)
    skipped: dict[str, list[str] | Count] = Field(default_factory=dict)
    unknown: list[str] = Field(default_factory=list)
    duplicate: list[str] = Field(default_factory=list)


class Provenance(Document):
    """Origin of the figures. Files without rows lack `case_set_sha256`.

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
                raise ValueError("a text, a number or a truth value for each rule")
        return options


class MetricsJson(Document):
    """An evaluation: metrics.json, which leaderboards read at `aggregates.<metric>.value|ci95_low|ci95_high`.

    `results` holds one row for each case; their keys depend on the kinds of answers, which `validate` checks.
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

    def rows_of(self, answer: str, *, several: bool) -> list[dict[str, Any]]:
        """Return the rows of one answer; `several` says whether the rows are nested by answer."""
        if not several:
            return self.results
        return [{**row[answer], "case": row["case"]} for row in self.results if answer in row]


class ObserversDocument(Document):
    """observers.json."""

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
    """Validate the content of a results file as `model`; `where` names it in messages.

    Other than `contract.documents.parse_document` it doesn't write the content as JSON again, which takes seconds for
    large files. Raises HecktorError: the content breaks the model; the message names the place.
    """
    try:
        return model.model_validate(content)
    except ValidationError as problem:
        raise make_document_error(problem, where, HecktorError) from None


def check_owner(earlier: Path, task: str) -> None:
    """Raise OutputError if a result of another task, or a file of another program, would be replaced and so lost."""
    if earlier.is_file() and (owner := _owner_of(earlier)) not in {task, ""}:
        expected = f"another --output, or remove {earlier.name} there"
        raise OutputError(earlier.name, f"found that of {owner}", expected)


def remove_earlier_metrics(output_dir: Path | None, task: str) -> None:
    """Remove an earlier metrics.json of the task, which would look like the result of a run that fails.

    Raises OutputError: it is of another task or of another program, and so not to be lost.
    """
    if output_dir is None:
        return
    earlier = output_dir / METRICS_JSON
    check_owner(earlier, task)
    try:
        earlier.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(METRICS_JSON, f"cannot be replaced ({problem.strerror})", "a writable folder") from None


def _owner_of(path: Path) -> str:
    """Return the task of a metrics.json or leaderboard.json, or who else wrote it; empty for a damaged file."""
    try:
        content = read_json(path, max_bytes=MAX_METRICS_BYTES)
    except HecktorError:
        return ""
    return _task_in(content) or "another program"


def read_task(path: Path) -> str:
    """Return the task of a metrics.json or leaderboard.json; empty for an unreadable or other file."""
    try:
        return _task_in(read_json(path, max_bytes=MAX_METRICS_BYTES))
    except HecktorError:
        return ""


def _task_in(content: Any) -> str:
    origin = content.get("provenance", content) if isinstance(content, dict) else None
    task = origin.get("task") if isinstance(origin, dict) else None
    return task if isinstance(task, str) else ""
