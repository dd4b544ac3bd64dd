"""Scores and pictures of held-out masks, and files of held-out answers that the evaluation compares."""

from __future__ import annotations

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
from tests.baseline.report.records import GRID, make_blocks

FOUR = Path(__file__).parents[2] / "editions" / "four_answers.json"

PATIENTS = ("A-1", "A-2", "B-1", "B-2")
DAYS = (100.0, 200.0, 300.0, 400.0)
HPV = (True, False, True, False)


@pytest.fixture
def work_and_cases(tmp_path: Path) -> tuple[WorkFolders, list[ReleaseCase]]:
    """Write two patients, whose predicted GTVp is half a lesion off for the first and exact for the second."""
    work, cases = WorkFolders(tmp_path / "work"), []
    for name, shift in (("CHUM-001", 2), ("HMR-002", 0)):
        ct, pet, mask = (tmp_path / f"{name}{role}.nii.gz" for role in ("__CT", "__PT", ""))
        write_volume(ct, Volume(np.full(GRID.array_shape, 40, np.int16), GRID))
        write_volume(pet, Volume(make_blocks().astype(np.float32) * 4, GRID))
        write_mask(mask, make_blocks(), GRID)
        write_mask(work.mask(name), make_blocks(shift), GRID)
        cases.append(ReleaseCase(name, name.split("-")[0], ct, pet, mask, Patient()))
    return work, cases


def test_scores_and_the_worst_case(work_and_cases: tuple[WorkFolders, list[ReleaseCase]]) -> None:
    """DSC of GTVp is 0.5 (32 of 64 voxels in common) and 1, mean 0.75. GTVn is exact. The means of both are 0.75 and 1."""
    work, cases = work_and_cases
    report = score_masks(work, cases, EDITION, seed=0, jobs=1)
    values = {name: report["aggregates"][name]["value"] for name in list_mask_metric_titles(EDITION)}
    assert values == pytest.approx({"gtvp_dsc_mean": 0.75, "gtvn_dsc_agg": 1.0, "gtvn_f1_agg": 1.0})
    assert {name: centre["cases"] for name, centre in report["centres"].items()} == {"CHUM": 1, "HMR": 1}
    first, second = draw_worst_cases(work, cases, report["results"])
    assert (first.case, second.case) == ("CHUM-001", "HMR-002")
    assert "GTVp 0.8 ml, predicted 0.8 ml, DSC 0.500" in first.facts
    assert "nodes true/false/missed 1/0/0" in first.facts
    assert first.jpeg.startswith(b"\xff\xd8")


def make_recall_row(case: str, voxels: list[int], detected: list[bool]) -> dict[str, Any]:
    """Return a row of metrics.json with reference nodes in voxels of 0.1 ml."""
    lesions = {
        "reference_voxels": voxels, "dsc": [0.8 if is_detected else None for is_detected in detected], "pairs": [],
        "predicted_voxels": [],
    }  # fmt: skip
    return {"case": case, "voxel_volume_mm3": 100.0, "gtvn": {"lesions": lesions}}


def test_the_recall_of_nodes_by_volume() -> None:
    """Five bins hold 25 nodes of 0.1 to 2.5 ml: two nodes of the first bin are detected, four of the second, then all."""
    voxels = list(range(1, 26))
    detected = [number in (3, 5) or (number > 5 and number != 7) for number in voxels]
    rows = [make_recall_row("A", voxels[::2], detected[::2]), make_recall_row("B", voxels[1::2], detected[1::2])]
    analysis = analyse_recall(EDITION, rows)
    assert analysis is not None
    figures = [(row["volume_ml"], row["lesions"], row["detected"], row["recall"]) for row in analysis.rows]
    assert figures == [(0.3, 5, 2, 0.4), (0.8, 5, 4, 0.8), (1.3, 5, 5, 1.0), (1.8, 5, 5, 1.0), (2.3, 5, 5, 1.0)]
    assert analyse_recall(EDITION, [make_recall_row("A", [1, 2], [True, False])]) is None


