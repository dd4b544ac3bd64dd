"""Best, median and worst of teams' runs."""

from __future__ import annotations

import json

import pytest

from contract.errors import HecktorError
from evaluation.studies.cli import main
from tests.evaluation.tasks import RFS


@pytest.fixture
def run_of(tmp_path, phase_of):
    """A metrics.json of four recurrences at days 1 to 4, ranked by these risks."""

    def make(name, risks):
        phase = phase_of(RFS)
        phase.truth_table("PatientID,Relapse,RFS\nP1,1,1\nP2,1,2\nP3,1,3\nP4,1,4\n")
        for number, risk in enumerate(risks, start=1):
            phase.value(f"P{number}", str(risk))
        phase.run()
        phase.root.rename(tmp_path / name)
        return str(tmp_path / name / "output" / "metrics.json")

    return make


def test_best_median_and_worst(tmp_path, run_of):
    """Of six pairs: team a has 6, 3 and 0 right, team b 5 and 4. Median of b 4.5 / 6.

    Means over teams: best (6 + 5) / 12, median (3 + 4.5) / 12, worst (0 + 4) / 12.
    """
    a = [run_of("a1", [4, 3, 2, 1]), run_of("a2", [2, 3, 4, 1]), run_of("a3", [1, 2, 3, 4])]
    b = [run_of("b1", [3, 4, 2, 1]), run_of("b2", [3, 4, 1, 2])]
    arguments = [f"a={','.join(a)}", f"b={','.join(b)}", "--output", str(tmp_path / "out")]
    assert main(["runs", "--task", "2", *arguments]) == 0
    found = json.loads((tmp_path / "out" / "runs.json").read_text())
    means = found["means_over_teams"]["c_index"]
    assert [means[key] for key in ("best", "median", "worst")] == pytest.approx([11 / 12, 7.5 / 12, 4 / 12])
    assert found["runs"] == 5
    line = next(line for line in found["teams"] if line["team"] == "b")
    assert (line["runs"], line["median"]) == (2, pytest.approx(4.5 / 6))


def test_runs_of_another_task_are_refused(tmp_path, run_of):
    path = run_of("a1", [4, 3, 2, 1])
    with pytest.raises(HecktorError, match="metrics of task 'rfs', expected 'hpv'"):
        main(["runs", "--task", "3", f"a={path}", "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
