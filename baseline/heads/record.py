"""The document `cross_validation.json`, its description in words, and estimates for new centres."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator
from scipy import stats

from algorithm.heads.documents import Head
from baseline.heads.cohort import Outcomes, parse_outcomes
from baseline.heads.fitting import FittedHead
from baseline.heads.models.ensemble import ExpertRecord
from baseline.heads.models.targets import Target
from baseline.work import WorkFolders
from contract.code import split_reference
from contract.documents import Document, parse_document
from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue

# Heads of another version are outdated.
FORMAT_VERSION: Final = 9
# Both kinds of cross-validation by their keys in `cross_validation.json`.
KINDS: Final = {"nested": "nested cross-validation", "leave_one_centre_out": "leave one centre out"}
METRIC_TITLES: Final = {"c_index": "C-index", "balanced_accuracy": "balanced accuracy"}
Metrics = dict[str, float | None]
# Parts of a cross-validation in the package's manifest.
_IN_MANIFEST: Final = {"c_index", "balanced_accuracy", "by_centre", "recall", "why_not"}

_CONFIDENCE = 0.95


def _tag_score(score: object) -> str:
    return "(classes)" if isinstance(score, list) else "(one)"


# Score of a patient, or the scores for each of more than two classes.
Score = Annotated[Annotated[float, Tag("(one)")] | Annotated[list[float], Tag("(classes)")], Discriminator(_tag_score)]


class ModelAnswers(Document):
    """Out-of-fold answers of one model, in the order of the patients, and the metric of the model.

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
    predicted_classes: list[ClassValue] | None = Field(None, alias="class")

    def get_metric(self, metric: str) -> float | None:
        """Return the target's metric over all patients, by its name."""
        value: float | None = getattr(self, metric)
        return value


class OuterFoldRecord(Document):
    """One outer fold with its held-out patients, and the model that was selected and fitted without them.

    `reason` says why the model has clinical variables only; None if the candidates have skill.
    """

    held_out: list[str]
    model: str
    setting: Mapping[str, float]
    experts: tuple[ExpertRecord, ...]
    tried: dict[str, float]
    threshold: float | None
    reason: str | None = None
    notice: str | None = None
    coefficients: dict[str, float]
    c_index: float | None = None
    balanced_accuracy: float | None = None


class KindRecord(ModelAnswers):
    """One kind of cross-validation of a target, or only the reason `why_not` if it is impossible.

    `comparators` use the same outer folds.
    """

    why_not: str | None = None
    fold_of_patient: list[int] = Field(default_factory=list)
    folds: list[OuterFoldRecord] = Field(default_factory=list)
    comparators: dict[str, ModelAnswers] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_parts(self) -> KindRecord:
        parts = {"fold_of_patient", "folds", "comparators"}
        if parts & self.model_fields_set != (set() if self.why_not is not None else parts):
            raise ValueError("either why_not, or fold_of_patient, folds and comparators")
        return self


