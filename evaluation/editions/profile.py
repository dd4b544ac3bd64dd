"""Editions of the challenge as data: which metrics, which rules for odd cases, which ranking.

A profile is a JSON file. Those of `evaluation/editions` are known by name; a path to another file works the
same way. The schema is checked in full: an unknown or absent key, or a value that no rule knows, is an error
that names the place. No code asks for an edition's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.files import parse_json, read_json
from contract.tasks import TASKS, Task
from evaluation.editions.rules import LOWER_IS_BETTER, RULES_OF_KIND, WITHOUT_GOOD_END, Rules, measurable
from evaluation.editions.schemes import Scheme, parse_scheme

FORMAT: Final = 1
DEFAULT_EDITION: Final = "hecktor2025"
TIE_RULES: Final = ("min", "average", "max", "dense")


@dataclass(frozen=True)
class MetricProfile:
    """How a metric is called in tables, and which end of it is good."""

    title: str
    higher_is_better: bool


@dataclass(frozen=True)
class RankingProfile:
    """The ranking in force (`official`, a key of `schemes`), those shown beside it, and the rule for ties."""

    official: str
    ties: str
    schemes: Mapping[str, Scheme]


@dataclass(frozen=True)
class TaskProfile:
    """What an edition says of one task. `kind` chooses the family of metrics, `rules` its options."""

    kind: str
    metrics: Mapping[str, MetricProfile]
    rules: Rules
    ranking: RankingProfile

    @property
    def options(self) -> dict[str, object]:
        """The rules as plain data, for the provenance."""
        return asdict(self.rules)


@dataclass(frozen=True)
class Edition:
    """One edition of the challenge."""

    name: str
    title: str
    tasks: Mapping[str, TaskProfile]

    def profile(self, task: Task) -> TaskProfile:
        """The profile of `task`. Raises HecktorError where the edition has no such task."""
        if task.name not in self.tasks:
            raise HecktorError(f"edition {self.name}", f"has no task {task.name!r}, only {', '.join(self.tasks)}")
        return self.tasks[task.name]


def known_editions() -> tuple[str, ...]:
    """Names of the editions that come with the package."""
    names = (entry.name for entry in files("evaluation.editions").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def load_edition(name_or_path: str) -> Edition:
    """Load an edition by its name, or a profile file by its path.

    Raises:
        HecktorError: no such edition or file, or a profile that breaks the schema; the message names the place.
    """
    if name_or_path in known_editions():
        source = f"{name_or_path}.json"
        text = files("evaluation.editions").joinpath(source).read_text(encoding="utf-8")
        return parse_edition(parse_json(text, source, error=HecktorError), source)
    path = Path(name_or_path)
    if path.suffix != ".json":
        raise HecktorError(
            f"unknown edition {name_or_path!r}", f"expected one of {', '.join(known_editions())} or a profile.json"
        )
    edition = parse_edition(read_json(path, error=HecktorError), path.name)
    if edition.name in known_editions() and edition != load_edition(edition.name):
        raise HecktorError(
            f"{path.name}.name",
            f"{edition.name!r} is an edition of the package with other contents",
            "a name of its own",
        )
    return edition


def parse_edition(content: Any, source: str) -> Edition:
    """Check a profile against the schema. Raises HecktorError naming the place in `source`."""
    top = _mapping(content, source, ("format", "name", "title", "tasks"))
    if top["format"] != FORMAT or isinstance(top["format"], bool):
        raise HecktorError(source, f"format {top['format']!r}", f"{FORMAT}")
    if not isinstance(top["tasks"], dict) or not top["tasks"]:
        raise HecktorError(source, "`tasks` must be an object with at least one task")
    known = {task.name for task in TASKS}
    for name in top["tasks"]:
        if name not in known:
            raise HecktorError(source, f"unknown task {name!r}", f"one of {', '.join(sorted(known))}")
    tasks = {name: _task(raw, f"{source}: tasks.{name}") for name, raw in top["tasks"].items()}
    return Edition(_text(top, "name", source), _text(top, "title", source), tasks)


def _task(raw: Any, where: str) -> TaskProfile:
    content = _mapping(raw, where, ("kind", "metrics", "rules", "ranking"))
    kind = str(_choice(content, "kind", tuple(RULES_OF_KIND), where))
    if not isinstance(content["metrics"], dict) or not content["metrics"]:
        raise HecktorError(f"{where}.metrics", "expected an object with at least one metric")
    metrics = {name: _metric(name, value, f"{where}.metrics.{name}") for name, value in content["metrics"].items()}
    rules = _rules(RULES_OF_KIND[kind], content["rules"], f"{where}.rules")
    _check_measurable(metrics, rules, kind, where)
    ranking = _ranking(content["ranking"], metrics, f"{where}.ranking")
    return TaskProfile(kind, metrics, rules, ranking)


def _check_measurable(metrics: Mapping[str, MetricProfile], rules: Rules, kind: str, where: str) -> None:
    known = measurable(rules, kind)
    for name in metrics:
        if name not in known:
            raise HecktorError(
                f"{where}.metrics", f"{name!r} is not measured under these rules", f"some of {', '.join(known)}"
            )


def _metric(name: str, raw: Any, where: str) -> MetricProfile:
    content = _mapping(raw, where, ("title", "higher_is_better"))
    if name in WITHOUT_GOOD_END:
        raise HecktorError(where, "is best at 0", "a metric that is best at one end")
    higher = bool(_choice(content, "higher_is_better", (name not in LOWER_IS_BETTER,), where))
    return MetricProfile(_text(content, "title", where), higher)


def _rules(kind: type[Rules], raw: Any, where: str) -> Rules:
    names = tuple(field.name for field in fields(kind))
    content = _mapping(raw, where, names)
    values: dict[str, Any] = {name: _rule(kind, name, content, where) for name in names}
    return kind(**values)


def _rule(kind: type[Rules], name: str, content: Mapping[str, Any], where: str) -> object:
    if name in kind.CHOICES:
        return _choice(content, name, kind.CHOICES[name], where)
    return _number(content, name, kind.RANGES[name], where)


def with_options(edition: Edition, task: Task, options: Mapping[str, str]) -> Edition:
    """The edition with some rules of one task changed, as `--option name=value` asks.

    Args:
        edition: the edition.
        task: the task whose rules change.
        options: values by the rule's name, spelled as in a profile file (quotes may be left out).

    Raises:
        HecktorError: an unknown rule, or a value that it cannot have; the message names those that it can.
    """
    if not options:
        return edition
    profile = edition.profile(task)
    raw = {**profile.options, **{name: _spelled(text) for name, text in options.items()}}
    rules = _rules(type(profile.rules), raw, "--option")
    _check_measurable(profile.metrics, rules, profile.kind, "--option")
    return replace(edition, tasks={**edition.tasks, task.name: replace(profile, rules=rules)})


def with_ranking(profile: TaskProfile, official: str | None, ties: str | None, where: str) -> TaskProfile:
    """The profile with another of its rankings in force, or another rule for ties; None keeps the profile's own.

    Raises:
        HecktorError: a ranking or rule that there is not; the message names those that there are.
    """
    ranking = profile.ranking
    wanted = {"official": official or ranking.official, "ties": ties or ranking.ties}
    chosen = str(_choice(wanted, "official", tuple(ranking.schemes), where))
    return replace(
        profile, ranking=replace(ranking, official=chosen, ties=str(_choice(wanted, "ties", TIE_RULES, where)))
    )


def _spelled(text: str) -> object:
    try:
        return parse_json(text, "--option", error=HecktorError)
    except HecktorError:
        return text


def _ranking(raw: Any, metrics: Mapping[str, MetricProfile], where: str) -> RankingProfile:
    content = _mapping(raw, where, ("official", "ties", "schemes"))
    if not isinstance(content["schemes"], dict) or not content["schemes"]:
        raise HecktorError(f"{where}.schemes", "expected an object with at least one ranking")
    schemes = {
        name: parse_scheme(node, metrics, f"{where}.schemes.{name}") for name, node in content["schemes"].items()
    }
    official = _choice(content, "official", tuple(schemes), where)
    return RankingProfile(str(official), str(_choice(content, "ties", TIE_RULES, where)), schemes)


def _mapping(raw: Any, where: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise HecktorError(where, f"found a {type(raw).__name__}", "an object")
    unknown, absent = sorted(set(raw) - set(keys)), sorted(set(keys) - set(raw))
    if unknown or absent:
        found = "; ".join(
            f"{word} {', '.join(names)}" for word, names in (("unknown", unknown), ("absent", absent)) if names
        )
        raise HecktorError(where, f"keys {found}; expected exactly {', '.join(keys)}")
    return raw


def _text(content: Mapping[str, Any], key: str, where: str) -> str:
    value = content[key]
    if not isinstance(value, str) or not value.strip():
        raise HecktorError(f"{where}.{key}", f"found {_shown(value)}", "a text")
    return value


def _choice(content: Mapping[str, Any], key: str, choices: tuple[object, ...], where: str) -> object:
    value = content[key]
    # `True == 1` in Python, so the type must agree as well
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        wanted = ", ".join(map(json.dumps, choices))
        raise HecktorError(f"{where}.{key}", f"found {_shown(value)}", f"{'one of ' * (len(choices) > 1)}{wanted}")
    return choices[choices.index(value)]


def _number(content: Mapping[str, Any], key: str, bounds: tuple[float, float], where: str) -> float:
    value, (low, high) = content[key], bounds
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < high:
        raise HecktorError(
            f"{where}.{key}", f"found {_shown(value)}", f"a number from {low:g} up to, not including, {high:g}"
        )
    return float(value)


def _shown(value: object) -> str:
    """A value as the profile spells it."""
    return json.dumps(value)[:80]