def test_the_picture_of_a_pet_in_bq_per_ml_is_scaled_by_the_factor(
    work_and_cases: tuple[WorkFolders, list[ReleaseCase]],
) -> None:
    """Multiplying a PET by 10,000 changes its picture, unless the case has a factor of 0.0001."""
    work, cases = work_and_cases
    rows = score_masks(work, cases, EDITION, seed=0, jobs=1)["results"]
    in_suv = draw_worst_cases(work, cases[:1], rows)[0].jpeg
    write_volume(cases[0].pet, Volume(make_blocks().astype(np.float32) * 40_000, GRID))
    assert draw_worst_cases(work, [replace(cases[0], suv_factor=1e-4)], rows)[0].jpeg == in_suv
    assert draw_worst_cases(work, cases[:1], rows)[0].jpeg != in_suv


def test_a_mask_that_cannot_be_scored_is_not_an_empty_mask(
    work_and_cases: tuple[WorkFolders, list[ReleaseCase]],
) -> None:
    work, cases = work_and_cases
    work.mask("HMR-002").write_bytes(b"damaged")
    with pytest.raises(HecktorError, match=r"^out-of-fold masks: 1 cannot be scored \(HMR-002: .*\)"):
        score_masks(work, cases, EDITION, seed=0, jobs=1)
    work.mask("HMR-002").unlink()
    with pytest.raises(HecktorError, match=r"^out-of-fold masks: 1 cannot be scored \(HMR-002: not found\)"):
        score_masks(work, cases, EDITION, seed=0, jobs=1)


def test_the_worst_case_has_the_lowest_mean_of_both_structures() -> None:
    """DSC of GTVp is 2 x 30 / 100. GTVn is absent from both masks, or only predicted, which gives a DSC of 0."""
    row = {"gtvp_intersection_voxels": 30, "gtvp_reference_voxels": 60, "gtvp_predicted_voxels": 40}
    no_gtvn = dict.fromkeys(("gtvn_intersection_voxels", "gtvn_reference_voxels", "gtvn_predicted_voxels"), 0)
    assert mean_dsc(row | no_gtvn) == pytest.approx(0.6)
    assert mean_dsc(row | no_gtvn | {"gtvn_predicted_voxels": 5}) == pytest.approx(0.3)
    assert mean_dsc(no_gtvn | dict.fromkeys(row, 0)) is None


def make_row(case: str, reference_ml: float, dsc: float) -> dict[str, Any]:
    """Return a row of `metrics.json` with a GTVp and no GTVn; the mask is as large as the reference, in voxels of 1 mm3."""
    voxels = round(1000 * reference_ml)
    gtvp = {"intersection_voxels": round(dsc * voxels), "reference_voxels": voxels, "predicted_voxels": voxels}
    return {
        "case": case,
        "voxel_volume_mm3": 1.0,
        "gtvp": gtvp | {"lesions": None, "surface": None},
        "gtvn": dict.fromkeys(gtvp, 0) | {"lesions": None, "surface": None},
    }


def test_the_summary_names_the_patients_whose_masks_fail() -> None:
    """Masks of A and B (1 and 2 ml, median 1.5) fail, masks of C and D (8 and 10 ml, median 9) do not; E has no tumour."""
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
    whole = build_profile(edition).find_task("everything")
    alone = load_profile(write_mask_edition(edition, tmp_path / "edition.json")).find_task("everything")
    assert list(alone.answers) == ["mask"]
    assert alone.answers["mask"].rules == whole.answers["mask"].rules
    assert {f"mask_{name}": metric.title for name, metric in alone.metrics.items()} == {
        name: metric.title for name, metric in whole.metrics.items() if name.startswith("mask_")
    }


