"""`cross_validation.json` as a document: a record of each target, with both kinds of cross-validation."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from baseline.heads.fitting import ExpertRecord
from baseline.work import WorkFolders
from contract.code import split_reference
from contract.documents import Document, parse_document
from contract.editions.declaration import ClassValue

# Heads of another version are outdated.
FORMAT_VERSION: Final = 6
Metrics = dict[str, float | None]


def _how_many(score: object) -> str:
    return "(classes)" if isinstance(score, list) else "(one)"


# A patient's score, or one for each of more than two classes.
Score = Annotated[Annotated[float, Tag("(one)")] | Annotated[list[float], Tag("(classes)")], Discriminator(_how_many)]


class ModelAnswers(Document):
    """Out-of-fold answers of one model, in the order of the patients, and its metric.

    Two classes also have `positive` and `probability`; more classes have `class`, `recall` and `confusion`, whose rows
    are reference classes.
    """

    c_index: float | None = None
    balanced_accuracy: float | None = None
    by_centre: Metrics = Field(default_factory=dict)
    score: list[Score] | None = None
    positive: list[bool] | None = None
    probability: list[float] | None = None
    recall: Metrics | None = None
    confusion: list[list[int]] | None = None
    given: list[ClassValue] | None = Field(None, alias="class")


class OuterFoldRecord(Document):
    """One outer fold: its held-out patients, and the model that was selected and fitted without them."""

    held_out: list[str]
    model: str
    setting: dict[str, float]
    experts: list[ExpertRecord]
    tried: dict[str, float]
    threshold: float | None
    notice: str | None = None
    coefficients: dict[str, float]
    c_index: float | None = None
    balanced_accuracy: float | None = None


class KindRecord(ModelAnswers):
    """One kind of cross-validation of a target, or the reason `why_not` in place of it.

    `comparators` use the same outer folds.
    """

    why_not: str | None = None
    fold_of_patient: list[int] | None = None
    folds: list[OuterFoldRecord] | None = None
    comparators: dict[str, ModelAnswers] | None = None

    @model_validator(mode="after")
    def _complete(self) -> KindRecord:
        parts = (self.fold_of_patient, self.folds, self.comparators)
        if any((part is None) != (self.why_not is not None) for part in parts):
            raise ValueError("either why_not, or fold_of_patient, folds and comparators")
        return self


class OutcomeRow(Document):
    """A patient with the outcome, under the answer's own keys, such as `relapse` and `rfs_days`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | ClassValue]

    id: str
    centre: str


class TargetRecord(Document):
    """The cross-validations of one target; `metric` names the field with the value.

    `left_out_features` were fitted to outcomes, so that both kinds do without them.
    """

    metric: str
    patients: list[OutcomeRow]
    nested: KindRecord
    leave_one_centre_out: KindRecord
    left_out_features: list[str] = Field(default_factory=list)


class CrossValidation(Document):
    """The content of `cross_validation.json`. All keys but those below are targets.

    Attributes:
        no_head: the reason for each head that could not be fitted.
        made_from: digest of the inputs.
        own: sha256 of the code of each entrant's head.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, TargetRecord]

    format_version: int = FORMAT_VERSION
    seed: int
    no_head: dict[str, str]
    made_from: str | None = None
    own: dict[str, str] = Field(default_factory=dict)

    def targets(self) -> dict[str, dict[str, Any]]:
        """The records of all targets as plain data, without absent parts."""
        return {name: part for name, part in self.as_json().items() if name in (self.__pydantic_extra__ or {})}

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def read_cross_validation(work: WorkFolders) -> CrossValidation:
    """The cross-validations of a plan's heads. Raises HecktorError: the step `heads` has not been run."""
    return checked_document(work.read(work.cross_validation_json))


def stored_cross_validation(work: WorkFolders) -> CrossValidation | None:
    """The cross-validations of a plan's heads; None without any, or for those of another version with other keys."""
    content = work.read(work.cross_validation_json) if work.cross_validation_json.is_file() else None
    is_other = isinstance(content, dict) and content.get("format_version") != FORMAT_VERSION
    return None if content is None or is_other else checked_document(content)


def stored_targets(work: WorkFolders) -> dict[str, dict[str, Any]]:
    """The records of all targets of `stored_cross_validation`; empty without it."""
    document = stored_cross_validation(work)
    return {} if document is None else document.targets()


def code_of_heads(document: CrossValidation) -> dict[str, str]:
    """The sha256 of each folder of code with heads that were fitted, by its name."""
    return {split_reference(hook, "head")[0]: digest for hook, digest in document.own.items()}


def checked_document(content: object) -> CrossValidation:
    """The content of a `cross_validation.json` as a document. Raises HecktorError for the first fault."""
    return parse_document(content, CrossValidation, "cross_validation.json")
