"""Load the results of teams: read each metrics.json once, validate it, and check that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from contract.editions import content_digest, list_editions, parse_edition
from contract.errors import HecktorError
from contract.patient import format_names
from evaluation.editions.profile import EvaluationProfile, TaskProfile, build_profile, load_profile
from evaluation.metrics.rules import SURFACES_OF
from evaluation.results.board import check_team_name, describe_file
from evaluation.results.documents import MetricFigures, MetricsJson
from evaluation.results.metrics_json import describe_source, parse_metrics, read_metrics
from evaluation.results.task import TaskResults
from evaluation.results.validation import (
    check_ranges,
    check_same_reference,
    compute_weighted_sum,
    states_metric,
    validate_metrics,
    with_stated_rules,
)

MUST_AGREE = ("task", "edition", "options")
OWN_EDITION: Final = "own_edition"
# A metrics.json: its path, its content, or what was read from it, with its name in messages.
Source: TypeAlias = Path | Mapping[str, Any] | MetricsJson | tuple[MetricsJson, str]


def load_teams(
    sources: Mapping[str, Source] | Sequence[tuple[str, Source]],
    *,
    task: str | None = None,
    edition: str | None = None,
    without_rows: bool = True,
) -> TaskResults:
    """Read and check the results of teams, by name.

    Args:
        sources: each team's metrics.json.
        task: name or number; None for the task of the first team's results.
        edition: name or path of an edition, by whose rules the results were scored; None for the edition of the first
            team's results, whose rules options may have changed.
        without_rows: whether results may lack rows, so that nothing in them can be checked.

    Raises HecktorError: two teams of one name; a file that cannot be read; a figure that cannot be or does not follow
    from the rows, naming its file and case; or results that differ in task, edition, rules, cases or reference, naming
    the difference.
    """
    pairs = list(sources.items() if isinstance(sources, Mapping) else sources)
    check_team_names([name for name, _ in pairs])
    if not pairs:
        raise HecktorError("rank", "no metrics.json given", "one a team, or --runs")
    read = {name: _read(source, name) for name, source in pairs}
    first, where = next(iter(read.values()))
    profile = find_profile(first.provenance.edition, first.provenance.own_edition, edition, where)
    results = validate_teams(profile.task(task or first.provenance.task), read, same_rules=edition is not None)
    lacking = [source for one, source in read.values() if not one.results]
    if lacking and not without_rows:
        raise HecktorError(lacking[0], "no per-case rows", "rows to check its values, or --without-rows")
    return results


def validate_teams(
    profile: TaskProfile, read: Mapping[str, tuple[MetricsJson, str]], *, same_rules: bool = False
) -> TaskResults:
    """Validate the results of teams and check that they can be compared. Raises as `load_teams`.

    Args:
        profile: the task, under whose edition the results are shown.
        read: each team's metrics.json, and its name in messages.
        same_rules: whether the results must follow every rule of the profile. Otherwise only results of another
            edition must; results of the profile's edition may have been scored with options.
    """
    _check_comparable(profile, {team: metrics for team, (metrics, _) in read.items()})
    for metrics, source in read.values():
        stated = metrics.provenance
        if same_rules or (stated.edition, stated.own_edition) != (profile.edition, profile.own_edition):
            _check_rules(profile, stated.options, source)
    with_rows = next(((one.provenance.options, source) for one, source in read.values() if one.results), None)
    profile = with_stated_rules(profile, *with_rows) if with_rows else profile
    for metrics, source in read.values():
        others = {name for name, metric in profile.metrics.items() if not states_metric(metrics, name, metric)}
        figures = {name: one for name, one in metrics.aggregates.items() if name not in others}
        check_ranges(figures, profile, source)
    teams, answers = {}, {}
    for team, (metrics, source) in read.items():
        if metrics.results:
            teams[team], answers[team] = validate_metrics(metrics, profile, source)
        else:
            teams[team] = _with_own_sums(metrics, profile)
    check_same_reference(answers)
    return TaskResults(profile, teams, answers)


def _check_rules(profile: TaskProfile, options: Mapping[str, Any], source: str) -> None:
    """Raise HecktorError if the options that a file, `source`, states are other rules than the profile's.

    Surfaces of more labels than the profile asks for are no difference: they add metrics.
    """
    stated_rules, expected_rules = [], []
    for name, answer in profile.answers.items():
        stated = options.get(name) if profile.has_several_answers else options
        prefix = f"{name}." if profile.has_several_answers else ""
        for rule, expected in answer.rules.model_dump().items():
            value = stated.get(rule, "not stated") if isinstance(stated, Mapping) else "not stated"
            more_surfaces = rule == "surfaces" and set(SURFACES_OF[expected]) <= set(SURFACES_OF.get(str(value), ()))
            if value != expected and not more_surfaces:
                stated_rules.append(f"{prefix}{rule} {value!s:.60}")
                expected_rules.append(f"{prefix}{rule} {expected}")
    if stated_rules:
        step = f"evaluate again with --edition {profile.edition}, or rank without --edition by the results' own rules"
        raise HecktorError(
            source,
            f"scored by rules that differ from {profile.edition}: {', '.join(stated_rules)}",
            f"{', '.join(expected_rules)}; {step}",
        )


def _with_own_sums(metrics: MetricsJson, profile: TaskProfile) -> MetricsJson:
    """Return results without rows, with each weighted sum of the profile that the file lacks or weights otherwise.

    The sums are sums of the stated values and have no interval.
    """
    values = {name: one.figure() for name, one in metrics.aggregates.items()}
    others = {
        name: MetricFigures.from_values(compute_weighted_sum(values, metric.terms))
        for name, metric in profile.metrics.items()
        if metric.terms and not states_metric(metrics, name, metric)
    }
    return metrics.model_copy(update={"aggregates": {**metrics.aggregates, **others}})


def check_team_names(names: Sequence[str]) -> None:
    """Raise HecktorError if two teams have the same name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"team {twice[0]!r} appears twice, expected a name for each team (--names)")


