"""Evaluation profiles: for each task of an edition the metrics, the rules for odd cases and the ranking, as JSON.

The profiles in `evaluation/editions` are known by name; any other is given by its path. The schema is checked in
full: an unknown or absent key or value is an error that names the place. Format 1 holds one answer for each task of
HECKTOR 2025; format 2 names its declaration and holds rules for each answer of a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from contract.editions import DEFAULT_EDITION, Algorithm, Edition, known_editions, load_edition
from contract.errors import HecktorError
from contract.files import parse_json, read_json
from evaluation.editions import DEFAULT_PROFILE, known_profiles
from evaluation.editions.checks import choice, nonempty, object_with, shown, text
from evaluation.editions.metrics import parse_metrics
from evaluation.editions.schemes import parse_ranking
from evaluation.editions.task import AnswerProfile, TaskProfile, known_metrics, parse_rules

FORMATS: Final = (1, 2)
DIGITS: Final = (1, 2, 3, 4, 5, 6)
_PUBLIC_DIGITS: Final = "public_digits"
_PREFIX: Final = re.compile(r"([a-z][a-z0-9_-]*)?")
# The kinds of answers as format 1 spells them.
_KINDS_OF_FORMAT_1: Final = {"segmentation": "mask", "survival": "risk", "classification": "class"}


@dataclass(frozen=True)
class EvaluationProfile:
    """How one edition is evaluated, by task."""

    name: str
    title: str
    declaration: Edition
    tasks: Mapping[str, TaskProfile]

    def task(self, name: str | None) -> TaskProfile:
        """The profile of the task with this name or number; None for the only one.

        Raises:
            HecktorError: the edition has no such task, or several tasks and none is named.
        """
        if name is None and len(self.tasks) == 1:
            return next(iter(self.tasks.values()))
        wanted = self.declaration.algorithm(name).name
        if wanted not in self.tasks:
            raise HecktorError(f"edition {self.name}", f"has no task {wanted!r}, only {', '.join(self.tasks)}")
        return self.tasks[wanted]


def load_profile(name_or_path: str = DEFAULT_PROFILE) -> EvaluationProfile:
    """Load a profile by its name, or a profile file by its path.

    Raises:
        HecktorError: no such profile or file, or a profile that breaks the schema; the message names the place.
    """
    if name_or_path in known_profiles():
        source = f"{name_or_path}.json"
        content = files("evaluation.editions").joinpath(source).read_text(encoding="utf-8")
        return parse_profile(parse_json(content, source, error=HecktorError), source)
    path = Path(name_or_path)
    if path.suffix != ".json":
        raise HecktorError(
            f"unknown edition {name_or_path!r}", f"expected one of {', '.join(known_profiles())} or a profile.json"
        )
    profile = parse_profile(read_json(path, error=HecktorError), path.name, path.resolve().parent)
    if profile.name in known_profiles() and profile != load_profile(profile.name):
        raise HecktorError(
            f"{path.name}.name",
            f"{profile.name!r} is an edition of the package with other contents",
            "a name of its own",
        )
    return profile


def load_declaration(name_or_path: str) -> Edition:
    """The declaration of an edition; for the name of a profile, such as hecktor2021, the one that the profile uses.

    Raises:
        HecktorError: no such edition, or one that breaks the schema.
    """
    return load_profile(name_or_path).declaration if name_or_path in known_profiles() else load_edition(name_or_path)


def parse_profile(content: Any, source: str, folder: Path | None = None) -> EvaluationProfile:
    """Check a profile against the schema.

    Args:
        content: the JSON document.
        source: its name in messages.
        folder: where to look up a declaration that the profile names by a relative path.

    Raises:
        HecktorError: naming the place in `source`.
    """
    if isinstance(content, dict) and "algorithms" in content:
        wanted = f"an evaluation profile, such as {content.get('evaluation_profile')}, which the declaration names"
        raise HecktorError(source, "found the declaration of an edition", wanted)
    number = content.get("format") if isinstance(content, dict) else None
    many = number == FORMATS[1]
    top = object_with(content, source, ("format", "name", "title", "tasks"), ("declaration",) if many else ())
    if number not in FORMATS or isinstance(number, bool):
        raise HecktorError(source, f"format {number!r}", " or ".join(map(str, FORMATS)))
    declaration = _declaration(top.get("declaration", DEFAULT_EDITION), folder)
    if not isinstance(top["tasks"], dict) or not top["tasks"]:
        raise HecktorError(source, "`tasks` must be an object with at least one task")
    algorithms = {algorithm.name: algorithm for algorithm in declaration.algorithms}
    for name in top["tasks"]:
        if name not in algorithms:
            raise HecktorError(source, f"unknown task {name!r}", f"one of {', '.join(sorted(algorithms))}")
    parse = _task if many else _task_of_format_1
    edition, title = text(top, "name", source), text(top, "title", source)
    tasks = {
        name: parse(raw, edition, algorithms[name], f"{source}: tasks.{name}") for name, raw in top["tasks"].items()
    }
    return EvaluationProfile(edition, title, declaration, tasks)


def _declaration(name: Any, folder: Path | None) -> Edition:
    if not isinstance(name, str) or name in known_editions() or folder is None:
        return load_edition(str(name))
    return load_edition(str(folder / name))


def _task_of_format_1(raw: Any, edition: str, algorithm: Algorithm, where: str) -> TaskProfile:
    content = object_with(raw, where, ("kind", "metrics", "rules", "ranking"), (_PUBLIC_DIGITS,))
    kind = _KINDS_OF_FORMAT_1[choice(content, "kind", tuple(_KINDS_OF_FORMAT_1), where)]
    answer = algorithm.answers[0]
    rules = parse_rules(content["rules"], answer, f"{where}.rules", may_lack_direction=False)
    if kind != answer.kind or len(algorithm.answers) > 1:
        raise HecktorError(f"{where}.kind", f"found {content['kind']!r}, not the kind of the answer {answer.name!r}")
    return _task_profile(edition, algorithm, {answer.name: AnswerProfile(answer, rules)}, content, where)


def _task(raw: Any, edition: str, algorithm: Algorithm, where: str) -> TaskProfile:
    content = object_with(raw, where, ("answers", "metrics", "ranking"), (_PUBLIC_DIGITS,))
    named = object_with(content["answers"], f"{where}.answers", tuple(answer.name for answer in algorithm.answers))
    several = len(algorithm.answers) > 1
    answers = {}
    for answer in algorithm.answers:
        place = f"{where}.answers.{answer.name}"
        entry = object_with(named[answer.name], place, ("rules",), ("prefix",))
        rules = parse_rules(entry["rules"], answer, f"{place}.rules")
        prefix = entry.get("prefix", f"{answer.name}_" if several else "")
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise HecktorError(f"{place}.prefix", f"found {shown(prefix)}", "lower-case letters, digits, - and _")
        answers[answer.name] = AnswerProfile(answer, rules, prefix)
    return _task_profile(edition, algorithm, answers, content, where)


def _task_profile(
    edition: str, algorithm: Algorithm, answers: Mapping[str, AnswerProfile], content: Mapping[str, Any], where: str
) -> TaskProfile:
    raw = nonempty(content, "metrics", where, "metric")
    metrics = parse_metrics(raw, known_metrics(answers, f"{where}.answers"), f"{where}.metrics")
    ranking = parse_ranking(content["ranking"], metrics, f"{where}.ranking")
    digits = choice(content, _PUBLIC_DIGITS, DIGITS, where) if _PUBLIC_DIGITS in content else None
    return TaskProfile(edition, algorithm, answers, metrics, ranking, digits)
