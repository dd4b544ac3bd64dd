"""The results of one task's teams, with their rows and their leaderboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from contract.editions import Algorithm
from evaluation.editions.document import Lexicographic, list_scheme_metrics
from evaluation.editions.profile import TaskProfile
from evaluation.metrics.overlap import WeightedMetric
from evaluation.results.board import Leaderboard
from evaluation.results.documents import MetricsJson
from evaluation.results.scored import MeasuredAnswer, collect_sum_weights, join_metrics, list_counted_cases
from evaluation.rows.mask import flatten_row


@dataclass(frozen=True)
class TaskResults:
    """Teams whose results were validated and may be compared: same task, edition, rules, cases and reference.

    Attributes:
        profile: The task, with the rules of the evaluations if a team has rows.
        teams: Each team's metrics.json, in the order of the leaderboard if the teams are ranked.
        answers: By team and answer, the rows with their metrics; teams without rows are left out.
        leaderboard: The leaderboard; None until the teams are ranked.
        out_of_competition: The metrics.json of entries that the leaderboard shows without a rank.
        folders: The folder of each team's metrics.json.
        scans: Figures of the scans by case and name, if `study baselines` has measured them.
        groups: The group of each case, by the column of a table.
    """

    profile: TaskProfile
    teams: Mapping[str, MetricsJson]
    answers: Mapping[str, Mapping[str, MeasuredAnswer]] = field(default_factory=dict)
    leaderboard: Leaderboard | None = None
    out_of_competition: Mapping[str, MetricsJson] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    scans: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def task(self) -> Algorithm:
        """The task with its number in the results; two folders may contain tasks of one name."""
        return self.profile.algorithm

    @property
    def key(self) -> str:
        """The name of the task on a page and in folders."""
        return f"task{self.task.number}"

    @property
    def board(self) -> Leaderboard:
        """The leaderboard; raises ValueError if the teams are not ranked."""
        if self.leaderboard is None:
            raise ValueError("the teams are not ranked")
        return self.leaderboard

    @property
    def deciding_metrics(self) -> list[str]:
        """The metrics that decide the official ranking, without metrics that only break ties.

        If the edition does not declare the official ranking, the list contains the metric with the ranking's name or,
        if there is no such metric, all metrics.
        """
        official, metrics = self.board.official, list(self.board.metrics)
        scheme = self.profile.ranking.schemes.get(official)
        while isinstance(scheme, Lexicographic):
            scheme = scheme.parts[0]
        deciding = () if scheme is None else list_scheme_metrics(scheme)
        return [name for name in metrics if name in deciding] or ([official] if official in metrics else metrics)

    @property
    def is_unchecked(self) -> bool:
        """Whether no metrics.json exists that the leaderboard's values could be compared with."""
        return not any(metrics.cases.used for metrics in self.teams.values())

    @cached_property
    def all_results(self) -> dict[str, MetricsJson]:
        """The metrics.json of each team and of each entry out of competition."""
        return {**self.teams, **self.out_of_competition}

    @property
    def ranked(self) -> list[str]:
        """The teams with a value for every ranked metric."""
        return [team for team in self.teams if not self.list_absent_metrics(team)]

    @property
    def incomplete(self) -> list[str]:
        """The teams without a value for every ranked metric."""
        return [team for team in self.teams if self.list_absent_metrics(team)]

    def list_absent_metrics(self, team: str) -> list[str]:
        """Return the ranked metrics for which a team has no value."""
        return [name for name in self.profile.metrics if self.value(team, name) is None]

    def value(self, team: str, metric: str) -> float | None:
        """Return a team's value of a metric, which may be infinite; None if it is undefined or absent."""
        figures = self.all_results[team].aggregates.get(metric)
        return None if figures is None else figures.figure()

    def get_rows(self, team: str, answer: str) -> Sequence[Mapping[str, Any]]:
        """Return a team's rows of one answer with one level of keys (`evaluation.rows.mask.flatten_row`)."""
        if (team, answer) not in self._flat_rows:
            rows = self.all_results[team].get_rows(answer, several=self.profile.has_several_answers)
            self._flat_rows[team, answer] = list(map(flatten_row, rows))
        return self._flat_rows[team, answer]

    @cached_property
    def _flat_rows(self) -> dict[tuple[str, str], Sequence[Mapping[str, Any]]]:
        """The rows by team and answer that `get_rows` has flattened so far."""
        return {}

    def get_options(self, team: str, answer: str) -> Mapping[str, Any]:
        """Return the rules of the evaluation of a team's answer."""
        options = self.all_results[team].provenance.options
        return options.get(answer, {}) if self.profile.has_several_answers else options

    @cached_property
    def cases(self) -> tuple[str, ...]:
        """The cases that count for any team, sorted.

        For one team, or for teams that skip the same cases, this is the cohort of their evaluation.
        """
        return list_counted_cases(answer for answers in self.answers.values() for answer in answers.values())

    @cached_property
    def metrics(self) -> dict[str, dict[str, WeightedMetric]]:
        """All metrics of each team with rows as functions of weights of shape (replicates, cases).

        The weights of cases that do not count for a team have no effect.
        """
        sum_weights = collect_sum_weights(self.profile.metrics)
        return {team: join_metrics(self.cases, answers.values(), sum_weights) for team, answers in self.answers.items()}

    @cached_property
    def scored_cases(self) -> set[str]:
        """The cases with a row of any team."""
        return {row["case"] for metrics in self.teams.values() for row in metrics.results}

    @property
    def centres(self) -> dict[str, str]:
        """The centre of each case; files without rows do not contain it."""
        blocks = [block for metrics in self.teams.values() for block in metrics.centres.items()]
        return {case: centre for centre, block in blocks for case in block.names}

    @property
    def prediction_folders(self) -> dict[str, Path]:
        """The folders of masks that `rehearse` wrote next to the teams' metrics.json."""
        mask, several = self.task.mask_spec, self.profile.has_several_answers
        subfolder = mask.name if mask is not None and several else ""
        folders = {team: folder / "predictions" / subfolder for team, folder in self.folders.items()}
        return {team: folder for team, folder in folders.items() if folder.is_dir()}

    def select(self, names: Mapping[str, str] | Iterable[str]) -> TaskResults:
        """Return some of these teams in the order of `names`; a mapping gives them other names."""
        new_names = names if isinstance(names, Mapping) else {name: name for name in names}
        answers = {new: self.answers[name] for name, new in new_names.items() if name in self.answers}
        return replace(self, teams={new: self.teams[name] for name, new in new_names.items()}, answers=answers)
