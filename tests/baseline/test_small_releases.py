"""Small releases give a package with a head for each outcome that they have, and one line for each absent head."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from algorithm.cli import main as predict
from algorithm.network.package import load_package
from baseline.cli import main
from baseline.package.existing import use_networks
from baseline.release.cases import read_cases
from baseline.work import WorkFolders, read_min_lesion_sizes
from contract.editions import load_edition
from contract.errors import InputError, run_main
from contract.images.volumes import write_mask
from contract.io.files import read_json
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import Activity, PhantomCase, coarsen_protocol, make_case
from rehearsal.phantoms.make import LAYOUTS
from rehearsal.phantoms.rendering import render
from tests.baseline.conftest import TinyRelease
from tests.baseline.prepared import make_block

pytestmark = pytest.mark.slow

EDITION = load_edition("hecktor2026")
PATIENTS = 6
Change = Callable[[dict[str, str]], object]


def make_coarse_case(number: int) -> PhantomCase:
    case = make_case(26, number, CENTRES, "head_and_neck")
    return replace(case, protocol=coarsen_protocol(case.protocol, 8))


def write_release(root: Path) -> Path:
    """Write coarse phantoms of HECKTOR 2026; every second phantom has relapsed and has T2, N1. One PET is in Bq/ml."""
    cases = [make_coarse_case(number) for number in range(PATIENTS)]
    cases[0] = replace(cases[0], activity=Activity(80.0, 200e6))
    layout = LAYOUTS["release"](EDITION)
    for case in cases:
        layout.write_case(root, case, render(case))
    layout.write_tables(root, cases)
    numbers = {case.patient_id: number % 2 for number, case in enumerate(cases)}

    def set_outcomes(row: dict[str, str]) -> None:
        odd = numbers[row["PatientID"]]
        row.update({"Relapse": str(odd), "T-stage": f"T{3 - odd}", "N-stage": f"N{2 - odd}"})

    change_tables(root, set_outcomes)
    return root


def change_tables(root: Path, change: Change) -> None:
    """Change all rows in every table of patients."""
    for path in root.rglob("*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        if "PatientID" not in rows[0] or path.name.startswith("suv"):
            continue
        for row in rows:
            change(row)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def remove_columns(*columns: str) -> Change:
    return lambda row: [row.pop(column, None) for column in columns]


def make_prepare_options(release: Path) -> list[str]:
    (factors,) = release.rglob("suv_conversion_tags.csv")
    options = ["--release", str(release), "--edition", EDITION.name, "--suv-factors", str(factors), "--folds", "2"]
    return [*options, "--spacing-mm", "9", "9", "9", "--jobs", "1"]


@pytest.fixture(scope="module")
def trained(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train the heads of 2026 on networks of 2025. Tests change only copies of `work` and `release`."""
    root = tmp_path_factory.mktemp("trained")
    options = make_prepare_options(write_release(root / "release"))
    places = ["--work", str(root / "work"), "--output", str(root / "package"), "--networks", str(tiny_package)]
    assert main(["all", *places, *options]) == 0
    return root


def test_heads_of_2026_on_networks_of_2025(trained: Path, tmp_path: Path, root_logger: None) -> None:
    """The package gives all four answers for another patient."""
    package = load_package(trained / "package")
    assert package.manifest.edition == "hecktor2026"
    assert {"t_stage", "n_stage", "rfs"} <= set(package.heads)
    check_fallbacks(package.manifest.fallbacks)
    assert package.manifest.smallest_lesions == read_min_lesion_sizes(WorkFolders(trained / "work"))
    case = make_coarse_case(PATIENTS)
    LAYOUTS["platform"](EDITION).write_case(tmp_path, case, render(case))
    output, record = tmp_path / "output", tmp_path / "record.json"
    places = ["--input", str(tmp_path / case.patient_id / "input"), "--output", str(output), "--record", str(record)]
    options = ["--edition", "hecktor2026", "--device", "cpu", "--model", str(package.root)]
    assert run_main(predict, [*places, *options]) == 0
    assert read_json(record)["fallbacks"] == []
    t_stage, n_stage, rfs = (read_json(output / f"{name}.json") for name in ("t-stage", "n-stage", "rfs"))
    assert t_stage in ("T1", "T2", "T3", "T4")
    assert n_stage in ("N0", "N1", "N2", "N3")
    assert rfs > 0
    assert list((output / "images" / "head-neck-tumor-segmentation").iterdir())


