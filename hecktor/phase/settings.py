"""Settings of a phase that an organiser enters on the platform, in `phase.json`, and the page that explains them.

README.md is made from the text in `readme.md`: files to upload, settings and results of the test submissions.
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
from evaluation.editions.document import Borda, Lexicographic, MetricProfile, Scheme, list_scheme_metrics
from evaluation.editions.profile import TaskProfile
from rehearsal.jobs.evaluation import EVALUATION_LIMITS, EvaluationRun, metric_path, value_at
from rehearsal.runners.runner import GIB
from rehearsal.submission.folder import describe_api_method, size_and_sum

SETTINGS: Final = "phase.json"
GROUND_TRUTH: Final = "ground_truth.tar.gz"
_EXACT: Final = "The platform's positions are the same."
_NEAR: Final = (
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
    metrics = tuple(dict.fromkeys(list_scheme_metrics(scheme)))
    if isinstance(scheme, str):
        return "abs", metrics, True
    if isinstance(scheme, Lexicographic):
        method, metrics, is_exact = platform_ranking(scheme.parts[0])
        return method, metrics, is_exact and len(scheme.parts) == 1
    is_flat = len(metrics) == len(scheme.parts) and all(isinstance(part, str) for part in scheme.parts)
    if isinstance(scheme, Borda):
        return "avg", metrics, is_flat and len(set(scheme.weights)) <= 1
    return "med", metrics, is_flat


def readme(
    title: str,
    task: TaskProfile,
    settings: PhaseSettings,
    files: Sequence[Path],
    cases: int,
    tries: Mapping[str, EvaluationRun],
) -> str:
    """The page as Markdown, for the `files` to upload and the evaluations of the test submissions by name."""
    fields = settings.model_dump(mode="json")
    columns, official = fields.pop("extra_results_columns"), task.ranking.official
    shown = {name: format_json(value, indent=None).strip().strip('"') or "none" for name, value in fields.items()}
    return Template(Path(__file__).with_name("readme.md").read_text(encoding="utf-8")).substitute(
        title=f"{title}, {task.algorithm.title}",
        files=_files(files),
        cases=cases,
        settings=format_table(["Field", "Value"], [[f"`{name}`", value] for name, value in shown.items()]),
        columns=format_json(columns).strip(),
        cpus=f"{EVALUATION_LIMITS.cpus:g}",
        official=official,
        ranking=_EXACT if platform_ranking(task.ranking.schemes[official])[2] else _NEAR,
        sockets=_sockets(task.algorithm),
        how=_ISOLATED if len(files) > 1 else _PROCESS,
        image=_describe_image(tries) if len(files) > 1 else "",
        tries=_tries(settings, tries),
    )


def _describe_image(tries: Mapping[str, EvaluationRun]) -> str:
    """Return the bullet about the API method of the evaluation image."""
    api_method = next(run.api_method for run in tries.values())
    return f"- {describe_api_method(api_method)}\n"


def _files(files: Sequence[Path]) -> str:
    uses = ["ground truth" if path.name == GROUND_TRUTH else "evaluation method" for path in files]
    rows = [
        [path.name, use, *size_and_sum(FileEntry(**make_file_entry(path)))]
        for path, use in zip(files, uses, strict=True)
    ]
    return format_table(["File", "Upload as the phase's", "Size", "sha256"], rows)


def _sockets(algorithm: Algorithm) -> str:
    sockets = [
        *(("input", one) for one in algorithm.inputs.values()),
        *(("optional input", one) for one in algorithm.optional_inputs.values()),
        *(("output", answer.socket) for answer in algorithm.answers),
    ]
    rows = [[what, f"`{one.slug}`", one.title, one.kind, f"`{one.relative_path}`"] for what, one in sockets]
    return format_table(["Socket", "Slug", "Title", "Kind", "Path"], rows)


def _tries(settings: PhaseSettings, tries: Mapping[str, EvaluationRun]) -> str:
    paths = [settings.score_jsonpath, *(column.path for column in settings.extra_results_columns)]
    values = {path: [value_at(run.metrics, path) for run in tries.values()] for path in paths}
    rows = [[path, *("-" if one is None else f"{one:.4f}" for one in of)] for path, of in values.items()]
    outcomes = [run.outcome for run in tries.values() if run.outcome is not None]
    rows.append(["seconds", *(f"{one.seconds:.1f}" for one in outcomes)])
    rows.append(["memory, GiB", *(f"{(one.peak_memory_bytes or 0) / GIB:.2f}" for one in outcomes)])
    return format_table(["In metrics.json", *tries], rows)
