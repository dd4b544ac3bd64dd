"""The main path: read, localise, segment, measure, head, write."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from algorithm.budget import Budget
from algorithm.hpv import hpv_positive
from algorithm.localise import Region, localise
from algorithm.measure import clinical_features, image_features
from algorithm.methods import Method
from algorithm.model_package import ModelPackage, load_package
from algorithm.notices import Notices
from algorithm.read import Case, reaches_into, read_case
from algorithm.rfs import rfs_risk
from algorithm.segmentation import Segmentation
from algorithm.stages import Stages
from algorithm.threshold import threshold_segmentation
from contract import sockets
from contract.files import write_json
from contract.images import write_mask
from contract.tasks import HPV, SEGMENTATION, Task

LOGGER = logging.getLogger("hecktor")


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
    budget, stages, notices = Budget.start(request.time_limit_s), Stages(), Notices(request.strict)
    with stages("read"):
        case = read_case(request.input_dir, notices)
    if request.method.segmenter == "threshold":
        with stages("localise"):
            case, region = _localised(case, notices)
        with stages("segment"):
            segmentation = threshold_segmentation(case, region)
        _write_mask(request, segmentation, case, stages)
        return stages
    with stages("load"):
        package = load_package(request.model_dir)
    if request.method.segmenter is None:
        _write_head_answer(request, package, clinical_features(case.patient), stages)
        return stages
    with stages("localise"):
        case, region = _localised(case, notices)
    with stages("segment"):
        segmentation = _network_segmentation(request, case, region, package, budget)
    stages.passes_done, stages.passes_planned = segmentation.passes_done, segmentation.passes_planned
    if request.task is SEGMENTATION:
        _write_mask(request, segmentation, case, stages)
        return stages
    with stages("measure"):
        features = image_features(segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid)
    _write_head_answer(request, package, features | clinical_features(case.patient), stages)
    return stages


def _localised(case: Case, notices: Notices) -> tuple[Case, Region]:
    """The case with its region; a PET that ends short of the region is left out."""
    region = localise(case)
    if case.pet is None or reaches_into(case.pet.geometry, region.lower_mm, region.upper_mm):
        return case, region
    notices.warn("PET: does not reach the head and neck that the CT shows, going on with the CT alone")
    return replace(case, pet=None), region


def _network_segmentation(
    request: Request, case: Case, region: Region, package: ModelPackage, budget: Budget
) -> Segmentation:
    from algorithm.segment import device_named, segment  # torch is imported only where a network runs

    LOGGER.info("model package: %s", package.name)
    return segment(case, region, package, budget, device_named(request.device))


def _write_mask(request: Request, segmentation: Segmentation, case: Case, stages: Stages) -> None:
    with stages("restore"):
        mask = segmentation.mask_on(case.ct.geometry)
    with stages("write"):
        folder = request.task.output.path_under(request.output_dir)
        write_mask(folder / sockets.MASK_FILE_NAME, mask, case.ct.geometry)


def _write_head_answer(
    request: Request, package: ModelPackage, features: dict[str, float | None], stages: Stages
) -> None:
    with stages("head"):
        head = package.head(request.method.heads[request.task.name])
        for term in head.missing(features):
            LOGGER.info("%s: %s is missing, its training median %g counts", request.task.name, term.feature, term.fill)
        answer: float | bool = hpv_positive(head, features) if request.task is HPV else rfs_risk(head, features)
    with stages("write"):
        write_json(request.task.output.path_under(request.output_dir), answer)
