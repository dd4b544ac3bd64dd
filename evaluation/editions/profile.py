"""Evaluation of an edition: for each task the metrics, the rules for edge cases and the ranking.

`Scoring` is the schema of the edition's section `scoring`. This module checks the section against the edition's
algorithms; an error names the place in the edition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from contract.documents import parse_document
from contract.editions import DEFAULT_EDITION, Algorithm, AnswerSpec, Edition, load_edition
from contract.editions.answers import Kind
from contract.errors import HecktorError
from contract.io.files import parse_json
from evaluation.editions.document import (
    AnswerRules,
    MeasuredMetric,
    MetricProfile,
    RankingProfile,
    RowScheme,
    Scoring,
    TaskScoring,
    WinRank,
    check_measured,
    list_row_schemes,
    list_scheme_metrics,
    resolve_metrics,
)
from evaluation.metrics.classification import list_class_metrics, select_counted_classes
from evaluation.metrics.masks import list_mask_metrics
from evaluation.metrics.rules import RULES_OF_KIND, SIGNED_RANK, MaskRules, Metric, RiskRules, Rules
from evaluation.metrics.survival import RISK_METRICS

if TYPE_CHECKING:
    from evaluation.rows.scorer import Scorer


@dataclass(frozen=True)
class AnswerProfile:
    """Declared answer with its rules; `prefix` precedes the names of its metrics."""

    answer: AnswerSpec
    rules: Rules
    prefix: str = ""

    @property
    def scorer(self) -> Scorer:
        from evaluation.rows import make_scorer  # loads SimpleITK, which parsing an edition does not need

        return make_scorer(self.answer, self.rules)

    @property
    def metrics(self) -> dict[str, Metric]:
        """Return the metrics that the rules measure, by name without the prefix."""
        if isinstance(self.rules, MaskRules):
            metrics = list_mask_metrics(self.rules.surfaces)
        elif isinstance(self.rules, RiskRules):
            metrics = RISK_METRICS
        else:
            metrics = list_class_metrics(select_counted_classes(self.answer, self.rules))
        return {metric.name: metric for metric in metrics}


@dataclass(frozen=True)
class TaskProfile:
    """Evaluation of one task of an edition.

    Attributes:
        edition: Name of the edition.
        algorithm: Declaration of inputs and answers.
        answers: Answers by name, in the algorithm's order.
        metrics: Ranked metrics by name.
        ranking: Official and further rankings.
        own_edition: Document of a custom edition; None for an edition of the package.
    """

    edition: str
    algorithm: Algorithm
    answers: Mapping[str, AnswerProfile]
    metrics: Mapping[str, MetricProfile]
    ranking: RankingProfile
    own_edition: Mapping[str, Any] | None = None

    @property
    def has_several_answers(self) -> bool:
        """Whether the task has several answers, so metrics, rows and options are separate for each answer."""
        return len(self.answers) > 1

    @property
    def options(self) -> dict[str, Any]:
        """The rules as in a document: of the only answer, or of each of several answers by its name."""
        options = {name: profile.rules.model_dump() for name, profile in self.answers.items()}
        return options if self.has_several_answers else next(iter(options.values()))

    def select_official(self) -> TaskProfile:
        """Return the profile with only the official ranking scheme and the metrics that it needs."""
        official = self.ranking.official
        ranking = self.ranking.model_copy(update={"schemes": {official: self.ranking.schemes[official]}})
        metrics = {name: self.metrics[name] for name in self.ranking.official_metrics}
        return replace(self, metrics=metrics, ranking=ranking)


def find_metrics(answers: Mapping[str, AnswerProfile], where: str) -> dict[str, MeasuredMetric]:
    """Return all metrics that the rules of the answers measure, by full name.

    Raises:
        HecktorError: Metrics of two answers have the same full name.
    """
    measured: dict[str, MeasuredMetric] = {}
    for answer, profile in answers.items():
        for metric in profile.metrics.values():
            name = f"{profile.prefix}{metric.name}"
            if name in measured:
                raise HecktorError(
                    where, f"metric {name!r} of {measured[name].answer} and {answer}", "different prefixes"
                )
            measured[name] = MeasuredMetric(answer, metric)
    return measured


def parse_rules(content: object, kind: Kind, where: str) -> Rules:
    """Validate the rules of an answer of this kind; `where` is the place of `content` in messages."""
    model: type[Rules] = RULES_OF_KIND[kind]
    return parse_document(content, model, where, error=HecktorError)


_OPTION: Final = "--option"


def with_options(profile: TaskProfile, options: Mapping[str, Any]) -> TaskProfile:
    """Return the profile with some rules changed.

    Args:
        profile: Profile of a task.
        options: Values by rule, as in `--option rule=value`: the text of an edition's file, in which quotes may be left
            out, or the value itself. `answer.rule` changes one answer, `rule` changes every answer that has the rule.

    Raises:
        HecktorError: A rule is unknown, a value is not valid, or a ranked metric is not measured under the new rules.
    """
    if not options:
        return profile
    changes: dict[str, dict[str, Any]] = {name: {} for name in profile.answers}
    for name, value in options.items():
        answer, dot, rule = name.rpartition(".")
        targets = [answer] if dot and answer in changes else list(changes)
        rules_of = {target: list(type(profile.answers[target].rules).model_fields) for target in targets}
        if (dot and answer not in changes) or not any(rule in rules for rules in rules_of.values()):
            known = dict.fromkeys(known_rule for rules in rules_of.values() for known_rule in rules)
            raise HecktorError(_OPTION, f"unknown {name}", f"one of {', '.join(known)}")
        for target, rules in rules_of.items():
            if rule in rules:
                changes[target][rule] = _parse_value(value)
    answers = {}
    for name, answer_profile in profile.answers.items():
        content = {**answer_profile.rules.model_dump(), **changes[name]}
        answers[name] = replace(answer_profile, rules=parse_rules(content, answer_profile.answer.kind, _OPTION))
    check_measured(profile.metrics, find_metrics(answers, _OPTION), f"{_OPTION}.metrics")
    return replace(profile, answers=answers)


def _parse_value(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value, _OPTION, error=HecktorError)
    except HecktorError:
        return value


def check_ranking(ranking: RankingProfile, metrics: Mapping[str, MetricProfile], where: str) -> RankingProfile:
    """Return the ranking; raise `HecktorError` if a scheme cannot rank teams.

    Args:
        ranking: Ranking of a task.
        metrics: The task's ranked metrics by name.
        where: Place of the ranking in messages.
    """
    for name, scheme in ranking.schemes.items():
        for metric in list_scheme_metrics(scheme):
            if metric not in metrics:
                known = f"one of {', '.join(metrics)}"
                raise HecktorError(f"{where}.schemes.{name}", f"unknown metric {metric!r}", known)
        for row_scheme in list_row_schemes(scheme):
            _check_row_scheme(row_scheme, metrics, f"{where}.schemes.{name}")
    if ranking.official not in ranking.schemes:
        known = f"one of {', '.join(ranking.schemes)}"
        raise HecktorError(f"{where}.official", f'found "{ranking.official}"', known)
    return ranking


def _check_row_scheme(scheme: RowScheme, metrics: Mapping[str, MetricProfile], where: str) -> None:
    """Raise `HecktorError` if the scheme needs values of individual cases and the metric does not have them."""
    if _can_rank_by_rows(scheme, metrics[scheme.metric]):
        return
    usable = [name for name, metric in metrics.items() if _can_rank_by_rows(scheme, metric)]
    raise HecktorError(
        where,
        f"{scheme.figure} of {scheme.metric!r}, which is not a mean or median of values of individual cases",
        f"one of {', '.join(usable)}" if usable else "a metric such as a mean DSC, which this task does not rank",
    )


def _can_rank_by_rows(scheme: RowScheme, metric: MetricProfile) -> bool:
    declaration = metric.metric
    if isinstance(scheme, WinRank):
        return scheme.test == "deciding" or (
            declaration is not None and SIGNED_RANK in (declaration.deciding_test, declaration.second_test)
        )
    return declaration is not None and declaration.has_case_values


def with_ranking(profile: TaskProfile, official: str | None, ties: str | None, where: str) -> TaskProfile:
    """Return the profile with another official ranking or another rule for ties; None keeps the profile's value."""
    ranking = profile.ranking
    content = ranking.model_dump(by_alias=True, exclude_unset=True)
    if official:
        content["official"] = official
    if ties:
        content["ties"] = ties
    changed = parse_document(content, RankingProfile, where, error=HecktorError)
    return replace(profile, ranking=check_ranking(changed, profile.metrics, where))


