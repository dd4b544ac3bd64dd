"""Settings of a phase that an organiser enters on the platform, and the page that explains them.

`phase.json` contains the settings. The page README.md is made from the text in `readme.md`; it lists the files to
upload, the settings and the results of the test submissions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final, Literal

from contract.documents import Document, format_table
from contract.editions import Algorithm
from contract.io.files import format_json
from contract.packages import FileEntry, make_file_entry
from evaluation.editions.document import Borda, Lexicographic, MetricProfile, RowScheme, Scheme, list_scheme_metrics
from evaluation.editions.profile import TaskProfile
from rehearsal.jobs.evaluation import EVALUATION_LIMITS, EvaluationRun, find_value, make_metric_path
from rehearsal.runners.runner import GIB
from rehearsal.submission.folder import describe_api_method, format_size_and_sum

SETTINGS: Final = "phase.json"
GROUND_TRUTH: Final = "ground_truth.tar.gz"
_EXACT: Final = "The platform's positions are the same."
_SIMILAR: Final = (
    "The platform cannot rank this way: use `hecktor rank` on all metrics.json files for the official positions."
)
_PROCESS: Final = "No image was made. A plain process ran: user, network and read-only input were not enforced."
_ISOLATED: Final = (
    "The archive was checked as at an upload, loaded, and run with its own user, no network, read-only input, "
    f"{EVALUATION_LIMITS.memory_bytes // GIB} GiB, {EVALUATION_LIMITS.cpus:g} CPUs and "
    f"{EVALUATION_LIMITS.time_limit_s:g} s."
)
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
    """Settings named like the platform's fields; times are in seconds, the period of submissions in days."""

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
    def from_task(cls, task: TaskProfile) -> PhaseSettings:
        """Choose the settings for a task: its first deciding metric is the score, its other metrics are columns."""
        method, ranked, _ = find_platform_ranking(task.ranking.schemes[task.ranking.official])
        names = dict.fromkeys((*ranked, *task.ranking.official_metrics, *task.metrics))
        score, *extra_columns = [_make_column(name, task.metrics[name], is_ranked=name in ranked) for name in names]
        return cls(
            score_title=score.title,
            score_jsonpath=score.path,
            score_error_jsonpath=score.error_path,
            score_default_sort=score.order,
            scoring_method_choice=method,
            extra_results_columns=tuple(extra_columns),
            algorithm_time_limit=math.ceil(task.algorithm.time_limit_s),
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths in metrics.json that the leaderboard reads."""
        column_paths = [path for column in self.extra_results_columns for path in (column.path, column.error_path)]
        return (self.score_jsonpath, self.score_error_jsonpath, *column_paths)


def _make_column(name: str, metric: MetricProfile, *, is_ranked: bool) -> ResultColumn:
    return ResultColumn(
        title=metric.title,
        path=make_metric_path(name),
        error_path=make_metric_path(name, "ci95_half_width"),
        order="desc" if metric.higher_is_better else "asc",
        exclude_from_ranking=not is_ranked,
    )


def find_platform_ranking(scheme: Scheme) -> tuple[ScoringMethod, tuple[str, ...], bool]:
    """Find the platform's ranking that is closest to a scheme.

    The platform orders by one value, or by the mean or median rank over columns of equal weight.

    Returns:
        The platform's method, its metrics, and whether it gives the same order as the scheme.
    """
    metrics = tuple(dict.fromkeys(list_scheme_metrics(scheme)))
    if isinstance(scheme, str):
        return "abs", metrics, True
    if isinstance(scheme, RowScheme):
        return "abs", metrics, False
    if isinstance(scheme, Lexicographic):
        method, metrics, is_exact = find_platform_ranking(scheme.parts[0])
        return method, metrics, is_exact and len(scheme.parts) == 1
    is_flat = len(metrics) == len(scheme.parts) and all(isinstance(part, str) for part in scheme.parts)
    if isinstance(scheme, Borda):
        return "avg", metrics, is_flat and len(set(scheme.weights)) <= 1
    return "med", metrics, is_flat


def format_readme(
    title: str, task: TaskProfile, files: Sequence[Path], case_count: int, runs: Mapping[str, EvaluationRun]
) -> str:
    """Format the page as Markdown.

    Args:
        title: Title of the edition.
        task: The task of the phase.
        files: Files to upload.
        case_count: Number of cases of the reference.
        runs: Evaluations of the test submissions by name.
    """
    settings = PhaseSettings.from_task(task)
    fields = settings.model_dump(mode="json")
    columns = fields.pop("extra_results_columns")
    official = task.ranking.official
    texts = {name: format_json(value, indent=None).strip().strip('"') or "none" for name, value in fields.items()}
    return Template(Path(__file__).with_name("readme.md").read_text(encoding="utf-8")).substitute(
        title=f"{title}, {task.algorithm.title}",
        files=_format_files(files),
        cases=case_count,
        settings=format_table(["Field", "Value"], [[f"`{name}`", value] for name, value in texts.items()]),
        columns=format_json(columns).strip(),
        cpus=f"{EVALUATION_LIMITS.cpus:g}",
        official=official,
        ranking=_EXACT if find_platform_ranking(task.ranking.schemes[official])[2] else _SIMILAR,
        sockets=_format_sockets(task.algorithm),
        how=_ISOLATED if len(files) > 1 else _PROCESS,
        image=_format_api_method(runs) if len(files) > 1 else "",
        tries=_format_results(settings, runs),
    )


def _format_api_method(runs: Mapping[str, EvaluationRun]) -> str:
    """Format the bullet about the API method of the evaluation image."""
    api_method = next(run.api_method for run in runs.values())
    return f"- {describe_api_method(api_method)}\n"


def _format_files(files: Sequence[Path]) -> str:
    uses = ["ground truth" if path.name == GROUND_TRUTH else "evaluation method" for path in files]
    rows = [
        [path.name, use, *format_size_and_sum(FileEntry(**make_file_entry(path)))]
        for path, use in zip(files, uses, strict=True)
    ]
    return format_table(["File", "Upload as the phase's", "Size", "sha256"], rows)


def _format_sockets(algorithm: Algorithm) -> str:
    sockets = [
        *(("input", socket) for socket in algorithm.inputs.values()),
        *(("optional input", socket) for socket in algorithm.optional_inputs.values()),
        *(("output", answer.socket) for answer in algorithm.answers),
    ]
    rows = [
        [role, f"`{socket.slug}`", socket.title, socket.kind, f"`{socket.relative_path}`"] for role, socket in sockets
    ]
    return format_table(["Socket", "Slug", "Title", "Kind", "Path"], rows)


def _format_results(settings: PhaseSettings, runs: Mapping[str, EvaluationRun]) -> str:
    """Format a table with the scores, seconds and memory of the test submissions."""
    rows = []
    for path in (settings.score_jsonpath, *(column.path for column in settings.extra_results_columns)):
        values = [find_value(run.metrics, path) for run in runs.values()]
        rows.append([path, *("-" if value is None else f"{value:.4f}" for value in values)])
    outcomes = [run.outcome for run in runs.values() if run.outcome is not None]
    rows.append(["seconds", *(f"{outcome.seconds:.1f}" for outcome in outcomes)])
    rows.append(["memory, GiB", *(f"{(outcome.peak_memory_bytes or 0) / GIB:.2f}" for outcome in outcomes)])
    return format_table(["In metrics.json", *runs], rows)
