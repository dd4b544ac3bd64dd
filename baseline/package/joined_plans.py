"""A package from several plans: their networks together, in the order of what each adds out of fold.

Plans of different spacings are compared on the prepared images with the smallest voxels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from algorithm.region.grids import resample
from baseline.network.jobs import final_checkpoints
from baseline.network.plans import read_plan
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_header, read_volume

if TYPE_CHECKING:  # imports torch
    from baseline.package.members import EnsembleMember

_Float = npt.NDArray[np.float32]


def described_plans(work: WorkFolders) -> dict[str, Any]:
    """Options of the plan, or of each plan of an ensemble by its name, for the manifest."""
    plans = {member.name: read_plan(member).record() for member in work.members}
    return {"plans": plans} if work.is_ensemble else {"plan": plans[work.name]}


def shared_mirror_axes(work: WorkFolders) -> tuple[int, ...]:
    """The mirror axes with which every plan was trained."""
    axes = [read_plan(member).mirror_axes for member in work.members]
    return tuple(axis for axis in axes[0] if all(axis in others for others in axes))


def ensemble_members(plans: Sequence[WorkFolders]) -> list[EnsembleMember]:
    """The trained networks of all plans, one member for each plan and backbone."""
    from baseline.network.checkpoint import read_checkpoint
    from baseline.package.members import EnsembleMember
    from baseline.package.nnunet_results import trained_plans

    members = []
    for plan in plans:
        for name, paths in final_checkpoints(plan).items():
            trained = trained_plans(plan.read(plan.plans), name)
            # Plans with one architecture would share a configuration, and its folds could not be told apart.
            unique = f"{name}_{plan.name}"
            trained["configurations"] = {unique: trained["configurations"][name]}
            members.append(EnsembleMember(trained, unique, (read_checkpoint(path) for path in paths)))
    return members


def order_of_plans(work: WorkFolders) -> list[WorkFolders]:
    """The plans of an ensemble in the order in which their networks run.

    The first plan has the best out-of-fold masks. Each next one is the plan whose probabilities raise the score of
    the average most. The score is the mean DSC of GTVp and GTVn on the prepared images, over all patients with a
    reference. Plans without stored probabilities keep the order of their names.
    """
    from baseline.release.data_set import label_path  # imports torch

    cases = [case for case in read_cases(work) if case.mask is not None]
    ids = [case.patient_id for case in cases]
    if not cases or not all(plan.probabilities(name).is_file() for plan in work.members for name in ids):
        return list(work.members)
    chosen: list[WorkFolders] = []
    while len(chosen) < len(work.members):
        waiting = [plan for plan in work.members if plan not in chosen]
        sums = np.zeros(len(waiting))
        for case in cases:
            reference = read_volume(label_path(work.raw, case), np.uint8)
            grids = [read_header(label_path(plan.raw, case)).geometry for plan in work.members]
            of_plan = {
                plan: _probabilities(plan, case.patient_id, grid, reference.geometry)
                for plan, grid in zip(work.members, grids, strict=True)
            }
            total = sum((of_plan[plan] for plan in chosen), np.zeros(1, np.float32))
            sums += [mean_dsc(total + of_plan[plan], reference.array) for plan in waiting]
        chosen.append(waiting[int(np.argmax(sums))])
    return chosen


def mean_dsc(probabilities: _Float, reference: npt.NDArray[np.uint8]) -> float:
    """Mean DSC of the labels that the mask or the reference contains; 1 if neither contains any.

    `probabilities`, shape (3, z, y, x), are of GTVp, GTVn and background, or sums of these over networks.
    """
    mask = np.array([labels.GTVP, labels.GTVN, labels.BACKGROUND], dtype=np.uint8)[np.argmax(probabilities, axis=0)]
    scores = list(_dsc_of_labels(mask, reference))
    return float(np.mean(scores)) if scores else 1.0


def _dsc_of_labels(mask: npt.NDArray[np.uint8], reference: npt.NDArray[np.uint8]) -> Iterator[float]:
    for label in labels.FOREGROUND:
        both = int((mask == label).sum() + (reference == label).sum())
        if both:
            yield 2 * int(((mask == label) & (reference == label)).sum()) / both


def _probabilities(plan: WorkFolders, patient_id: str, grid: Geometry, target: Geometry) -> _Float:
    """Out-of-fold probabilities of GTVp, GTVn and background at the voxels of `target`, shape (3, z, y, x)."""
    with np.load(plan.probabilities(patient_id)) as stored:
        lesions = np.stack([stored["gtvp"], stored["gtvn"]]).astype(np.float32) / 255
    if grid != target:
        lesions = np.stack([resample(Volume(one, grid), target, 0.0) for one in lesions])
    return np.concatenate([lesions, 1 - lesions.sum(axis=0, keepdims=True)])