@dataclass(frozen=True)
class EvaluationProfile:
    """Evaluation of one edition, by task."""

    edition: Edition
    tasks: Mapping[str, TaskProfile]

    @property
    def mask_rules(self) -> MaskRules:
        """Return the rules for masks; raise `HecktorError` for an edition without masks."""
        for task in self.tasks.values():
            for answer in task.answers.values():
                if isinstance(answer.rules, MaskRules):
                    return answer.rules
        raise HecktorError(f"edition {self.edition.name}", "no masks", "an edition with masks")

    def find_task(self, name: str | None) -> TaskProfile:
        """Find the profile of the task with this name, number or alias; None means the only task."""
        task = self.edition.find_algorithm(name).name
        if task not in self.tasks:
            raise HecktorError(f"edition {self.edition.name}", f"has no task {task!r}, only {', '.join(self.tasks)}")
        return self.tasks[task]


def load_profile(name_or_path: str = DEFAULT_EDITION) -> EvaluationProfile:
    """Load the evaluation of the edition with this name or file."""
    return build_profile(load_edition(name_or_path))


def build_profile(edition: Edition) -> EvaluationProfile:
    """Parse the section `scoring` of an edition and check it against the edition's algorithms."""
    scoring = parse_document({"scoring": edition.scoring}, Scoring, edition.place, error=HecktorError).scoring
    algorithms = {algorithm.name: algorithm for algorithm in edition.algorithms}
    where = f"{edition.place}.scoring"
    tasks = {name: _build_task(edition, task, algorithms[name], f"{where}.{name}") for name, task in scoring.items()}
    return EvaluationProfile(edition, tasks)


