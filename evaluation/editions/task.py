"""The profile of one task: rules of each answer, ranked metrics and ranking. Whatever is unknown is a HecktorError."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_core import PydanticUndefined

from contract.documents import Document, parse_document
from contract.editions import Algorithm, Answer
from contract.editions.declaration import Kind
from contract.errors import HecktorError
from contract.files import parse_json
from evaluation.editions.document import MetricProfile, check_measured
from evaluation.editions.schemes import RankingProfile, metrics_of_scheme
from evaluation.metrics.metric import Metric
from evaluation.metrics.rules import RULES_OF_KIND, ClassRules, Rules
from evaluation.rows.kinds import metrics_of, scorer_for
from evaluation.rows.scorer import Scorer


@dataclass(frozen=True)
class AnswerProfile:
    """A declared answer with its rules; `prefix` precedes the names of its metrics."""

    answer: Answer
    rules: Rules
    prefix: str = ""

    @property
    def scored_answer(self) -> Answer:
        """The answer with all classes that are scored, also those that the declaration does not count."""
        if not isinstance(self.rules, ClassRules) or self.rules.not_counted == "skip":
            return self.answer
        return self.answer.model_copy(
            update={"classes": (*self.answer.not_counted, *self.answer.classes), "not_counted": ()}
        )

    @property
    def scorer(self) -> Scorer:
        return scorer_for(self.scored_answer, self.rules)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that the rules measure, by name without the prefix."""
        return metrics_of(self.scored_answer, self.rules)


@dataclass(frozen=True)
class TaskProfile:
    """How one task of an edition is evaluated.

    `answers` are by name, in the declaration's order; `public_digits` are the digits behind the point in public
    results, None for the default; `aliases` further values of `--task`; `own_edition` is the text of an edition that is
    none of the package.
    """

    edition: str
    algorithm: Algorithm
    answers: Mapping[str, AnswerProfile]
    metrics: Mapping[str, MetricProfile]
    ranking: RankingProfile
    public_digits: int | None = None
    aliases: tuple[str, ...] = ()
    own_edition: Mapping[str, Any] | None = None

    @property
    def has_several_answers(self) -> bool:
        """Whether metrics, rows and options are split by answer."""
        return len(self.answers) > 1

    @property
    def options(self) -> dict[str, Any]:
        """The rules as plain data, by answer if there are several."""
        options = {name: profile.rules.model_dump() for name, profile in self.answers.items()}
        return options if self.has_several_answers else next(iter(options.values()))

    def completed(self, options: Any) -> Any:
        """Options of a metrics.json, with the defaults of rules that did not exist when it was written."""
        if not isinstance(options, dict):
            return options
        if not self.has_several_answers:
            (profile,) = self.answers.values()
            return {**default_rules(profile.rules), **options}
        return {
            name: {**default_rules(self.answers[name].rules), **stated}
            if name in self.answers and isinstance(stated, dict)
            else stated
            for name, stated in options.items()
        }


def default_rules(rules: Rules | type[Rules]) -> dict[str, Any]:
    """Rules that a profile may leave out, with their defaults."""
    fields = type(rules).model_fields if isinstance(rules, Document) else rules.model_fields
    return {name: field.default for name, field in fields.items() if field.default is not PydanticUndefined}


def known_metrics(answers: Mapping[str, AnswerProfile], where: str) -> dict[str, tuple[str, Metric]]:
    """The answer and the metric of every metric that the rules measure, by its full name."""
    known: dict[str, tuple[str, Metric]] = {}
    for name, profile in answers.items():
        for metric in profile.metrics.values():
            full = f"{profile.prefix}{metric.name}"
            if full in known:
                raise HecktorError(where, f"metric {full!r} of {known[full][0]} and {name}", "different prefixes")
            known[full] = (name, metric)
    return known


def parse_rules(content: object, kind: Kind, where: str) -> Rules:
    """Validate the rules of an answer of this kind; `where` is their place in messages."""
    model: type[Rules] = RULES_OF_KIND[kind]
    return parse_document(content, model, where, error=HecktorError)


_OPTION: Final = "--option"


def with_options(profile: TaskProfile, options: Mapping[str, str]) -> TaskProfile:
    """The profile with some rules changed, as `--option name=value` asks.

    Values are spelled as in a profile file (quotes may be left out). `answer.rule` changes one answer, a plain name
    every answer that has the rule.
    """
    if not options:
        return profile
    changes: dict[str, dict[str, Any]] = {name: {} for name in profile.answers}
    for name, value in options.items():
        answer, dot, rule = name.rpartition(".")
        targets = [answer] if dot and answer in changes else list(changes)
        having = [target for target in targets if rule in type(profile.answers[target].rules).model_fields]
        if not having or (dot and answer not in changes):
            known = dict.fromkeys(rule for one in targets for rule in type(profile.answers[one].rules).model_fields)
            raise HecktorError(_OPTION, f"unknown {name}", f"one of {', '.join(known)}")
        for target in having:
            changes[target][rule] = _parsed(value)
    answers = {
        name: replace(one, rules=parse_rules({**one.rules.model_dump(), **changes[name]}, one.answer.kind, _OPTION))
        for name, one in profile.answers.items()
    }
    check_measured(profile.metrics, known_metrics(answers, _OPTION), f"{_OPTION}.metrics")
    return replace(profile, answers=answers)


def _parsed(value: str) -> object:
    try:
        return parse_json(value, _OPTION, error=HecktorError)
    except HecktorError:
        return value


def checked_ranking(ranking: RankingProfile, metrics: Collection[str], where: str) -> RankingProfile:
    """The ranking, if its official scheme exists and every scheme uses these metrics; `where` is its place."""
    for name, scheme in ranking.schemes.items():
        for metric in metrics_of_scheme(scheme):
            if metric not in metrics:
                known = f"one of {', '.join(metrics)}"
                raise HecktorError(f"{where}.schemes.{name}", f"unknown metric {metric!r}", known)
    if ranking.official not in ranking.schemes:
        known = f"one of {', '.join(ranking.schemes)}"
        raise HecktorError(f"{where}.official", f'found "{ranking.official}"', known)
    return ranking


def with_ranking(profile: TaskProfile, official: str | None, ties: str | None, where: str) -> TaskProfile:
    """The profile with another official ranking or another rule for ties; None keeps the profile's own."""
    ranking = profile.ranking
    changes = {name: value for name, value in (("official", official), ("ties", ties)) if value}
    changed = parse_document(
        ranking.model_dump(by_alias=True, exclude_unset=True) | changes, RankingProfile, where, error=HecktorError
    )
    return replace(profile, ranking=checked_ranking(changed, profile.metrics, where))
