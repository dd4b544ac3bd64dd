"""Load the results of teams: read each metrics.json once, validate it, and check that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

from contract.editions import content_digest, edition_from
from contract.errors import HecktorError
from contract.patient import listed
from evaluation.editions import DEFAULT_PROFILE, known_profiles
from evaluation.editions.profile import EvaluationProfile, TaskProfile, load_profile, profile_of
from evaluation.metrics.overlap import WeightedMetric
from evaluation.results.documents import MetricsJson
from evaluation.results.metrics_json import TeamMetrics, parse_metrics, read_metrics
from evaluation.results.scored import cases_of
from evaluation.results.validation import (
    check_ranges,
    check_same_reference,
    is_stated,
    validate,
    weighted_sum,
    with_stated_rules,
)
from evaluation.statistics.bootstrap import Estimate

MUST_AGREE = ("task", "edition", "options")
OWN_EDITION: Final = "own_edition"
# A metrics.json: its path, its content, or what was read from it.
Source: TypeAlias = Path | Mapping[str, Any] | MetricsJson | TeamMetrics


@dataclass(frozen=True)
class ComparableTeams:
    """Teams whose results were validated and may be compared: same task, edition, rules, cases and reference.

    `profile` has the rules of their evaluations, as far as results have rows.
    """

    profile: TaskProfile
    teams: tuple[TeamMetrics, ...]

    @property
    def ranked(self) -> tuple[TeamMetrics, ...]:
        """The teams with a value for every ranked metric."""
        return tuple(team for team in self.teams if not absent_metrics(team, self.profile))

    @property
    def incomplete(self) -> tuple[TeamMetrics, ...]:
        """The teams that lack a ranked metric."""
        return tuple(team for team in self.teams if absent_metrics(team, self.profile))

    @cached_property
    def cases(self) -> tuple[str, ...]:
        """The cases that count for any team, sorted: of one team, or of teams that skip the same cases, the cohort of
        their evaluation.
        """
        return cases_of(answer for team in self.teams for answer in team.answers.values())

    @cached_property
    def metrics(self) -> dict[str, dict[str, WeightedMetric]]:
        """All metrics of each team with rows, ranked or not, as functions of weights (replicates, cases).

        Cases that do not count for a team weigh nothing.
        """
        return {team.team: team.metrics_over(self.cases) for team in self.teams if team.answers}

    def select(self, names: Mapping[str, str] | Iterable[str]) -> ComparableTeams:
        """Some of these teams in the order of `names`, a mapping gives them other names."""
        new_names = names if isinstance(names, Mapping) else {name: name for name in names}
        teams = {team.team: team for team in self.teams}
        return replace(self, teams=tuple(replace(teams[name], team=new) for name, new in new_names.items()))

    def require_ranked_teams(self) -> ComparableTeams:
        """These teams. Raises HecktorError if no team has a value for every ranked metric."""
        if not self.ranked:
            raise HecktorError("rank", "no team has a value for every ranked metric")
        return self

    def require_rows(self, hint: str = "rows to check its values, or --without-rows") -> ComparableTeams:
        """These teams. Raises HecktorError for results without rows, so that nothing in them can be checked."""
        lacking = [team.source for team in self.teams if not team.rows]
        if lacking:
            raise HecktorError(lacking[0], "no per-case rows", hint)
        return self


def load_teams(
    sources: Mapping[str, Source] | Sequence[tuple[str, Source]],
    *,
    task: str | None = None,
    edition: str | None = None,
) -> ComparableTeams:
    """Read and check the results of teams, by name.

    Args:
        sources: each team's metrics.json.
        task: name or number; None for the task of the first team's results.
        edition: name or path of an edition; None for that of the first team's results.

    Raises HecktorError: two teams of one name; a file that cannot be read; a figure that cannot be or does not follow
    from the rows, naming its file and case; or results that differ in task, edition, rules, cases or reference, naming
    the difference.
    """
    pairs = list(sources.items() if isinstance(sources, Mapping) else sources)
    check_team_names([name for name, _ in pairs])
    if not pairs:
        raise HecktorError("rank", "no metrics.json given", "one a team, or --runs")
    teams = [_read(source, name) for name, source in pairs]
    profile = stated_profile(teams[0].provenance, edition, teams[0].source)
    return comparable_teams(profile.task(task or str(teams[0].provenance["task"])), teams)


def comparable_teams(profile: TaskProfile, teams: Sequence[TeamMetrics]) -> ComparableTeams:
    """Validate the results of teams and check that they can be compared. Raises as `load_teams`."""
    _check_comparable(profile, teams)
    with_rows = [team for team in teams if team.rows]
    profile = with_stated_rules(profile, with_rows[0]) if with_rows else profile
    for team in teams:
        others = {name for name, metric in profile.metrics.items() if not is_stated(team, name, metric)}
        check_ranges({name: one for name, one in team.estimates.items() if name not in others}, profile, team.source)
    validated = tuple(validate(team, profile) if team.rows else _with_own_sums(team, profile) for team in teams)
    check_same_reference(profile, [team for team in validated if team.answers])
    return ComparableTeams(profile, validated)


def _with_own_sums(team: TeamMetrics, profile: TaskProfile) -> TeamMetrics:
    """A team without rows, with the profile's weighted sums of its stated values, without intervals, where its file
    has none or other weights.
    """
    values = {name: one.value for name, one in team.estimates.items()}
    others = {
        name: Estimate(weighted_sum(values, metric.terms), None, None)
        for name, metric in profile.metrics.items()
        if metric.terms and not is_stated(team, name, metric)
    }
    return replace(team, estimates={**team.estimates, **others})


def check_team_names(names: Sequence[str]) -> None:
    """Raise HecktorError if two teams have the same name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"team {twice[0]!r} appears twice, expected a name for each team (--names)")


