"""Files that a plan names: their contents, and the plans and labels made from them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baseline.cache import key_of
from baseline.network.plans import INPUTS, NetworkPlan, write_plans
from baseline.release.cases import read_cases
from baseline.work import CONFIGURATION, WorkFolders
from contract.errors import InputError
from contract.files import read_json, write_json
from contract.packages import file_entry


def digest_of_inputs(plan: NetworkPlan) -> str | None:
    """Digest of the contents of the files that the plan names; None if it names none.

    Paths and modification times do not count, so that the files may be moved or copied.

    Raises:
        InputError: a path does not exist.
    """
    contents = {name: _contents(Path(path)) for name in INPUTS if (path := getattr(plan, name)) is not None}
    return key_of((), contents) if contents else None


def _contents(path: Path) -> list[tuple[str, str]]:
    """Name and sha256 of each file in a folder, the name relative to it; of a file, without its name."""
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file()]
        return [(file.relative_to(path).as_posix(), file_entry(file)["sha256"]) for file in files]
    if not path.exists():
        raise InputError(str(path), "not found", "the file or folder that the plan names")
    return [("", file_entry(path)["sha256"])]


def write_plans_and_labels(work: WorkFolders, plan: NetworkPlan) -> None:
    """nnU-Net's plans, and with organs a mask of all labels for each patient, which nnU-Net will preprocess."""
    if plan.organs is None:
        write_plans(plan, work.plans)
        return
    from baseline.network.training.organs import read_organs, write_organ_labels

    cases = [case for case in read_cases(work) if case.mask is not None]
    organs = read_organs(Path(plan.organs), [case.patient_id for case in cases])
    plans = write_plans(plan, work.plans, organs.names)
    listed = write_organ_labels(organs, cases, work.raw, _organ_labels(work))
    dataset = with_organ_labels(read_json(work.raw / "dataset.json"), plans)
    write_json(work.preprocessed / "dataset.json", dataset | {"dataset": listed})


def forget_organ_labels(work: WorkFolders) -> None:
    """Give nnU-Net's folder the data set without organs again, which other plans and checkpoints copy."""
    if _organ_labels(work).is_dir():
        shutil.copy(work.raw / "dataset.json", work.preprocessed / "dataset.json")
        shutil.rmtree(_organ_labels(work))


def with_organ_labels(dataset: Mapping[str, Any], plans: Mapping[str, Any]) -> dict[str, Any]:
    """nnU-Net's `dataset.json` with the organs of the plans behind its labels."""
    organs = plans["configurations"][CONFIGURATION]["architecture"].get("organs", [])
    first = len(dataset["labels"])
    more = {name: first + number for number, name in enumerate(organs)}
    return {**dataset, "labels": {**dataset["labels"], **more}}


def _organ_labels(work: WorkFolders) -> Path:
    return work.plans.with_name(f"{work.plans.stem}_organ_labels")
