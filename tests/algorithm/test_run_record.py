"""Run records, and the log line that is made from a record."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from algorithm.output import Stages
from algorithm.prediction import RunRecord, gpu_peak_memory_mib, peak_memory_mib, reset_peaks
from contract.errors import Finding
from contract.images.volumes import read_volume
from contract.io.files import read_json, write_json
from contract.packages import PackageIdentity, read_identity
from tests.conftest import write_manifest

SCANS = (("CT", (24, 24, 20), (8.0, 8.0, 9.0)), ("PET", (20, 20, 18), (10.0, 10.0, 10.0)))
RECORD = RunRecord(
    edition="hecktor2025",
    task="rfs",
    method="baseline",
    device="a card",
    region=None,
    segmented_by="network",
    passes_done=3,
    passes_planned=8,
    answers={"rfs": 0.5},
    fallbacks=(),
    notices=(),
    seconds={"read": 3.04, "segment": 190.0},
    peak_memory_mib=2048.4,
    gpu_peak_memory_mib=None,
    time_limit_s=600.0,
    left_s=400.04,
)


def test_the_summary() -> None:
    passes = "3 of 8 passes on a card"
    figures = f"read 3.0 s, segment 190.0 s, {passes}, peak memory 2048 MiB, 400.0 s of 600 s left"
    assert RECORD.summary() == f"rfs answered by method baseline: {figures}"
    own = PackageIdentity(name="my_unet", manifest_sha256="0" * 64)
    assert replace(RECORD, package=own).summary() == f"rfs answered by package my_unet: {figures}"
    clinical = replace(RECORD, package=own, method="clinical")
    assert clinical.summary() == f"rfs answered by package my_unet, method clinical: {figures}"
    assert (
        f"{passes}, peak memory 2048 MiB, on the GPU 100 MiB, " in replace(RECORD, gpu_peak_memory_mib=100.0).summary()
    )
    assert "190.0 s, no pass, by PET threshold, peak" in replace(RECORD, segmented_by="PET threshold").summary()
    assert "190.0 s, peak" in replace(RECORD, segmented_by=None).summary()
    worse = replace(RECORD, fallbacks=("t_stage", "n_stage"), notices=(Finding("PET", "all voxels are zero"),))
    assert replace(RECORD, time_limit_s=None, left_s=None).summary().endswith(", peak memory 2048 MiB")
    assert worse.summary().endswith("MiB, fallbacks for t_stage and n_stage, warnings: 1, 400.0 s of 600 s left")


def test_stages_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stages = Stages()
    for _ in range(2):
        with stages("read"):
            now += 1.0
            with stages("load"):
                now += 0.25
            now += 0.5
    assert stages.seconds == {"load": 0.5, "read": 3.0}
    assert peak_memory_mib() > 10


def test_the_peak_of_memory_belongs_to_the_case() -> None:
    """200 MB that were freed before do not count."""
    array = np.ones(25_000_000)
    before = peak_memory_mib()
    del array
    reset_peaks()
    assert peak_memory_mib() < before - 150


def test_torch_that_is_still_being_imported_used_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an early end another thread may still import torch."""
    torch = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert gpu_peak_memory_mib() is None
    torch.cuda = ModuleType("torch.cuda")  # type: ignore[attr-defined]
    assert gpu_peak_memory_mib() is None


def test_the_record_of_the_baseline(predict: Any, case_folder: Any, tiny_package: Path, tmp_path: Path) -> None:
    """With two folds and one mirror axis there are four passes; an unknown key is a finding with fields."""
    case_folder.ehr["Shoe size"] = 44
    case_folder.write()
    path = tmp_path / "records" / "record.json"
    assert predict("rfs", "--record", str(path), "--time-limit", "500").files == ["rfs.json"]
    record = read_json(path)
    seconds = record.pop("seconds")
    assert list(seconds) == ["read", "localise", "threshold", "measure", "head", "write", "load", "segment"]
    assert 0 < record.pop("left_s") < 500
    assert record.pop("peak_memory_mib") > 10
    assert "cpu" in record.pop("device")
    record.pop("gpu_peak_memory_mib")
    region = record.pop("region")
    assert np.all(np.less(region["lower_mm"], region["upper_mm"]))
    assert (region["found_by"], region["sure"], region["brain_lower_mm"]) == ("body outline", False, None)
    lesions, expected_dsc = record.pop("lesions"), record.pop("expected_dsc")
    assert all(0 < expected_dsc[name] < 1 for name in ("GTVp", "GTVn"))
    assert {name: lesion["count"] > 0 for name, lesion in lesions.items()} == {"GTVp": True, "GTVn": True}
    assert record == {
        "format_version": 3,
        "edition": "hecktor2025",
        "task": "rfs",
        "method": "baseline",
        "segmented_by": "network",
        "passes_done": 4,
        "passes_planned": 4,
        "answers": {"rfs": read_json(tmp_path / "output" / "rfs.json")},
        "fallbacks": [],
        "fallback_by": {},
        "fallback_why": {},
        "package": {"name": "tiny", "manifest_sha256": read_identity(tiny_package).manifest_sha256},
        "notices": [
            {"what": "ehr.json", "found": "unknown key 'Shoe size'", "expected": "", "action": "ignored"},
            {
                "what": "CT",
                "found": "neither a brain nor lungs",
                "expected": "a head or neck in view, the head up (+z)",
                "action": "the region is unsure",
            },
        ],
        "time_limit_s": 500.0,
        "probabilities": {},
        "images": {name: {"size": list(size), "spacing_mm": list(mm)} for name, size, mm in SCANS},
    }


