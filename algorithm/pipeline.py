"""The main path: read, localise, segment, measure, head, write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from algorithm.budget import Budget
from algorithm.hpv import hpv_positive
from algorithm.localise import Region, localise
from algorithm.measure import clinical_features, image_features
from algorithm.methods import Method
from algorithm.model_package import ModelPackage, load_package
from algorithm.notices import Notices
from algorithm.read import Case, read_case
from algorithm.rfs import rfs_risk
from algorithm.segmentation import Segmentation
from algorithm.stages import Stages
from algorithm.threshold import threshold_segmentation
from contract import sockets
from contract.files import write_json
from contract.images import write_mask
from contract.tasks import HPV, SEGMENTATION, Task


@dataclass(frozen=True)
class Request:
    """One case to answer: which task, by which method, from where to where, on what device, in what time."""

    task: Task
    method: Method
    input_dir: Path
    output_dir: Path
    model_dir: Path
    device: str
    time_limit_s: float
    strict: bool


def run(request: Request) -> Stages:
    """Answer one case and write its output socket; the stages' times are handed back.

    Raises:
        HecktorError: input, model or output is unusable; nothing is written then.
    """
    budget, stages = Budget.start(request.time_limit_s), Stages()
    with stages("read"):
        case = read_case(request.input_dir, Notices(request.strict))
    if request.method.segmenter is None:
        with stages("head"):
            _write_head_answer(request, load_package(request.model_dir), clinical_features(case.patient))
        return stages
    with stages("localise"):
        region = localise(case)
    with stages("segment"):
        segmentation = _segment(request, case, region, budget)
    stages.passes_done, stages.passes_planned = segmentation.passes_done, segmentation.passes_planned
    if request.task is SEGMENTATION:
        with stages("restore"):
            mask = segmentation.mask_on(case.ct.geometry)
        with stages("write"):
            folder = request.task.output.path_under(request.output_dir)
            write_mask(folder / sockets.MASK_FILE_NAME, mask, case.ct.geometry)
        return stages
    with stages("measure"):
        features = image_features(segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid)
    with stages("head"):
        _write_head_answer(request, load_package(request.model_dir), features | clinical_features(case.patient))
    return stages


def _segment(request: Request, case: Case, region: Region, budget: Budget) -> Segmentation:
    if request.method.segmenter == "threshold":
        return threshold_segmentation(case, region)
    from algorithm.segment import device_named, segment  # torch is imported only where a network runs

    return segment(case, region, load_package(request.model_dir), budget, device_named(request.device))


def _write_head_answer(request: Request, package: ModelPackage, features: dict[str, float | None]) -> None:
    head = package.head(request.method.heads[request.task.name])
    answer: float | bool = hpv_positive(head, features) if request.task is HPV else rfs_risk(head, features)
    write_json(request.task.output.path_under(request.output_dir), answer)
