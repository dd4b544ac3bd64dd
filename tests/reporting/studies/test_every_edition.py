"""All studies run on answers of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from contract.editions import load_edition
from evaluation import evaluate
from tests.evaluation.staging import write_truth
from tests.reporting.studies.runs import run_study

# Times, two classes and several, and masks of MR; the other tests use risks and masks of PET/CT.
NAMES = {"hecktor2025": ("hpv",), "hecktor2026": ("rfs", "t_stage"), "hntsmrg2024": ("pre-rt",)}
ANSWERS = [
    pytest.param(name, answer, id=f"{name}-{answer.name}")
    for name, shown in NAMES.items()
    for task in load_edition(name).algorithms
    for answer in task.answers
    if answer.name in shown or task.name in shown
]


def make_options(edition, answer):
    """Return the options that name the answer."""
    (task,) = [task for task in load_edition(edition).algorithms if answer in task.answers]
    return ["--edition", edition, "--task", task.name, "--answer", answer.name]


def write_table(answer, path, rng):
    values = rng.permutation(8) if answer.kind == "risk" else rng.choice(np.array(answer.classes, dtype=object), 8)
    path.write_text(f"PatientID,{'risk' if answer.direction == 'risk' and answer.kind == 'risk' else answer.name}\n")
    with path.open("a") as file:
        file.writelines(f"P{place},{value}\n" for place, value in enumerate(values))
    return path


@pytest.mark.parametrize(("edition", "answer"), [answer for answer in ANSWERS if answer.values[1].kind != "mask"])
def test_ensembles_and_chance(tmp_path, edition, answer):
    """Ensembles can be read as a team's answer again."""
    rng = np.random.default_rng(3)
    tables = [write_table(answer, tmp_path / f"{team}.csv", rng) for team in "abc"]
    options = make_options(edition, answer)
    content = run_study("ensemble", tmp_path / "out", *options, *(f"{path.stem}={path}" for path in tables))
    assert (content["answer"], content["cases"], content["without_vote"], content["not_written"]) == (
        answer.name,
        8,
        [],
        [],
    )
    first = tmp_path / "out" / content["ensembles"][0]
    again = run_study("ensemble", tmp_path / "again", *options, f"a={tables[0]}", f"e={first}")
    assert again["without_vote"] == []
    columns, size = answer.columns, 20
    lines = [
        f"P{n},{n % 2},{n}" if answer.kind == "risk" else f"P{n},{answer.classes[n % len(answer.classes)]}"
        for n in range(size)
    ]
    header = (
        f"PatientID,{columns['event']},{columns['time']}" if answer.kind == "risk" else f"PatientID,{columns['class']}"
    )
    (tmp_path / "truth.csv").write_text("\n".join([header, *lines]))
    content = run_study(
        "best-of-k", tmp_path / "out", *options, "--ground-truth", tmp_path / "truth.csv", "--repeats", 20
    )
    assert (content["answer"], content["cases"], len(content["best_of"])) == (answer.name, size, 4)


@pytest.mark.parametrize(("edition", "answer"), [answer for answer in ANSWERS if answer.values[1].kind == "mask"])
def test_ensembles_and_observers_of_masks(tmp_path, edition, answer, grid):
    """References are the masks of two annotators and of two teams."""
    masks = write_truth(tmp_path / "truth", grid)
    options = make_options(edition, answer)
    content = run_study("ensemble", tmp_path / "out", *options, f"a={masks}", f"b={masks}", "--workers", 0)
    assert (content["cases"], content["without_vote"], content["not_written"]) == (4, [], [])
    content = run_study("observers", tmp_path / "out", f"a={masks}", f"b={masks}", "--bootstraps", 0, "--workers", 0)
    assert content["aggregates"]["gtvp_dsc_median"]["value"] == 1.0


def test_the_null_algorithm_is_an_evaluation(tmp_path, grid):
    """The null algorithm of HNTS-MRG 2024 answers with the earlier masks, here the references of half of the cases."""
    truth = write_truth(tmp_path / "truth", grid)
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    for case in ("P1", "P2"):
        (earlier / f"{case}.nii.gz").write_bytes((truth / f"{case}.nii.gz").read_bytes())
    result = evaluate(truth, predictions=earlier, edition="hntsmrg2024", task="mid-rt", bootstraps=0)
    assert result.cases.missing == ["P3", "P4"]
    assert result.aggregates["gtvp_dsc_agg"].value == pytest.approx(2 * 16 / (2 * 16 + 8))
