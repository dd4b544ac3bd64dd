"""State shared by the steps of one case: the request, the clock, the notices and the answers so far."""

from __future__ import annotations

import logging
import resource
import sys

import SimpleITK as sitk

from algorithm.case.notices import Notices
from algorithm.deadline import Deadline
from algorithm.heads.documents import Features, Head
from algorithm.heads.feature_hook import FeatureHook
from algorithm.heads.head_hook import own_heads
from algorithm.heads.values import check_head
from algorithm.network.resident import Resident
from algorithm.output import CaseOutput
from algorithm.prediction import PredictRequest, Stages
from algorithm.uncertainty.disagreement import Disagreement
from contract.editions import Answer
from contract.packages import DEFAULT_SMALLEST, SmallestLesions
from contract.processes import usable_cpus

LOGGER = logging.getLogger("hecktor")


class RunContext:
    """The request with everything that its steps share; the clock starts here."""

    def __init__(self, request: PredictRequest, resident: Resident) -> None:
        threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()  # one for each of the host's cores
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, usable_cpus()))
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
        return self.resident.smallest_lesions if self.request.uses_package else DEFAULT_SMALLEST

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
        hooked = any(not hook.is_built_in for hook in package.features)
        return hooked or any(own_heads(head) for head in package.heads.values())

    @property
    def _may_name_code(self) -> bool:
        """False if no entrant's code is named, as the manifest tells without the rest of the package."""
        return self.request.uses_package and bool(self.request.algorithm.heads) and self.resident.names_code

    def is_retried(self, problem: Exception) -> bool:
        """True for a first lack of memory: the answers are made once more before fallbacks replace them."""
        return isinstance(problem, MemoryError) and not self.out_of_memory

    def trace(self, message: str, problem: BaseException | None = None) -> None:
        """Log a warning with the trace of an exception; once, although the answers of a case are made several times."""
        if message not in self._traced:
            self._traced.add(message)
            LOGGER.warning("*** WARNING *** %s", message, exc_info=problem)


def peak_memory_mib() -> float:
    """The largest resident set of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def gpu_peak_memory_mib() -> float | None:
    """The largest memory reserved on the card by this process, in MiB; None if no card was used."""
    torch = sys.modules.get("torch")  # asking must not cost an import
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return float(torch.cuda.max_memory_reserved() / 2**20)
