"""Evaluation of an edition: for each task the metrics, the rules for odd cases and the ranking.

`Scoring` is the schema of the edition's section `scoring`; what depends on its algorithms is checked here. An error
names the place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from contract.documents import parse_document
from contract.editions import DEFAULT_EDITION, Algorithm, AnswerSpec, Edition, load_edition
from contract.editions.answers import Kind
from contract.errors import HecktorError
from contract.io.files import parse_json
from evaluation.editions.document import (
    AnswerRules,
    MetricProfile,
    RankingProfile,
    Scoring,
    TaskScoring,
    check_measured,
    list_scheme_metrics,
    resolve_metrics,
)
from evaluation.metrics.records import metrics_of
from evaluation.metrics.rules import RULES_OF_KIND, MaskRules, Metric, RiskRules, Rules

if TYPE_CHECKING:
    from evaluation.rows.scorer import Scorer


@dataclass(frozen=True)
class AnswerProfile:
    """A declared answer with its rules; `prefix` precedes the names of its metrics."""

    answer: AnswerSpec
    rules: Rules
    prefix: str = ""

    @property
    def scorer(self) -> Scorer:
        from evaluation.rows import make_scorer  # loads SimpleITK, which parsing an edition does not need

        return make_scorer(self.answer, self.rules)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that the rules measure, by name without the prefix."""
        return {metric.name: metric for metric in metrics_of(self.answer, self.rules)}


@dataclass(frozen=True)
class TaskProfile:
    """Evaluation of one task of an edition.

    `answers` are by name, in the algorithm's order; `own_edition` is the document of an edition that is none of the
    package.
    """

    edition: str
    algorithm: Algorithm
    answers: Mapping[str, AnswerProfile]
    metrics: Mapping[str, MetricProfile]
    ranking: RankingProfile
    own_edition: Mapping[str, Any] | None = None

    @property
    def has_several_answers(self) -> bool:
        """True if metrics, rows and options are split by answer."""
        return len(self.answers) > 1

    @property
    def options(self) -> dict[str, Any]:
        """The rules as plain data, by answer if there are several."""
        options = {name: profile.rules.model_dump() for name, profile in self.answers.items()}
        return options if self.has_several_answers else next(iter(options.values()))


def find_metrics(answers: Mapping[str, AnswerProfile], where: str) -> dict[str, tuple[str, Metric]]:
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

    Values are spelled as in an edition file (quotes may be left out). `answer.rule` changes one answer, a plain name
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
    check_measured(profile.metrics, find_metrics(answers, _OPTION), f"{_OPTION}.metrics")
    return replace(profile, answers=answers)


def _parsed(value: str) -> object:
    try:
        return parse_json(value, _OPTION, error=HecktorError)
    except HecktorError:
        return value


def check_ranking(ranking: RankingProfile, metrics: Collection[str], where: str) -> RankingProfile:
    """The ranking, if its official scheme exists and every scheme uses these metrics; `where` is its place."""
    for name, scheme in ranking.schemes.items():
        for metric in list_scheme_metrics(scheme):
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
    return replace(profile, ranking=check_ranking(changed, profile.metrics, where))


@dataclass(frozen=True)
class EvaluationProfile:
    """Evaluation of one edition, by task."""

    edition: Edition
    tasks: Mapping[str, TaskProfile]

    @property
    def mask_rules(self) -> MaskRules:
        """Rules for masks. Raises HecktorError for an edition without masks."""
        rules = [answer.rules for task in self.tasks.values() for answer in task.answers.values()]
        of_masks = next((one for one in rules if isinstance(one, MaskRules)), None)
        if of_masks is None:
            raise HecktorError(f"edition {self.edition.name}", "no masks", "an edition with masks")
        return of_masks

    def task(self, name: str | None) -> TaskProfile:
        """The profile of the task with this name, number or alias; None for the only one."""
        wanted = self.edition.algorithm(name).name
        if wanted not in self.tasks:
            raise HecktorError(f"edition {self.edition.name}", f"has no task {wanted!r}, only {', '.join(self.tasks)}")
        return self.tasks[wanted]


def load_profile(name_or_path: str = DEFAULT_EDITION) -> EvaluationProfile:
    """Evaluation of the edition of this name or file."""
    return build_profile(load_edition(name_or_path))


def build_profile(edition: Edition) -> EvaluationProfile:
    """Evaluation of an edition: its section `scoring`, checked against its algorithms."""
    scoring = parse_document({"scoring": edition.scoring}, Scoring, edition.place, error=HecktorError).scoring
    algorithms = {algorithm.name: algorithm for algorithm in edition.algorithms}
    where = f"{edition.place}.scoring"
    tasks = {name: _task(edition, task, algorithms[name], f"{where}.{name}") for name, task in scoring.items()}
    return EvaluationProfile(edition, tasks)


def _task(edition: Edition, task: TaskScoring, algorithm: Algorithm, where: str) -> TaskProfile:
    answers = _answers(task.answers, algorithm, where)
    metrics = resolve_metrics(task.metrics, find_metrics(answers, f"{where}.answers"), f"{where}.metrics")
    ranking = check_ranking(task.ranking, metrics, f"{where}.ranking")
    return TaskProfile(edition.name, algorithm, answers, metrics, ranking, edition.content)


def _answers(entries: Mapping[str, AnswerRules], algorithm: Algorithm, where: str) -> dict[str, AnswerProfile]:
    """The answers of a task with their rules."""
    names = [answer.name for answer in algorithm.answer_specs]
    if set(names) != set(entries):
        raise HecktorError(f"{where}.answers", f"found {', '.join(entries)}", f"exactly {', '.join(names)}")
    answers = {}
    for answer in algorithm.answer_specs:
        entry = entries[answer.name]
        rules = _of_kind(entry.rules, answer, f"{where}.answers.{answer.name}.rules")
        if isinstance(rules, RiskRules) and "direction" not in rules.model_fields_set:
            rules = rules.model_copy(update={"direction": answer.direction})
        prefix = f"{answer.name}_" if len(names) > 1 else ""
        answers[answer.name] = AnswerProfile(answer, rules, prefix if entry.prefix is None else entry.prefix)
    return answers


def _of_kind(rules: Rules, answer: AnswerSpec, where: str) -> Rules:
    if not isinstance(rules, RULES_OF_KIND[answer.kind]):
        raise HecktorError(where, "found the rules of another kind of answer", f"those of a {answer.kind}")
    return rules
