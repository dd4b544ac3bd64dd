"""Load the results of teams: read each metrics.json once, validate it, and check that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from contract.editions import compute_content_digest, list_editions, parse_edition
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
        sources: Each team's metrics.json.
        task: Name or number; None takes the task of the first team's results.
        edition: Name or path of an edition. The results must have been scored by its rules. None takes the edition of
            the first team's results, whose rules may have been changed by options.
        without_rows: Whether results without rows are accepted. Nothing in such results can be checked.

    Raises:
        HecktorError: Two teams have the same name, a file cannot be read, a figure is impossible or does not follow
            from the rows, or the results differ in task, edition, rules, cases or reference. The message names the
            file and the case, or the difference.
    """
    pairs = list(sources.items() if isinstance(sources, Mapping) else sources)
    check_team_names([name for name, _ in pairs])
    if not pairs:
        raise HecktorError("rank", "no metrics.json given", "one per team, or --runs")
    read = {name: _read_source(source, name) for name, source in pairs}
    first, where = next(iter(read.values()))
    profile = find_profile(first.provenance.edition, first.provenance.own_edition, edition, where)
    results = validate_teams(profile.find_task(task or first.provenance.task), read, same_rules=edition is not None)
    sources_without_rows = [source for metrics, source in read.values() if not metrics.results]
    if sources_without_rows and not without_rows:
        raise HecktorError(sources_without_rows[0], "no per-case rows", "rows to check its values, or --without-rows")
    return results


def validate_teams(
    profile: TaskProfile, read: Mapping[str, tuple[MetricsJson, str]], *, same_rules: bool = False
) -> TaskResults:
    """Validate the results of teams and check that they can be compared.

    Args:
        profile: The task; its edition is the edition of the page or leaderboard that shows the results.
        read: Each team's metrics.json and its name in messages.
        same_rules: Whether all results must follow every rule of the profile. Otherwise this holds only for results of
            another edition; results of the profile's edition may have been scored with options.

    Raises:
        HecktorError: See `load_teams`.
    """
    _check_comparable(profile, {team: metrics for team, (metrics, _) in read.items()})
    for metrics, source in read.values():
        stated = metrics.provenance
        if same_rules or (stated.edition, stated.own_edition) != (profile.edition, profile.own_edition):
            _check_rules(profile, stated.options, source)
    for metrics, source in read.values():
        if metrics.results:
            profile = with_stated_rules(profile, metrics.provenance.options, source)
            break
    for metrics, source in read.values():
        redefined = {name for name, metric in profile.metrics.items() if not states_metric(metrics, name, metric)}
        figures = {name: figure for name, figure in metrics.aggregates.items() if name not in redefined}
        check_ranges(figures, profile, source)
    teams, answers = {}, {}
    for team, (metrics, source) in read.items():
        if metrics.results:
            teams[team], answers[team] = validate_metrics(metrics, profile, source)
        else:
            teams[team] = _add_missing_sums(metrics, profile)
    check_same_reference(answers)
    return TaskResults(profile, teams, answers)


def _check_rules(profile: TaskProfile, options: Mapping[str, Any], source: str) -> None:
    """Raise HecktorError if the rules that the file `source` states in its options differ from the profile's rules.

    The file may have measured surfaces of more labels than the profile asks for, because these only add metrics.
    """
    stated_rules, expected_rules = [], []
    for name, answer in profile.answers.items():
        stated = options.get(name) if profile.has_several_answers else options
        prefix = f"{name}." if profile.has_several_answers else ""
        for rule, expected in answer.rules.model_dump().items():
            value = stated.get(rule, "not stated") if isinstance(stated, Mapping) else "not stated"
            covers_surfaces = rule == "surfaces" and set(SURFACES_OF[expected]) <= set(SURFACES_OF.get(str(value), ()))
            if value != expected and not covers_surfaces:
                stated_rules.append(f"{prefix}{rule} {value!s:.60}")
                expected_rules.append(f"{prefix}{rule} {expected}")
    if stated_rules:
        step = f"evaluate again with --edition {profile.edition}, or rank without --edition by the results' own rules"
        raise HecktorError(
            source,
            f"scored by rules that differ from {profile.edition}: {', '.join(stated_rules)}",
            f"{', '.join(expected_rules)}; {step}",
        )


def _add_missing_sums(metrics: MetricsJson, profile: TaskProfile) -> MetricsJson:
    """Add the profile's weighted sums to results without rows, unless the file states them with the same weights.

    The added sums are computed from the stated values and have no interval.
    """
    values = {name: figures.figure() for name, figures in metrics.aggregates.items()}
    sums = {
        name: MetricFigures.from_values(compute_weighted_sum(values, metric.terms))
        for name, metric in profile.metrics.items()
        if metric.terms and not states_metric(metrics, name, metric)
    }
    return metrics.model_copy(update={"aggregates": {**metrics.aggregates, **sums}})