def make_answers_document(risks: tuple[float, ...], hpv: tuple[bool, ...] | None) -> dict[str, Any]:
    """Return a `cross_validation.json` with nested answers; all patients relapse."""
    people = [{"id": name, "centre": name[0]} for name in PATIENTS]
    rfs = [{**row, "rfs_days": days, "relapse": True} for row, days in zip(people, DAYS, strict=True)]
    status: dict[str, Any] = {"why_not": "too few"}
    if hpv is not None:
        probability = [0.9 if is_positive else 0.1 for is_positive in hpv]
        status = {"positive": list(hpv), "probability": probability, "balanced_accuracy": 1.0}
    rfs_record = {"patients": rfs, "nested": {"score": list(risks), "c_index": 1.0}}
    return cross_validation_json({"rfs": rfs_record, "hpv": {"patients": people, "nested": status}})


def write_heads(work: WorkFolders, content: dict[str, Any]) -> None:
    """Write the out-of-fold answers of heads that were fitted on the current masks."""
    write_json(work.heads_json, {})
    made_from = compute_heads_key(work, read_cases(work))
    write_json(work.cross_validation_json, content | {"made_from": made_from})


def make_training(root: Path, shift: int, risks: tuple[float, ...]) -> WorkFolders:
    """Write a training whose heads answer `risks`, and whose first mask has the GTVp `shift` voxels off."""
    work, cases = WorkFolders(root / "work"), []
    for place, name in enumerate(PATIENTS):
        ct, pet, mask = (root / f"{name}{role}.nii.gz" for role in ("__CT", "__PT", ""))
        write_volume(ct, Volume(np.full(GRID.array_shape, 40, np.int16), GRID))
        write_volume(pet, Volume(make_blocks().astype(np.float32) * 4, GRID))
        write_mask(mask, make_blocks(), GRID)
        write_mask(work.mask(name), make_blocks(shift * (place == 0)), GRID)
        known = outcomes(relapse=True, days=DAYS[place], hpv=HPV[place])
        cases.append(ReleaseCase(name, name[0], ct, pet, mask, Patient(), known))
    write_cases(work, cases)
    centres = {"A": list(PATIENTS[:2]), "B": list(PATIENTS[2:])}
    folds = [list(PATIENTS[::2]), list(PATIENTS[1::2])]
    write_json(work.splits_json, {"format_version": 1, "seed": 0, "folds": folds, "centres": centres})
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": [2.0, 2.0, 3.0]}, "data": "images"})
    write_json(work.features_json, {})
    write_heads(work, make_answers_document(risks, HPV))
    return work


def export_answers(work: WorkFolders, output: Path, *more: str) -> Path:
    assert main(["answers", "--work", str(work.root), "--output", str(output), *more]) == 0
    return output


def test_two_trainings_are_evaluated_and_ranked(tmp_path: Path) -> None:
    """Training "one" has a DSC of 32/64 in one of four patients, mean 0.875; training "other" has 1, which is 0.125 more.

    Risks of "one" fall with time (C-index 1), risks of "other" rise (C-index 0). The HPV answers are right.
    """
    first = export_answers(make_training(tmp_path / "a", 2, (4.0, 3.0, 2.0, 1.0)), tmp_path / "one")
    second = export_answers(make_training(tmp_path / "b", 0, (1.0, 2.0, 3.0, 4.0)), tmp_path / "other")
    paths = {}
    for task, predictions in ((1, "heads"), (2, "heads/answers.csv"), (3, "heads/answers.csv")):
        for team in (first, second):
            folder = tmp_path / f"task{task}" / team.name
            evaluate(first / "reference", task=str(task), predictions=team / predictions, output=folder, workers=0)
            paths[task, team.name] = folder / "metrics.json"
    value = {key: read_json(path)["aggregates"] for key, path in paths.items()}
    assert [value[1, name]["gtvp_dsc_mean"]["value"] for name in ("one", "other")] == [0.875, 1.0]
    assert [value[2, name]["c_index"]["value"] for name in ("one", "other")] == [1.0, 0.0]
    assert [value[3, name]["balanced_accuracy"]["value"] for name in ("one", "other")] == [1.0, 1.0]
    centres = read_json(paths[1, "one"])["centres"]
    assert {name: centre["aggregates"]["gtvp_dsc_mean"]["value"] for name, centre in centres.items()} == {
        "A": 0.75,
        "B": 1.0,
    }
    board = rank({name: paths[1, name] for name in ("one", "other")}, task="1").to_dict()
    (pair,) = (p for p in board["comparisons"]["gtvp_dsc_mean"]["pairs"] if p["team"] == "other")
    assert pair["difference"] == 0.125


