"""Results that a ranking cannot join: other patients, and the damaged file of one team."""

from __future__ import annotations

import json

import pytest

from contract.errors import HecktorError
from evaluation import evaluate, rank
from evaluation.ranking.cli import main


@pytest.fixture
def metrics_of(tmp_path):
    """Write the metrics.json of a team whose cohort has the patients of these numbers."""

    def write(team, *numbers):
        folder = tmp_path / team
        folder.mkdir()
        reference, risks = folder / "rfs.csv", folder / "risks.csv"
        reference.write_text("PatientID,Relapse,RFS\n" + "".join(f"CHUM-{n},1,{n}\n" for n in numbers))
        risks.write_text("PatientID,risk\n" + "".join(f"CHUM-{n},{9 - n}\n" for n in numbers))
        evaluate(reference, task="rfs", predictions=risks, output=folder, bootstraps=0)
        return folder / "metrics.json"

    return write


@pytest.mark.parametrize("as_paths", [True, False])
def test_patients_of_only_one_file_are_named(metrics_of, tmp_path, as_paths):
    """Alpha has patients 1 to 3 and Beta 3 to 8."""
    paths = {"Alpha": metrics_of("Alpha", 1, 2, 3), "Beta": metrics_of("Beta", 3, 4, 5, 6, 7, 8)}
    sources = paths if as_paths else {team: json.loads(path.read_text()) for team, path in paths.items()}
    with pytest.raises(HecktorError) as error:
        rank(sources)
    assert error.value.message == (
        "Alpha and Beta: scored on different cases: CHUM-1, CHUM-2 only in Alpha; "
        "CHUM-4, CHUM-5, CHUM-6 and 2 more only in Beta, expected the same cases"
    )


def test_a_damaged_file_is_named_by_its_folder(metrics_of, tmp_path, monkeypatch):
    good, bad = metrics_of("Alpha", 1, 2), metrics_of("Beta", 1, 2)
    content = bad.read_text()
    for damage, problem in ((content[:200], "not valid JSON"), ("", "not valid JSON"), (None, "no")):
        bad.unlink() if damage is None else bad.write_text(damage)
        for more in ([str(bad)], ["--out-of-competition", f"base={bad}"], ["--runs", f"Gamma={good},{bad}"]):
            with pytest.raises(
                HecktorError, match=rf"(Beta/metrics\.json.*: {problem}|no such file or folder: .*Beta/metrics\.json )"
            ):
                main([str(good), *more, "--output", str(tmp_path / "out")])
    bad.write_text(content[:200])
    monkeypatch.chdir(bad.parent)
    with pytest.raises(HecktorError, match=r"^Beta/metrics\.json: not valid JSON"):
        main(["metrics.json", "--output", str(tmp_path / "out")])
    with pytest.raises(HecktorError, match=r"^Beta/metrics\.json \(Gamma\): not valid JSON"):
        main(["metrics.json", "--names", "Gamma", "--output", str(tmp_path / "out")])
