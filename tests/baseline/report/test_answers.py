"""Held-out answers as plain files: two trainings are compared by the evaluation, with figures that follow by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.cli import main
from baseline.fit import compute_heads_key
from baseline.network.out_of_fold import write_probabilities
from baseline.release.cases import ReleaseCase, image_path, read_cases, write_cases
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask, write_volume
from contract.io.files import read_json, write_json
from contract.patient import Patient
from evaluation import evaluate, rank
from tests.baseline.prepared import cross_validation_json, outcomes
from tests.baseline.report.records import GRID, blocks

PATIENTS = ("A-1", "A-2", "B-1", "B-2")
DAYS = (100.0, 200.0, 300.0, 400.0)
HPV = (True, False, True, False)


def answers(risks: tuple[float, ...], hpv: tuple[bool, ...] | None) -> dict[str, Any]:
    """`cross_validation.json` with nested answers; everyone relapses."""
    people = [{"id": name, "centre": name[0]} for name in PATIENTS]
    rfs = [{**row, "rfs_days": days, "relapse": True} for row, days in zip(people, DAYS, strict=True)]
    status: dict[str, Any] = {"why_not": "too few"}
    if hpv is not None:
        probability = [0.9 if one else 0.1 for one in hpv]
        status = {"positive": list(hpv), "probability": probability, "balanced_accuracy": 1.0}
    rfs_record = {"patients": rfs, "nested": {"score": list(risks), "c_index": 1.0}}
    return cross_validation_json({"rfs": rfs_record, "hpv": {"patients": people, "nested": status}})


def write_heads(work: WorkFolders, content: dict[str, Any]) -> None:
    """Write the out-of-fold answers of heads that were fitted on the present masks."""
    write_json(work.heads_json, {})
    made_from = compute_heads_key(work, read_cases(work))
    write_json(work.cross_validation_json, content | {"made_from": made_from})


def training(root: Path, shift: int, risks: tuple[float, ...]) -> WorkFolders:
    """A training whose mask of the first patient has the GTVp `shift` voxels off, and whose heads gave `risks`."""
    work, cases = WorkFolders(root / "work"), []
    for place, name in enumerate(PATIENTS):
        ct, pet, mask = (root / f"{name}{role}.nii.gz" for role in ("__CT", "__PT", ""))
        write_volume(ct, Volume(np.full(GRID.array_shape, 40, np.int16), GRID))
        write_volume(pet, Volume(blocks().astype(np.float32) * 4, GRID))
        write_mask(mask, blocks(), GRID)
        write_mask(work.mask(name), blocks(shift * (place == 0)), GRID)
        known = outcomes(relapse=True, days=DAYS[place], hpv=HPV[place])
        cases.append(ReleaseCase(name, name[0], ct, pet, mask, Patient(), known))
    write_cases(work, cases)
    centres = {"A": list(PATIENTS[:2]), "B": list(PATIENTS[2:])}
    folds = [list(PATIENTS[::2]), list(PATIENTS[1::2])]
    write_json(work.splits_json, {"format_version": 1, "seed": 0, "folds": folds, "centres": centres})
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [2.0, 2.0, 3.0]}, "data": "images"})
    write_json(work.features_json, {})
    write_heads(work, answers(risks, HPV))
    return work


def answers_of(work: WorkFolders, output: Path, *more: str) -> Path:
    assert main(["answers", "--work", str(work.root), "--output", str(output), *more]) == 0
    return output


def test_two_trainings_are_evaluated_and_ranked(tmp_path: Path) -> None:
    """GTVp: one training has DSC 32/64 in one of four patients, mean 0.875; the other has 1, 0.125 more.

    The risks of the first fall with time, C-index 1, and those of the other rise, 0. The HPV answers are right.
    """
    one = answers_of(training(tmp_path / "a", 2, (4.0, 3.0, 2.0, 1.0)), tmp_path / "one")
    other = answers_of(training(tmp_path / "b", 0, (1.0, 2.0, 3.0, 4.0)), tmp_path / "other")
    paths = {}
    for task, predictions in ((1, "heads"), (2, "heads/answers.csv"), (3, "heads/answers.csv")):
        for team in (one, other):
            folder = tmp_path / f"task{task}" / team.name
            evaluate(one / "reference", task=str(task), predictions=team / predictions, output=folder, workers=0)
            paths[task, team.name] = folder / "metrics.json"
    value = {key: read_json(path)["aggregates"] for key, path in paths.items()}
    assert [value[1, name]["gtvp_dsc_mean"]["value"] for name in ("one", "other")] == [0.875, 1.0]
    assert [value[2, name]["c_index"]["value"] for name in ("one", "other")] == [1.0, 0.0]
    assert [value[3, name]["balanced_accuracy"]["value"] for name in ("one", "other")] == [1.0, 1.0]
    centres = read_json(paths[1, "one"])["centres"]
    assert {name: of["aggregates"]["gtvp_dsc_mean"]["value"] for name, of in centres.items()} == {"A": 0.75, "B": 1.0}
    board = rank({name: paths[1, name] for name in ("one", "other")}, task="1").to_dict()
    (pair,) = (p for p in board["comparisons"]["gtvp_dsc_mean"]["pairs"] if p["team"] == "other")
    assert pair["difference"] == 0.125


def test_a_comparator_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """An entrant's head gives risks alone; the masks before postprocessing have no answers."""
    work = training(tmp_path, 0, (4.0, 3.0, 2.0, 1.0))
    content = answers((4.0, 3.0, 2.0, 1.0), None)
    content["rfs"]["nested"]["comparators"] = {"my_model:Head": {"score": [1.0, 2.0, 3.0, 4.0]}}
    write_heads(work, content)
    write_mask(work.raw_mask("A-1"), blocks(), GRID)
    output = answers_of(work, tmp_path / "out")
    assert sorted(path.name for path in output.iterdir()) == ["heads", "my_model-Head", "reference", "unfiltered"]
    assert (output / "my_model-Head" / "answers.csv").read_text().splitlines()[:2] == ["PatientID,risk", "A-1,1.0"]
    assert [path.name for path in (output / "unfiltered").iterdir()] == ["A-1.nii.gz"]
    # Nobody's HPV status was answered, so none is asked for.
    header, first, *_ = (output / "reference" / "outcomes.csv").read_text().splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["HPV Status"] == ""


