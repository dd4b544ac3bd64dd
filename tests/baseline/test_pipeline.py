"""Tests when steps are repeated: a plan can change until a network has a checkpoint, and missing masks are made again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import baseline
from baseline import WorkFolders, measure_out_of_fold
from baseline.network.plans import NetworkPlan, store_plan
from baseline.pipeline import TrainingOptions, describe_next_steps
from baseline.work import PrepareOptions
from contract.io.files import read_json, write_json, write_text
from tests.baseline.prepared import make_planned_work

PLAN = NetworkPlan(spacing_mm=(2.0, 2.0, 4.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "absent",
    [
        {
            "import baseline.cli": "torch nnunetv2 monai scipy SimpleITK matplotlib",
            "import baseline.steps": "torch nnunetv2 monai",
        },
        {"import baseline": "torch nnunetv2 monai lifelines", "baseline.fit_table": "torch SimpleITK"},
    ],
)
def test_heavy_libraries_are_loaded_when_they_are_needed(absent: dict[str, str]) -> None:
    """`fit_table`, which reads only tables, needs no library of images."""
    lines = [f"{line}; print({{*{names.split()}}} & set(sys.modules))" for line, names in absent.items()]
    code = "\n".join(["import sys", *lines])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n" * len(absent)
    assert all(hasattr(baseline, name) for name in baseline.__all__)


@pytest.mark.parametrize("missing", [WorkFolders.raw_mask, WorkFolders.probabilities])
def test_missing_out_of_fold_files_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Any
) -> None:
    """No network is trained: the networks are text files, and a stub of the measurement records the folds."""
    work, calls = make_planned_work(tmp_path), []
    rows = {name: {"volume_ml": float(number)} for number, name in enumerate(("A-1", "A-2", "B-1"))}

    def segment_out_of_fold(work: WorkFolders, cases: Sequence[Any], run: Any, _jobs: int) -> dict[str, Any]:
        calls.append(dict(run.fold_of))
        for case in cases:
            write_text(work.raw_mask(case.patient_id), "mask")
            write_text(work.probabilities(case.patient_id), "probabilities")
        return rows

    monkeypatch.setattr("baseline.network.out_of_fold.segment_out_of_fold", segment_out_of_fold)
    store_plan(work, "any", PLAN)
    for fold in (0, 1):
        write_text(work.final(fold), "network")
    assert measure_out_of_fold(work) == rows
    assert measure_out_of_fold(work) == rows
    assert calls == [{"A-1": 0, "A-2": 1, "B-1": 1}]
    features = work.unfiltered_features_json
    before, path = features.stat().st_mtime_ns, missing(work, "A-2")
    path.unlink()
    assert measure_out_of_fold(work) == rows
    assert path.is_file()
    assert len(calls) == 2
    assert (features.stat().st_mtime_ns, read_json(features)["result"]) == (before, rows)
    write_text(work.final(1), "another network")
    assert measure_out_of_fold(work) == rows
    assert len(calls) == 3
    write_json(work.prepare_json, read_json(work.prepare_json) | {"data": "other images"})
    assert measure_out_of_fold(work) == rows
    assert len(calls) == 4


def test_the_printed_upload_names_the_users_code(tmp_path: Path) -> None:
    """`hecktor submission` refuses a package with code that no option names."""
    options = TrainingOptions(tmp_path, Path("package"), PrepareOptions(Path("release")))
    upload = f"hecktor submission --package package --output {tmp_path / 'submission'}"
    assert describe_next_steps(options, Path("report")).endswith(upload)
    with_code = replace(options, code=(Path("my_model"), Path("examples/mtlr")))
    options = " --code my_model --code examples/mtlr --output"
    assert describe_next_steps(with_code, Path("report")).endswith(upload.replace(" --output", options))
