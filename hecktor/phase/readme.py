"""README.md of a phase, from the text in `readme.md`: files to upload, settings and results of the test submissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

from contract.documents import table
from contract.editions import Algorithm
from contract.files import json_text
from contract.packages import FileEntry, file_entry
from evaluation.editions.profile import TaskProfile
from hecktor.phase.settings import PhaseSettings, platform_ranking
from rehearsal.jobs.evaluation import EVALUATION_LIMITS, EvaluationRun, value_at
from rehearsal.runners.runner import GIB
from rehearsal.submission.record import size_and_sum

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
    shown = {name: json_text(value, indent=None).strip().strip('"') or "none" for name, value in fields.items()}
    return Template(Path(__file__).with_name("readme.md").read_text(encoding="utf-8")).substitute(
        title=f"{title}, {task.algorithm.title}",
        files=_files(files),
        cases=cases,
        settings=table(["Field", "Value"], [[f"`{name}`", value] for name, value in shown.items()]),
        columns=json_text(columns).strip(),
        cpus=f"{EVALUATION_LIMITS.cpus:g}",
        official=official,
        ranking=_EXACT if platform_ranking(task.ranking.schemes[official])[2] else _NEAR,
        sockets=_sockets(task.algorithm),
        how=_ISOLATED if len(files) > 1 else _PROCESS,
        tries=_tries(settings, tries),
    )


def _files(files: Sequence[Path]) -> str:
    uses = ["ground truth" if path.name == GROUND_TRUTH else "evaluation method" for path in files]
    rows = [
        [path.name, use, *size_and_sum(FileEntry(**file_entry(path)))] for path, use in zip(files, uses, strict=True)
    ]
    return table(["File", "Upload as the phase's", "Size", "sha256"], rows)


def _sockets(algorithm: Algorithm) -> str:
    sockets = [
        *(("input", one) for one in algorithm.inputs.values()),
        *(("optional input", one) for one in algorithm.optional_inputs.values()),
        *(("output", answer.socket) for answer in algorithm.answers),
    ]
    rows = [[what, f"`{one.slug}`", one.title, one.kind, f"`{one.relative_path}`"] for what, one in sockets]
    return table(["Socket", "Slug", "Title", "Kind", "Path"], rows)


def _tries(settings: PhaseSettings, tries: Mapping[str, EvaluationRun]) -> str:
    paths = [settings.score_jsonpath, *(column.path for column in settings.extra_results_columns)]
    values = {path: [value_at(run.metrics, path) for run in tries.values()] for path in paths}
    rows = [[path, *("-" if one is None else f"{one:.4f}" for one in of)] for path, of in values.items()]
    outcomes = [run.outcome for run in tries.values() if run.outcome is not None]
    rows.append(["seconds", *(f"{one.seconds:.1f}" for one in outcomes)])
    rows.append(["memory, GiB", *(f"{(one.peak_memory_bytes or 0) / GIB:.2f}" for one in outcomes)])
    return table(["In metrics.json", *tries], rows)
