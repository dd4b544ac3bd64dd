"""The state of one case, and its steps in the order of `algorithm.pipeline`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from algorithm.case.notices import Notices
from algorithm.case.read import CT_ALONE, Case, covered_height, read_case
from algorithm.deadline import Deadline
from algorithm.heads.cube import absent_cube
from algorithm.heads.documents import Cubes, Features, Head
from algorithm.heads.feature_hook import FeatureHook, FeatureImages
from algorithm.heads.head_hook import custom_heads
from algorithm.heads.measure import clinical_features, image_features
from algorithm.heads.values import check_head
from algorithm.masks.segmentation import Segmentation, Segmented
from algorithm.network.resident import Resident
from algorithm.output import CaseOutput
from algorithm.prediction import PredictRequest, Stages
from algorithm.region.localise import Region
from algorithm.region.localise import localise as head_and_neck
from algorithm.threads import use_chosen_threads
from algorithm.uncertainty.disagreement import Disagreement
from contract.editions import Answer
from contract.errors import Finding, ModelPackageError
from contract.packages import DEFAULT_SMALLEST, SmallestLesions
from contract.processes import usable_cpus

if TYPE_CHECKING:
    from algorithm.network.windows import Pass

LOGGER = logging.getLogger("hecktor")

# Shares of the region's height: a PET that covers less is named, or left out.
COVERED_BY_PET: Final = 0.9
LEAST_COVERED_BY_PET: Final = 0.2
HEAD_OR_NECK: Final = "a head or neck in view, the head up (+z)"
WITHOUT_LANDMARK: Final = "the region is unsure"
WITH_NECK: Final = "the empty mask is kept, since a neck has physiologic uptake: look at the PET"
WITHOUT_BODY: Final = "the mask stays empty, and image features take their training medians"


class RunContext:
    """The request with everything that its steps share; the clock starts here."""

    def __init__(self, request: PredictRequest, resident: Resident) -> None:
        self.request, self.resident = request, resident
        self.deadline = Deadline(request.time_limit_s, spent_s=request.spent_s)
        self.stages, self.notices = Stages(), Notices(request.strict)
        self.output = CaseOutput(request, self.stages)
        self.disagreement = None if request.uncertainty_dir is None else Disagreement()
        self.hooked: Features = {}  # features of hooks, once they are measured
        self.out_of_memory = False
        self._traced: set[str] = set()

    @property
    def smallest_lesions(self) -> SmallestLesions:
        """Volumes below which a part of the mask is no lesion: the package's, or the defaults without one."""
        return self.resident.manifest.smallest_lesions if self.request.uses_package else DEFAULT_SMALLEST

    def head(self, answer: Answer) -> Head:
        """The head of a risk or class answer. Raises `ModelPackageError` if it is missing or cannot give the answer."""
        name = self.request.method.head_name(answer)
        head = self.resident.package.head(name)
        check_head(answer, head, name)
        return head

    def feature_hooks(self, *, by_threshold: bool) -> list[FeatureHook]:
        """The hooks that measure features of the package's heads; fitted ones not for masks of the PET threshold."""
        if by_threshold and not self._may_name_code:
            return []
        return [hook for hook in self.resident.package.features if not (by_threshold and hook.folds)]

    @property
    def calls_own_code(self) -> bool:
        """True if an entrant's code answers or measures, which may never end."""
        if not self._may_name_code:
            return False
        package = self.resident.package
        return bool(package.features) or any(custom_heads(head) for head in package.heads.values())

    @property
    def _may_name_code(self) -> bool:
        """False if no entrant's code is named, as the manifest tells without the rest of the package."""
        return self.request.uses_package and bool(self.request.algorithm.heads) and bool(self.resident.manifest.code)

    def is_retried(self, problem: Exception) -> bool:
        """True for a first lack of memory: the answers are made once more before fallbacks replace them."""
        return isinstance(problem, MemoryError) and not self.out_of_memory

    def trace(self, message: str, problem: BaseException | None = None) -> None:
        """Log a warning with the trace of an exception; once, although the answers of a case are made several times."""
        if message not in self._traced:
            self._traced.add(message)
            LOGGER.warning("%s", message, exc_info=problem)


def read(run: RunContext) -> Case:
    """Read the case; without a PET or clinical variables if it must be answered anyway. Raises `InputError`."""
    with run.stages("read"):
        request = run.request
        case = read_case(
            request.source,
            request.edition,
            request.algorithm,
            run.notices,
            tolerant=request.always_answers,
            contours=request.contours_path,
        )
    for name, scan in case.scans.items():
        LOGGER.info("%s: %s", name, "none that can be used" if scan is None else scan.geometry.describe())
    return case


def localise(run: RunContext, case: Case) -> tuple[Case, Region]:
    """The case with the region of head and neck; a PET that covers little of its height is left out."""
    with run.stages("localise"):
        region = head_and_neck(case)
        LOGGER.info("region: %s", region.summary())
        name = next(iter(case.scans))
        if region.is_empty:
            run.notices.warn(Finding(name, "neither a body nor uptake", HEAD_OR_NECK, WITHOUT_BODY))
        elif region.without_landmark:  # also a sound crop of a neck, so that strict mode does not refuse it
            run.notices.note(Finding(name, "neither a brain nor lungs", HEAD_OR_NECK, WITHOUT_LANDMARK))
        if case.pet is None or region.is_empty:
            return case, region
        covered = covered_height(case.pet.geometry, region.lower_mm, region.upper_mm)
        if covered < COVERED_BY_PET:
            found = f"covers {covered:.0%} of the height of the head and neck that the CT shows"
            enough = covered >= LEAST_COVERED_BY_PET
            run.notices.warn(Finding("PET", found, action="no uptake beyond" if enough else CT_ALONE))
            case = case if enough else replace(case, pet=None)
        return case, region


