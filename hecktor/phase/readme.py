"""README.md of a phase: the files to upload, the settings to copy, and the results of the tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract.documents import bullets, section, table
from contract.files import json_text
from contract.packages import file_entry
from evaluation.editions.task import TaskProfile
from hecktor.phase.settings import SETTINGS, PhaseSettings, platform_ranking
from rehearsal.platform import EVALUATION_LIMITS, EvaluationRun, value_at
from rehearsal.runners.runner import GIB
from rehearsal.submission.folder import REHEARSAL
from rehearsal.submission.record import size_and_sum

GROUND_TRUTH: Final = "ground_truth.tar.gz"
PERFECT, EMPTY, GIVEN = "perfect", "empty", "predictions"
_ABOUT: Final = {
    PERFECT: "the reference as answers; risks in the order of the follow-up.",
    EMPTY: "an empty mask, the same risk and the first class for every case.",
    GIVEN: "the files of `--predictions`.",
}
_CPUS: Final = f"CPUs follow from memory: {EVALUATION_LIMITS.cpus:g} for the evaluation; for algorithms 4 (32 GB: 8)."
_HIDDEN: Final = "`display_all_metrics` is off since metrics.json holds each patient's reference; organisers see it."
_FEW: Final = "Submissions are limited because each one reveals a part of the reference."
_REFUSED: Final = (
    "The platform refuses an image that it has: if only the reference is new, upload only the ground truth. "
    "`hecktor phase --revision TEXT` makes a new image of unchanged content."
)
_NAMES: Final = "Name each CT's file in the archive after its case, `CASE.mha`: the evaluation matches cases by it."
_INTERFACES: Final = (
    "An archive item belongs to the interface with exactly its inputs: define one interface without the optional ones "
    "and one for each combination of them that occurs."
)
_ISOLATED: Final = (
    "The archive was checked as at an upload, loaded, and run with its own user, no network, read-only input, "
    f"{EVALUATION_LIMITS.memory_bytes // GIB} GiB, {EVALUATION_LIMITS.cpus:g} CPUs and "
    f"{EVALUATION_LIMITS.time_limit_s:g} s."
)
_PROCESS: Final = "The evaluation ran as a plain process: user, network and read-only input were not enforced."


@dataclass(frozen=True)
class Phase:
    """The files of a phase to upload, and what the tries gave by name."""

    title: str
    task: TaskProfile
    settings: PhaseSettings
    files: Sequence[Path]
    cases: int
    tries: Mapping[str, EvaluationRun]

    @property
    def has_image(self) -> bool:
        return len(self.files) > 1

    def readme(self) -> str:
        """The page as Markdown."""
        title = f"Files of a phase: {self.title}, {self.task.algorithm.title}"
        secret = f"The reference has {self.cases} cases. **Keep this folder secret**: it holds the reference."
        image = _REFUSED if self.has_image else "No image was made: upload one, or go on with the one on the platform."
        fields = self.settings.model_dump(mode="json")
        columns = f"```json\n{json_text(fields.pop('extra_results_columns')).strip()}\n```"
        rows = [
            [f"`{name}`", json_text(value, indent=None).strip().strip('"') or "none"] for name, value in fields.items()
        ]
        copied = f"The same is in `{SETTINGS}`. `extra_results_columns`:"
        sections = [
            section(1, title, self._files(), bullets([secret, image])),
            section(
                2, "Settings of the phase", table(["Field", "Value"], rows), copied, columns, bullets(self._notes())
            ),
            section(2, "Algorithm interface", self._sockets(), bullets(self._interfaces())),
            section(2, "Tries", _ISOLATED if self.has_image else _PROCESS, self._tries(), bullets(self._about())),
        ]
        return "\n\n".join(sections) + "\n"

    def _files(self) -> str:
        method = "evaluation method of the phase"
        use = {path.name: "ground truth of the phase" if path.name == GROUND_TRUTH else method for path in self.files}
        rows = [[path.name, use[path.name], *size_and_sum(file_entry(path))] for path in self.files]
        return table(["File", "Upload as", "Size", "sha256"], rows)

    def _notes(self) -> list[str]:
        official = self.task.ranking.official
        inexact = (
            f"The platform cannot rank by `{official}`: its positions are near. `hecktor rank` gives the official ones "
            "from the metrics.json of all teams."
        )
        return [_CPUS, _HIDDEN, _FEW, *([] if platform_ranking(self.task.ranking.schemes[official])[2] else [inexact])]

    def _sockets(self) -> str:
        algorithm = self.task.algorithm
        sockets = [
            *(("input", one) for one in algorithm.inputs.values()),
            *(("optional input", one) for one in algorithm.optional_inputs.values()),
            *(("output", answer.socket) for answer in algorithm.answers),
        ]
        rows = [[what, f"`{one.slug}`", one.title, one.kind, f"`{one.relative_path}`"] for what, one in sockets]
        return table(["Socket", "Slug", "Title", "Kind", "Path"], rows)

    def _interfaces(self) -> list[str]:
        return [_NAMES, *([_INTERFACES] if self.task.algorithm.optional_inputs else [])]

    def _tries(self) -> str:
        paths = [self.settings.score_jsonpath, *(column.path for column in self.settings.extra_results_columns)]
        values = {path: [value_at(run.metrics, path) for run in self.tries.values()] for path in paths}
        rows = [[path, *("-" if one is None else f"{one:.4f}" for one in of)] for path, of in values.items()]
        outcomes = [run.outcome for run in self.tries.values() if run.outcome is not None]
        rows.append(["seconds", *(f"{one.seconds:.1f}" for one in outcomes)])
        memory = [one.peak_memory_bytes for one in outcomes]
        rows.append(["memory, GiB", *("-" if one is None else f"{one / GIB:.2f}" for one in memory)])
        return table(["In metrics.json", *self.tries], rows)

    def _about(self) -> list[str]:
        where = f"`{REHEARSAL}/NAME/` holds each: `metrics.json`, and in `input/` `predictions.json` with its files."
        return [where, *(f"**{name}**: {_ABOUT[name]}" for name in self.tries)]
