"""Cells of a table whose stages and recurrence are answers, and whose HPV status is an input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baseline.release.cases import read_values
from contract.release.tables import Problem, ReleaseTable
from tests.baseline.release.one_folder import EDITION, HEADER

P = "MDA-001"
COLUMNS = HEADER.split(",")[1:]
CODES = {"Gender": 1, "Tobacco Consumption": 1, "Alcohol Consumption": 1, "Treatment": 1, "HPV Status": 1,
         "Performance Status": 4}  # fmt: skip


def read_row(**cells: str) -> tuple[dict[str, Any], list[Problem]]:
    """Read the values and problems of a row; `_` in a name means a blank or hyphen."""
    row = {column: cells.get(column.replace(" ", "_").replace("-", "_"), "") for column in COLUMNS}
    table = ReleaseTable("t.csv", {P: {column: cell for column, cell in row.items() if cell}}, columns=tuple(row))
    return read_values(table, EDITION)[P], table.problems


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [
        ("T-stage", "T2", "T2"), ("T-stage", "t2", "T2"), ("T-stage", "2.0", "T2"), ("T-stage", "T4b", "T4"),
        ("N-stage", "N2b", "N2"), ("N-stage", "n0", "N0"), ("N-stage", "0", "N0"), ("N-stage", "3.0", "N3"),
    ],
)  # fmt: skip
def test_stages(column: str, cell: str, value: str) -> None:
    values, problems = read_row(**{column.replace("-", "_"): cell})
    assert values == {column: value}
    assert not any(problem.is_error for problem in problems)


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [("T-stage", "T0", "T0"), ("T-stage", "0.0", "T0"), ("T-stage", "cTX", "TX"), ("N-stage", "Nx", "NX")],
)
def test_a_stage_that_is_not_counted(column: str, cell: str, value: str) -> None:
    """Patients with a stage outside the classes lose only this answer, and a warning names them."""
    values, problems = read_row(**{column.replace("-", "_"): cell}, Relapse="1", RFS="90")
    assert values == {"Relapse": True, "RFS": 90.0}
    ((severity, kind, patient, finding),) = [(p.severity, p.kind, p.patient_id, p.found) for p in problems]
    assert (severity, kind, patient) == ("warning", "not-counted", P)
    assert finding == f"{column} {value}: the patient counts for all other answers"


@pytest.mark.parametrize(
    ("cells", "kind", "finding"),
    [
        ({"RFS": "900"}, "days-without-event", "RFS 900 without Relapse, counted as missing"),
        ({"Relapse": "1.0"}, "event-without-days", "Relapse 1.0 without RFS, counted as missing"),
    ],
)
def test_half_an_outcome_leaves_the_other_answers(cells: dict[str, str], kind: str, finding: str) -> None:
    """In HECKTOR 2025 half an outcome is an error, since the algorithm has no other answer (test_planted_faults)."""
    values, problems = read_row(T_stage="T2", **cells)
    assert values == {"T-stage": "T2"}
    assert [(problem.severity, problem.kind, problem.found) for problem in problems] == [("warning", kind, finding)]


@given(
    column=st.sampled_from([*CODES, "Age", "RFS", "Relapse", "T-stage", "N-stage"]),
    number=st.integers(1, 4),
    zeros=st.integers(0, 3),
    point=st.booleans(),
)
def test_a_whole_number_has_one_value_in_all_spellings(column: str, number: int, zeros: int, point: bool) -> None:
    """`1`, `1.`, `1.0` and `1.000` are equal; numbers that are too large for a column are errors in each spelling."""
    name = column.replace(" ", "_").replace("-", "_")
    other_cells = {"Relapse": {"RFS": "9"}, "RFS": {"Relapse": "0"}}.get(column, {})
    cell = f"{number}." + "0" * zeros if point or zeros else str(number)
    plain, spelled = read_row(**{name: str(number)}, **other_cells), read_row(**{name: cell}, **other_cells)
    assert plain[0] == spelled[0]
    largest = {**CODES, "Relapse": 1, "N-stage": 3}.get(column, 4)
    assert (column in spelled[0]) == (number <= largest)
    assert [problem.kind for problem in spelled[1] if problem.is_error] == ["impossible-value"] * (number > largest)