def segment(
    run: RunContext,
    case: Case,
    region: Region,
    by_threshold: Callable[[], Segmentation],
    on_first_pass: Callable[[Segmentation], None],
) -> Segmentation:
    """Segment the region by the package's networks; `by_threshold` answers if no pass of them fits the time.

    Raises:
        ModelPackageError: the package cannot be used.
        StoppedError: the watchdog stopped the passes before the first one was complete.
    """
    run.deadline.check()
    resident = run.resident
    with resident.in_use, ExitStack() as settings:
        with run.stages("load"):
            from algorithm.network import passes  # imports torch, which only a network needs
            from algorithm.network.devices import as_inference

            settings.enter_context(as_inference(resident.device, limited=run.request.limits_card))
            resident.load()
            for finding in resident.findings:
                run.notices.note(finding)
            steps = passes.planned_passes(resident.package)[: run.request.most_passes]
            ensemble = passes.Ensemble(resident.networks, resident.device, steps)
        with run.stages("segment"):
            use_chosen_threads()
            given = case, region, ensemble, run.deadline, on_first_pass, _observer(run, len(steps)), by_threshold
            return passes.segment(*given, notices=run.notices)


def _observer(run: RunContext, planned: int) -> Callable[[Pass, npt.NDArray[np.float32]], None]:
    """Logs each pass with the seconds since the one before, and adds it to the uncertainty, if that is computed."""
    begun_s, done = time.monotonic(), 0

    def observe(step: Pass, logits: npt.NDArray[np.float32]) -> None:
        nonlocal begun_s, done
        now_s, done = time.monotonic(), done + 1
        LOGGER.info("pass %d of %d: %.1f s", done, planned, now_s - begun_s)
        begun_s = now_s
        if run.disagreement is not None:
            run.disagreement.add(step, logits)

    return observe


def note_empty_mask(run: RunContext, by_threshold: Segmentation) -> None:
    """Note that the network finds nothing, with the uptake that the PET threshold finds there."""
    hot = by_threshold.mask() > 0
    volume_ml = np.count_nonzero(hot) * by_threshold.grid.voxel_volume_mm3 / 1000
    suv_max = 0.0 if by_threshold.pet is None else float(by_threshold.pet[hot].max())
    found = f"empty, though the PET shows {volume_ml:.1f} ml of uptake up to SUV {suv_max:.1f}"
    run.notices.note(Finding("mask", found, "a lesion", WITH_NECK))


@dataclass(frozen=True)
class Measured:
    """Features of a case for the heads; None if a fault, `fault`, left nothing to measure. `cubes` are its images.

    An early answer goes without entrants' code, which may never end.
    """

    features: Features | None = None
    fault: str = ""
    is_early: bool = False
    cubes: Cubes | None = None


def measure(run: RunContext, segmented: Segmented, *, is_early: bool = False) -> Measured:
    """Features of lesions and patient for the heads; a bug leaves none if all heads have a fallback.

    Features of hooks are measured only for the best answers, because they take time.
    """
    heads, case, segmentation = run.request.algorithm.heads, segmented.case, segmented.segmentation
    if not heads:
        return Measured()
    clinical = clinical_features(case.patient, run.request.edition.clinical)
    if segmentation is None or segmented.without_body:
        return Measured(clinical, is_early=is_early, cubes=absent_cube)
    try:
        images = segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid, case.dose
        seen = FeatureImages(*images, clinical)
        by_threshold = not segmented.by_network and not segmented.by_contours
        for hook in [] if is_early else run.feature_hooks(by_threshold=by_threshold):
            with run.stages(hook.title):
                run.hooked = {**run.hooked, **_hooked(run, hook, seen)}
        with run.stages("measure"):
            measured = image_features(*images, run.smallest_lesions)
            return Measured({**measured, **clinical, **run.hooked}, is_early=is_early, cubes=seen.cubes)
    except Exception as problem:
        if run.is_retried(problem) or any(answer.fallback is None for answer in heads):
            raise
        fault = f"the features cannot be measured ({type(problem).__name__})"
        run.trace(fault, problem)
        return Measured(fault=fault)


def _hooked(run: RunContext, hook: FeatureHook, images: FeatureImages) -> Features:
    """The features of a hook, measured on the CPU if the GPU fails; if that fails too, empty with a notice."""
    try:
        if not hook.folds:
            return hook.measured(images, run.deadline)
        from algorithm.network.devices import as_inference, first_line

        device = run.resident.device
        with as_inference(device, limited=run.request.limits_card):
            try:
                return hook.measured(images, run.deadline, str(device))
            except (RuntimeError, MemoryError) as problem:
                if device.type == "cpu":
                    raise
                found = f"{device} failed ({first_line(problem)})"
            run.notices.note(Finding(hook.title, found, action="going on with the CPU"))
            return hook.measured(images, run.deadline)
    except (RuntimeError, MemoryError, ModelPackageError) as problem:
        if run.is_retried(problem):
            raise
        found = "too little memory" if isinstance(problem, MemoryError) else str(problem)
        run.notices.note(Finding(hook.title, found, action="the heads take their training medians"))
        return {}


@contextmanager
def images_threads() -> Iterator[None]:
    """Let SimpleITK use as many threads as this process may use CPUs, of which it takes the host's otherwise."""
    threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, usable_cpus()))
    try:
        yield
    finally:
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(threads)