class OutcomeRow(Document):
    """A patient with the outcome, under the answer's own keys, such as `relapse` and `rfs_days`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | ClassValue]

    id: str
    centre: str


class TargetRecord(Document):
    """The cross-validations of one target; `metric` is the name of the metric's field.

    `left_out_features` were fitted to outcomes, so that both kinds leave them out.
    """

    metric: str
    patients: list[OutcomeRow]
    nested: KindRecord
    leave_one_centre_out: KindRecord
    left_out_features: list[str] = Field(default_factory=list)

    @property
    def kinds(self) -> dict[str, KindRecord]:
        """Return both kinds by their keys."""
        return {"nested": self.nested, "leave_one_centre_out": self.leave_one_centre_out}

    @property
    def available(self) -> dict[str, KindRecord]:
        """Return the kinds that the cohort allowed."""
        return {kind: record for kind, record in self.kinds.items() if record.why_not is None}

    def outcomes(self, answer: AnswerSpec) -> Outcomes:
        """Return the outcomes of the patients."""
        return parse_outcomes(answer, [row.__pydantic_extra__ for row in self.patients])


class CrossValidation(Document):
    """The content of `cross_validation.json`. All keys except the fields below are targets.

    Attributes:
        format_version: Version of the heads.
        seed: Seed of the folds.
        no_head: Reason for each head that could not be fitted.
        made_from: Digest of the inputs.
        custom: sha256 of the code of each custom head.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, TargetRecord]

    format_version: int = FORMAT_VERSION
    seed: int
    no_head: dict[str, str]
    made_from: str | None = None
    custom: dict[str, str] = Field(default_factory=dict)

    @property
    def targets(self) -> dict[str, TargetRecord]:
        return self.__pydantic_extra__

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def to_manifest(self) -> dict[str, Any]:
        """Return the part for the package's manifest: metrics over all patients and by centre."""
        parts: dict[str, Any] = {}
        for name, record in self.targets.items():
            parts[name] = {
                kind: result.model_dump(mode="json", include=_IN_MANIFEST, exclude_unset=True)
                for kind, result in record.kinds.items()
            }
            if record.left_out_features:
                parts[name]["left_out_features"] = record.left_out_features
        return parts

    def code_digests(self) -> dict[str, str]:
        """Return the sha256 of each code folder that has fitted heads, by the folder's name."""
        return {split_reference(hook, "head")[0]: digest for hook, digest in self.custom.items()}


def read_cross_validation(work: WorkFolders) -> CrossValidation:
    """Read the cross-validations of the heads; raise `HecktorError` if the step `heads` has not been run."""
    return parse_document(work.read(work.cross_validation_json), CrossValidation, work.cross_validation_json.name)


def load_cross_validation(work: WorkFolders) -> CrossValidation | None:
    """Read the cross-validations of the heads; None if there is no file, or if another version wrote it."""
    if not work.cross_validation_json.is_file():
        return None
    content = work.read(work.cross_validation_json)
    if content is None or (isinstance(content, dict) and content.get("format_version") != FORMAT_VERSION):
        return None
    return read_cross_validation(work)


def summarise_heads(heads: Mapping[str, FittedHead], document: CrossValidation, targets: Sequence[Target]) -> str:
    """Summarise the fitted heads and their cross-validated metrics in a few lines for the console."""
    lines = [
        f"{name}: {record.model}, {record.metric} {record.out_of_fold:z.3f} over the folds that selected it"
        for name, record in heads.items()
    ]
    lines += [f"{name}: {record.reason}" for name, record in heads.items() if record.reason]
    lines += [f"{name}: {text}" for name, record in heads.items() if (text := describe_unused_features(record))]
    lines += [f"{name}: no head ({reason})" for name, reason in document.no_head.items()]
    for name, record in ((target.name, document.targets[target.name]) for target in targets):
        for kind, result in record.kinds.items():
            value = result.get_metric(record.metric)
            text = result.why_not or "undefined" if value is None else f"{record.metric} {value:z.3f}"
            lines.append(f"{name}, {kind.replace('_', ' ')}: {text}{_format_recalls(result)}")
        if text := describe_left_out(record, heads.get(name)):
            lines.append(f"{name}: {text}")
    return "\n".join(lines)


def describe_unused_features(record: FittedHead) -> str:
    """Describe the features that the models could not use, by reason; empty if all features can be used."""
    reasons: dict[str, list[str]] = {}
    for feature, reason in record.unused_features.items():
        reasons.setdefault(reason, []).append(feature)
    parts = [f"{', '.join(features)} ({reason})" for reason, features in reasons.items()]
    return f"features left out: {'; '.join(parts)}" if parts else ""


def describe_left_out(record: TargetRecord, shipped: FittedHead | None) -> str:
    """Describe the features that both estimates of a target leave out, and which of them the shipped head uses.

    Empty if no feature is left out. `shipped` is None if there is no head.
    """
    names = record.left_out_features
    if not names:
        return ""
    text = (
        "Both estimates leave out the features that were fitted to outcomes, which have learnt from held-out patients "
    )
    text += f"({', '.join(names)})"
    if shipped is None:
        return f"{text}."
    used = shipped.head.features
    return f"{text}; the shipped head uses {', '.join(name for name in names if name in used) or 'none of them'}."


