"""Many teams in one evaluation, and the ranking of the folder that it writes."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from contract.errors import HecktorError, PredictionError
from contract.images.volumes import write_mask
from evaluation import evaluate, evaluate_teams
from evaluation.inputs.tables import read_table
from evaluation.rows import comparison
from hecktor.cli import main
from tests.evaluation.conftest import WorkerDeathError
from tests.evaluation.tasks import RFS

QUICK = ["--bootstraps", "10", "--seed", "3", "--workers", "1"]


@pytest.fixture
def masks(tmp_path, blank, grid):
    """References A and B with 4 voxels of GTVp in a row; team `half` has 2 of them, so a DSC of 2 * 2 / (4 + 2)."""
    for folder, length in (("reference", 4), ("teams/half", 2), ("teams/whole", 4)):
        (tmp_path / folder).mkdir(parents=True)
        mask = blank()
        mask[2, 3, :length] = 1
        for case in "AB":
            write_mask(tmp_path / folder / f"{case}.mha", mask, grid)
    return tmp_path


def run(folder, *more):
    paths = {"--teams": "teams", "--ground-truth": "reference", "--output": "out"}
    words = [word for option, name in paths.items() for word in (option, str(folder / name))]
    return main(["evaluate", "--task", "1", *words, *QUICK, *more])


def read_result(folder, team):
    return json.loads((folder / "out" / team / "metrics.json").read_text())


def test_a_team_gets_the_result_of_its_own_evaluation(masks, capsys, monkeypatch) -> None:
    read = []
    monkeypatch.setattr(
        comparison,
        "read_labels",
        lambda path, error, of=comparison.read_labels: read.append(path.name) or of(path, error),
    )
    assert run(masks) == 0
    assert sorted(read) == ["A.mha", "B.mha"]  # each reference once for both teams
    printed = capsys.readouterr().out
    assert "half  gtvp_dsc_mean 0.6667" in printed
    assert "\nnot in the mean DSC, no GTVn in the reference: A, B\n" in printed
    options = {"task": "1", "bootstraps": 10, "seed": 3}
    own = {
        team: evaluate(masks / "reference", predictions=masks / "teams" / team, **options) for team in ("half", "whole")
    }
    assert evaluate_teams(masks / "reference", masks / "teams", **options) == own
    assert [read_result(masks, team) for team in own] == [result.to_dict() for result in own.values()]


def test_a_faulty_team_fails_only_itself(masks, capsys) -> None:
    """Its earlier result is removed."""
    assert run(masks) == 0
    for path in (masks / "teams" / "half").iterdir():
        path.rename(path.with_name(f"other-{path.name}"))
    (masks / "teams" / "notes.txt").write_text("no team")
    assert run(masks) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: 1 of 2 teams could not be scored: half: half: found masks of")
    assert read_result(masks, "whole")["aggregates"]["gtvp_dsc_mean"]["value"] == 1.0
    assert not (masks / "out" / "half" / "metrics.json").exists()


def test_a_mask_that_ends_its_process_fails_only_its_team(masks, monkeypatch) -> None:
    def die_or_read(path, *more, of=comparison.read_prediction):
        if path.parent.name == "half" and path.name == "B.mha":
            raise WorkerDeathError
        return of(path, *more)

    monkeypatch.setattr(comparison, "read_prediction", die_or_read)
    assert run(masks) == 0
    assert [failure["case"] for failure in read_result(masks, "half")["cases"]["failed"]] == ["B"]
    assert read_result(masks, "whole")["cases"]["failed"] == []


def test_an_odd_entry_fails_no_other_team(masks, capsys) -> None:
    """`whole` is scored beside a name that a ranking refuses, two entries of one name, a sheet and a hidden folder."""
    teams = masks / "teams"
    (teams / "ha\x07lf").mkdir()
    (teams / ("x" * 201)).mkdir()
    (teams / "half.json").write_text("[]")
    (teams / "Alpha.xlsx").write_bytes(b"PK")
    (teams / "..weird").mkdir()
    (teams / "notes.txt").write_text("no team")
    earlier = masks / "out" / "half" / "metrics.json"
    assert run(masks) == 1
    written, last = capsys.readouterr().err, sorted(path.parent.name for path in (masks / "out").glob("*/metrics.json"))
    assert last == ["whole"]
    assert "4 of 5 teams could not be scored" in written
    assert "team 'half' appears twice: half and half.json, expected one of them" in written
    assert "found Alpha.xlsx" in written
    assert written.count("a name of 1 to 200 printable characters") == 2
    assert "warning: --teams teams: found ..weird, notes.txt" in written
    (teams / "half.json").unlink()
    assert run(masks) == 1
    assert earlier.is_file()
    (teams / "half.json").write_text("[]")
    assert run(masks) == 1
    assert not earlier.exists()  # an earlier result would look like a result of this run


def test_the_table_of_a_team_fails_no_other_team(phase_of, capsys) -> None:
    """Tables with one row more than the limit, and with 11,000 records of different keys, are refused."""
    phase = phase_of(RFS)
    phase.add_truth_table("PatientID,Relapse,RFS\nA,1,100\nB,0,200\n")
    teams = phase.root / "teams"
    teams.mkdir()
    (teams / "long.csv").write_text("PatientID,risk\nA,2\nB,1\n" + "x\n" * 100_001)
    keys = [{f"k{key}": 0} for key in range(11_000)]
    (teams / "keys.json").write_text(json.dumps([{"PatientID": "A", "risk": 2}, *keys]))
    (teams / "right.csv").write_text("PatientID,risk\nA,2\nB,1\n")
    out = phase.root / "out"
    options = ["--teams", str(teams), "--ground-truth", str(phase.truth_dir), "--output", str(out), *QUICK]
    assert main(["evaluate", "--task", "2", *options]) == 1
    written = capsys.readouterr().err
    assert "long.csv: more than 100000 rows" in written
    assert "keys.json: more than 10000 columns" in written
    assert (out / "right" / "metrics.json").is_file()


def test_columns_that_nothing_reads_take_no_memory(tmp_path) -> None:
    """With 9,000 columns and 2,000 short rows there would be 1.8e7 cells of 8 bytes."""
    header = ",".join(f"c{column}" for column in range(9_000))
    (tmp_path / "wide.csv").write_text(f"PatientID,risk,{header}\n" + "x\n" * 2_000)
    tracemalloc.start()
    table = read_table(tmp_path / "wide.csv", PredictionError, ["PatientID", "risk"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(table.faults), set(table.rows[0])) == (2_000, {"PatientID", "risk"})
    assert peak < 20e6


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "--teams: no such file or folder"), ("", "nothing"), ("x.mha", "found x.mha")]
)
def test_no_folder_of_teams(masks, capsys, content, problem) -> None:
    teams = (masks / "teams").rename(masks / "others")
    if content is not None:
        teams = masks / "teams"
        teams.mkdir()
    if content:
        (teams / content).write_text("")
    assert run(masks) == 1
    assert problem in capsys.readouterr().err
    with pytest.raises(HecktorError, match=r"^--teams absent: no such folder, expected a folder$"):
        evaluate_teams(masks / "reference", masks / "absent", task="1")


def test_tables_jobs_and_folders_with_a_table_are_ranked(phase_of, capsys) -> None:
    """The only comparable pair is right in `right` and the platform's jobs, and not in `wrong`."""
    phase = phase_of(RFS)
    phase.add_truth_table("PatientID,Relapse,RFS\nA,1,100\nB,0,200\n")
    teams = phase.root / "teams"
    (teams / "wrong").mkdir(parents=True)
    (teams / "wrong" / "risks.csv").write_text("PatientID,risk\nA,1\nB,2\n")
    (teams / "right.csv").write_text("PatientID,risk\nA,2\nB,1\n")
    phase.add_value("A", "2.0")
    phase.add_value("B", "1.0")
    phase.run()
    phase.input_dir.rename(teams / "jobs")
    out = phase.root / "out"
    options = ["--teams", str(teams), "--ground-truth", str(phase.truth_dir), "--output", str(out), *QUICK]
    assert main(["evaluate", "--task", "2", *options]) == 0
    (out / "late").mkdir()
    assert main(["rank", str(out), "--output", str(out), "--bootstraps", "0"]) == 0
    board = json.loads((out / "leaderboard.json").read_text())
    assert [(entry["rank"], entry["team"]) for entry in board["teams"]] == [(1, "jobs"), (1, "right"), (3, "wrong")]
    assert "warning: out: no metrics.json of late, not ranked" in capsys.readouterr().err
    assert main(["rank", str(teams), "--output", str(out)]) == 1
    assert "teams: no TEAM/metrics.json" in capsys.readouterr().err
    folders = [str(out / team) for team in ("right", "wrong")]  # folders with a metrics.json, as of rehearsals
    assert main(["rank", *folders, "--output", str(phase.root / "board"), "--bootstraps", "0"]) == 0
    board = json.loads((phase.root / "board" / "leaderboard.json").read_text())
    assert [(entry["rank"], entry["team"]) for entry in board["teams"]] == [(1, "right"), (2, "wrong")]
