"""Coarse phantoms go through every step of training to a package that answers, with training too short to learn."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.cli import main as predict
from algorithm.network.package import load_package
from baseline.cli import main as baseline_main
from contract import platform
from contract.errors import HecktorError, run_main
from contract.images.volumes import read_volume
from contract.io.files import read_json
from tests.baseline.conftest import PATIENTS, TinyRelease, write_two_centres
from tests.baseline.prepared import EDITION
from tests.baseline.report.records import list_charts
from tests.conftest import CaseFolder

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def make_options(release: Path, root: Path, *more: str) -> list[str]:
    """Return options for coarse voxels and 8 features: with 4, PyTorch's convolutions of one image on a CPU are several
    times slower.
    """
    return [
        "all", "--release", str(release), "--work", str(root / "work"), "--output", str(root / "package"),
        "--epochs", "1", "--iterations", "2", "--memory-gb", "0.1", "--base-features", "8", "--most-features", "16",
        "--folds", "2", "--jobs", "1", "--spacing-mm", "9", "9", "9", "--backbones", "unet", "segresnet", *more,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("root_logger", "without_plots")
def test_every_step_from_a_cohort_to_an_answer(
    tiny_release: TinyRelease,
    tmp_path: Path,
    case_folder: CaseFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All networks are trained in this process."""
    for name in ("raw", "preprocessed", "results", "n_proc_DA", "compile"):
        monkeypatch.setenv(f"nnUNet_{name}", "")  # so that the test restores them
    monkeypatch.setattr("baseline.network.planning.FINGERPRINT_VOXELS", 10_000)
    release, platform_input = write_two_centres(tiny_release), case_folder.write().input
    assert baseline_main(make_options(release, tmp_path)) == 0
    printed = capsys.readouterr().out
    assert f"steps for {PATIENTS} patients: check, prepare, plan, train 4 networks of 1 epochs" in printed
    package = load_package(tmp_path / "package")
    assert sorted(package.heads) == ["hpv", "hpv_clinical", "rfs", "rfs_clinical"]
    assert package.manifest.configurations == ("3d_fullres", "3d_fullres_segresnet") * 2
    training = package.manifest.training
    assert training["patients"] == PATIENTS
    assert training["plan"]["iterations"] == 2
    assert set(package.manifest.out_of_fold) == set(package.heads)
    assert set(package.manifest.cross_validation) == {"rfs", "hpv"}
    texts = [(package.root / name).read_text() for name in ("manifest.json", "plans.json", "MODEL_CARD.md")]
    assert str(tmp_path) not in "".join(texts)
    check_card(package.manifest.files, texts[-1])
    check_folds(tmp_path / "work", release)
    progress = [line for line in printed.splitlines() if ": epoch 1 of 1, loss " in line]
    assert len(progress) == 4  # two folds of two backbones
    check_heads(tmp_path / "work", release)
    check_report(tmp_path / "work")
    check_answers(package.root, platform_input, tmp_path / "output")
    check_resuming(release, tmp_path)


def check_card(files: Mapping[str, Any], card: str) -> None:
    """Check that the card is listed with its checksum and holds what the report computed from these heads."""
    assert files["MODEL_CARD.md"].size == len(card.encode())
    assert f"Patients: {PATIENTS}. By centre: " in card
    assert "Run `hecktor train report`" not in card
    assert card.count(f" | {PATIENTS} | ") == 5  # three metrics of masks, two heads


def check_resuming(release: Path, root: Path) -> None:
    """Check that repeating the command changes no file of the steps before the export, and that other options or folds
    are refused.
    """
    times = {path: path.stat().st_mtime_ns for path in (root / "work" / "nnunet").rglob("*") if path.is_file()}
    steps = [root / "work" / f"{name}.json" for name in ("features", "heads", "cross_validation")]
    steps += [root / "work" / "report" / "index.html"]
    steps += sorted((root / "work" / "out_of_fold" / "masks").iterdir())
    ended = {path: path.stat().st_mtime_ns for path in steps}
    assert baseline_main(make_options(release, root)) == 0
    assert ended == {path: path.stat().st_mtime_ns for path in steps}
    after = {path: path.stat().st_mtime_ns for path in (root / "work" / "nnunet").rglob("*") if path.is_file()}
    assert {path.name for path in times if times[path] != after.get(path)} == {"dataset.json"}
    assert set(after) == set(times)
    with pytest.raises(HecktorError, match=r"plan\.json: a network has been trained with --epochs 1, now 2,"):
        baseline_main(make_options(release, root, "--epochs", "2"))
    with pytest.raises(HecktorError, match=r"splits\.json: 2 folds with seed 0, now 2 and 1"):
        baseline_main(make_options(release, root, "--seed", "1"))
    with pytest.raises(HecktorError, match="--fold: found 99"):
        baseline_main(["fold", "--work", str(root / "work"), "--fold", "99"])


