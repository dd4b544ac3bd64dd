"""State shared by the steps of one case, and the answers that they hand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from algorithm.case.notices import Notices
from algorithm.deadline import Deadline, Termination
from algorithm.heads.documents import Features, Head
from algorithm.heads.values import check_head
from algorithm.masks.segmentation import Segmented
from algorithm.network.resident import Resident
from algorithm.prediction import HeadValue, PredictRequest
from algorithm.stages import Stages
from algorithm.uncertainty.disagreement import Disagreement
from contract.editions import Answer
from contract.images.geometry import Geometry
from contract.processes import usable_cpus

# From the mask by a rule, the training's value in the manifest, or the edition's declaration.
StandInSource = Literal["PET threshold", "empty mask", "rule", "training", "declaration"]


@dataclass(frozen=True)
class StandIn:
    """How an answer was replaced, and why."""

    by: StandInSource
    why: str


@dataclass(frozen=True)
class RestoredMask:
    """The mask on the CT's grid, None if the algorithm has none, and its stand-in if there is one."""

    segmented: Segmented
    array: npt.NDArray[np.uint8] | None
    stand_in: StandIn | None = None


class RunContext:
    """The request with everything that its steps share; the clock starts here."""

    def __init__(self, request: PredictRequest, resident: Resident, termination: Termination | None) -> None:
        threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()  # one for each of the host's cores
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(min(threads, usable_cpus()))
        self.request, self.resident = request, resident
        self.deadline = Deadline(request.time_limit_s, spent_s=request.spent_s, termination=termination)
        self.stages, self.notices = Stages(), Notices(request.strict)
        self.disagreement = None if request.uncertainty_dir is None else Disagreement()
        self.fault = ""  # why there are no features of the image, if a fault is the reason
        self.outcome: Features = {}  # the outcome network's, once it has answered
        self.ct_grid: Geometry | None = None  # for a CT that cannot be read although its header could
        self.restored: RestoredMask | None = None  # for another thread, if a later step of this one does not end

    def head(self, answer: Answer) -> Head:
        """The head of a risk or class answer. Raises `ModelPackageError` if it is missing or cannot give the answer."""
        name = self.request.method.head_name(answer)
        head = self.resident.package.head(name)
        check_head(answer, head, name)
        return head

    def is_retried(self, problem: Exception) -> bool:
        """True for a first lack of memory: the deadline frees what it can and tries the best answer once more."""
        return isinstance(problem, MemoryError) and not self.deadline.stopped()


@dataclass(frozen=True)
class CaseAnswers:
    """The answers of a case.

    `values` holds risks and classes by name, `by_head` the names of those that a head gave, and `stand_ins` the
    answers that a stand-in gave.
    """

    segmented: Segmented
    mask: npt.NDArray[np.uint8] | None
    values: Mapping[str, HeadValue]
    by_head: tuple[str, ...] = ()
    stand_ins: Mapping[str, StandIn] = field(default_factory=dict)