def check_folder_names(names: Iterable[str]) -> None:
    """Raise HecktorError for a name that cannot be that of a team and its folder."""
    for name in names:
        try:
            check_team_name(name)
        except ValueError as expected:
            raise HecktorError("team", f"found {name!r}", str(expected)) from None


def _read(source: Source, name: str) -> tuple[MetricsJson, str]:
    if isinstance(source, Path):
        return read_metrics(source, name), describe_source(describe_file(source), name)
    return source if isinstance(source, tuple) else (parse_metrics(source, name), name)


def find_profile(name: str, own: Mapping[str, Any] | None, edition: str | None, where: str) -> EvaluationProfile:
    """Find the profile of the edition that a file states, by `name` or with its text `own`, or the option `edition`.

    Raises HecktorError: the file, `where` in messages, states an edition that is neither given nor of the package, or
    one of the given name with other contents.
    """
    if edition is None and own is not None:
        embedded = parse_edition(own, f"{where}: own_edition")
        if embedded.name != name:
            raise HecktorError(where, f"edition {name!r:.60} with the text of {embedded.name}", "that of its own")
        return build_profile(embedded)
    # A path in the results could name an edition of the team's own.
    if edition is None and name not in list_editions():
        expected = f"one of {', '.join(list_editions())}, or its file as --edition"
        raise HecktorError(where, f"edition {name!r:.60}", expected)
    profile = load_profile(edition or name)
    stated = profile.edition
    if own is not None and stated.name == name and stated.content != own:
        found = f"edition {name!r} with other contents (sha256 {content_digest(own)}) than --edition"
        raise HecktorError(
            where, found, f"sha256 {content_digest(stated.content)}, or another name for the changed edition"
        )
    return profile


def _check_comparable(profile: TaskProfile, teams: Mapping[str, MetricsJson]) -> None:
    (name, first), *others = teams.items()
    stated, task = first.provenance, profile.algorithm.name
    if stated.task != task:
        raise HecktorError(name, f"metrics of task {stated.task!r}", f"{task!r}")
    # A custom edition may rank any results; an edition of the package refuses results of another edition.
    if stated.edition != profile.edition and {stated.edition, profile.edition} <= set(list_editions()):
        raise HecktorError(name, f"metrics of edition {stated.edition!r}", f"{profile.edition!r}")
    for team, other in others:
        who = f"{name} and {team}"
        for key in MUST_AGREE:
            values = getattr(stated, key), getattr(other.provenance, key)
            if values[0] != values[1]:
                value, other_value = _differences(*values)
                raise HecktorError(who, f"{key} differ ({value} and {other_value})", "one for all teams")
        texts = [stated.own_edition, other.provenance.own_edition]
        if texts[0] != texts[1]:
            digests = " and ".join(map(content_digest, texts))
            found = f"{stated.edition!r} with different contents (sha256 {digests})"
            raise HecktorError(who, found, "the same edition for all teams")
        _check_same_cases({name: first, team: other}, who)


def _check_same_cases(teams: Mapping[str, MetricsJson], who: str) -> None:
    """Raise HecktorError unless two teams have the same cases."""
    digests = [one.provenance.case_set_sha256 for one in teams.values()]
    if "" in digests:  # files without rows tell numbers alone
        numbers = [one.cases.in_ground_truth for one in teams.values()]
        if numbers[0] != numbers[1]:
            found = f"scored on {numbers[0]} and {numbers[1]} cases of the ground truth"
            raise HecktorError(who, found, "the same cases")
        return
    if digests[0] == digests[1]:
        return
    of_teams = [{row["case"] for row in one.results} for one in teams.values()]
    only = [sorted(cases - others) for cases, others in (of_teams, of_teams[::-1])]
    named = [f"{format_names(cases)} only in {team}" for team, cases in zip(teams, only, strict=True) if cases]
    if not all(of_teams):
        raise HecktorError(who, "scored on different cases", "the same cases")
    if named:  # otherwise the rows of one belie its checksum, which its validation names
        raise HecktorError(who, f"scored on different cases: {'; '.join(named)}", "the same cases")


def _differences(first: object, second: object) -> tuple[object, object]:
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return first, second
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    inner = {name: _differences(first.get(name), second.get(name)) for name in names}
    return {name: one for name, (one, _) in inner.items()}, {name: other for name, (_, other) in inner.items()}