@pytest.mark.parametrize(
    ("task", "method", "segmented_by"), [("segmentation", "threshold", "PET threshold"), ("hpv", "clinical", None)]
)
def test_the_record_of_a_comparator(
    predict: Any, case_folder: Any, tmp_path: Path, task: str, method: str, segmented_by: str | None
) -> None:
    case_folder.write()
    assert predict(task, "--method", method, "--record", str(tmp_path / "record.json")).status == 0
    record = read_json(tmp_path / "record.json")
    assert (record["method"], record["segmented_by"], record["passes_planned"]) == (method, segmented_by, 0)
    assert (record["device"], record["fallbacks"]) == (None, [])
    assert (record["region"] is None) == (method == "clinical")
    assert (record["package"] is None) == (method == "threshold")


def test_log_and_record_describe_the_written_mask(predict: Any, case_folder: Any, tmp_path: Path) -> None:
    """Count voxels and parts of the file with another function: 26-connected, 8 x 8 x 9 mm a voxel."""
    case_folder.write()
    path = tmp_path / "record.json"
    lines = predict("segmentation", "--record", str(path)).lines
    mask = read_volume(next((tmp_path / "output").rglob("*.mha"))).array
    expected = {
        name: {
            "volume_ml": pytest.approx((mask == label).sum() * 0.576, abs=5e-4),
            "count": ndimage.label(mask == label, np.ones((3, 3, 3)))[1],
        }
        for label, name in ((1, "GTVp"), (2, "GTVn"))
    }
    assert read_json(path)["lesions"] == expected
    texts = [
        f"{name} {lesion['volume_ml'].expected:.1f} ml in {lesion['count']} lesion{'' if lesion['count'] == 1 else 's'}"
        for name, lesion in expected.items()
    ]
    assert any(line.endswith("lesions: " + ", ".join(texts)) for line in lines), lines
    for name, size, mm in SCANS:
        shown = ", ".join(f"{step:g}" for step in mm)
        assert any(f" {name}: size {size}, spacing ({shown}) mm, origin" in line for line in lines), lines
    predict("segmentation", "--method", "threshold", "--record", str(path))
    assert read_json(path)["probabilities"] == {}


def test_log_and_record_name_a_class_with_its_probability(
    predict: Any, case_folder: Any, tiny_package: Path, tmp_path: Path
) -> None:
    """Intercept 0.5 less tobacco 0 is a score of 0.5, above the threshold 0; 1 / (1 + exp(-(2 * 0.5 - 2))) = 0.2689."""
    package, path = Path(shutil.copytree(tiny_package, tmp_path / "calibrated")), tmp_path / "record.json"
    head = package / "heads" / "hpv_clinical.json"
    write_json(head, read_json(head) | {"calibration": {"slope": 2.0, "offset": -2.0}})
    write_manifest(package)
    case_folder.ehr["Tobacco Consumption"] = 0
    case_folder.write()
    lines = predict("hpv", "--method", "clinical", "--record", str(path), model=package).lines
    assert read_json(path)["answers"] == {"hpv": True}
    assert read_json(path)["probabilities"] == {"hpv": pytest.approx(0.26894142)}
    assert any(line.endswith(" hpv: True, calibrated probability of True 0.27") for line in lines), lines
    assert any(line.endswith(" hpv: True") for line in predict("hpv", "--method", "clinical").lines)


def test_the_environment_names_the_record_too(
    predict: Any, case_folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rehearsal uses the variable because an image may not know the option; the option comes first."""
    case_folder.write()
    monkeypatch.setenv("HECKTOR_RUN_RECORD", str(tmp_path / "environment.json"))
    assert predict("hpv", "--method", "clinical").status == 0
    assert read_json(tmp_path / "environment.json")["package"]["name"] == "tiny"
    (tmp_path / "environment.json").unlink()
    assert predict("hpv", "--method", "clinical", "--record", str(tmp_path / "option.json")).status == 0
    assert (tmp_path / "option.json").exists()
    assert not (tmp_path / "environment.json").exists()
