"""Held-out masks are scored and the worst are drawn; held-out answers are plain files that the evaluation compares."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.cli import main
from baseline.fit import compute_heads_key
from baseline.network.out_of_fold import write_probabilities
from baseline.postprocessing.rules import list_mask_metric_titles
from baseline.release.cases import ReleaseCase, image_path, read_cases, write_cases
from baseline.report.held_out import (
    analyse_recall,
    describe_failed_masks,
    draw_worst_cases,
    mean_dsc,
    score_masks,
    write_mask_edition,
)
from baseline.work import WorkFolders
from contract.editions import load_edition
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask, write_volume
from contract.io.files import read_json, write_json
from contract.patient import Patient
from evaluation import evaluate, rank
from evaluation.editions.profile import build_profile, load_profile
from tests.baseline.prepared import EDITION, cross_validation_json, outcomes
from tests.baseline.report.records import GRID, blocks

FOUR = Path(__file__).parents[2] / "editions" / "four_answers.json"

PATIENTS = ("A-1", "A-2", "B-1", "B-2")
DAYS = (100.0, 200.0, 300.0, 400.0)
HPV = (True, False, True, False)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[WorkFolders, list[ReleaseCase]]:
    """Two patients: the first's GTVp is found half a lesion off, the second's exactly."""
    work, cases = WorkFolders(tmp_path / "work"), []
    for name, shift in (("CHUM-001", 2), ("HMR-002", 0)):
        ct, pet, mask = (tmp_path / f"{name}{role}.nii.gz" for role in ("__CT", "__PT", ""))
        write_volume(ct, Volume(np.full(GRID.array_shape, 40, np.int16), GRID))
        write_volume(pet, Volume(blocks().astype(np.float32) * 4, GRID))
        write_mask(mask, blocks(), GRID)
        write_mask(work.mask(name), blocks(shift), GRID)
        cases.append(ReleaseCase(name, name.split("-")[0], ct, pet, mask, Patient()))
    return work, cases


def test_scores_and_the_worst_case(trained: tuple[WorkFolders, list[ReleaseCase]]) -> None:
    """GTVp: 32 of 64 voxels in common, DSC 0.5, and 1: mean 0.75. GTVn is exact. Means of both: 0.75 and 1."""
    work, cases = trained
    report = score_masks(work, cases, EDITION, seed=0, jobs=1)
    values = {name: report["aggregates"][name]["value"] for name in list_mask_metric_titles(EDITION)}
    assert values == pytest.approx({"gtvp_dsc_mean": 0.75, "gtvn_dsc_agg": 1.0, "gtvn_f1_agg": 1.0})
    assert {name: found["cases"] for name, found in report["centres"].items()} == {"CHUM": 1, "HMR": 1}
    first, second = draw_worst_cases(work, cases, report["results"])
    assert (first.case, second.case) == ("CHUM-001", "HMR-002")
    assert "GTVp 0.8 ml, predicted 0.8 ml, DSC 0.500" in first.facts
    assert "nodes true/false/missed 1/0/0" in first.facts
    assert first.jpeg.startswith(b"\xff\xd8")


def recall_row(case: str, voxels: list[int], detected: list[bool]) -> dict[str, Any]:
    """A row of metrics.json with reference nodes of 0.1 ml a voxel."""
    lesions = {
        "reference_voxels": voxels, "dsc": [0.8 if is_detected else None for is_detected in detected], "pairs": [],
        "predicted_voxels": [],
    }  # fmt: skip
    return {"case": case, "voxel_volume_mm3": 100.0, "gtvn": {"lesions": lesions}}


def test_the_recall_of_nodes_by_volume() -> None:
    """25 nodes of 0.1 to 2.5 ml in five bins of five: of the smallest two are detected, of the next four, then all."""
    voxels = list(range(1, 26))
    detected = [number in (3, 5) or (number > 5 and number != 7) for number in voxels]
    rows = [recall_row("A", voxels[::2], detected[::2]), recall_row("B", voxels[1::2], detected[1::2])]
    analysis = analyse_recall(EDITION, rows)
    assert analysis is not None
    figures = [(row["volume_ml"], row["lesions"], row["detected"], row["recall"]) for row in analysis.rows]
    assert figures == [(0.3, 5, 2, 0.4), (0.8, 5, 4, 0.8), (1.3, 5, 5, 1.0), (1.8, 5, 5, 1.0), (2.3, 5, 5, 1.0)]
    assert analyse_recall(EDITION, [recall_row("A", [1, 2], [True, False])]) is None


def test_the_picture_of_a_pet_in_bq_per_ml_is_scaled_by_the_factor(
    trained: tuple[WorkFolders, list[ReleaseCase]],
) -> None:
    """The same PET times 10,000 with a factor of 0.0001 gives the same picture as in SUV; without it, another one."""
    work, cases = trained
    rows = score_masks(work, cases, EDITION, seed=0, jobs=1)["results"]
    in_suv = draw_worst_cases(work, cases, rows)[0].jpeg
    write_volume(cases[0].pet, Volume(blocks().astype(np.float32) * 40_000, GRID))
    with_factor = [replace(cases[0], suv_factor=1e-4), cases[1]]
    assert draw_worst_cases(work, with_factor, rows)[0].jpeg == in_suv
    assert draw_worst_cases(work, cases, rows)[0].jpeg != in_suv


def test_a_mask_that_cannot_be_scored_is_no_empty_one(trained: tuple[WorkFolders, list[ReleaseCase]]) -> None:
    work, cases = trained
    work.mask("HMR-002").write_bytes(b"damaged")
    with pytest.raises(HecktorError, match=r"^out-of-fold masks: 1 cannot be scored \(HMR-002: .*\)"):
        score_masks(work, cases, EDITION, seed=0, jobs=1)
    work.mask("HMR-002").unlink()
    with pytest.raises(HecktorError, match=r"^out-of-fold masks: 1 cannot be scored \(HMR-002: not found\)"):
        score_masks(work, cases, EDITION, seed=0, jobs=1)


def test_the_worst_case_has_the_lowest_mean_of_both_structures() -> None:
    """GTVp 2 x 30 / 100; GTVn is in neither mask, or invented: DSC 0."""
    row = {"gtvp_intersection_voxels": 30, "gtvp_reference_voxels": 60, "gtvp_predicted_voxels": 40}
    none = dict.fromkeys(("gtvn_intersection_voxels", "gtvn_reference_voxels", "gtvn_predicted_voxels"), 0)
    assert mean_dsc(row | none) == pytest.approx(0.6)
    assert mean_dsc(row | none | {"gtvn_predicted_voxels": 5}) == pytest.approx(0.3)
    assert mean_dsc(none | dict.fromkeys(row, 0)) is None


def make_row(case: str, reference_ml: float, dsc: float) -> dict[str, Any]:
    """A row of `metrics.json` of a GTVp in voxels of 1 mm3, and of no GTVn; the mask is as large as the reference."""
    voxels = round(1000 * reference_ml)
    gtvp = {"intersection_voxels": round(dsc * voxels), "reference_voxels": voxels, "predicted_voxels": voxels}
    return {
        "case": case,
        "voxel_volume_mm3": 1.0,
        "gtvp": gtvp | {"lesions": None, "surface": None},
        "gtvn": dict.fromkeys(gtvp, 0) | {"lesions": None, "surface": None},
    }


def test_the_summary_names_the_patients_whose_masks_fail() -> None:
    """A and B fail with 1 and 2 ml, median 1.5; C and D do not with 8 and 10 ml, median 9. E has no tumour and mask."""
    rows = [
        make_row("C", 8, 0.5),
        make_row("A", 1, 0.4),
        make_row("E", 0, 0),
        make_row("B", 2, 0),
        make_row("D", 10, 0.9),
    ]
    assert describe_failed_masks(rows) == (
        "The masks of 2 of 4 patients fail (mean DSC below 0.5): B, A. The median volume of GTVp and GTVn is 1.5 ml in "
        "their references, against 9.0 ml in the other patients."
    )
    assert describe_failed_masks([rows[0], rows[4]]) == "No mask of 2 patients has a mean DSC below 0.5."
    six = describe_failed_masks([make_row(name, 1, 0) for name in "ABCDEF"])
    assert six.endswith("A, B, C, D and 2 more. The median volume of GTVp and GTVn is 1.0 ml in their references.")


def test_the_mask_keeps_its_rules_without_the_other_answers(tmp_path: Path) -> None:
    edition = load_edition(str(FOUR))
    whole = build_profile(edition).task("everything")
    alone = load_profile(write_mask_edition(edition, tmp_path / "edition.json")).task("everything")
    assert list(alone.answers) == ["mask"]
    assert alone.answers["mask"].rules == whole.answers["mask"].rules
    assert {f"mask_{name}": metric.title for name, metric in alone.metrics.items()} == {
        name: metric.title for name, metric in whole.metrics.items() if name.startswith("mask_")
    }


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
