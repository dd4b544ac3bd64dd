"""Evaluation profiles: for each task of an edition the metrics, the rules for odd cases and the ranking.

The profiles in `evaluation/editions` are known by name; any other is given by its path. `ProfileDocument` is the file's
schema; what depends on the declaration is checked here. An error names the place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contract.documents import parse_document
from contract.editions import DEFAULT_EDITION, Algorithm, Answer, Edition, load_edition
from contract.editions.declaration import Kind
from contract.errors import HecktorError
from contract.files import parse_json
from evaluation.editions import DEFAULT_PROFILE, known_profiles
from evaluation.editions.document import (
    AnswerRules,
    MetricProfile,
    ProfileDocument,
    ProfileTask,
    RankingProfile,
    check_measured,
    metrics_of_scheme,
    ranked_metrics,
)
from evaluation.metrics.records import metrics_of
from evaluation.metrics.rules import RULES_OF_KIND, MaskRules, Metric, RiskRules, Rules

if TYPE_CHECKING:
    from evaluation.rows.scorer import Scorer


@dataclass(frozen=True)
class AnswerProfile:
    """A declared answer with its rules; `prefix` precedes the names of its metrics."""

    answer: Answer
    rules: Rules
    prefix: str = ""

    @property
    def scorer(self) -> Scorer:
        from evaluation.rows import scorer_of  # loads SimpleITK, which parsing a profile does not need

        return scorer_of(self.answer, self.rules)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that the rules measure, by name without the prefix."""
        return {metric.name: metric for metric in metrics_of(self.answer, self.rules)}


@dataclass(frozen=True)
class TaskProfile:
    """How one task of an edition is evaluated.

    `answers` are by name, in the declaration's order; `aliases` are further values of `--task`; `own_edition` is the
    text of an edition that is none of the package.
    """

    edition: str
    algorithm: Algorithm
    answers: Mapping[str, AnswerProfile]
    metrics: Mapping[str, MetricProfile]
    ranking: RankingProfile
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


@dataclass(frozen=True)
class EvaluationProfile:
    """How one edition is evaluated, by task. `own` is its text if it is none of the package, see `Edition.content`."""

    name: str
    title: str
    declaration: Edition
    tasks: Mapping[str, TaskProfile]
    citation: str = ""
    own: Mapping[str, Any] | None = None

    @property
    def mask_rules(self) -> MaskRules:
        """How masks are compared. Raises HecktorError for an edition without masks."""
        rules = [answer.rules for task in self.tasks.values() for answer in task.answers.values()]
        of_masks = next((one for one in rules if isinstance(one, MaskRules)), None)
        if of_masks is None:
            raise HecktorError(f"edition {self.name}", "no masks", "an edition with masks")
        return of_masks

    def algorithm(self, name: str | None) -> Algorithm:
        """See `Edition.algorithm`, with the tasks and aliases of this profile."""
        return self.declaration.algorithm(name, {task: one.aliases for task, one in self.tasks.items()})

    def task(self, name: str | None) -> TaskProfile:
        """The profile of the task with this name, number or alias; None for the only one."""
        wanted = self.algorithm(name).name
        if wanted not in self.tasks:
            raise HecktorError(f"edition {self.name}", f"has no task {wanted!r}, only {', '.join(self.tasks)}")
        return self.tasks[wanted]


def load_profile(name_or_path: str = DEFAULT_PROFILE) -> EvaluationProfile:
    """Load a profile by its name, or with its declaration as `load_edition` does."""
    if name_or_path in known_profiles():
        return parse_profile(_shipped(name_or_path), f"{name_or_path}.json")
    if not name_or_path.startswith("{") and Path(name_or_path).suffix != ".json":
        expected = f"expected one of {', '.join(known_profiles())} or a profile.json"
        raise HecktorError(f"unknown edition {name_or_path!r}", expected)
    return profile_of(load_edition(name_or_path))