def check_folds(work: Path, release: Path) -> None:
    """Check that every patient was measured by the fold that did not train on it; the centres come after the two folds."""
    patients = sorted(path.name for path in (release / "Task 1").iterdir() if path.is_dir())
    assert sorted(read_json(work / "features.json")["result"]) == patients
    (path,) = (work / "nnunet" / "preprocessed").glob("*/splits_final.json")
    splits = json.loads(path.read_text())
    for kind in (splits[:2], splits[2:]):
        assert sorted(patient for split in kind for patient in split["val"]) == patients
    centres = [{patient.split("-")[0] for patient in split["val"]} for split in splits[2:]]
    assert [len(centre) for centre in centres] == [1] * len({patient.split("-")[0] for patient in patients})


def check_heads(work: Path, release: Path) -> None:
    """Check that every patient has an out-of-fold mask on the CT's grid, and that every head is scored on all patients
    with an outcome.
    """
    for folder in sorted(path for path in (release / "Task 1").iterdir() if path.is_dir()):
        mask = read_volume(work / "out_of_fold" / "masks" / f"{folder.name}.nii.gz")
        ct = read_volume(folder / f"{folder.name}__CT.nii.gz")
        assert mask.geometry.find_differences(ct.geometry) == []
        assert set(np.unique(mask.array)) <= {0, 1, 2}
    document = read_json(work / "cross_validation.json")
    assert document["no_head"] == {}
    for target in ("rfs", "hpv"):
        assert len(document[target]["patients"]) == PATIENTS
        assert 3 <= len(document[target]["nested"]["folds"]) <= 5
        assert set(document[target]["nested"]["comparators"]) == {"tumour_volume", "suv_max", "clinical"}


def check_report(work: Path) -> None:
    """Check that the evaluation scored every patient's mask and that the page shows both targets and the worst cases."""
    scored = read_json(work / "report" / "task1" / "metrics.json")
    assert scored["cases"]["answered"] == scored["cases"]["used"] == PATIENTS
    assert scored["cases"]["failed"] == []
    figures = read_json(work / "report" / "report.json")
    assert len(figures["worst_cases"]) == 6
    assert set(figures["segmentation"]) == {"gtvp_dsc_mean", "gtvn_dsc_agg", "gtvn_f1_agg"}
    assert figures["rfs"]["models"]["heads"]["nested"]["value"] is not None
    page = (work / "report" / "index.html").read_text()
    assert page.count("<img") == 6
    assert list_charts(page) == ["loss", "rfs-survival", "hpv-calibration"]
    assert len(list(filter(None, figures["summary"]))) == 3
    assert figures["training"]["Trained until"]
    order = ["summary", "training", "rfs", "hpv", "segmentation", "worst"]
    assert [part for part in re.findall(r'class="part" id="([^"]+)"', page) if part != "postprocessing"] == order
    assert "<script src" not in page  # it loads nothing
    assert str(work) not in page


def check_answers(package: Path, platform_input: Path, output: Path) -> None:
    """Check that the package writes a mask on the CT's grid, a risk and a status."""
    answers = {}
    for task, method in (("segmentation", "baseline"), ("rfs", "clinical"), ("hpv", "clinical")):
        passes = ["--passes", "2"] if method == "baseline" else []
        places = ["--input", str(platform_input), "--output", str(output), "--model", str(package)]
        assert run_main(predict, ["--task", task, "--method", method, *places, "--device", "cpu", *passes]) == 0
        answers[task] = EDITION.find_algorithm(task).answers[0].socket.path_under(output)
    mask = read_volume(answers["segmentation"] / platform.MASK_FILE_NAME)
    (ct,) = EDITION.inputs["ct"].path_under(platform_input).iterdir()
    assert mask.geometry.find_differences(read_volume(ct).geometry) == []
    assert set(np.unique(mask.array)) <= {0, 1, 2}
    assert math.isfinite(read_json(answers["rfs"]))
    assert isinstance(read_json(answers["hpv"]), bool)
