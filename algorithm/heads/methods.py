"""How a task is answered: by the baseline network, or by a plain comparator.

A method is declared by how it segments (or that it does not) and by which head it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from contract.errors import HecktorError
from contract.tasks import HPV, RFS, SEGMENTATION, Task


@dataclass(frozen=True)
class Method:
    """`segmenter` names what finds the lesions, None for clinical variables alone; `heads` maps task to head."""

    name: str
    segmenter: Literal["network", "threshold"] | None
    heads: dict[str, str]
    tasks: tuple[str, ...]


METHODS: Final[dict[str, Method]] = {
    method.name: method
    for method in (
        Method(
            "baseline",
            "network",
            {RFS.name: "rfs", HPV.name: "hpv"},
            (SEGMENTATION.name, RFS.name, HPV.name),
        ),
        Method("threshold", "threshold", {}, (SEGMENTATION.name,)),
        Method("clinical", None, {RFS.name: "rfs_clinical", HPV.name: "hpv_clinical"}, (RFS.name, HPV.name)),
    )
}


def method_for(name: str, task: Task) -> Method:
    """The method called `name`. Raises `HecktorError` where it does not answer `task`."""
    method = METHODS[name]
    if task.name not in method.tasks:
        raise HecktorError(f"method {name!r} does not answer task {task.name}, expected {' or '.join(method.tasks)}")
    return method
