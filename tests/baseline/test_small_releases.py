"""Releases with few patients, or without some outcomes, give a smaller package and one line for each absent head."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from algorithm.network.package import load_package
from baseline.cli import main
from baseline.package.existing import use_networks
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.editions import load_edition
from contract.errors import InputError
from contract.images.volumes import write_mask
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import Activity, coarsen_protocol, make_case
from rehearsal.phantoms.make import LAYOUTS
from rehearsal.phantoms.rendering import render
from tests.baseline.conftest import TinyRelease
from tests.baseline.test_given_masks import make_block

pytestmark = pytest.mark.slow

PATIENTS = 6
Change = Callable[[dict[str, str]], object]


def write_release(root: Path, edition: str) -> Path:
    """Write coarse phantoms; every second phantom has relapsed, is HPV negative, and has T2, N1."""
    declared = load_edition(edition)
    cases = [make_case(26, index, CENTRES, "head_and_neck") for index in range(PATIENTS)]
    cases = [replace(case, protocol=coarsen_protocol(case.protocol, 8)) for case in cases]
    # One PET is in Bq/ml where the edition has factors.
    cases[0] = replace(cases[0], activity=Activity(80.0, 200e6))
    layout = LAYOUTS["release"](declared)
    for case in cases:
        layout.write_case(root, case, render(case))
    layout.write_tables(root, cases)
    for number, case in enumerate(cases):
        odd = number % 2
        outcomes = {"Relapse": odd, "HPV Status": 1 - odd, "T-stage": f"T{3 - odd}", "N-stage": f"N{2 - odd}"}
        change_tables(
            root, lambda row, of=outcomes: row.update({k: str(v) for k, v in of.items() if k in row}), case.patient_id
        )
    return root


def change_tables(root: Path, change: Change, patient: str | None = None) -> None:
    """Change the rows of one patient, or of all patients, in every table."""
    for path in root.rglob("*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        if "PatientID" not in rows[0] or path.name.startswith("suv"):
            continue
        for row in rows:
            if patient in (None, row["PatientID"]):
                change(row)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def set_all(**values: str) -> Change:
    """Return a change that sets columns of a row, with `_` for a blank or hyphen."""

    def change(row: dict[str, str]) -> None:
        row.update(
            {column: values.get(column.replace(" ", "_").replace("-", "_"), value) for column, value in row.items()}
        )

    return change


def remove_columns(*columns: str) -> Change:
    return lambda row: [row.pop(column, None) for column in columns]


# By edition: the change of the tables, the answers whose columns are then absent, and the heads of the package.
# `test_existing_networks` tests a whole release of 2025, `test_four_answers` a whole release of 2026. In the test below one
# answer of 2025 is absent.
VARIANTS: dict[str, list[tuple[Change, list[str], set[str]]]] = {
    "hecktor2025": [(set_all(Relapse="0"), [], {"hpv"})],
    "hecktor2026": [
        (set_all(N_stage=""), [], {"t_stage", "rfs"}),
        (remove_columns("Relapse", "RFS", "T-stage", "N-stage"), ["t_stage", "n_stage", "rfs"], set()),
    ],
}


@pytest.mark.parametrize("edition", VARIANTS)
def test_outcomes_that_a_release_lacks(edition: str, tiny_package: Path, tmp_path: Path) -> None:
    """Images and masks are the same in all variants, so each variant continues in the first variant's working
    directory.
    """
    first = write_release(tmp_path / "first", edition)
    for change, absent, heads in VARIANTS[edition]:
        root, work, package = (tmp_path / part for part in ("release", "work", "package"))
        for old in (root, package):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(first, root)
        change_tables(root, change)
        common = ["--work", str(work), "--jobs", "1"]
        prepare = ["--release", str(root), "--edition", edition, "--folds", "2", "--spacing-mm", "9", "9", "9"]
        prepare += ["--estimate-suv"] if edition == "hecktor2026" else []
        if absent:
            with pytest.raises(InputError, match="errors, expected none"):
                main(["prepare", *common, *prepare])
            prepare += ["--allow-missing", *absent]
        assert main(["prepare", *common, *prepare]) == 0
        assert main(["heads", *common, "--networks", str(tiny_package)]) == 0
        assert main(["report", *common]) == 0
        assert main(["export", *common, "--output", str(package)]) == 0
        assert {head.removesuffix("_clinical") for head in load_package(package).heads} == heads


@pytest.mark.parametrize(
    ("change", "allowed", "heads"),
    [(set_all(HPV_Status=""), [], {"rfs"}), (remove_columns("Relapse", "RFS"), ["--allow-missing", "rfs"], {"hpv"})],
    ids=["HPV unknown", "no RFS"],
)
def test_twelve_patients_of_one_centre_are_answered_and_exported(
    change: Change,
    allowed: list[str],
    heads: set[str],
    tiny_release: TinyRelease,
    tiny_package: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No centre can be left out and one outcome is absent, as in the held-out answers. The masks exist already, so that
    no network runs.
    """
    for number in range(12):
        odd = str(number % 2)
        name = tiny_release.add(f"CHUM-{number:03d}")
        tiny_release.set(name, Age=f"{50 + number}", Relapse=odd, RFS=str(900 + number), HPV_Status=odd)
    release = tiny_release.write_tables()
    change_tables(release, change)
    work, masks = WorkFolders(tmp_path / "work"), tmp_path / "masks"
    common = ["--work", str(work.root), "--jobs", "1"]
    prepare = ["prepare", *common, "--release", str(release), *allowed]
    assert main([*prepare, "--folds", "2", "--spacing-mm", "9", "9", "9"]) == 0
    for case in read_cases(work):
        write_mask(masks / f"{case.patient_id}.nii.gz", *make_block(case))
    assert main(["heads", *common, "--masks", str(masks)]) == 0
    assert main(["answers", "--work", str(work.root), "--output", str(tmp_path / "answers")]) == 0
    header = (tmp_path / "answers" / "heads" / "answers.csv").read_text().splitlines()[0]
    assert ("risk" in header, "probability" in header) == ("rfs" in heads, "hpv" in heads)
    missing = re.findall(r"^(\w+): no held-out answers, and no outcomes", capsys.readouterr().out, re.MULTILINE)
    assert set(missing) == {"rfs", "hpv"} - heads
    use_networks(work, tiny_package)
    assert main(["export", *common, "--output", str(tmp_path / "package")]) == 0
    package = load_package(tmp_path / "package")
    assert {head.removesuffix("_clinical") for head in package.heads} == heads
    assert package.manifest.training["centres"] == ["CHUM"]
    assert package.manifest.training["patients"] == 12
