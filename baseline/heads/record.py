"""`cross_validation.json`: both kinds of cross-validation of every target, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from algorithm.heads.documents import read_head
from baseline.cache import map_items
from baseline.heads.cohort import HeadCohort, outcome_rows
from baseline.heads.cross_validation import KINDS, cross_validated
from baseline.heads.fitting import ExpertRecord
from baseline.heads.models.kinds import Target
from baseline.work import WorkFolders
from contract.code import split_reference
from contract.documents import Document, parse_document
from contract.editions.declaration import ClassValue

# Heads of another version are outdated.
FORMAT_VERSION: Final = 7
Metrics = dict[str, float | None]
_Item = tuple[Target, HeadCohort, str]


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
        custom: sha256 of the code of each entrant's head.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, TargetRecord]

    format_version: int = FORMAT_VERSION
    seed: int
    no_head: dict[str, str]
    made_from: str | None = None
    custom: dict[str, str] = Field(default_factory=dict)

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
    return {split_reference(hook, "head")[0]: digest for hook, digest in document.custom.items()}


def checked_document(content: object) -> CrossValidation:
    """The content of a `cross_validation.json` as a document. Raises HecktorError for the first fault."""
    return parse_document(content, CrossValidation, "cross_validation.json")


def cross_validation_document(
    cohorts: Sequence[tuple[Target, HeadCohort]], seed: int, why_not: Mapping[str, str], jobs: int = 1
) -> dict[str, Any]:
    """The content of `cross_validation.json`: a record for each target, and the reasons for missing heads.

    `jobs` is the number of processes.
    """
    # The slowest targets are often the last, so that one kind is started for all targets at once.
    items = [(target, cohort, kind) for kind in KINDS for target, cohort in cohorts]
    results = dict(map_items(partial(_part, seed=seed), items, jobs, "cross-validate heads", "part"))
    return {
        "format_version": FORMAT_VERSION,
        "seed": seed,
        **{target.name: _record(target, cohort, results) for target, cohort in cohorts},
        "no_head": dict(why_not),
    }


def _part(item: _Item, seed: int) -> tuple[tuple[str, str], dict[str, Any]]:
    target, cohort, kind = item
    return (target.name, kind), cross_validated(target, cohort, kind, seed)


def _record(target: Target, cohort: HeadCohort, results: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    patients = zip(cohort.ids, cohort.centres, outcome_rows(target.answer, cohort.outcomes), strict=True)
    return {
        "metric": target.metric,
        "patients": [{"id": patient, "centre": centre, **row} for patient, centre, row in patients],
        **{kind: results[target.name, kind] for kind in KINDS},
        **({"left_out_features": list(target.fitted)} if target.fitted else {}),
    }


def summary(heads: Mapping[str, Any], document: Mapping[str, Any], targets: Sequence[Target]) -> str:
    """A few lines for the console: the fitted heads, and their cross-validated metrics."""
    lines = [
        f"{name}: {record['model']}, {record['metric']} {record['out_of_fold']:.3f} over the folds that selected it"
        for name, record in heads.items()
    ]
    lines += [f"{name}: no head ({reason})" for name, reason in document["no_head"].items()]
    for target in targets:
        for kind in KINDS:
            record = document[target.name][kind]
            value = record.get(target.metric)
            shown = record.get("why_not", "undefined") if value is None else f"{target.metric} {value:.3f}"
            lines.append(f"{target.name}, {kind.replace('_', ' ')}: {shown}{_recalls(record)}")
        if text := left_out_text(document[target.name], heads.get(target.name)):
            lines.append(f"{target.name}: {text}")
    return "\n".join(lines)


def left_out_text(record: Mapping[str, Any], shipped: Mapping[str, Any] | None) -> str:
    """The features that both estimates of a target do without, and those that its head uses; empty if there are none.

    `record` and `shipped` are the target's parts of `cross_validation.json` and `heads.json` (None without a head).
    """
    names = record.get("left_out_features", [])
    if not names:
        return ""
    text = (
        "Both estimates leave out the features that were fitted to outcomes, which have learnt from held-out patients "
    )
    text += f"({', '.join(names)})"
    if shipped is None:
        return f"{text}."
    used = read_head(shipped["head"], "heads.json").features
    return f"{text}; the shipped head uses {', '.join(name for name in names if name in used) or 'none of them'}."


def _recalls(record: Mapping[str, Any]) -> str:
    recalls = {name: value for name, value in record.get("recall", {}).items() if value is not None}
    return f" ({', '.join(f'{name} {value:.2f}' for name, value in recalls.items())})" if recalls else ""


def metrics_only(document: Mapping[str, Any], targets: Sequence[Target]) -> dict[str, Any]:
    """The part of `cross_validation.json` for the package's manifest: metrics over all patients and by centre."""
    parts: dict[str, Any] = {}
    for target in targets:
        record = document[target.name]
        kept = (target.metric, "by_centre", "recall", "why_not")
        parts[target.name] = {
            kind: {name: record[kind][name] for name in record[kind] if name in kept} for kind in KINDS
        }
        if "left_out_features" in record:
            parts[target.name]["left_out_features"] = record["left_out_features"]
    return parts
