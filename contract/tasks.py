"""The challenge's tasks, declared once; algorithm, evaluation and rehearsal read them here.

The next edition's task is one more `Task`, a head in `algorithm` and a profile in `evaluation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from contract import sockets
from contract.editions import Socket
from contract.errors import HecktorError


@dataclass(frozen=True)
class Task:
    """One task of the challenge.

    `metrics` names the evaluation's ranked metrics, the first being the headline. `time_limit_s` is the
    platform's limit for one case.
    """

    name: str
    number: int
    title: str
    inputs: tuple[Socket, ...]
    optional_inputs: tuple[Socket, ...]
    output: Socket
    time_limit_s: float
    metrics: tuple[str, ...]

    @property
    def aliases(self) -> tuple[str, ...]:
        """Every spelling by which a command line may call this task."""
        return (self.name, str(self.number))


SEGMENTATION: Final = Task(
    name="segmentation",
    number=1,
    title="GTVp and GTVn segmentation",
    inputs=(sockets.CT, sockets.PET, sockets.EHR),
    optional_inputs=(),
    output=sockets.MASK,
    time_limit_s=600.0,
    metrics=("gtvp_dsc_mean", "gtvn_dsc_agg", "gtvn_f1_agg"),
)
RFS: Final = Task(
    name="rfs",
    number=2,
    title="Recurrence-free survival",
    inputs=(sockets.CT, sockets.PET, sockets.EHR),
    optional_inputs=(sockets.CT_PLANNING, sockets.RT_DOSE),
    output=sockets.RFS_RISK,
    time_limit_s=900.0,
    metrics=("c_index",),
)
HPV: Final = Task(
    name="hpv",
    number=3,
    title="HPV status",
    inputs=(sockets.CT, sockets.PET, sockets.EHR),
    optional_inputs=(),
    output=sockets.HPV_STATUS,
    time_limit_s=600.0,
    metrics=("balanced_accuracy", "specificity"),
)

TASKS: Final = (SEGMENTATION, RFS, HPV)
TASK_CHOICES: Final = tuple(alias for task in TASKS for alias in task.aliases)


def task_named(name: str) -> Task:
    """The task called `name` (`segmentation`, `rfs`, `hpv`, or 1, 2, 3).

    Raises:
        HecktorError: no task has that name.
    """
    wanted = name.strip().lower()
    for task in TASKS:
        if wanted in task.aliases:
            return task
    raise HecktorError(f"unknown task {name!r}", f"expected one of {', '.join(TASK_CHOICES)}")