def describe_direction(answer: AnswerSpec, head: Head) -> str:
    """Describe the meaning of the answers of a head."""
    if answer.kind == "class":
        classes = ", ".join(map(str, answer.classes))
        decided = [f"{value} is the answer exactly if the mask has no {name}" for name, value in answer.without.items()]
        return ". ".join([f"The answer is one of {classes}", *decided]) + "."
    if head.survival is None:
        return "The answer is a risk: higher means earlier recurrence."
    horizon = head.survival.days[-1]
    return (
        f"The answer is a time: the expected days without recurrence within {horizon:.0f} days, the longest follow-up "
        "of the training. Higher means later recurrence. It is not the time to recurrence. The order of patients "
        "transfers to new centres, days do not: at real centres 0.6 to 2 times as many events occurred as the days "
        "implied."
    )


def _format_recalls(record: ModelAnswers) -> str:
    recalls = {name: value for name, value in (record.recall or {}).items() if value is not None}
    return f" ({', '.join(f'{name} {value:z.2f}' for name, value in recalls.items())})" if recalls else ""


@dataclass(frozen=True)
class CentreEstimate:
    """The mean of a metric over the centres that were left out, with 95% intervals.

    Attributes:
        value: Mean over the centres; None if the metric is undefined at all of them.
        centres: Number of centres whose value is known.
        ci95_low, ci95_high: Interval of the mean over new centres, within 0 and 1; None for fewer than two centres.
        new_centres: Number of new centres in the edition's test set; None if it is not known.
        test_low, test_high: Interval of the mean over that many new centres; None if either number is missing.
    """

    value: float | None
    centres: int
    ci95_low: float | None = None
    ci95_high: float | None = None
    new_centres: int | None = None
    test_low: float | None = None
    test_high: float | None = None


def estimate_new_centres(values: Iterable[float | None], new_centres: int | None = None) -> CentreEstimate:
    """Compute the t interval of the mean over centres, and the prediction interval for a test set of new centres.

    The centres are the sample. Their values differ because of their patients and because of effects of the centre; the
    standard deviation s includes both. With k centres the standard error of the mean is s / sqrt(k). The difference
    between this mean and the mean of m new centres has the standard deviation s * sqrt(1 / k + 1 / m).

    Args:
        values: Metric of each centre, from 0 to 1, None where it is undefined.
        new_centres: Number m of new centres in the test set.
    """
    known = np.array([value for value in values if value is not None and math.isfinite(value)], dtype=np.float64)
    if not known.size:
        return CentreEstimate(None, 0, new_centres=new_centres)
    mean = float(known.mean())
    if known.size < 2:
        return CentreEstimate(mean, int(known.size), new_centres=new_centres)
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, known.size - 1) * known.std(ddof=1))
    low, high = _clip_interval(mean, half * math.sqrt(1 / known.size))
    if new_centres is None:
        return CentreEstimate(mean, int(known.size), low, high)
    test = _clip_interval(mean, half * math.sqrt(1 / known.size + 1 / new_centres))
    return CentreEstimate(mean, int(known.size), low, high, new_centres, *test)


def _clip_interval(mean: float, half: float) -> tuple[float, float]:
    return max(mean - half, 0.0), min(mean + half, 1.0)


def describe_new_centres(estimate: CentreEstimate) -> str:
    """Describe value and intervals in words; the value is known."""
    parts = []
    if estimate.ci95_low is None or estimate.ci95_high is None:
        parts.append("no interval, which needs two centres")
    else:
        low, high = estimate.ci95_low, estimate.ci95_high
        parts.append(f"95% interval of the mean {low:z.3f} to {high:z.3f} from {estimate.centres} centres")
        if estimate.new_centres is None:
            parts.append("the number of new centres in the test set is unknown")
        elif estimate.test_low is not None and estimate.test_high is not None:
            count = f"{estimate.new_centres} new centre{'s' * (estimate.new_centres != 1)}"
            parts.append(f"95% of test sets of {count} within {estimate.test_low:z.3f} to {estimate.test_high:z.3f}")
    return f"{estimate.value:z.3f} ({'; '.join(parts)})"
