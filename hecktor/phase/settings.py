"""The fields of a phase's settings on the platform, from an edition and its evaluation profile: `phase.json`."""

from __future__ import annotations

import math
from typing import Final, Literal

from contract.documents import Document
from evaluation.editions.document import Borda, Lexicographic, MetricProfile, Scheme, metrics_of_scheme
from evaluation.editions.profile import TaskProfile
from rehearsal.jobs.evaluation import EVALUATION_LIMITS, metric_path
from rehearsal.runners.runner import GIB

SETTINGS: Final = "phase.json"
Order = Literal["asc", "desc"]
ScoringMethod = Literal["abs", "avg", "med"]


class ResultColumn(Document):
    """A column of the platform's leaderboard."""

    title: str
    path: str
    error_path: str
    order: Order
    exclude_from_ranking: bool


class PhaseSettings(Document):
    """Settings by the platform's names of the fields; times are in seconds, the period of submissions in days."""

    submission_kind: Literal["Algorithm"] = "Algorithm"
    creator_must_be_verified: bool = True
    submissions_limit_per_user_per_period: int = 1
    submission_limit_period: int = 1
    score_title: str
    score_jsonpath: str
    score_error_jsonpath: str
    score_default_sort: Order
    score_decimal_places: int = 4
    scoring_method_choice: ScoringMethod
    extra_results_columns: tuple[ResultColumn, ...]
    display_all_metrics: bool = False
    algorithm_time_limit: int
    algorithm_selectable_gpu_type_choices: tuple[str, ...] = ("", "T4")
    algorithm_maximum_settable_memory_gb: int = 32
    evaluation_time_limit: int = int(EVALUATION_LIMITS.time_limit_s)
    evaluation_requires_gpu_type: str = ""
    evaluation_requires_memory_gb: int = EVALUATION_LIMITS.memory_bytes // GIB

    @classmethod
    def of(cls, task: TaskProfile) -> PhaseSettings:
        """The settings for a task: its first deciding metric is the score, the other ranked ones are columns."""
        method, ranked, _ = platform_ranking(task.ranking.schemes[task.ranking.official])
        names = dict.fromkeys((*ranked, *task.ranking.official_metrics, *task.metrics))
        score, *others = [_column(name, task.metrics[name], is_ranked=name in ranked) for name in names]
        return cls(
            score_title=score.title,
            score_jsonpath=score.path,
            score_error_jsonpath=score.error_path,
            score_default_sort=score.order,
            scoring_method_choice=method,
            extra_results_columns=tuple(others),
            algorithm_time_limit=math.ceil(task.algorithm.time_limit_s),
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths in metrics.json that the leaderboard reads."""
        columns = [path for one in self.extra_results_columns for path in (one.path, one.error_path)]
        return (self.score_jsonpath, self.score_error_jsonpath, *columns)


def _column(name: str, metric: MetricProfile, *, is_ranked: bool) -> ResultColumn:
    path, error_path = metric_path(name), metric_path(name, "ci95_half_width")
    order: Order = "desc" if metric.higher_is_better else "asc"
    return ResultColumn(
        title=metric.title, path=path, error_path=error_path, order=order, exclude_from_ranking=not is_ranked
    )


def platform_ranking(scheme: Scheme) -> tuple[ScoringMethod, tuple[str, ...], bool]:
    """The platform's closest ranking to a scheme, its metrics, and whether both give the same order.

    The platform orders by one value, or by the mean or median rank over columns of equal weight.
    """
    metrics = tuple(dict.fromkeys(metrics_of_scheme(scheme)))
    if isinstance(scheme, str):
        return "abs", metrics, True
    if isinstance(scheme, Lexicographic):
        method, metrics, is_exact = platform_ranking(scheme.parts[0])
        return method, metrics, is_exact and len(scheme.parts) == 1
    is_flat = len(metrics) == len(scheme.parts) and all(isinstance(part, str) for part in scheme.parts)
    if isinstance(scheme, Borda):
        return "avg", metrics, is_flat and len(set(scheme.weights)) <= 1
    return "med", metrics, is_flat
