"""Spoilt input ends no case of HECKTOR 2026 whose CT has a readable header, through every entry point."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import SimpleITK as sitk

from algorithm import Predictor
from algorithm.cli import main
from contract.errors import HecktorError, InputError, ModelPackageError, run_main
from contract.images.volumes import read_volume
from contract.io.files import read_json
from tests.algorithm.combined.answered import FILES, MASK, RECORD, answered, values
from tests.algorithm.conftest import files_below
from tests.algorithm.test_serve import algorithm, call
from tests.conftest import CaseFolder, but_of_toys
from tests.faults.forked import Forks


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])


def placeholder(path: Path) -> None:
    """The one-pixel image of the challenge's template."""
    sitk.WriteImage(sitk.Image([1, 1], sitk.sitkUInt8), str(path))


ALONE = "going on with the CT alone; expect an empty mask"
NO_RECORD = "going on without clinical variables"


@dataclass(frozen=True)
class Fault:
    """How to spoil a case, and the one warning about it."""

    spoil: Callable[[CaseFolder], object]
    warning: str


ANSWERED = {
    "no PET folder": Fault(lambda c: shutil.rmtree(c.pet_path.parent), f"images/pet: no such folder, .*; {ALONE}"),
    "no PET": Fault(lambda c: c.pet_path.unlink(), f"images/pet: found nothing, .*; {ALONE}"),
    "PET truncated": Fault(lambda c: truncated(c.pet_path), rf"4e5f6a7b-pet\.mha: truncated, .*; {ALONE}"),
    "PET a placeholder": Fault(
        lambda c: placeholder(c.pet_path), rf"4e5f6a7b-pet\.mha: 2 dimensions \(1 x 1\), expected a 3D image; {ALONE}"
    ),
    "two PETs": Fault(
        lambda c: shutil.copy(c.pet_path, c.pet_path.parent / "b.mha"), rf"images/pet: found 2 images .*; {ALONE}"
    ),
    "PET garbage": Fault(lambda c: c.pet_path.write_bytes(b"\x00\xff" * 500), rf"4e5f6a7b-pet\.mha: .*; {ALONE}"),
    "no ehr.json": Fault(lambda c: c.ehr_path.unlink(), rf"ehr\.json: not found in .*; {NO_RECORD}"),
    "ehr.json a list": Fault(lambda c: c.ehr_path.write_text("[]"), rf"ehr\.json: found a JSON list, .*; {NO_RECORD}"),
    "ehr.json binary": Fault(lambda c: c.ehr_path.write_bytes(b"\xff\xfe{"), rf"ehr\.json: not UTF-8 .*; {NO_RECORD}"),
    "ehr.json cut off": Fault(lambda c: truncated(c.ehr_path), rf"ehr\.json: not valid JSON .*; {NO_RECORD}"),
}
EMPTY = "an empty mask and fallbacks are written"
EMPTY_MASK = {
    "CT truncated": Fault(lambda c: truncated(c.ct_path), rf"0a1b2c3d-ct\.mha: truncated, .*; {EMPTY}"),
    "CT too small": Fault(
        lambda c: sitk.WriteImage(sitk.Image([4, 5, 6], sitk.sitkInt16), str(c.ct_path)),
        rf"0a1b2c3d-ct\.mha: size \(4, 5, 6\), expected at least .*; {EMPTY}",
    ),
}
REFUSED = {
    "no CT": Fault(lambda c: c.ct_path.unlink(), "images/ct: found nothing, expected exactly one image"),
    "CT a placeholder": Fault(lambda c: placeholder(c.ct_path), r"0a1b2c3d-ct\.mha: 2 dimensions \(1 x 1\), expected"),
    "CT garbage": Fault(lambda c: c.ct_path.write_bytes(b"\x00" * 999), r"0a1b2c3d-ct\.mha: not a readable image"),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_unusable_pet_or_record_ends_no_case(case: CaseFolder, package: Path, name: str) -> None:
    ANSWERED[name].spoil(case)
    record = answered(case, package).record
    (notice,) = but_of_toys(record.notices)
    assert_matches(ANSWERED[name].warning, str(notice))
    assert (record.segmented_by, record.fallbacks) == ("network", ())
    values(case)


@pytest.mark.parametrize("name", EMPTY_MASK)
def test_a_ct_of_which_only_the_grid_is_known(case: CaseFolder, package: Path, name: str) -> None:
    EMPTY_MASK[name].spoil(case)
    record = answered(case, package).record
    assert_matches(EMPTY_MASK[name].warning, str(record.notices[-1]))
    assert files_below(case.output) == FILES
    mask, ct = read_volume(case.output / MASK), sitk.ImageFileReader()
    ct.SetFileName(str(case.ct_path))
    ct.ReadImageInformation()
    assert (mask.geometry.size, mask.array.any()) == (ct.GetSize(), False)
    assert [read_json(case.output / name) for name in FILES[1:]] == ["N0", 812.0, "T3"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_without_any_grid_is_an_error(case: CaseFolder, package: Path, name: str) -> None:
    REFUSED[name].spoil(case)
    with pytest.raises(InputError, match=REFUSED[name].warning):
        answered(case, package)
    assert files_below(case.output) == []


def assert_matches(pattern: str, text: str) -> None:
    assert re.search(f"{pattern}$", text), text


# The same through every entry point


@pytest.fixture
def spoilt(case: CaseFolder) -> CaseFolder:
    """A case with a truncated CT, no PET and no record."""
    truncated(case.ct_path)
    case.pet_path.unlink()
    case.ehr_path.unlink()
    return case


def test_a_spoilt_case_by_the_command_line(
    spoilt: CaseFolder, package: Path, capfd: pytest.CaptureFixture[str], root_logger: None
) -> None:
    folders = ["--input", str(spoilt.input), "--output", str(spoilt.output), "--model", str(package)]
    assert run_main(main, ["--device", "cpu", *folders]) == 0  # the package knows its edition
    assert values(spoilt) == {"t-stage": "T3", "n-stage": "N0", "rfs": 812.0}
    lines = [line.split(" ", 2)[2] for line in capfd.readouterr().err.splitlines()]
    assert {"t_stage: T3", "n_stage: N0", "rfs: 812 days, higher means later recurrence"} <= set(lines)
    assert lines[-1].startswith("combined answered by package tiny: ")


@pytest.mark.slow
def test_a_spoilt_case_by_the_server(forks: Forks, spoilt: CaseFolder, package: Path) -> None:
    with algorithm(forks, spoilt, package, "combined", "--edition", "hecktor2026") as (_, port):
        assert call(port, "POST", "/invoke")[0] == 201
        assert values(spoilt) == {"t-stage": "T3", "n-stage": "N0", "rfs": 812.0}
        spoilt.write()
        assert call(port, "POST", "/invoke")[0] == 201
        assert values(spoilt)["rfs"] != 812.0


def test_a_spoilt_case_in_python(spoilt: CaseFolder, package: Path) -> None:
    prediction = Predictor(package, device="cpu").predict(spoilt.input)
    assert (prediction.risks, prediction.classes) == ({"rfs": 812.0}, {"t_stage": "T3", "n_stage": "N0"})
    assert prediction.mask is not None
    assert (prediction.mask.shape, prediction.mask.any()) == (spoilt.ct.array.shape, False)


# Packages of another edition


@pytest.mark.parametrize(("edition", "other"), [("hecktor2026", "hecktor2025"), ("hecktor2025", "hecktor2026")])
def test_a_package_of_another_edition_is_refused_at_once(
    case: CaseFolder,
    tiny_package: Path,
    combined_package: Path,
    capfd: pytest.CaptureFixture[str],
    root_logger: None,
    edition: str,
    other: str,
) -> None:
    """By the command line and the server, before the case is read, and by the Predictor."""
    model = tiny_package if other == "hecktor2025" else combined_package
    message = f"manifest.json: found edition '{other}', expected '{edition}'"
    for image in case.input.rglob("*.mha"):
        image.write_bytes(b"no image")
    folders = ["--input", str(case.input), "--output", str(case.output), "--model", str(model)]
    tasks = [[]] if edition == "hecktor2026" else [["--task", "1"], ["--task", "rfs", "--method", "clinical"]]
    for task in tasks:
        for serve in ([], ["--serve", "--port", "0"]):
            assert run_main(main, ["--edition", edition, *task, *folders, *serve]) == 1
            assert capfd.readouterr().err.splitlines()[-1] == f"error: {message}"
    with pytest.raises(ModelPackageError) as error:
        Predictor(model, edition=edition, device="cpu")
    assert str(error.value) == message


# Clinical records


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        json.dumps(dict.fromkeys(RECORD)),
        json.dumps({key: str(value) for key, value in RECORD.items()}),
        json.dumps(dict.fromkeys(RECORD, "textual")),
        json.dumps(dict.fromkeys(RECORD, float("nan"))),
        json.dumps(RECORD | {"Shoe size": [44], "CenterID": {"name": "nowhere"}}),
        json.dumps(RECORD, indent=1)[:-2] + ",\n}",
    ],
    ids=["empty", "null", "strings", "text", "NaN", "unknown", "trailing comma"],
)
def test_no_value_of_the_record_ends_a_case(case: CaseFolder, package: Path, text: str) -> None:
    case.ehr_path.write_text(text)
    assert answered(case, package).record.fallbacks == ()
    values(case)


def test_a_default_task_needs_an_edition_only(combined_package: Path, tiny_package: Path) -> None:
    assert Predictor(combined_package, edition="hecktor2026", device="cpu").algorithm.name == "combined"
    assert Predictor(tiny_package, device="cpu").algorithm.name == "segmentation"
    with pytest.raises(HecktorError, match="found task 'segmentation'"):
        Predictor(combined_package, edition="hecktor2026", task="segmentation")
