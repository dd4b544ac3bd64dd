"""The state of one case, and its steps in the order of `algorithm.pipeline`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.notices import Notices
from algorithm.case.read import CT_ALONE, Case, covered_height, read_case
from algorithm.deadline import Deadline
from algorithm.heads.cube import absent_cube
from algorithm.heads.documents import Cubes, Features, Head
from algorithm.heads.feature_hook import FeatureHook, FeatureImages
from algorithm.heads.measure import clinical_features, image_features
from algorithm.heads.values import check_head
from algorithm.masks.segmentation import STAND_INS, Heads, Segmentation, Segmented, SegmentedBy
from algorithm.masks.threshold import stand_in_of
from algorithm.network.resident import Resident
from algorithm.output import CaseOutput
from algorithm.prediction import PredictRequest, Stages
from algorithm.region.localise import Region, localise
from algorithm.threads import use_chosen_threads
from contract.editions import Answer
from contract.errors import Finding, ModelPackageError
from contract.packages import DEFAULT_SMALLEST, SmallestLesions

if TYPE_CHECKING:
    from algorithm.network.windows import Pass

LOGGER = logging.getLogger("hecktor")

# Shares of the region's height: a PET that covers less is named, or left out.
COVERED_BY_PET: Final = 0.9
LEAST_COVERED_BY_PET: Final = 0.2
HEAD_OR_NECK: Final = "a head or neck in view, the head up (+z)"
WITHOUT_LANDMARK: Final = "the region is unsure"
WITH_NECK: Final = "the empty mask is kept, since a neck has physiologic uptake: look at the PET"
WITHOUT_BODY: Final = "the mask stays empty, and image features use their training medians"


class RunContext:
    """The request with everything that its steps share; the clock starts here."""

    def __init__(self, request: PredictRequest, resident: Resident) -> None:
        self.request, self.resident = request, resident
        self.deadline = Deadline(request.time_limit_s, spent_s=request.spent_s)
        self.stages, self.notices = Stages(), Notices(request.strict)
        self.output = CaseOutput(request, self.stages)
        self.has_measured = False  # features, of which answers are on disk
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

    @property
    def asks_code(self) -> bool:
        """True if an entrant's code answers or measures, which it does after all others."""
        if not (self.request.uses_package and self.request.algorithm.heads):
            return False
        return bool(self.resident.manifest.code)  # which tells even if the rest of the package cannot be read

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


def find_region(run: RunContext, case: Case) -> tuple[Case, Region]:
    """The case with the region of head and neck; a PET that covers little of its height is left out."""
    with run.stages("localise"):
        region = localise(case)
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


def by_networks(run: RunContext, case: Case, region: Region, threshold: Segmentation | None) -> Iterator[Segmentation]:
    """Segmentations of the region by the package's networks: of the first pass, and of all that fit the time.

    There is none if no pass fits, or no network sees a case without a PET: `threshold` stands, and the log says so.

    Raises:
        ModelPackageError: the package cannot be used.
        NoPassFitsError: no pass fits, and there is no `threshold`.
        StoppedError: the watchdog stopped the passes before the first one was complete.
    """
    run.deadline.check()
    resident, segmentation = run.resident, None
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
            observer = _observer(len(steps))
            try:
                given = case, region, ensemble, run.deadline, threshold, observer, run.notices
                for segmentation in passes.segment(*given):
                    if segmentation.is_first_of_several:
                        yield segmentation
            except passes.NoPassFitsError as reason:
                if threshold is None:
                    raise
                stand_in = stand_in_of(case)
                LOGGER.warning("*** FALLBACK *** no pass of the network (%s): the %s answers", reason, stand_in)
    if segmentation is None:
        return
    if case.pet is not None and threshold is not None and not segmentation.mask().any():
        _note_uptake(run, threshold)
    if not segmentation.is_first_of_several:
        yield segmentation


def _observer(planned: int) -> Callable[[Pass, npt.NDArray[np.float32]], None]:
    """Logs each pass with the seconds since the one before."""
    begun_s, done = time.monotonic(), 0

    def observe(_step: Pass, _logits: npt.NDArray[np.float32]) -> None:
        nonlocal begun_s, done
        now_s, done = time.monotonic(), done + 1
        LOGGER.info("pass %d of %d: %.1f s", done, planned, now_s - begun_s)
        begun_s = now_s

    return observe


def _note_uptake(run: RunContext, threshold: Segmentation) -> None:
    """Note that the network finds nothing where the PET threshold finds uptake, if it does."""
    if (hot := threshold.mask() > 0).any():
        volume_ml = np.count_nonzero(hot) * threshold.grid.voxel_volume_mm3 / 1000
        suv_max = 0.0 if threshold.pet is None else float(threshold.pet[hot].max())
        found = f"empty, though the PET shows {volume_ml:.1f} ml of uptake up to SUV {suv_max:.1f}"
        run.notices.note(Finding("mask", found, "a lesion", WITH_NECK))


@dataclass(frozen=True)
class Measured:
    """Features of a case for the heads; None if a fault, `fault`, left nothing to measure. `cubes` are its images."""

    features: Features | None = None
    fault: str = ""
    cubes: Cubes | None = None


def measure(run: RunContext, segmented: Segmented) -> Measured:
    """Features of lesions and patient for the heads; the first fault leaves none if all heads have a fallback.

    Features of hooks are measured only for heads that ask an entrant's code, and fitted ones not for masks of the PET
    threshold.
    """
    heads, case, segmentation = run.request.algorithm.heads, segmented.case, segmented.segmentation
    if not heads or segmented.heads is Heads.DECLARED:
        return Measured()
    clinical = clinical_features(case.patient, run.request.edition.clinical)
    if segmentation is None or segmented.by is SegmentedBy.NOTHING:
        return Measured(clinical, cubes=absent_cube)
    try:
        images = segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid, case.dose
        seen, hooked = FeatureImages(*images, clinical), dict[str, float | None]()
        for hook in run.resident.package.features if segmented.heads is Heads.ALL else ():
            if not (hook.folds and segmented.by in STAND_INS):
                with run.stages(hook.title):
                    hooked |= _hooked(run, hook, seen)
        with run.stages("measure"):
            measured = image_features(*images, run.smallest_lesions)
    except Exception as problem:
        if run.has_measured or any(answer.fallback is None for answer in heads):
            raise
        fault = f"the features cannot be measured ({type(problem).__name__})"
        run.trace(fault, problem)
        return Measured(fault=fault)
    run.has_measured = True
    return Measured({**measured, **clinical, **hooked}, cubes=seen.cubes)


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
        found = "too little memory" if isinstance(problem, MemoryError) else str(problem)
        run.notices.note(Finding(hook.title, found, action="the heads use their training medians"))
        return {}
