"""Outcomes and clinical variables that only a custom edition declares."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.editions import Edition, load_edition, parse_edition
from contract.errors import OutputError
from contract.io.files import read_json, write_json
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions, PhantomCase, make_case
from rehearsal.phantoms.make import make_cohort
from rehearsal.phantoms.tables import make_platform_ehr, make_table_row

FOUR_ANSWERS = Path(__file__).parents[2] / "editions" / "four_answers.json"
SURVIVAL = {"name": "death", "kind": "risk", "slug": "d", "title": "D", "path": "d.json"}
CLASS = {"name": "grade", "kind": "class", "slug": "g", "title": "G", "path": "g.json"}


@pytest.fixture(scope="module")
def cases() -> list[PhantomCase]:
    return [make_case(3, index, CENTRES) for index in range(300)]


def make_edition(answers: list[dict[str, Any]], clinical: list[dict[str, Any]] | None = None) -> Edition:
    content = read_json(FOUR_ANSWERS)
    content["algorithms"][0]["answers"] = answers
    return parse_edition(content | ({} if clinical is None else {"clinical": clinical}))


def read_column(cases: list[PhantomCase], declared: Edition, name: str) -> list[Any]:
    return [make_table_row(case, declared, declared.find_algorithm())[name] for case in cases]


@pytest.mark.parametrize(
    ("classes", "expected"), [(["a", "b", "c"], ["a", "b", "c"]), ([False, True], [0, 1]), ([2, 5, 7, 8], [2, 5, 7, 8])]
)
def test_a_class_grows_with_the_volume_and_all_are_frequent(
    cases: list[PhantomCase], classes: list[Any], expected: list[Any]
) -> None:
    """Of 300 patients each of k classes has 300 / k, within 4 standard errors of sqrt(300 (1 / k) (1 - 1 / k)) <= 8.7."""
    values = read_column(cases, make_edition([CLASS | {"classes": classes, "columns": {"class": "Grade"}}]), "Grade")
    counts = Counter(values)
    assert sorted(counts) == expected
    assert all(abs(count - 300 / len(classes)) < 35 for count in counts.values())
    volumes = [case.disease.gtvp_ml + case.disease.gtvn_ml for case in cases]
    medians = [np.median(np.array(volumes)[np.array(values) == value]) for value in expected]
    assert medians == sorted(medians)


def test_a_survival_has_the_hazard_of_the_recurrence_and_its_own_draws(cases: list[PhantomCase]) -> None:
    declared = make_edition([SURVIVAL | {"columns": {"time": "Days", "event": "Death"}}])
    days, deaths = (np.array(read_column(cases, declared, name)) for name in ("Days", "Death"))
    assert 30 <= days.min() < days.max() <= 2192  # six years of follow-up
    assert 60 < deaths.sum() < 150
    assert (days == [case.outcome.rfs_days for case in cases]).mean() < 0.2  # equal only at six years
    hazards = np.array([case.outcome.linear_predictor for case in cases])
    earlier = (days[:, None] < days[None]) & (deaths[:, None] == 1)
    concordant = (hazards[:, None] > hazards[None])[earlier].mean()
    assert 0.7 < concordant < 0.85  # about 0.77 for a perfect risk, see rehearsal.phantoms.outcome


@pytest.mark.slow
def test_columns_of_phantoms_are_used_where_the_declaration_can_read_them(cases: list[PhantomCase]) -> None:
    """Without words T1 to T4 are not 1 to 4, and a death does not use the days of a recurrence."""
    words = {f"t{stage}": stage for stage in (1, 2, 3, 4)}
    stages = CLASS | {"classes": [1, 2, 3, 4], "columns": {"class": "T-stage"}}
    assert set(read_column(cases, make_edition([stages | {"words": words}]), "T-stage")) <= {
        "T1",
        "T2",
        "T3",
        "T4",
        None,
    }
    assert set(read_column(cases, make_edition([stages]), "T-stage")) == {1, 2, 3, 4}
    hpv = CLASS | {"classes": ["neg", "pos"], "columns": {"class": "HPV"}, "words": {"0": "neg", "1": "pos"}}
    assert read_column(cases, make_edition([hpv]), "HPV") == [int(case.outcome.hpv_positive) for case in cases]
    rfs = [case.outcome.rfs_days for case in cases]
    for event, is_same in (("Relapse", True), ("Death", False)):
        declared = make_edition([SURVIVAL | {"columns": {"time": "RFS", "event": event}}])
        assert (read_column(cases, declared, "RFS") == rfs) is is_same


def test_clinical_variables_by_type(cases: list[PhantomCase]) -> None:
    """Codes of phantoms that the declaration cannot read are drawn again; each of 3 values has 80 to 115 of 300
    patients, less about 2% missing.
    """
    clinical: list[dict[str, Any]] = [
        {"name": "age_years", "key": "Age", "type": "years"},
        {"name": "years_before", "key": "Before", "type": "years"},
        {"name": "tobacco", "key": "Tobacco", "type": "code", "codes": [0, 2]},
        {"name": "performance_status", "key": "Status", "type": "code", "codes": [0, 2]},
        {"name": "grade", "key": "Grade", "type": "stage", "stages": ["G1", "G2", "G3"]},
    ]
    survival = SURVIVAL | {"columns": {"time": "Days", "event": "Death"}}
    declared = make_edition([survival], clinical)
    assert read_column(cases, declared, "Tobacco") == [case.record["tobacco"] for case in cases]
    assert read_column(cases, declared, "Age") == [case.record["age_years"] for case in cases]
    for name, values in (("Status", [0, 1, 2]), ("Grade", ["G1", "G2", "G3"])):
        counts = Counter(read_column(cases, declared, name))
        assert all(70 < counts[value] < 125 for value in values)
        assert 0 < counts[None] < 20
    assert {type(value) for value in read_column(cases, declared, "Before")} == {int, type(None)}
    for case in cases[:20]:
        row, ehr = make_table_row(case, declared, declared.find_algorithm()), make_platform_ehr(case, declared)
        assert all(ehr.get(name) == row[name] for name in ("Age", "Before", "Tobacco", "Status", "Grade"))


def test_a_cohort_is_continued_only_for_the_same_declaration(tmp_path: Path) -> None:
    """Two editions of one name have the same file names; their digests differ in `truth/cohort.json`."""
    content = read_json(FOUR_ANSWERS)
    file = tmp_path / "edition.json"
    options = CohortOptions(8, ("HMR",), "platform", "head_and_neck", ct_coarsening=16, edition=str(file))
    write_json(file, content)
    list(make_cohort(options, 1, tmp_path / "cohort", 1))
    write_json(file, content | {"citation": "its organisers"})
    list(make_cohort(options, 1, tmp_path / "cohort", 1))
    write_json(file, content | {"title": "Another"})
    with pytest.raises(OutputError, match="found a cohort made with"):
        next(make_cohort(options, 1, tmp_path / "cohort", 1))
    shipped = replace(options, edition="hecktor2026").as_json()
    assert shipped["edition"] == load_edition("hecktor2026").name
    assert "edition_sha256" not in shipped
