"""A harmonised head knows a centre by its ID's code and by what the tables, and so an `ehr.json`, call it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.cli import main
from algorithm.heads.linear import CentreShift, LinearHead, Term
from baseline.heads.cohort import centre_aliases
from baseline.heads.fitting import FittedHead, FittedHeads, cohort_of
from baseline.heads.models.terms import scaled_terms, weighted
from baseline.release.cases import ReleaseCase, read_release
from contract.editions import load_edition
from contract.files import read_json, write_json
from contract.patient import Patient
from rehearsal.phantoms.centres import centre_named
from rehearsal.phantoms.cohort import make_case
from rehearsal.phantoms.layouts import LAYOUTS
from rehearsal.phantoms.protocol import coarsened
from rehearsal.phantoms.scanner import render
from tests.baseline.prepared import EDITION, RFS, outcomes

# What the release's own tables call the centres.
NUMBERS = {"CHUM": "2", "MDA": "5"}


def case(patient_id: str, name: str | None) -> ReleaseCase:
    image = Path("image.nii.gz")
    centre = patient_id.split("-", maxsplit=1)[0]
    return ReleaseCase(patient_id, centre, image, image, None, Patient(centre=name), outcomes(True, 100.0))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((("A-1", "2"), ("A-2", "2"), ("B-1", "5")), {"A": "2", "B": "5"}),
        ((("A-1", "2"), ("A-2", "2"), ("A-3", "5"), ("B-1", "5")), {"A": "2", "B": "5"}),  # one patient is miswritten
        ((("A-1", None), ("B-1", "5")), {"B": "5"}),
        ((("A-1", "7"), ("B-1", "7"), ("C-1", "3")), {"C": "3"}),  # 7 may be either
        ((("A-1", "A"), ("B-1", "A")), {}),
    ],
)
def test_the_tables_names_of_the_centres(names: tuple[tuple[str, str | None], ...], expected: dict[str, str]) -> None:
    assert centre_aliases([case(*pair) for pair in names]) == expected


def test_shifts_stand_under_both_names() -> None:
    move = CentreShift(0.5, 2.0)
    head = LinearHead(
        "test", 0.0, (Term("suv_max", "identity", 0.0, 0.0, 1.0, 1.0, {"CHUM": move, "HGJ": move}),), None
    )
    fitted = FittedHeads({"rfs": FittedHead(head, "Cox", {}, {}, "c_index", 0.7)}, {}).with_centre_aliases(NUMBERS)
    assert dict(fitted.heads["rfs"].head.terms[0].centres) == {"CHUM": move, "HGJ": move, "2": move}


def harmonised_head(tiny_release: Any) -> LinearHead:
    """From a release of six patients each of CHUM and MDA, whose SUVs MDA reads too high by 6 of a spread near 4."""
    for code, name_in_tables in NUMBERS.items():
        for number in range(6):
            name = f"{code}-{number:03d}"
            tiny_release.add(name)
            tiny_release.set(name, CenterID=name_in_tables, Relapse=str(number % 2))
    cases = read_release(tiny_release.write_tables(), EDITION).cases
    rng = np.random.default_rng(0)
    rows = {one.patient_id: {"suv_max": float(rng.normal(10 + 6 * (one.centre == "MDA"), 2))} for one in cases}
    terms = weighted(scaled_terms(cohort_of(RFS, cases, rows), {"suv_max": "identity"}, harmonise=True), [0.3])
    head = LinearHead("log partial hazard", 0.0, terms, None)
    fitted = FittedHeads({"rfs": FittedHead(head, "Cox, harmonised", {}, {}, "c_index", 0.7)}, {})
    return fitted.with_centre_aliases(centre_aliases(cases)).heads["rfs"].head


@pytest.mark.usefixtures("root_logger")
def test_from_the_release_to_an_answer_on_the_platform(
    tiny_release: Any, tiny_package: Path, sign_package: Callable[..., None], tmp_path: Path
) -> None:
    """z is the patient's SUVmax in training standard deviations and 0.3 its weight: the risk is 0.3 z at an unknown
    centre and 0.3 (z - shift) / scale at one that was seen, by whichever of its names."""
    head = harmonised_head(tiny_release)
    package = Path(shutil.copytree(tiny_package, tmp_path / "package"))
    write_json(package / "heads" / "rfs.json", head.as_json())
    sign_package(package)
    phantom = make_case(19, 0, [centre_named("MDA")], "head")
    phantom = replace(phantom, protocol=coarsened(phantom.protocol, 8))
    LAYOUTS["platform"](load_edition()).write_case(tmp_path, phantom, render(phantom))
    folder = tmp_path / phantom.patient_id / "input"
    ehr = EDITION.inputs["ehr"].path_under(folder)
    assert read_json(ehr)["CenterID"] == "MDA"

    def risk(centre: object) -> float:
        ehr.write_text(json.dumps(read_json(ehr) | {"CenterID": centre}))
        options = ["--task", "rfs", "--input", str(folder), "--output", str(tmp_path / "out"), "--model", str(package)]
        assert main([*options, "--device", "cpu", "--passes", "1"]) == 0
        return float(read_json(RFS.answer.socket.path_under(tmp_path / "out")))

    unknown = risk(None)
    z = unknown / 0.3
    assert 0 < abs(z) < 3  # neither filled nor held
    (term,) = head.terms
    for code, spellings in {"MDA": ("mda", 5.0), "CHUM": ("CHUM", 2)}.items():
        move = term.centres[code]
        for spelling in spellings:
            assert risk(spelling) == pytest.approx(0.3 * (z - move.shift) / move.scale), spelling
    assert risk("USZ") == unknown