def test_probabilities_on_the_networks_grid(tmp_path: Path) -> None:
    """51 of 255 is 0.2. Masks that were given have none."""
    work = training(tmp_path, 0, (4.0, 3.0, 2.0, 1.0))
    coarse = Geometry((6, 5, 4), (8.0, 8.0, 12.0), (-24.0, -20.0, 0.0))
    with pytest.raises(
        HecktorError, match=r"^--probabilities: no A-1\.npz, expected masks by the networks: other masks"
    ):
        answers_of(work, tmp_path / "out", "--probabilities")
    assert not (tmp_path / "out").exists()
    for case in read_cases(work):
        write_volume(image_path(work.raw, case, 0), Volume(np.zeros(coarse.array_shape, np.float32), coarse))
        shares = np.stack([np.full(coarse.array_shape, share, np.float32) for share in (0.6, 0.2, 0.2)])
        write_probabilities(work.probabilities(case.patient_id), shares, np.zeros(coarse.array_shape, np.uint8))
    output = answers_of(work, tmp_path / "out", "--probabilities")
    gtvp = read_volume(output / "probabilities" / "A-1__gtvp.nii.gz", "float32")
    assert gtvp.geometry.find_differences(coarse) == []
    np.testing.assert_allclose(gtvp.array, 0.2, atol=1e-7)


def test_outdated_heads_and_an_earlier_folder_are_refused(tmp_path: Path) -> None:
    work = training(tmp_path, 0, (4.0, 3.0, 2.0, 1.0))
    (tmp_path / "out").mkdir()
    with pytest.raises(HecktorError, match=r"^out: exists, expected a new folder"):
        answers_of(work, tmp_path / "out")
    write_json(work.features_json, {"key": "filtered"})
    with pytest.raises(HecktorError, match=r"^heads\.json: fitted by another version, or before masks"):
        answers_of(work, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loaded", "libraries"),
    [("baseline.steps", "torch nnunetv2 monai"), ("baseline.cli", "torch nnunetv2 monai scipy SimpleITK matplotlib")],
)
def test_the_steps_and_the_help_load_no_heavy_library(loaded: str, libraries: str) -> None:
    code = f"import sys, {loaded}; print(set({libraries!r}.split()) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