def profile_of(edition: Edition) -> EvaluationProfile:
    """The evaluation profile of an edition, checked against its declaration."""
    content, place = edition.evaluation_profile, edition.profile_place
    if isinstance(content, str):
        if content not in known_profiles():
            raise HecktorError(place, f"found {content!r}", f"one of {', '.join(known_profiles())} or a profile.json")
        if edition.content is None:
            return load_profile(content)
        content = _shipped(content) | {"name": edition.name, "title": edition.title}
    named = {"format": 2, "name": edition.name, "title": edition.title, **content}
    profile = parse_profile(named, place, edition)
    if profile.name in known_profiles():
        shipped = load_profile(profile.name)
        if profile.tasks != shipped.tasks:
            found = f"found {profile.name!r}, an edition of the package with other contents"
            raise HecktorError(f"{place}.name", found, "a name of its own")
        return shipped if edition.name == shipped.declaration.name else replace(shipped, declaration=edition)
    own = edition.content
    tasks = {name: replace(task, own_edition=own) for name, task in profile.tasks.items()}
    return replace(profile, tasks=tasks, own=own)


def tasks_of_edition(name_or_path: str) -> EvaluationProfile | Edition:
    """The profile of this name, with the challenge's own task numbers; the declaration if there is no such profile."""
    return load_profile(name_or_path) if name_or_path in known_profiles() else load_edition(name_or_path)


def load_declaration(name_or_path: str) -> Edition:
    """The declaration of an edition; for the name of a profile, such as hecktor2021, the one that the profile uses."""
    return load_profile(name_or_path).declaration if name_or_path in known_profiles() else load_edition(name_or_path)


def parse_profile(content: Any, source: str, declaration: Edition | None = None) -> EvaluationProfile:
    """Check a profile, `source` in messages, against the schema and its declaration, by default one of the package."""
    document = parse_document(content, ProfileDocument, source, error=HecktorError)
    if declaration is None:
        declaration = load_edition(document.declaration or DEFAULT_EDITION)
    algorithms = {algorithm.name: algorithm for algorithm in declaration.algorithms}
    tasks = {}
    for name, task in document.tasks.items():
        if name not in algorithms:
            raise HecktorError(f"{source}.tasks", f"unknown task {name!r}", f"one of {', '.join(sorted(algorithms))}")
        tasks[name] = _task(document.name, task, algorithms[name], f"{source}.tasks.{name}")
    return EvaluationProfile(document.name, document.title, declaration, tasks, document.citation)


def _shipped(name: str) -> Any:
    source = f"{name}.json"
    return parse_json(files("evaluation.editions").joinpath(source).read_text("utf-8"), source, error=HecktorError)


def _task(edition: str, task: ProfileTask, algorithm: Algorithm, where: str) -> TaskProfile:
    answers = _answers(task.answers, algorithm, where)
    metrics = ranked_metrics(task.metrics, known_metrics(answers, f"{where}.answers"), f"{where}.metrics")
    ranking = checked_ranking(task.ranking, metrics, f"{where}.ranking")
    return TaskProfile(edition, algorithm, answers, metrics, ranking, task.aliases)


def _answers(entries: Mapping[str, AnswerRules], algorithm: Algorithm, where: str) -> dict[str, AnswerProfile]:
    """The answers of a task with their rules."""
    names = [answer.name for answer in algorithm.answers]
    if set(names) != set(entries):
        raise HecktorError(f"{where}.answers", f"found {', '.join(entries)}", f"exactly {', '.join(names)}")
    answers = {}
    for answer in algorithm.answers:
        entry = entries[answer.name]
        rules = _of_kind(entry.rules, answer, f"{where}.answers.{answer.name}.rules")
        if isinstance(rules, RiskRules) and "direction" not in rules.model_fields_set:
            rules = rules.model_copy(update={"direction": answer.direction})
        prefix = f"{answer.name}_" if len(names) > 1 else ""
        answers[answer.name] = AnswerProfile(answer, rules, prefix if entry.prefix is None else entry.prefix)
    return answers


def _of_kind(rules: Rules, answer: Answer, where: str) -> Rules:
    if not isinstance(rules, RULES_OF_KIND[answer.kind]):
        raise HecktorError(where, "found the rules of another kind of answer", f"those of a {answer.kind}")
    return rules