def check_fallbacks(fallbacks: dict[str, Any]) -> None:
    """Check that each head has a fallback that is a valid answer."""
    assert set(fallbacks) == {"t_stage", "n_stage", "rfs"}
    for answer in EDITION.find_algorithm().head_specs:
        value = fallbacks[answer.head]
        assert value in answer.classes if answer.classes else value > 0


@pytest.mark.parametrize(
    ("change", "absent", "heads"),
    [
        (lambda row: row.update({"N-stage": ""}), [], {"t_stage", "rfs"}),
        (remove_columns("Relapse", "RFS", "T-stage", "N-stage"), ["t_stage", "n_stage", "rfs"], set()),
    ],
    ids=["without values", "without columns"],
)
def test_outcomes_that_a_release_lacks(
    trained: Path, tmp_path: Path, change: Change, absent: list[str], heads: set[str]
) -> None:
    """Images and masks are the same, so the training continues in a copy of the working directory."""
    shutil.copytree(trained / "work", tmp_path / "work")
    release, package = Path(shutil.copytree(trained / "release", tmp_path / "release")), tmp_path / "package"
    change_tables(release, change)
    common, prepare = ["--work", str(tmp_path / "work"), "--jobs", "1"], make_prepare_options(release)
    if absent:
        with pytest.raises(InputError, match="errors, expected none"):
            main(["prepare", *common, *prepare])
        prepare += ["--allow-missing", *absent]
    assert main(["prepare", *common, *prepare]) == 0
    for step in (["heads"], ["report"], ["export", "--output", str(package)]):
        assert main([*step, *common]) == 0
    assert {head.removesuffix("_clinical") for head in load_package(package).heads} == heads


def test_eight_patients_of_one_centre_are_answered_and_exported(
    tiny_release: TinyRelease, tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No centre can be left out and one outcome is absent, as in the held-out answers. The masks exist already, so that
    no network runs.
    """
    for number in range(8):
        name = tiny_release.add(f"CHUM-{number:03d}")
        tiny_release.set(name, Age=f"{50 + number}", HPV_Status=str(number % 2))
    release = tiny_release.write_tables()
    change_tables(release, remove_columns("Relapse", "RFS"))
    work, masks = WorkFolders(tmp_path / "work"), tmp_path / "masks"
    common = ["--work", str(work.root), "--jobs", "1"]
    prepare = ["prepare", *common, "--release", str(release), "--allow-missing", "rfs"]
    assert main([*prepare, "--folds", "2", "--spacing-mm", "9", "9", "9"]) == 0
    for case in read_cases(work):
        write_mask(masks / f"{case.patient_id}.nii.gz", *make_block(case))
    assert main(["heads", *common, "--masks", str(masks)]) == 0
    assert main(["answers", "--work", str(work.root), "--output", str(tmp_path / "answers")]) == 0
    header = (tmp_path / "answers" / "heads" / "answers.csv").read_text().splitlines()[0]
    assert ("risk" in header, "probability" in header) == (False, True)
    missing = re.findall(r"^(\w+): no held-out answers, and no outcomes", capsys.readouterr().out, re.MULTILINE)
    assert missing == ["rfs"]
    use_networks(work, tiny_package)
    assert main(["export", *common, "--output", str(tmp_path / "package")]) == 0
    package = load_package(tmp_path / "package")
    assert {head.removesuffix("_clinical") for head in package.heads} == {"hpv"}
    assert package.manifest.training["centres"] == ["CHUM"]
    assert package.manifest.training["patients"] == 8
