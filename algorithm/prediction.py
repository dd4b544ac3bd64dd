"""The end of a case: its prediction, the record of the run, and the lines about both in the log."""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.heads.structure import find_components
from algorithm.masks.segmentation import FALLBACK_MASKS, MaskSource, Segmentation, expected_dsc, write_probabilities
from algorithm.output import CaseAnswers, HeadValue, RunContext
from algorithm.request import BASELINE, PROBABILITY_FILES
from contract import labels
from contract.editions.answers import ClassValue
from contract.errors import Finding, OutputError
from contract.images.geometry import Geometry
from contract.io.files import write_json
from contract.packages import PackageIdentity

LOGGER = logging.getLogger("hecktor")
RECORD_VERSION: Final = 3
_WITHOUT_MASK: Final = (MaskSource.HEADER, MaskSource.NOTHING)


@dataclass(frozen=True)
class RunRecord:
    """The record of a case: its answers, their sources, and the time and memory that they took.

    Attributes:
        edition: Name of the edition.
        task: Name of the task.
        method: Name of the method.
        device: Devices that made the passes; None without passes.
        region: Region that was searched (`Region.as_json`); None for a method without images.
        segmented_by: Source of the segmentation; None without a segmentation.
        passes_done: Number of passes in the segmentation.
        passes_planned: Number of passes that were planned.
        answers: Risks and classes by the name of the answer; None for a mask.
        fallbacks: Names of the answers that a fallback gave.
        notices: Warnings about the case, the package and the device.
        seconds: Seconds of each finished stage.
        peak_memory_mib: Peak of the process's memory.
        gpu_peak_memory_mib: Peak of the memory on the GPU; None if no GPU was used.
        time_limit_s: Time limit; None without a time limit.
        left_s: Seconds left of the time limit; None without a time limit.
        fallback_by: Fallback of each answer of `fallbacks`: "PET threshold", "earlier mask", "empty mask", "rule",
            "training" or "declaration".
        fallback_why: Reason for each of these fallbacks.
        package: The model package; None for a method without one. A notice says if it is the shipped package.
        probabilities: Probability of the second of two classes, by the name of the answer.
        images: Sizes and spacings (x, y, z) of CT and PET; None for a PET that is not used.
        lesions: Volume and number of the lesions of each label, in the written mask or else in the segmentation.
        expected_dsc: DSC of each label that the networks' probabilities predict; empty without passes and after an
            early end.
    """

    edition: str
    task: str
    method: str
    device: str | None
    region: Mapping[str, Any] | None
    segmented_by: MaskSource | None
    passes_done: int
    passes_planned: int
    answers: Mapping[str, HeadValue | None]
    fallbacks: tuple[str, ...]
    notices: tuple[Finding, ...]
    seconds: Mapping[str, float]
    peak_memory_mib: float
    gpu_peak_memory_mib: float | None
    time_limit_s: float | None
    left_s: float | None
    fallback_by: Mapping[str, str] = field(default_factory=dict)
    fallback_why: Mapping[str, str] = field(default_factory=dict)
    package: PackageIdentity | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, Any] = field(default_factory=dict)
    lesions: Mapping[str, Any] = field(default_factory=dict)
    expected_dsc: Mapping[str, float | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain data, with its format version."""
        content = asdict(self)
        return {"format_version": RECORD_VERSION, **content, "fallbacks": list(self.fallbacks)} | {
            "notices": [asdict(notice) for notice in self.notices],
            "package": None if self.package is None else self.package.model_dump(),
        }

    def summary(self) -> str:
        """Describe in one line the package, seconds by stage, passes, memory, fallbacks, warnings and time left."""
        parts = [f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items()]
        if self.segmented_by == "network":
            parts.append(f"{self.passes_done} of {self.passes_planned} passes on {self.device}")
        elif self.segmented_by is not None:
            parts.append(f"no pass, by {self.segmented_by}")
        parts.append(f"peak memory {self.peak_memory_mib:.0f} MiB")
        if self.gpu_peak_memory_mib is not None:
            parts.append(f"on the GPU {self.gpu_peak_memory_mib:.0f} MiB")
        if self.fallbacks:
            parts.append(f"fallbacks for {' and '.join(self.fallbacks)}")
        if self.notices:
            parts.append(f"warnings: {len(self.notices)}")
        # The name of the usual method says nothing, because it uses all networks of the package.
        by = [] if self.package is None else [f"package {self.package.name}"]
        by += [f"method {self.method}"] if self.package is None or self.method != BASELINE else []
        if self.time_limit_s is not None:
            parts.append(f"{self.left_s:.1f} s of {self.time_limit_s:g} s left")
        return f"{self.task} answered by {', '.join(by)}: {', '.join(parts)}"


@dataclass(frozen=True)
class Prediction:
    """The answers of one case.

    Attributes:
        mask: Labels (0 background, 1 GTVp, 2 GTVn) on the CT's grid, uint8 in (z, y, x); None for an algorithm
            without a mask.
        geometry: The CT's grid.
        risks: Risk answers by name: higher means earlier recurrence; an answer declared as a time is in days, and
            higher means later recurrence.
        classes: Class answers by name, such as True for HPV positive.
        record: How the case was answered.
    """

    mask: npt.NDArray[np.uint8] | None
    geometry: Geometry
    risks: Mapping[str, float]
    classes: Mapping[str, float | ClassValue]
    record: RunRecord

    def to_dict(self) -> dict[str, Any]:
        """Return answers and record as plain data, except `mask`, which stays an array."""
        return {
            "mask": self.mask,
            "risks": dict(self.risks),
            "classes": dict(self.classes),
            "record": self.record.as_json(),
        }


def log_early_end(run: RunContext, answers: CaseAnswers, reason: str) -> None:
    """Log which answers are final after an early end; declared values and missing user code also give a notice."""
    segmented, segmentation = answers.segmented, answers.segmented.segmentation
    if answers.are_declared:
        what = "an empty mask and fallbacks" if segmented.by is MaskSource.HEADER else "fallbacks"
        run.notices.note(Finding("answers", reason, action=f"{what} are written"))
    elif run.awaits_user_code:
        run.notices.note(Finding("user code", reason, action="the answers without user code are kept"))
    elif segmented.by in FALLBACK_MASKS:
        LOGGER.warning("*** FALLBACK *** %s: no pass has been made yet, the %s answers", reason, segmented.by)
    elif segmentation is None or segmented.by is MaskSource.NOTHING:
        LOGGER.warning("*** EARLY END *** %s", reason)
    elif segmentation.passes_done < segmentation.passes_planned:
        LOGGER.warning("*** EARLY END *** %s: the best answer so far is written", reason)


def finish_prediction(run: RunContext, answers: CaseAnswers) -> Prediction:
    """Log the answers, write record and probabilities if they are requested, and return the prediction.

    A failure to write them is only logged.
    """
    lesions = _count_lesions(answers)
    record = _make_record(run, answers, lesions)
    segmentation = answers.segmented.segmentation
    if segmentation is not None and segmentation.postprocessed is not None:
        LOGGER.info("postprocessing: %s", segmentation.postprocessed.summary())
    for line in answers.notes:
        LOGGER.info("%s", line)
    for line in _list_fallback_lines(run, answers):
        LOGGER.warning("*** FALLBACK *** %s", line)
    _log_answers(run, record)
    _write_extra_files(run, answers, record)
    kinds = {declared.name: declared.kind for declared in run.request.algorithm.head_specs}
    return Prediction(
        answers.mask,
        answers.segmented.case.scan.geometry,
        {name: float(value) for name, value in answers.values.items() if kinds[name] == "risk"},
        {name: value for name, value in answers.values.items() if kinds[name] == "class"},
        record,
    )


def _write_extra_files(run: RunContext, answers: CaseAnswers, record: RunRecord) -> None:
    """Write the probabilities and the record if requested; a failure is only logged, since the answers are valid."""
    request, segmented = run.request, answers.segmented
    try:
        if request.record_path is not None:
            write_json(request.record_path, record.as_json())
        if request.probabilities_dir is not None and segmented.segmentation is not None:
            if segmented.by is not MaskSource.NETWORK:
                LOGGER.warning("no probabilities are written: no pass of the network was made")
            elif not run.deadline.is_stopped():
                paths = [request.probabilities_dir / name for name in PROBABILITY_FILES]
                write_probabilities(paths, segmented.segmentation, answers.geometry)
    except OutputError as problem:
        LOGGER.warning("not written next to the answers: %s", problem)


def _list_fallback_lines(run: RunContext, answers: CaseAnswers) -> Iterator[str]:
    mask = run.request.algorithm.mask_spec
    for name, fallback in answers.fallbacks.items():
        if mask is None or name != mask.name:
            what = f"{answers.values[name]!r} is written, from the {fallback.by}"
        elif fallback.by is MaskSource.EMPTY_MASK and answers.segmented.segmentation is not None:
            what = "an empty mask is written"
        else:
            continue
        yield f"{name}: {what} ({fallback.why})"


def _log_answers(run: RunContext, record: RunRecord) -> None:
    """Log the lesions, each risk with its direction, and each class."""
    if record.lesions:
        LOGGER.info(
            "lesions: %s", ", ".join(f"{name} {_describe_lesions(lesions)}" for name, lesions in record.lesions.items())
        )
    for declared in run.request.algorithm.head_specs:
        value = record.answers[declared.name]
        if declared.kind == "risk" and value is not None:
            is_time = declared.direction == "time"
            shown, when = (f"{value:z.0f} days", "later") if is_time else (f"{value:z.3g}", "earlier")
            LOGGER.info("%s: %s, higher means %s recurrence", declared.name, shown, when)
        elif value is not None:
            probability = record.probabilities.get(declared.name)
            of_second = (
                "" if probability is None else f", calibrated probability of {declared.classes[1]} {probability:.2f}"
            )
            LOGGER.info("%s: %s%s", declared.name, value, of_second)


def _describe_grid(grid: Geometry) -> dict[str, Any]:
    return {"size": list(grid.size), "spacing_mm": list(grid.spacing_mm)}


def _describe_lesions(lesions: Mapping[str, float]) -> str:
    count = lesions["count"]
    return f"{lesions['volume_ml']:.1f} ml in {count} lesion{'' if count == 1 else 's'}" if count else "none"


def _count_lesions(answers: CaseAnswers) -> dict[str, Any]:
    """Count the lesions of each label and measure their volume, in the written mask or else in the segmentation."""
    segmentation = answers.segmented.segmentation
    if answers.mask is not None:
        mask, grid = answers.mask, answers.geometry
    elif segmentation is not None:
        mask, grid = segmentation.mask(), segmentation.grid
    else:
        return {}
    boxes: list[Any] = ndimage.find_objects(mask, max(labels.FOREGROUND))
    record = {}
    for label in labels.FOREGROUND:
        box = boxes[label - 1]
        lesions = [] if box is None else find_components(mask[box] == label, grid)
        volume_ml = round(float(sum(lesion.volume_ml for lesion in lesions)), 3)
        record[labels.NAMES[label]] = {"volume_ml": volume_ml, "count": len(lesions)}
    return record


def _make_record(run: RunContext, answers: CaseAnswers, lesions: Mapping[str, Any]) -> RunRecord:
    request, segmented = run.request, answers.segmented
    network = segmented.segmentation if segmented.by is MaskSource.NETWORK else None
    return RunRecord(
        edition=request.edition.name,
        task=request.algorithm.name,
        method=request.method.name,
        device=None if network is None else network.device,
        region=None if segmented.region is None else segmented.region.as_json(),
        segmented_by=None if segmented.by in _WITHOUT_MASK else segmented.by,
        passes_done=0 if network is None else network.passes_done,
        passes_planned=0 if network is None else network.passes_planned,
        answers={declared.name: answers.values.get(declared.name) for declared in request.algorithm.answers},
        fallbacks=tuple(answers.fallbacks),
        notices=tuple(run.notices.findings),
        seconds=dict(list(run.stages.seconds.items())),
        peak_memory_mib=peak_memory_mib(),
        gpu_peak_memory_mib=gpu_peak_memory_mib(),
        time_limit_s=run.deadline.time_limit_s,
        left_s=None if run.deadline.time_limit_s is None else run.deadline.margin_s(),
        fallback_by={name: fallback.by for name, fallback in answers.fallbacks.items()},
        fallback_why={name: fallback.why for name, fallback in answers.fallbacks.items()},
        package=run.loaded.identity if request.uses_package else None,
        probabilities=answers.probabilities,
        images={
            name: None if scan is None else _describe_grid(scan.geometry) for name, scan in segmented.case.scans.items()
        },
        lesions=lesions,
        expected_dsc={} if network is None or run.deadline.is_stopped() else _calibrate_dsc(run, network),
    )


def _calibrate_dsc(run: RunContext, segmentation: Segmentation) -> dict[str, float | None]:
    """Compute the expected DSC of each label, calibrated if the package has a calibration for the label."""
    maps = run.loaded.package.manifest.expected_dsc
    expected = expected_dsc(segmentation.logits)
    return {
        label: value if value is None or label not in maps else maps[label].calibrate(value)
        for label, value in expected.items()
    }


def reset_peaks() -> None:
    """Reset the peaks of memory; if the system refuses, they stay the peaks since the start of the process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    if (cuda := _find_cuda_in_use()) is not None:
        with suppress(RuntimeError):  # a lost GPU also fails the passes, which report it
            cuda.reset_peak_memory_stats()


def peak_memory_mib() -> float:
    """Return the largest resident set of this process since `reset_peaks`, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def gpu_peak_memory_mib() -> float | None:
    """Return the largest memory reserved on the GPU since `reset_peaks`, in MiB; None without a working GPU."""
    cuda = _find_cuda_in_use()
    try:
        return None if cuda is None else float(cuda.max_memory_reserved() / 2**20)
    except RuntimeError:  # the GPU is lost, but the answers are valid
        return None


def _find_cuda_in_use() -> Any:
    """Return `torch.cuda` if a GPU is in use, else None; torch is never imported here."""
    # After an early end another thread may still be importing torch.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    return cuda if is_initialized is not None and is_initialized() else None
