"""Heads that average several experts: the mean of their standardised scores, over the experts that are available."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from algorithm.heads.linear import (
    Calibration,
    Term,
    check_positive,
    checked_number,
    parse_calibration,
    parse_survival,
)
from algorithm.heads.survival import Survival
from contract.errors import ModelPackageError

Features = Mapping[str, float | None]
_KEYS: Final = {"experts", "threshold", "calibration", "survival"}
_EXPERT_KEYS: Final = {"name", "mean", "sd", "head"}


class AnyHead(Protocol):
    """Shared by heads of every kind."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, each once."""

    def missing(self, features: Features) -> tuple[Term, ...]:
        """The terms whose feature is missing, so that their `fill` is used."""

    def as_json(self) -> dict[str, Any]: ...


@runtime_checkable
class ScoreHead(AnyHead, Protocol):
    """A head with one score: a log partial hazard, or the logit of the second of two classes."""

    def score(self, features: Features, centre: str | None = None) -> float: ...


@runtime_checkable
class ClassScoreHead(AnyHead, Protocol):
    """A head with a score for each class, of which only the order has a meaning."""

    @property
    def classes(self) -> Collection[str]: ...

    def scores(self, features: Features, centre: str | None = None) -> dict[str, float]: ...


HeadT = TypeVar("HeadT", ScoreHead, ClassScoreHead)


@dataclass(frozen=True)
class Expert(Generic[HeadT]):
    """One head of an average; `mean` and `sd` standardise its scores."""

    name: str
    mean: float
    sd: float
    head: HeadT

    def is_available(self, features: Features) -> bool:
        """False if every feature of the head is missing."""
        names = self.head.features
        return not names or any(features.get(name) is not None for name in names)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "mean": self.mean, "sd": self.sd, "head": self.head.as_json()}


@dataclass(frozen=True)
class _Average(Generic[HeadT]):
    """The experts, without the part that combines their scores."""

    experts: tuple[Expert[HeadT], ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, each once."""
        return tuple(dict.fromkeys(name for expert in self.experts for name in expert.head.features))

    def available(self, features: Features) -> tuple[Expert[HeadT], ...]:
        """The experts with at least one known feature; all experts if none has one."""
        return tuple(expert for expert in self.experts if expert.is_available(features)) or self.experts

    def unavailable(self, features: Features) -> tuple[str, ...]:
        """Names of the experts that the average leaves out."""
        available = self.available(features)
        return tuple(expert.name for expert in self.experts if expert not in available)

    def missing(self, features: Features) -> tuple[Term, ...]:
        """The terms of available experts whose feature is missing, each feature once."""
        terms = (term for expert in self.available(features) for term in expert.head.missing(features))
        return tuple({term.feature: term for term in terms}.values())


@dataclass(frozen=True)
class ExpertHead(_Average[ScoreHead]):
    """The mean of the experts' standardised scores; the other parts are those of a linear head."""

    threshold: float | None = None
    calibration: Calibration | None = None
    survival: Survival | None = None

    def score(self, features: Features, centre: str | None = None) -> float:
        """Mean of (score - mean) / sd over the available experts."""
        experts = self.available(features)
        return sum((one.head.score(features, centre) - one.mean) / one.sd for one in experts) / len(experts)

    def as_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"experts": [expert.as_json() for expert in self.experts], "threshold": self.threshold}
        record |= {} if self.calibration is None else {"calibration": vars(self.calibration)}
        return record | ({} if self.survival is None else {"survival": self.survival.as_json()})


@dataclass(frozen=True)
class ClassExpertHead(_Average[ClassScoreHead]):
    """The mean of the experts' standardised scores, class by class.

    All classes of an expert share its mean and standard deviation, so that the order of its classes stays as it is.
    """

    @property
    def classes(self) -> Collection[str]:
        """Names of the classes."""
        return self.experts[0].head.classes

    def scores(self, features: Features, centre: str | None = None) -> dict[str, float]:
        """Mean of (score - mean) / sd of each class over the available experts."""
        experts = self.available(features)
        rows = [(one, one.head.scores(features, centre)) for one in experts]
        return {name: sum((row[name] - one.mean) / one.sd for one, row in rows) / len(rows) for name in self.classes}

    def as_json(self) -> dict[str, Any]:
        return {"experts": [expert.as_json() for expert in self.experts]}


