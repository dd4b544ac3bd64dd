"""The step `heads`: cohorts of a release, heads of the known outcomes, dose features, and the summary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from algorithm.heads.documents import Features
from algorithm.heads.values import compute_head_answer
from algorithm.masks.segmentation import Segmentation
from baseline.cache import store_cached
from baseline.fit import fit_heads
from baseline.heads.cohort import HeadCohort
from baseline.heads.cross_validation import cross_validate_targets
from baseline.heads.fitting import fit_targets, make_cohort
from baseline.heads.models.targets import Target, make_targets, with_custom_features
from baseline.heads.record import summarise_heads
from baseline.network.out_of_fold import measure_segmentation
from baseline.release.cases import ReleaseCase, write_cases
from baseline.release.splits import load_or_make_splits
from baseline.work import WorkFolders
from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.io.files import read_json, write_json
from contract.packages import DEFAULT_MIN_LESION_SIZES
from contract.patient import Patient
from tests.baseline.prepared import ANSWERS, HPV, RFS, outcomes

TARGETS = (RFS, HPV)


def make_case(
    number: int, relapse: bool | None = None, hpv: bool | None = None, dose: Path | None = None
) -> ReleaseCase:
    centre = "ABC"[number % 3]
    image = Path("image.nii.gz")
    days = None if relapse is None else 100.0 + 37 * number
    patient = Patient({"age_years": 50.0 + number})
    return ReleaseCase(
        f"{centre}-{number:03d}", centre, image, image, None, patient, outcomes(relapse, days, hpv), dose=dose
    )


def make_rows(cases: list[ReleaseCase]) -> dict[str, Features]:
    return {
        case.patient_id: {"total_volume_ml": 10.0 + number % 5, "suv_max": 8.0 + number % 3}
        for number, case in enumerate(cases)
    }


def make_cohorts(cases: list[ReleaseCase]) -> list[tuple[Target, HeadCohort]]:
    return [(target, make_cohort(target, cases, make_rows(cases))) for target in TARGETS]


def test_a_cohort_holds_the_patients_with_a_known_outcome() -> None:
    cases = [make_case(0, relapse=True), make_case(1, hpv=False), make_case(2, relapse=False, hpv=True), make_case(3)]
    rfs = make_cohort(RFS, cases, make_rows(cases))
    assert (rfs.ids, rfs.centres) == (("A-000", "C-002"), ("A", "C"))
    assert rfs.outcomes.times_days.tolist() == [100, 174]
    assert rfs.outcomes.positive.tolist() == [True, False]
    assert rfs.features["age_years"][1] == 52
    assert rfs.features["total_volume_ml"][1] == 12
    hpv = make_cohort(HPV, cases, make_rows(cases))
    assert (hpv.ids, hpv.outcomes.positive.tolist()) == (("B-001", "C-002"), [False, True])


def test_eight_patients_get_plain_heads_and_both_estimates() -> None:
    """Three relapses and three HPV negatives are too few for all features, but enough for both cross-validations."""
    cases = [make_case(n, relapse=n in {0, 3, 4}, hpv=n not in {1, 2, 6}) for n in range(8)]
    cohorts = make_cohorts(cases)
    fitted = fit_targets(cohorts, seed=0)
    assert set(fitted.heads) == {"rfs", "rfs_clinical", "hpv", "hpv_clinical"}
    assert fitted.heads["rfs"].model.startswith("Cox, few features")
    assert fitted.heads["hpv"].tried == {"logistic, few features": 0.0}
    assert fitted.heads["hpv"].model == "clinical variables"
    reason = (
        "No candidate was better than chance (1 tried); the out-of-fold area under the curve of clinical variables is"
    )
    assert fitted.heads["hpv"].reason.startswith(reason)
    assert fitted.heads["rfs"].reason == ""
    document = cross_validate_targets(cohorts, 0, fitted.why_not)
    assert json.loads(json.dumps(document.as_json(), allow_nan=False)) == document.as_json()
    assert document.no_head == {}
    rfs, hpv = (document.targets[name].nested for name in ("rfs", "hpv"))
    lines = summarise_heads(fitted.heads, document, TARGETS)
    assert f"rfs, nested: c_index {rfs.c_index:.3f}" in lines
    assert f"hpv: {fitted.heads['hpv'].reason}" in lines.splitlines()
    assert document.to_manifest()["hpv"]["nested"] == {
        "balanced_accuracy": hpv.balanced_accuracy,
        "by_centre": hpv.by_centre,
    }


def test_fitted_features_are_fitted_on_and_left_out_of_both_estimates() -> None:
    """Two custom features separate the relapses."""
    cases = [make_case(n, relapse=n in {0, 3, 4}) for n in range(8)]
    known = {"my_code:risk": [5.0, 0, 0, 5, 5, 0, 0, 0], "my_code:deep": [0.0, 1, 1, 0, 0, 1, 1, 2]}
    rows = {name: {**row, **{k: known[k][n] for k in known}} for n, (name, row) in enumerate(make_rows(cases).items())}
    plain = [(RFS, make_cohort(RFS, cases, make_rows(cases)))]
    target = with_custom_features(RFS, known, known)
    cohorts = [(target, make_cohort(target, cases, rows))]
    fitted = fit_targets(cohorts, seed=0)
    assert set(known) < set(fitted.heads["rfs"].head.features)
    document = cross_validate_targets(cohorts, 0, fitted.why_not)
    record = document.as_json()["rfs"]
    assert record.pop("left_out_features") == list(known) == document.to_manifest()["rfs"]["left_out_features"]
    assert record == cross_validate_targets(plain, 0, {}).as_json()["rfs"]
    line = summarise_heads(fitted.heads, document, [target]).splitlines()[-1]
    assert line == (
        "rfs: Both estimates leave out the features that were fitted to outcomes, which have learnt from held-out patients "
        "(my_code:risk, my_code:deep); the shipped head uses my_code:risk, my_code:deep."
    )


def test_without_relapses_there_is_no_head_but_a_reason() -> None:
    cases = [make_case(n, relapse=n < 1) for n in range(8)]
    cohorts = make_cohorts(cases)
    fitted = fit_targets(cohorts, seed=0)
    reason = "rfs: 1 training patients with a relapse, expected at least 2"
    assert fitted.heads == {}
    assert (fitted.why_not["rfs"], fitted.why_not["rfs_clinical"]) == (reason, reason)
    document = cross_validate_targets(cohorts, 0, fitted.why_not)
    lines = summarise_heads(fitted.heads, document, TARGETS)
    assert f"rfs: no head ({reason})" in lines
    assert "rfs, nested: rfs: 1 training patients with a relapse, expected at least 3" in lines


def test_the_dose_is_measured_where_the_release_has_one(tmp_path: Path) -> None:
    """With a dose of 60 Gy on a coarser grid around a GTVp of 8 voxels, mean and D95 are 60 Gy."""
    grid = Geometry((8, 8, 8), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0))
    mask = np.zeros(grid.array_shape, np.uint8)
    mask[3:5, 3:5, 3:5] = 1
    segmentation = Segmentation.from_mask(mask, np.zeros(mask.shape, np.float32), None, grid)
    coarse = Geometry((6, 6, 6), (6.0, 6.0, 6.0), (-3.0, -3.0, -3.0))
    write_volume(tmp_path / "dose.nii.gz", Volume(np.full(coarse.array_shape, 60.0, np.float32), coarse))
    measured = measure_segmentation(make_case(0, dose=tmp_path / "dose.nii.gz"), segmentation, DEFAULT_MIN_LESION_SIZES)
    assert measured["gtvp_dose_mean_gy"] == pytest.approx(60, abs=1e-3)
    assert measured["gtvp_dose_d95_gy"] == pytest.approx(60, abs=1e-3)
    assert measured["gtvn_dose_mean_gy"] is None
    assert measure_segmentation(make_case(0), segmentation, DEFAULT_MIN_LESION_SIZES)["gtvp_dose_mean_gy"] is None
    write_volume(tmp_path / "odd.nii.gz", Volume(np.full(coarse.array_shape, -1.0, np.float32), coarse))
    negative = measure_segmentation(make_case(0, dose=tmp_path / "odd.nii.gz"), segmentation, DEFAULT_MIN_LESION_SIZES)
    assert negative["gtvp_dose_mean_gy"] is None


def test_the_dose_counts_only_where_inference_gets_it() -> None:
    """Inference of task 2 may have a dose, inference of task 3 never has it."""
    cases = [make_case(0, relapse=True, hpv=True)]
    rows = {"A-000": {"gtvp_dose_d95_gy": 60.0, "gtvn_dose_v66_share": 0.5, "suv_max": 9.0}}
    assert set(rows["A-000"]) <= set(make_cohort(RFS, cases, rows).features)
    hpv = make_cohort(HPV, cases, rows).to_rows()[0]
    assert hpv["suv_max"] == 9
    assert not any("dose" in name for name in hpv)


def test_an_edition_with_four_answers_gets_heads_for_all() -> None:
    """Stages follow the diameter and the count; the fallbacks are the most frequent stages and the median time."""
    targets = make_targets(load_edition("hecktor2026"))
    t_stages, n_stages = ("T1", "T1", "T2", "T3", "T4") * 8, ("N2", "N1", "N0", "N2", "N3") * 8
    cases = [
        replace(make_case(n), outcomes={"T-stage": t, "N-stage": s, "RFS": 100.0 + n, "Relapse": n % 3 == 0})
        for n, (t, s) in enumerate(zip(t_stages, n_stages, strict=True))
    ]
    diameter, count = {"T1": 15.0, "T2": 30.0, "T3": 50.0, "T4": 70.0}, {"N0": 0.0, "N1": 1.0, "N2": 3.0, "N3": 9.0}
    rows = {
        case.patient_id: {
            "gtvp_diameter_mm": diameter[t] + number % 3,
            "gtvn_count": count[s],
            "gtvn_volume_ml": 5 * count[s],
            "total_volume_ml": 10.0 + number % 5,
        }
        for number, (case, t, s) in enumerate(zip(cases, t_stages, n_stages, strict=True))
    }
    cohorts = [(target, make_cohort(target, cases, rows)) for target in targets]
    fitted = fit_targets(cohorts, seed=0)
    names = [f"{target.name}{suffix}" for target in targets for suffix in ("", "_clinical")]
    assert (list(fitted.heads), fitted.why_not) == (names, {})
    fallbacks = {name: head.fallback for name, head in fitted.heads.items()}
    assert (fallbacks["t_stage"], fallbacks["n_stage"], fallbacks["n_stage_clinical"]) == ("T1", "N2", "N2")
    assert isinstance(fallbacks["rfs"], float)
    assert 0 < fallbacks["rfs"] < 139
    for (target, cohort), expected in zip(cohorts[:2], (t_stages, n_stages), strict=True):
        head = fitted.heads[target.name].head
        for row, stage in zip(cohort.to_rows(), expected, strict=True):
            if stage != "N0":  # a mask without nodes decides N0
                assert compute_head_answer(target.answer, head, row, excluded=("N0",)).value == stage


def write_work(root: Path) -> tuple[WorkFolders, list[ReleaseCase]]:
    """Write eight patients with features, as before the step `heads`."""
    work, cases = WorkFolders(root), [make_case(n, relapse=n in {0, 3, 4}) for n in range(8)]
    write_cases(work, cases)
    write_json(work.prepare_json, {"options": {"release": "r"}})
    load_or_make_splits(work.splits_json, cases, ANSWERS, folds=2, seed=0)
    store_cached(work.features_json, "key", make_rows(cases))
    return work, cases


def test_heads_are_fitted_again_only_for_other_inputs(tmp_path: Path) -> None:
    """Repeating the step with the same inputs changes no file; another outcome changes both files."""
    work, cases = write_work(tmp_path)
    rows = make_rows(cases)

    def list_times() -> list[int]:
        return [path.stat().st_mtime_ns for path in (work.heads_json, work.cross_validation_json)]

    lines = fit_heads(work, rows)
    first = list_times()
    assert fit_heads(work, rows) == lines
    assert list_times() == first
    write_cases(work, [replace(cases[0], outcomes=outcomes(False, 100.0)), *cases[1:]])
    assert fit_heads(work, rows) != lines
    document = read_json(work.cross_validation_json)
    assert document["rfs"]["nested"] == {"why_not": "rfs: 2 training patients with a relapse, expected at least 3"}
    assert all(later > earlier for later, earlier in zip(list_times(), first, strict=True))