def check_team_names(names: Sequence[str]) -> None:
    """Raise HecktorError if two teams have the same name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"team {twice[0]!r} appears twice, expected a name for each team (--names)")


def check_folder_names(names: Iterable[str]) -> None:
    """Raise HecktorError for a name that a team and its folder cannot have."""
    for name in names:
        try:
            check_team_name(name)
        except ValueError as expected:
            raise HecktorError("team", f"found {name!r}", str(expected)) from None


def _read_source(source: Source, name: str) -> tuple[MetricsJson, str]:
    if isinstance(source, Path):
        return read_metrics(source, name), describe_source(describe_file(source), name)
    return source if isinstance(source, tuple) else (parse_metrics(source, name), name)


def find_profile(name: str, own: Mapping[str, Any] | None, edition: str | None, where: str) -> EvaluationProfile:
    """Find the profile of the edition of a results file.

    Args:
        name: Name of the edition that the file states.
        own: Content of a custom edition that the file contains.
        edition: Name or path of an edition that a user chose; it replaces the edition of the file.
        where: Name of the file in messages.

    Raises:
        HecktorError: The edition of the file is neither chosen nor part of the package, or the chosen edition has the
            same name and other contents.
    """
    if edition is None and own is not None:
        embedded = parse_edition(own, f"{where}: own_edition")
        if embedded.name != name:
            raise HecktorError(
                where, f"edition {name!r:.60}, but the document of {embedded.name!r}", f"the document of {name!r:.60}"
            )
        return build_profile(embedded)
    # A name in the results may be a path, and could lead to an edition that the team wrote.
    if edition is None and name not in list_editions():
        expected = f"one of {', '.join(list_editions())}, or its file as --edition"
        raise HecktorError(where, f"edition {name!r:.60}", expected)
    profile = load_profile(edition or name)
    stated = profile.edition
    if own is not None and stated.name == name and stated.content != own:
        problem = f"edition {name!r} with other contents (sha256 {compute_content_digest(own)}) than --edition"
        expected = f"sha256 {compute_content_digest(stated.content)}, or another name for the changed edition"
        raise HecktorError(where, problem, expected)
    return profile


def _check_comparable(profile: TaskProfile, teams: Mapping[str, MetricsJson]) -> None:
    """Raise HecktorError unless all results are of the profile's task, of one edition, of the same rules and cases."""
    (name, first), *rest = teams.items()
    stated, task = first.provenance, profile.algorithm.name
    if stated.task != task:
        raise HecktorError(name, f"metrics of task {stated.task!r}", f"{task!r}")
    # A custom edition may rank any results; an edition of the package refuses results of another edition.
    if stated.edition != profile.edition and {stated.edition, profile.edition} <= set(list_editions()):
        raise HecktorError(name, f"metrics of edition {stated.edition!r}", f"{profile.edition!r}")
    for team, metrics in rest:
        both = f"{name} and {team}"
        for key in MUST_AGREE:
            expected, actual = getattr(stated, key), getattr(metrics.provenance, key)
            if expected != actual:
                problem = f"{_keep_differences(expected, actual)} and {_keep_differences(actual, expected)}"
                raise HecktorError(both, f"different {key} ({problem})", f"the same {key} for all teams")
        editions = [stated.own_edition, metrics.provenance.own_edition]
        if editions[0] != editions[1]:
            digests = " and ".join(map(compute_content_digest, editions))
            problem = f"{stated.edition!r} with different contents (sha256 {digests})"
            raise HecktorError(both, problem, "the same edition for all teams")
        _check_same_cases({name: first, team: metrics}, both)


def _check_same_cases(teams: Mapping[str, MetricsJson], both: str) -> None:
    """Raise HecktorError unless two teams have the same cases; `both` names them in the message."""
    digests = [metrics.provenance.case_set_sha256 for metrics in teams.values()]
    if "" in digests:  # Files without rows contain only the number of cases.
        numbers = [metrics.cases.in_ground_truth for metrics in teams.values()]
        if numbers[0] != numbers[1]:
            problem = f"scored on {numbers[0]} and {numbers[1]} cases of the ground truth"
            raise HecktorError(both, problem, "the same cases")
        return
    if digests[0] == digests[1]:
        return
    cases = {team: {row["case"] for row in metrics.results} for team, metrics in teams.items()}
    common = set.intersection(*cases.values())
    differences = [
        f"{format_names(sorted(names - common))} only in {team}" for team, names in cases.items() if names - common
    ]
    if not all(cases.values()):
        raise HecktorError(both, "scored on different cases", "the same cases")
    # If the rows have the same cases, the checksum of a file is wrong, which its validation reports.
    if differences:
        raise HecktorError(both, f"scored on different cases: {'; '.join(differences)}", "the same cases")


def _keep_differences(value: object, compared: object) -> object:
    """Return the value; of nested objects only the entries that differ from the compared value."""
    if not (isinstance(value, dict) and isinstance(compared, dict)):
        return value
    names = [name for name in {**value, **compared} if value.get(name) != compared.get(name)]
    return {name: _keep_differences(value.get(name), compared.get(name)) for name in names}
