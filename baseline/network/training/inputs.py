"""Files that a plan names: their digest, and the plans and labels made from them."""

from __future__ import annotations

from pathlib import Path

from baseline.cache import key_of
from baseline.network.plans import NetworkPlan, write_plans
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.errors import InputError
from contract.files import read_json, write_json


def digest_of_inputs(plan: NetworkPlan) -> str | None:
    """Digest of the files that the plan names by their paths; None if it names none.

    Raises:
        InputError: a path does not exist.
    """
    paths = [Path(path) for path in (plan.starting_weights, plan.organs) if path is not None]
    for path in paths:
        if not path.exists():
            raise InputError(str(path), "not found", "the file or folder that the plan names")
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return key_of([file for file in files if not file.is_dir()], {}) if paths else None


def write_plans_and_labels(work: WorkFolders, plan: NetworkPlan) -> None:
    """nnU-Net's plans, and with organs the masks and names of all labels."""
    if plan.organs is None:
        write_plans(plan, work.plans)
        return
    from baseline.network.training.organs import read_organs, write_organ_labels

    cases = [case for case in read_cases(work) if case.mask is not None]
    organs = read_organs(Path(plan.organs), [case.patient_id for case in cases])
    write_plans(plan, work.plans, organs.names)
    write_organ_labels(organs, cases, work.raw, work.preprocessed)


def forget_paths(preprocessed: Path) -> None:
    """Remove the paths of the images from `dataset.json`, which checkpoints copy, once all is preprocessed."""
    content = read_json(preprocessed / "dataset.json")
    if content.pop("dataset", None) is not None:
        write_json(preprocessed / "dataset.json", content)
