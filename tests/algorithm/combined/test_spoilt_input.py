"""Damaged input ends no case of HECKTOR 2026 whose CT has a readable header, through every entry point."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import SimpleITK as sitk

from algorithm import Predictor
from algorithm.cli import main
from contract.errors import ModelPackageError, run_main
from contract.images.volumes import read_volume
from contract.io.files import read_json
from tests.algorithm.combined.four_answers import FILES, MASK, predict_case, read_values
from tests.algorithm.conftest import list_files
from tests.conftest import CaseFolder, drop_toy_notices


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])


NO_PET = "continuing with only the CT; expect an empty mask"
NO_RECORD = "continuing without clinical variables"


@dataclass(frozen=True)
class Fault:
    """A function that damages a case, and the warning that names the damage."""

    spoil: Callable[[CaseFolder], object]
    warning: str


ANSWERED = {
    "no PET": Fault(lambda c: c.pet_path.unlink(), f"images/pet: found nothing, .*; {NO_PET}"),
    "PET truncated": Fault(lambda c: truncate(c.pet_path), rf"4e5f6a7b-pet\.mha: truncated, .*; {NO_PET}"),
    "two PETs": Fault(
        lambda c: shutil.copy(c.pet_path, c.pet_path.parent / "b.mha"), rf"images/pet: found 2 images .*; {NO_PET}"
    ),
    "no ehr.json": Fault(lambda c: c.ehr_path.unlink(), rf"ehr\.json: not found in .*; {NO_RECORD}"),
    "ehr.json cut off": Fault(lambda c: truncate(c.ehr_path), rf"ehr\.json: not valid JSON .*; {NO_RECORD}"),
}
EMPTY = "an empty mask and fallbacks are written"
EMPTY_MASK = {
    "CT truncated": Fault(lambda c: truncate(c.ct_path), rf"0a1b2c3d-ct\.mha: truncated, .*; {EMPTY}"),
    "CT too small": Fault(
        lambda c: sitk.WriteImage(sitk.Image([4, 5, 6], sitk.sitkInt16), str(c.ct_path)),
        rf"0a1b2c3d-ct\.mha: size \(4, 5, 6\), expected at least .*; {EMPTY}",
    ),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_unusable_pet_or_record_ends_no_case(case: CaseFolder, package: Path, name: str) -> None:
    ANSWERED[name].spoil(case)
    record = predict_case(case, package).record
    (notice,) = drop_toy_notices(record.notices)
    assert_matches(ANSWERED[name].warning, str(notice))
    assert (record.segmented_by, record.fallbacks) == ("network", ())
    read_values(case)


@pytest.mark.parametrize("name", EMPTY_MASK)
def test_a_ct_of_which_only_the_grid_is_known(case: CaseFolder, package: Path, name: str) -> None:
    EMPTY_MASK[name].spoil(case)
    record = predict_case(case, package).record
    assert_matches(EMPTY_MASK[name].warning, str(record.notices[-1]))
    assert list_files(case.output) == FILES
    mask, ct = read_volume(case.output / MASK), sitk.ImageFileReader()
    ct.SetFileName(str(case.ct_path))
    ct.ReadImageInformation()
    assert (mask.geometry.size, mask.array.any()) == (ct.GetSize(), False)
    assert [read_json(case.output / name) for name in FILES[1:]] == ["N0", 812.0, "T3"]


def assert_matches(pattern: str, text: str) -> None:
    assert re.search(f"{pattern}$", text), text


# Entry points; `test_many_cases.py` has damaged cases of the server.


@pytest.fixture
def spoilt_case(case: CaseFolder) -> CaseFolder:
    """Truncate the CT, and remove PET and record."""
    truncate(case.ct_path)
    case.pet_path.unlink()
    case.ehr_path.unlink()
    return case


def test_a_spoilt_case_by_the_command_line(
    spoilt_case: CaseFolder, package: Path, capfd: pytest.CaptureFixture[str], root_logger: None
) -> None:
    folders = ["--input", str(spoilt_case.input), "--output", str(spoilt_case.output), "--model", str(package)]
    assert run_main(main, ["--device", "cpu", *folders]) == 0  # the package knows its edition
    assert read_values(spoilt_case) == {"t-stage": "T3", "n-stage": "N0", "rfs": 812.0}
    lines = [line.split(" ", 2)[2] for line in capfd.readouterr().err.splitlines()]
    assert {"t_stage: T3", "n_stage: N0", "rfs: 812 days, higher means later recurrence"} <= set(lines)
    assert lines[-1].startswith("combined answered by package tiny: ")


def test_a_spoilt_case_in_python(spoilt_case: CaseFolder, package: Path) -> None:
    prediction = Predictor(package, device="cpu").predict(spoilt_case.input)
    assert (prediction.risks, prediction.classes) == ({"rfs": 812.0}, {"t_stage": "T3", "n_stage": "N0"})
    assert prediction.mask is not None
    assert (prediction.mask.shape, prediction.mask.any()) == (spoilt_case.ct.array.shape, False)


# Packages of another edition


def test_a_package_of_another_edition_is_refused_at_once(
    case: CaseFolder, tiny_package: Path, capfd: pytest.CaptureFixture[str], root_logger: None
) -> None:
    """Command line and server refuse it before the case is read, and the Predictor too."""
    message = "manifest.json: found edition 'hecktor2025', expected 'hecktor2026'"
    for image in case.input.rglob("*.mha"):
        image.write_bytes(b"no image")
    folders = ["--input", str(case.input), "--output", str(case.output), "--model", str(tiny_package)]
    for serve in ([], ["--serve", "--port", "0"]):
        assert run_main(main, ["--edition", "hecktor2026", *folders, *serve]) == 1
        assert capfd.readouterr().err.splitlines()[-1] == f"error: {message}"
    with pytest.raises(ModelPackageError) as error:
        Predictor(tiny_package, edition="hecktor2026", device="cpu")
    assert str(error.value) == message