def parse_experts(
    content: Mapping[str, Any], name: str, read: Callable[[Any, str], AnyHead]
) -> ExpertHead | ClassExpertHead:
    """Read an average from JSON; `read` reads the head of an expert.

    Raises:
        ModelPackageError: a field is absent, unknown, of another type or not finite, two experts share a name, an
            expert is an average itself, or experts with one score are mixed with experts of classes.
    """
    records = content["experts"]
    if not isinstance(records, list) or not records or not set(content) <= _KEYS:
        found = "experts that are no list" if not isinstance(records, list) else f"keys {', '.join(map(str, content))}"
        raise ModelPackageError(name, "no experts" if records == [] else found, "`experts`, a list of one or more")
    experts = [_parse_expert(record, name, read) for record in records]
    names = [one.name for one in experts]
    if repeated := next((one for one in names if names.count(one) > 1), None):
        raise ModelPackageError(name, f"two experts named {repeated!r}", "a name of its own for each")
    of_classes = [
        Expert(one.name, one.mean, one.sd, one.head) for one in experts if isinstance(one.head, ClassScoreHead)
    ]
    if not of_classes:
        scores = tuple(Expert(e.name, e.mean, e.sd, e.head) for e in experts if isinstance(e.head, ScoreHead))
        return _with_parts(scores, content, name)
    _check_classes(of_classes, experts, content, name)
    return ClassExpertHead(tuple(of_classes))


def _with_parts(experts: tuple[Expert[ScoreHead], ...], content: Mapping[str, Any], name: str) -> ExpertHead:
    threshold = content.get("threshold")
    try:
        return ExpertHead(
            experts,
            None if threshold is None else checked_number(threshold, name),
            parse_calibration(content.get("calibration"), name),
            parse_survival(content.get("survival"), name),
        )
    except KeyError as problem:
        raise ModelPackageError(name, f"no {problem}", "a head") from None
    except (TypeError, AttributeError) as problem:
        raise ModelPackageError(name, f"not a head ({type(problem).__name__}: {problem})") from None


def _check_classes(
    of_classes: Sequence[Expert[ClassScoreHead]], experts: Sequence[Any], content: Mapping[str, Any], name: str
) -> None:
    if len(of_classes) < len(experts):
        raise ModelPackageError(name, "experts with one score and experts of classes", "experts of one kind")
    first = set(of_classes[0].head.classes)
    for expert in of_classes:
        if set(expert.head.classes) != first:
            found = f"expert {expert.name!r} with classes {', '.join(expert.head.classes)}"
            raise ModelPackageError(name, found, f"those of the first expert: {', '.join(of_classes[0].head.classes)}")
    if set(content) != {"experts"}:
        raise ModelPackageError(name, f"keys {', '.join(content)}", "`experts` alone, for experts of classes")


@dataclass(frozen=True)
class _Record:
    name: str
    mean: float
    sd: float
    head: AnyHead


def _parse_expert(record: Any, name: str, read: Callable[[Any, str], AnyHead]) -> _Record:
    if not isinstance(record, dict) or set(record) != _EXPERT_KEYS:
        found = (
            f"an expert with {', '.join(map(str, record)) or 'no keys'}" if isinstance(record, dict) else "no expert"
        )
        raise ModelPackageError(name, found, f"an object with {', '.join(sorted(_EXPERT_KEYS))}")
    title = record["name"]
    if not isinstance(title, str) or not title:
        raise ModelPackageError(name, f"expert named {str(title)[:40]!r}", "a name")
    place = f"{name}, expert {title[:40]!r}"
    mean, sd = checked_number(record["mean"], place), checked_number(record["sd"], place)
    check_positive(sd, "sd", "", place)
    if isinstance(record["head"], dict) and "experts" in record["head"]:
        raise ModelPackageError(place, "an average of experts", "a single head")
    return _Record(title, mean, sd, read(record["head"], place))