def absent_metrics(team: TeamMetrics, profile: TaskProfile) -> list[str]:
    """Ranked metrics for which a team has no value."""
    return [name for name in profile.metrics if name not in team.estimates or team.estimates[name].value is None]


def _read(source: Source, name: str) -> TeamMetrics:
    if isinstance(source, TeamMetrics):
        return source
    return read_metrics(source, name) if isinstance(source, Path) else parse_metrics(source, name, name)


def stated_profile(provenance: Mapping[str, Any], edition: str | None, where: str) -> EvaluationProfile:
    """The profile of the edition that a file states, by name or with its text, or else the given `edition`.

    Raises HecktorError: the file, `where` in messages, states an edition that is neither given nor of the package, or
    one of the given name with other contents.
    """
    name, own = str(provenance.get("edition") or DEFAULT_PROFILE), provenance.get(OWN_EDITION)
    if edition is None and own is not None:
        profile = profile_of(edition_from(own))
        if profile.name != name:
            raise HecktorError(where, f"edition {name!r:.60} with the text of {profile.name}", "that of its own")
        return profile
    # A path in the results could name a profile of the team's own.
    if edition is None and name not in known_profiles():
        expected = f"one of {', '.join(known_profiles())}, or its file as --edition"
        raise HecktorError(where, f"edition {name!r:.60}", expected)
    profile = load_profile(edition or name)
    if own is not None and profile.name == name and profile.own != own:
        found = f"edition {name!r} with other contents (sha256 {content_digest(own)}) than --edition"
        raise HecktorError(
            where, found, f"sha256 {content_digest(profile.own)}, or another name for the changed edition"
        )
    return profile


def _check_comparable(profile: TaskProfile, teams: Sequence[TeamMetrics]) -> None:
    first, task = teams[0], profile.algorithm.name
    if first.provenance.get("task") != task:
        raise HecktorError(f"{first.team}", f"metrics of task {first.provenance.get('task')!r}", f"{task!r}")
    # A profile of one's own may rank any results, an edition of the package none of another one's.
    edition = first.provenance.get("edition")
    if edition != profile.edition and {edition, profile.edition} <= set(known_profiles()):
        raise HecktorError(f"{first.team}", f"metrics of edition {edition!r}", f"{profile.edition!r}")
    for team in teams[1:]:
        for key in MUST_AGREE:
            value, other_value = first.provenance.get(key), team.provenance.get(key)
            if value != other_value:
                value, other_value = _differences(value, other_value)
                raise HecktorError(
                    f"{first.team} and {team.team}", f"{key} differ ({value} and {other_value})", "one for all teams"
                )
        texts = [one.provenance.get(OWN_EDITION) for one in (first, team)]
        if texts[0] != texts[1]:
            found = f"{edition!r} with different contents (sha256 {' and '.join(map(content_digest, texts))})"
            raise HecktorError(f"{first.team} and {team.team}", found, "the same edition for all teams")
        _check_same_cases(first, team)


def _check_same_cases(first: TeamMetrics, other: TeamMetrics) -> None:
    teams = (first, other)
    digests = [team.provenance.get("case_set_sha256") for team in teams]
    if None in digests:  # files without rows tell numbers alone
        numbers = [team.cases.get("in_ground_truth") for team in teams]
        if numbers[0] != numbers[1]:
            found = f"scored on {numbers[0]} and {numbers[1]} cases of the ground truth"
            raise HecktorError(f"{first.team} and {other.team}", found, "the same cases")
        return
    if digests[0] == digests[1]:
        return
    of_teams = [{str(row["case"]) for row in team.rows} for team in teams]
    only = [sorted(cases - others) for cases, others in (of_teams, of_teams[::-1])]
    named = [f"{listed(cases)} only in {team.team}" for team, cases in zip(teams, only, strict=True) if cases]
    who = f"{first.team} and {other.team}"
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