def _build_task(edition: Edition, task: TaskScoring, algorithm: Algorithm, where: str) -> TaskProfile:
    answers = _build_answers(task.answers, algorithm, where)
    metrics = resolve_metrics(task.metrics, find_metrics(answers, f"{where}.answers"), f"{where}.metrics")
    ranking = check_ranking(task.ranking, metrics, f"{where}.ranking")
    return TaskProfile(edition.name, algorithm, answers, metrics, ranking, edition.content)


def _build_answers(entries: Mapping[str, AnswerRules], algorithm: Algorithm, where: str) -> dict[str, AnswerProfile]:
    names = [answer.name for answer in algorithm.answers]
    if set(names) != set(entries):
        raise HecktorError(f"{where}.answers", f"found {', '.join(entries)}", f"exactly {', '.join(names)}")
    answers = {}
    for answer in algorithm.answers:
        entry = entries[answer.name]
        rules: Rules = entry.rules
        if not isinstance(rules, RULES_OF_KIND[answer.kind]):
            place = f"{where}.answers.{answer.name}.rules"
            raise HecktorError(place, "found the rules of another kind of answer", f"the rules of a {answer.kind}")
        if isinstance(rules, RiskRules) and "direction" not in rules.model_fields_set:
            rules = rules.model_copy(update={"direction": answer.direction})
        prefix = f"{answer.name}_" if len(names) > 1 else ""
        answers[answer.name] = AnswerProfile(answer, rules, prefix if entry.prefix is None else entry.prefix)
    return answers
