"""Tests of the model card of a working directory with four patients, whose figures are all written by hand here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from baseline.network.plans import PRESETS, NetworkPlan, store_plan
from baseline.package.card import DEFAULTS, NO_REPORT, make_model_card, read_description
from baseline.release.cases import ReleaseCase, write_cases
from baseline.work import WorkFolders
from contract.errors import InputError
from contract.io.files import read_json, write_json
from contract.patient import Patient
from tests.baseline.postprocessing.patients import make_record_json
from tests.baseline.prepared import cross_validation_json, head_record, outcomes
from tests.conftest import class_head_json, head_json

DESCRIPTION = {**DEFAULTS, "name": "four|patients", "training_data": "four boxes"}
HEAD = head_record(head_json(("total_volume_ml", 0.5), ("age_years", 0.1))).model_dump(mode="json")
AGES = (50.0, 61.5, None, 70.0)


def make_cases(root: Path) -> list[ReleaseCase]:
    """Make CHA-001 to CHA-003 and CHB-001. CHB-001 has no mask and relapsed; HPV is known of the first two."""
    cases = []
    for number, name in enumerate(("CHA-001", "CHA-002", "CHA-003", "CHB-001")):
        ct, pet = root / f"{name}-ct.mha", root / f"{name}-pet.mha"
        patient = Patient({"age_years": AGES[number], "tobacco": 1 if number == 0 else None})
        mask = None if name == "CHB-001" else ct
        hpv = {0: True, 1: False}.get(number)
        cases.append(ReleaseCase(name, name[:3], ct, pet, mask, patient, outcomes(name == "CHB-001", 100.0, hpv)))
    return cases


def make_kind(metric: str, value: float | None, **by_centre: float | None) -> dict[str, Any]:
    rivals = {name: {metric: 0.5} for name in ("tumour_volume", "suv_max", "clinical")}
    return {metric: value, "by_centre": by_centre, "comparators": rivals}


def make_cross_validation() -> dict[str, Any]:
    patients = [{"centre": "CHA"}, {"centre": "CHA"}, {"centre": "CHA"}, {"centre": "CHB"}]
    records = {
        "rfs": {
            "patients": patients,
            "nested": make_kind("c_index", 0.71, CHA=0.725, CHB=None),
            "leave_one_centre_out": make_kind("c_index", 0.61, CHA=0.625, CHB=None),
        },
        "hpv": {
            "patients": patients[:2],
            "nested": make_kind("balanced_accuracy", 0.75, CHA=0.75),
            "leave_one_centre_out": {"why_not": "hpv: 1 centre, expected at least 2 to leave one out"},
        },
    }
    return cross_validation_json(records, no_head={"hpv": "1 negative"})


def write_report(work: WorkFolders, rfs_nested: float) -> None:
    """Write a report as `hecktor train report` does."""
    interval = {"ci95_low": 0.6, "ci95_high": 0.8}
    rfs = {"nested": {"value": rfs_nested, **interval}, "leave_one_centre_out": {"value": 0.61, **interval}}
    rfs["gap"] = {"value": 0.1, "ci95_low": -0.05, "ci95_high": 0.25}
    volume = {"nested": {"value": 0.5, "ci95_low": 0.4, "ci95_high": 0.6}}
    hpv = {"nested": {"value": 0.75, "ci95_low": None, "ci95_high": None}}
    report = {
        "rfs": {"models": {"heads": rfs, "tumour_volume": volume}},
        "hpv": {"models": {"heads": hpv}},
        "summary": [
            "At a new centre expect 0.6.",
            "Heads that use images are not significantly different from tumour volume.",
            "",
        ],
    }
    write_json(work.report / "report.json", report)
    names = ("gtvp_dsc_mean", "gtvn_dsc_agg", "gtvn_f1_agg")
    everyone = {name: {"value": 0.8, "ci95_low": 0.7, "ci95_high": 0.9} for name in names}
    centre = {"cases": 3, "aggregates": {name: {"value": 0.8} for name in names}}
    metrics = {
        "aggregates": everyone, "centres": {"CHA": centre}, "cases": {"used": 3},
        "provenance": {"edition": "hecktor2025", "bootstraps": 1000},
    }  # fmt: skip
    write_json(work.report / "task1" / "metrics.json", metrics)


@pytest.fixture
def work(tmp_path: Path) -> WorkFolders:
    """Write a working directory after `heads`, without a report."""
    work, cases = WorkFolders(tmp_path / "work"), make_cases(tmp_path)
    work.root.mkdir()
    write_cases(work, cases)
    ids = [case.patient_id for case in cases]
    centres = {"CHA": ids[:3], "CHB": ids[3:]}
    write_json(work.splits_json, {"format_version": 1, "seed": 7, "folds": [ids[:2], ids[2:]], "centres": centres})
    prepared = {
        "options": {"release": "r"}, "left_out": ["CHA-004", "CHA-005"], "corrections": {}, "mask_outside_region": {"CHA-001": 0.9},
        "versions": {"python": "3.11.2", "torch": "2.13.0"},
    }  # fmt: skip
    write_json(work.prepare_json, prepared)
    store_plan(work, "", NetworkPlan())
    write_json(work.heads_json, {"rfs": HEAD})
    write_json(work.cross_validation_json, make_cross_validation())
    return work


def test_the_training_data_are_counted(work: WorkFolders) -> None:
    """CHA has three patients, CHB has one."""
    text = make_model_card(work, DESCRIPTION)
    for line in (
        "# four\\|patients",
        "Research; not a medical device.",
        "Four boxes.",
        "Patients: 4. By centre: CHA 3, CHB 1. Excluded because of errors in their files: 2.",
    ):
        assert line in text.splitlines(), line
    known = "Patients with a known value: mask 3, rfs 4, relapses 1, hpv 2, hpv negative 1, dose 0, Age 3, Gender 0, Tobacco Consumption 1, "
    assert known in text
    assert "Networks: unet, one for each of 2 folds balanced by centre and outcomes (seed 7); " in text
    assert " Versions: python 3.11.2, torch 2.13.0.\n" in text
    assert "CHA-004" not in text
    assert str(work.root.parent) not in text


def test_masks_behind_the_figures_are_of_one_fold(work: WorkFolders) -> None:
    """No mirror and each of three axes are four passes; all combinations are eight."""
    held_out = "The held-out masks behind the figures below were made by one fold with "
    assert f"{held_out}2 passes of each network; a new patient is" in make_model_card(work, DESCRIPTION)
    store_plan(work, "", PRESETS["nnunet"])
    about = (
        f"{held_out}4 passes of each network, without combined mirrors; a new patient is segmented by the average of 2 "
        "folds with up to 8 passes. The figures do not measure this average."
    )
    assert about in make_model_card(work, DESCRIPTION)
    write_json(work.heads_json, {"rfs": HEAD | {"masks": "given masks"}})
    assert held_out not in make_model_card(work, DESCRIPTION)


def test_the_scale_of_the_pet(work: WorkFolders) -> None:
    """Intensities of the configuration replace the plans' intensities. A network that sees the CT twice has no PET."""
    pet = {"mean": 6.5, "std": 4.25, "percentile_00_5": 0.75, "percentile_99_5": 22.0}
    unlimited = {"mean": 3.0, "std": 2.0, "percentile_00_5": -1e6, "percentile_99_5": 1e6}
    key, schemes = "foreground_intensity_properties_per_channel", ["CTNormalization"] * 2
    for configuration, sentence in (
        (
            {},
            "on a fixed scale: SUV, clipped to SUV 0.75 to 22.00, minus 6.50, divided by 4.25, as in the lesions of all",
        ),
        ({key: {"1": unlimited}}, "on a fixed scale: SUV, minus 3.00, divided by 2.00, as in"),
        (
            {"normalization_schemes": ["CTNormalization", "ZScoreNormalization"]},
            "minus its mean, divided by its standard",
        ),
        ({"channels": [0, 0]}, ""),
    ):
        configurations = {"3d_fullres": {"normalization_schemes": schemes, **configuration}}
        write_json(work.plans, {key: {"1": pet}, "configurations": configurations})
        text = make_model_card(work, DESCRIPTION)
        assert f"The networks see the PET {sentence}" in text if sentence else "The networks see the PET" not in text