def test_a_comparator_has_its_own_folder(tmp_path: Path) -> None:
    """Custom heads answer only risks here; the masks before postprocessing have no answers."""
    work = make_training(tmp_path, 0, (4.0, 3.0, 2.0, 1.0))
    content = make_answers_document((4.0, 3.0, 2.0, 1.0), None)
    content["rfs"]["nested"]["comparators"] = {"my_model:Head": {"score": [1.0, 2.0, 3.0, 4.0]}}
    write_heads(work, content)
    write_mask(work.raw_mask("A-1"), make_blocks(), GRID)
    output = export_answers(work, tmp_path / "out")
    assert sorted(path.name for path in output.iterdir()) == ["heads", "my_model-Head", "reference", "unfiltered"]
    assert (output / "my_model-Head" / "answers.csv").read_text().splitlines()[:2] == ["PatientID,risk", "A-1,1.0"]
    assert [path.name for path in (output / "unfiltered").iterdir()] == ["A-1.nii.gz"]
    # No HPV status was answered, so the references leave it out.
    header, first, *_ = (output / "reference" / "outcomes.csv").read_text().splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["HPV Status"] == ""


def test_probabilities_on_the_networks_grid(tmp_path: Path) -> None:
    """Probabilities are stored in 255ths: 0.2 is 51. Masks from another source have no probabilities."""
    work = make_training(tmp_path, 0, (4.0, 3.0, 2.0, 1.0))
    coarse = Geometry((6, 5, 4), (8.0, 8.0, 12.0), (-24.0, -20.0, 0.0))
    with pytest.raises(
        HecktorError, match=r"^--probabilities: no A-1\.npz, expected masks from the networks: other masks"
    ):
        export_answers(work, tmp_path / "out", "--probabilities")
    assert not (tmp_path / "out").exists()
    for case in read_cases(work):
        write_volume(image_path(work.raw, case, 0), Volume(np.zeros(coarse.array_shape, np.float32), coarse))
        shares = np.stack([np.full(coarse.array_shape, share, np.float32) for share in (0.6, 0.2, 0.2)])
        write_probabilities(work.probabilities(case.patient_id), shares, np.zeros(coarse.array_shape, np.uint8))
    output = export_answers(work, tmp_path / "out", "--probabilities")
    gtvp = read_volume(output / "probabilities" / "A-1__gtvp.nii.gz", "float32")
    assert gtvp.geometry.find_differences(coarse) == []
    np.testing.assert_allclose(gtvp.array, 0.2, atol=1e-7)


def test_outdated_heads_and_an_earlier_folder_are_refused(tmp_path: Path) -> None:
    work = make_training(tmp_path, 0, (4.0, 3.0, 2.0, 1.0))
    (tmp_path / "out").mkdir()
    with pytest.raises(HecktorError, match=r"^out: exists, expected a new folder"):
        export_answers(work, tmp_path / "out")
    write_json(work.features_json, {"key": "filtered"})
    with pytest.raises(HecktorError, match=r"^heads\.json: fitted by another version, or before masks"):
        export_answers(work, tmp_path / "new")
    assert not (tmp_path / "new").exists()
