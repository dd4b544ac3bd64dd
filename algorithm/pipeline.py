"""The main path: read, localise, segment, measure, head, write."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from algorithm.best import BestAnswer
from algorithm.budget import Budget
from algorithm.case.notices import Notices
from algorithm.case.read import Case, reaches_into, read_case
from algorithm.heads.hpv import hpv_positive
from algorithm.heads.linear import LinearHead
from algorithm.heads.measure import clinical_features, image_features
from algorithm.heads.methods import Method
from algorithm.heads.rfs import rfs_risk
from algorithm.masks.segmentation import Segmentation
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.resident import Resident
from algorithm.region.localise import Region, localise
from algorithm.stages import Stages
from algorithm.uncertainty.disagreement import Disagreement
from algorithm.uncertainty.record import answers_over_folds, describe, write_maps, write_record
from contract import platform
from contract.editions import load_edition
from contract.errors import HecktorError, TimeLimitError
from contract.files import write_json
from contract.images.volumes import write_mask
from contract.tasks import HPV, SEGMENTATION, Task

LOGGER = logging.getLogger("hecktor")


@dataclass(frozen=True)
class Request:
    """One case to answer: which task, by which method, from where to where, on what device, in what time.

    `spent_s` of the time limit are gone already, by starting Python for instance. `most_passes` bounds the passes of
    the network where not all that fit are wanted; None is all that fit. `uncertainty_dir` is where to write how far the
    answer can be trusted (`algorithm.uncertainty.record`); None asks for nothing of it.
    """

    task: Task
    method: Method
    input_dir: Path
    output_dir: Path
    model_dir: Path
    device: str
    time_limit_s: float
    strict: bool
    spent_s: float = 0.0
    most_passes: int | None = None
    uncertainty_dir: Path | None = None


class CaseRun:
    """One case on its way from the input sockets to the output socket.

    `run` goes the whole way; `finish_early` may be called from another thread at any time.
    """

    def __init__(self, request: Request, resident: Resident) -> None:
        self.request, self.resident = request, resident
        self.budget = Budget.start(request.time_limit_s, spent_s=request.spent_s)
        self.stages = Stages(self.budget)
        self.best = BestAnswer()
        self._case: Case | None = None
        self._told = None if request.uncertainty_dir is None else Disagreement()
        self._written: tuple[Segmentation, Case, float | bool | None] | None = None

    def run(self) -> None:
        """Answer the case and write its output socket.

        Raises:
            HecktorError: input, model or output is unusable; nothing is written then.
        """
        method, notices = self.request.method, Notices(self.request.strict)
        with self.stages("read"):
            case = read_case(self.request.input_dir, notices, self.request.task.optional_inputs)
        if method.segmenter is None:
            features = clinical_features(case.patient, load_edition().clinical)
            self.best.write_once(lambda: self._write_head_answer(features, case.patient.centre))
            return
        with self.stages("localise"):
            case, region = _localised(case, notices)
        self._case = case
        self.best.offer(lambda: threshold_segmentation(case, region))
        segmentation = self._segmented(case, region)
        self.best.write_once(lambda: self._write(segmentation, case))

    def finish_early(self, reason: str) -> None:
        """Write the best answer so far; returns when it, or a better one, is written.

        Raises:
            TimeLimitError: there is no answer yet, and nothing is written.
        """
        self.best.stop.set()
        self.best.write_last(lambda: self._write_best(reason))

    def recover(self, problem: BaseException) -> None:
        """Write the best answer so far after `run` raised `problem`, whose trace goes to the log.

        Raises `problem` again where the case or the package is at fault, and where there is no answer yet.
        """
        if isinstance(problem, HecktorError) or not self.best.in_hand:
            raise problem
        LOGGER.error("a bug or a lack of memory, not the case's fault", exc_info=problem)
        problem.__traceback__ = None  # it holds on to the memory of what failed
        self.finish_early(type(problem).__name__)

    def write_uncertainty(self) -> None:
        """Write how far the answer can be trusted, where that is asked for; called once, when the answer is written.

        What there is no time for is left out. The answer stands whatever happens here; the log says what did.
        """
        folder, told, written = self.request.uncertainty_dir, self._told, self._written
        if folder is None or told is None or written is None:
            return
        told.close()
        try:
            with self.stages("uncertainty"):
                self._describe(folder, told, *written)
        except Exception as problem:
            LOGGER.warning("*** WARNING *** the uncertainty is not written whole: %s", problem, exc_info=problem)

    def _describe(
        self, folder: Path, told: Disagreement, segmentation: Segmentation, case: Case, answer: float | bool | None
    ) -> None:
        task, record = self.request.task, describe(segmentation, told)
        by_passes = record["why_not"] is None
        if by_passes and task is not SEGMENTATION:
            over_folds = answers_over_folds(
                task, self._head(), case, segmentation, told, lambda: not self.budget.overdue()
            )
            record["answer"] = {"task": task.name, "written": answer, **over_folds}
        write_record(folder, record)
        if by_passes and not self.budget.overdue():
            write_maps(folder, segmentation.grid, case.ct.geometry, told)
        elif by_passes:
            LOGGER.warning("*** WARNING *** no time for the maps of the uncertainty")

    def _segmented(self, case: Case, region: Region) -> Segmentation:
        if self.request.method.segmenter == "threshold":
            with self.stages("segment"):
                return threshold_segmentation(case, region)
        with self.resident.in_use:
            return self._by_network(case, region)

    def _by_network(self, case: Case, region: Region) -> Segmentation:
        with self.stages("load"):
            self._load()
            if self.request.task is not SEGMENTATION:
                self._head()  # a package without the head is refused now, not after the passes
        from algorithm.network.passes import planned_passes  # torch is imported only where a network runs
        from algorithm.network.segment import segment

        resident = self.resident
        passes = planned_passes(resident.package)[: self.request.most_passes]
        seen = {} if self._told is None else {"seen": self._told.add}
        with self.stages("segment"):
            return segment(case, region, passes, resident.networks, self.budget, resident.device, self.best, **seen)

    def _head(self) -> LinearHead:
        return self.resident.package.head(self.request.method.heads[self.request.task.name])

    def _load(self) -> None:
        """Load the package; a device that fails already now is left for the CPU."""
        try:
            self.resident.load()
        except (RuntimeError, MemoryError) as problem:
            from algorithm.network.devices import is_device_failure

            if not is_device_failure(problem):
                raise
            reason = (str(problem) or type(problem).__name__).splitlines()[0]
            LOGGER.warning("*** WARNING *** the network cannot be loaded (%s), going on with the CPU", reason)
            self.resident = Resident(self.request.model_dir, "cpu")
            self.resident.load()

    def _write_best(self, reason: str) -> None:
        segmentation, case = self.best.take(), self._case
        if segmentation is None or case is None:
            raise TimeLimitError(
                f"{reason}", f"no answer yet after {self.budget.elapsed_s():.1f} s, nothing is written"
            )
        LOGGER.warning(
            "*** %s *** %s: the best answer so far is written",
            "EARLY END" if segmentation.by_network else "FALLBACK",
            reason if segmentation.by_network else f"{reason}: no pass is made yet, the PET threshold answers",
        )
        self._write(segmentation, case)

    def _write(self, segmentation: Segmentation, case: Case) -> None:
        self.stages.passes(segmentation)
        if self.request.task is SEGMENTATION:
            with self.stages("restore"):
                mask = segmentation.mask_on(case.ct.geometry)
            with self.stages("write"):
                folder = self.request.task.output.path_under(self.request.output_dir)
                write_mask(folder / platform.MASK_FILE_NAME, mask, case.ct.geometry)
            self._note(segmentation, case, None)
            return
        with self.stages("measure"):
            features = image_features(
                segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid, case.dose
            )
        features |= clinical_features(case.patient, load_edition().clinical)
        answer = self._write_head_answer(features, case.patient.centre)
        self._note(segmentation, case, answer)

    def _note(self, segmentation: Segmentation, case: Case, answer: float | bool | None) -> None:
        """Keep what was written, where more is to be said of it."""
        if self._told is not None:
            self._written = segmentation, case, answer

    def _write_head_answer(self, features: dict[str, float | None], centre: str | None) -> float | bool:
        task = self.request.task
        with self.stages("head"):
            head = self._head()
            _tell_missing(task, head, features)
            answer: float | bool = (
                hpv_positive(head, features, centre) if task is HPV else rfs_risk(head, features, centre)
            )
        with self.stages("write"):
            write_json(task.output.path_under(self.request.output_dir), answer)
        return answer


def run(request: Request, resident: Resident | None = None) -> Stages:
    """Answer one case and write its output socket; the stages' times are handed back.

    Raises:
        HecktorError: input, model or output is unusable; nothing is written then.
    """
    case_run = CaseRun(request, resident or Resident(request.model_dir, request.device))
    case_run.run()
    case_run.write_uncertainty()
    return case_run.stages


def _tell_missing(task: Task, head: LinearHead, features: dict[str, float | None]) -> None:
    """One line in the log for each feature that is missing."""
    for term in head.missing(features):
        LOGGER.info("%s: %s is missing, its training median %g counts", task.name, term.feature, term.fill)


def _localised(case: Case, notices: Notices) -> tuple[Case, Region]:
    """The case with its region; a PET that ends short of the region is left out."""
    region = localise(case)
    if case.pet is None or reaches_into(case.pet.geometry, region.lower_mm, region.upper_mm):
        return case, region
    notices.warn("PET: does not reach the head and neck that the CT shows, going on with the CT alone")
    return replace(case, pet=None), region