def test_figures_with_their_intervals(work: WorkFolders) -> None:
    write_report(work, rfs_nested=0.71)
    text = make_model_card(work, DESCRIPTION)
    for line in (
        "| GTVp mean DSC | 3 | 0.800 (0.700 to 0.900) | - |",
        "| Recurrence-free survival, C-index | 4 | 0.710 (0.600 to 0.800) | 0.625 |",
        "| HPV status, balanced accuracy | 2 | 0.750 | - |",
        "Heads that use images are not significantly different from tumour volume.",
        "Model: Cox, few features, 2 features. The answer is a risk: higher means earlier recurrence.",
    ):
        assert line in text.splitlines(), line
    assert (
        "There is no head: 1 negative; its task ends with an error. "
        "Leave one centre out: not computed (hpv: 1 centre, expected at least 2 to leave one out)."
    ) in text
    assert NO_REPORT not in text


@pytest.mark.parametrize("nested", [None, 0.70], ids=["no report", "stale"])
def test_missing_figures_are_explained(work: WorkFolders, nested: float | None) -> None:
    """Reports of other heads than the heads of the working directory are ignored."""
    if nested is not None:
        write_report(work, nested)
    text = make_model_card(work, DESCRIPTION)
    assert "| Recurrence-free survival, C-index | 4 | 0.710 | 0.625 |" in text
    assert NO_REPORT in text.splitlines()
    assert "0.800" not in text
    assert "not significantly different" not in text


