"""A package from several plans: their networks together, in the order of what each adds out of fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from baseline.network.jobs import final_checkpoints
from baseline.network.planning import same_preprocessing
from baseline.network.plans import read_plan
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract import labels
from contract.errors import HecktorError
from contract.images.volumes import read_volume

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
    """The trained networks of all plans, one member for each plan and backbone.

    Raises:
        HecktorError: a network is not trained, or the plans differ in spacing or normalisation.
    """
    from baseline.network.checkpoint import read_checkpoint
    from baseline.package.members import EnsembleMember
    from baseline.package.nnunet_results import trained_plans

    members = []
    for plan in plans:
        check_fit(plan, plans[0])
        for name, paths in final_checkpoints(plan).items():
            trained = trained_plans(plan.read(plan.plans), name)
            # Plans with one architecture would share a configuration, and its folds could not be told apart.
            unique = f"{name}_{plan.name}"
            trained["configurations"] = {unique: trained["configurations"][name]}
            members.append(EnsembleMember(trained, unique, (read_checkpoint(path) for path in paths)))
    return members


def check_fit(plan: WorkFolders, first: WorkFolders) -> None:
    """Raise HecktorError unless networks of both plans take the same images, as one package requires."""
    spacings = [read_plan(one).spacing_mm for one in (plan, first)]
    if spacings[0] != spacings[1]:
        shown = [" x ".join(f"{step:g}" for step in spacing) + " mm" for spacing in spacings]
        expected = f"{shown[1]} as in {first.name}: a package has one grid, so networks of two spacings need two"
        raise HecktorError(f"plan {plan.name}", f"spacing {shown[0]}", expected)
    if not same_preprocessing(plan, first):
        raise HecktorError(f"plan {plan.name}", "another normalisation", f"that of {first.name}: a package has one")


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
            reference = read_volume(label_path(work.raw, case), np.uint8).array
            total = sum((_probabilities(plan, case.patient_id) for plan in chosen), np.zeros(1, np.float32))
            sums += [mean_dsc(total + _probabilities(plan, case.patient_id), reference) for plan in waiting]
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


def _probabilities(plan: WorkFolders, patient_id: str) -> _Float:
    """Out-of-fold probabilities of GTVp, GTVn and background, shape (3, z, y, x)."""
    with np.load(plan.probabilities(patient_id)) as stored:
        lesions = np.stack([stored["gtvp"], stored["gtvn"]]).astype(np.float32) / 255
    return np.concatenate([lesions, 1 - lesions.sum(axis=0, keepdims=True)])