def test_postprocessing_without_rules_gives_its_reason(work: WorkFolders) -> None:
    """Only the masks of the features are mentioned."""
    write_json(work.postprocessing_json, make_record_json({}, "the score changes by -0.0006"))
    write_json(work.features_json, {"key": "other", "result": {}})
    assert "No postprocessing: the step was not run on these masks." in make_model_card(work, DESCRIPTION)
    write_json(work.features_json, {"key": "key", "result": {}})
    assert " No postprocessing: the score changes by -0.0006. " in make_model_card(work, DESCRIPTION)


def test_stages_and_a_time(work: WorkFolders) -> None:
    """Two of three T1 and the only T2 are right. N has no head, so its fallback is written."""
    scored = {
        "balanced_accuracy": 5 / 6, "by_centre": {"CHA": 5 / 6},
        "recall": {"T1": 2 / 3, "T2": 1.0, "T3": None, "T4": None},
        "confusion": [[2, 1, 0, 0], [0, 1, 0, 0], [0] * 4, [0] * 4],
        "comparators": {"rule": {"balanced_accuracy": 0.5}, "most_frequent": {"balanced_accuracy": 0.5}},
    }  # fmt: skip
    why = {"why_not": "too few"}
    none = {"patients": [{"centre": "CHA"}] * 4, "nested": why, "leave_one_centre_out": why}
    records = {"t_stage": {**none, "nested": scored}, "n_stage": none, "rfs": none}
    write_json(work.cross_validation_json, cross_validation_json(records, no_head={"n_stage": "too few"}))
    names = dict.fromkeys(("T1", "T2", "T3", "T4"), 0.5)
    time = head_json(("age_years", 0.1)) | {"survival": {"days": [1500.0], "cumulative_hazard": [0.5]}}
    heads = {"t_stage": class_head_json(names, gtvp_diameter_mm=(0.1, 0.2, 0.3, 0.4)), "rfs": time}
    write_json(work.heads_json, {name: {**HEAD, "head": head, "model": "model"} for name, head in heads.items()})
    write_json(
        work.prepare_json, read_json(work.prepare_json) | {"options": {"release": "r", "edition": "hecktor2026"}}
    )
    text = make_model_card(work, DESCRIPTION)
    for line in ("For HECKTOR 2026.", "| T Stage, balanced accuracy | 4 | 0.833 | - |"):
        assert line in text.splitlines(), line
    assert "\nModel: model, 1 feature. The answer is one of T1, T2, T3, T4. Leave one centre out: not computed" in text
    assert (
        "\nThere is no head: too few; its fallback is written. Nested cross-validation: not computed (too few)." in text
    )
    assert "within 1500 days, the longest follow-up of the training. Higher means later recurrence." in text
    assert "The order of patients transfers to new centres, days do not" in text


def test_descriptions(tmp_path: Path) -> None:
    """What a description leaves out has a default; unknown keys and empty values are refused."""
    path = tmp_path / "description.json"
    write_json(path, {"licence": "CC-BY-4.0"})
    assert read_description(path) == {**DEFAULTS, "licence": "CC-BY-4.0"}
    assert read_description(None) == DEFAULTS
    for content, message in (
        ({"license": "MIT"}, r'license: found "MIT", expected no such'),
        ({"name": " "}, 'name: found " "'),
    ):
        write_json(path, content)
        with pytest.raises(InputError, match=rf"^description\.json\.{message}"):
            read_description(path)
