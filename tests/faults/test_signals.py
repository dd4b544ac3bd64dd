"""SIGTERM and SIGKILL in the middle of every stage."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from contract.editions import Algorithm
from tests.algorithm.edition import COMBINED, HPV, RFS, SEGMENTATION
from tests.faults.conftest import Ended

pytestmark = pytest.mark.slow

# In the middle of each stage; a pass over the small case has 8 tiles. In `write` the answer is whole and has no name.
# The later stages are those of the last answers: the ones of the threshold and of the first pass come before.
STAGES: Final = {
    "read": "algorithm.case.read:clean_pet 1",
    "localise": "algorithm.pipeline:find_region 1",
    "load": "algorithm.network.networks:load_weights 1",
    "first pass": "algorithm.network.tiles:_tile_logits 3",
    "later pass": "algorithm.network.tiles:_tile_logits 11",
    "restore": "algorithm.region.grids:restore_labels 3",
    "measure": "algorithm.answers:image_features 3",
    "head": "algorithm.pipeline:compute_answers 3",
    "write": "contract.io.files:_rename_partial 3",
}
# Fallbacks of four answers come first, and once more beside the threshold's mask; each time four files.
STAGES_OF_FOUR: Final = STAGES | {
    "restore": "algorithm.region.grids:restore_labels 4",
    "write": "contract.io.files:_rename_partial 17",
}
NO_ANSWER: Final = ("read", "localise")
BY_THRESHOLD: Final = ("load", "first pass")
# The stages in which the last answers are made; they are waited for.
WRITING: Final = ("restore", "measure", "head", "write")
FOR_EVER_S: Final = 600


def pause(task: Algorithm, stage: str, seconds: float = FOR_EVER_S) -> str:
    return f"pause {(STAGES_OF_FOUR if task is COMBINED else STAGES)[stage]} {seconds}"


Runs = Callable[..., Any]


def at(task: Algorithm, stage: str, entry: str = "algorithm") -> Any:
    return pytest.param(entry, task, stage, id=f"{entry}-{task.name}-{stage.replace(' ', '-')}")


@pytest.mark.parametrize(
    ("entry", "task", "stage"),
    [
        *(at(SEGMENTATION, stage) for stage in STAGES if stage not in ("measure", "head")),
        at(SEGMENTATION, "later pass", "hecktor"),
        at(RFS, "measure"),
        at(RFS, "head"),
        *(at(COMBINED, stage) for stage in ("read", "load", "later pass", "write")),
    ],
)
def test_sigterm(run: Runs, task: Algorithm, stage: str) -> None:
    """Before the region is known there is no answer but fallbacks; then there always is one, within 5 s."""
    seconds = 1 if stage in WRITING else FOR_EVER_S
    ended = run(task, pause(task, stage, seconds)).at_pause().send(signal.SIGTERM).end()
    assert ended.seconds < 5
    if stage in NO_ANSWER:
        assert_ended_before_its_time(task, ended)
        return
    assert ended.status == 0, ended.said
    assert f"{task.name} answered by package tiny: " in ended.last
    assert ("*** FALLBACK *** asked to end: no pass has been made yet" in ended.said) == (stage in BY_THRESHOLD)
    assert ("*** EARLY END *** asked to end" in ended.said) == (stage == "later pass")
    passes = {"load": "no pass", "first pass": "no pass", "later pass": "1 of 4 passes"}.get(stage, "4 of 4 passes")
    assert passes in ended.last


@pytest.mark.parametrize(
    ("entry", "task", "stage"),
    [
        *(at(SEGMENTATION, stage) for stage in ("localise", "first pass", "write")),
        *(at(COMBINED, stage) for stage in ("read", "write")),
    ],
)
def test_sigkill(run: Runs, task: Algorithm, stage: str) -> None:
    """Once the region is known, and of four answers from the beginning on, whole and valid answers stay."""
    ended = run(task, pause(task, stage)).at_pause().send(signal.SIGKILL).end()
    assert ended.status == -signal.SIGKILL
    assert bool(ended.files) == (task.always_answers or stage not in NO_ANSWER)


@pytest.mark.parametrize(
    ("task", "stage"), [(RFS, "measure"), (COMBINED, "restore")], ids=lambda value: getattr(value, "name", value)
)
def test_sigterm_while_a_step_never_ends(run: Runs, task: Algorithm, stage: str) -> None:
    """The answers of the first pass stand."""
    ended = run(task, pause(task, stage)).at_pause().send(signal.SIGTERM).end()
    assert (ended.status, ended.seconds < 5) == (0, True), ended.said
    assert "*** EARLY END *** asked to end: the best answer so far is written" in ended.said
    assert "1 of 4 passes" in ended.last


def test_ctrl_c_keeps_the_best_answer(run: Runs) -> None:
    ended = run(SEGMENTATION, pause(SEGMENTATION, "later pass")).at_pause().send(signal.SIGINT).end()
    assert (ended.status, ended.seconds < 5) == (0, True), ended.said
    assert "*** EARLY END *** asked to end: the best answer so far is written" in ended.said
    assert "1 of 4 passes" in ended.last


@pytest.mark.parametrize(
    ("at", "written"),
    [
        ("algorithm.region.grids:restore_labels 1", "an empty mask and fallbacks are"),
        ("algorithm.answers:image_features 1", "fallbacks are"),
    ],
)
def test_sigterm_while_the_first_step_of_four_answers_never_ends(run: Runs, at: str, written: str) -> None:
    """The threshold's mask is written as soon as it is restored; each other answer has its fallback."""
    ended = run(COMBINED, f"pause {at} {FOR_EVER_S}").at_pause().send(signal.SIGTERM).end()
    assert (ended.status, ended.seconds < 5) == (0, True), ended.said
    assert f"answers: asked to end; {written} written" in ended.said


CLINICAL: Final = ("--method", "clinical")
SAY_AND_WAIT: Final = "print('paused', flush=True) or time.sleep(600)"


def test_sigkill_when_the_answer_just_has_its_name(run: Runs) -> None:
    ended = (
        run(RFS, f"after contract.io.files:_rename_partial 1 {SAY_AND_WAIT}", options=CLINICAL)
        .at_pause()
        .send(signal.SIGKILL)
    )
    assert ended.end().files == ["rfs.json"]


def test_sigterm_twice(run: Runs) -> None:
    """The second comes when the answers that the first one ended with are being recorded."""
    faults = pause(SEGMENTATION, "later pass", 0.5), "pause algorithm.pipeline:conclude 1 1"
    running = run(SEGMENTATION, *faults).at_pause().send(signal.SIGTERM).pause()
    ended = running.send(signal.SIGTERM).end()
    assert ended.status == 0, ended.said
    assert ended.said.count("*** EARLY END *** asked to end") == 1


@pytest.mark.parametrize("at", ["algorithm.answers:head_answer", "algorithm.prediction:RunRecord.summary"])
def test_sigterm_with_clinical_variables_alone(run: Runs, at: str) -> None:
    """While the head answers, and when the answer is written but the last line is not."""
    ended = run(HPV, f"pause {at} 1 1", options=CLINICAL).at_pause().send(signal.SIGTERM).end()
    assert ended.status == 0, ended.said
    assert "hpv answered by package tiny, method clinical: " in ended.last


@pytest.fixture
def slow_import(tmp_path: Path) -> dict[str, Any]:
    """Settings under which the import of SimpleITK, on the way to the command line, pauses for a second."""
    folder = tmp_path / "before"
    folder.mkdir()
    (folder / "SimpleITK.py").write_text(
        "import importlib, sys, time\n"
        "print('paused', flush=True)\n"
        "time.sleep(1)\n"
        f"sys.path.remove({str(folder)!r})\n"
        "del sys.modules['SimpleITK']\n"
        "sys.modules['SimpleITK'] = importlib.import_module('SimpleITK')\n"
    )
    return {"env": {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}}


def assert_ended_before_its_time(task: Algorithm, ended: Ended) -> None:
    """Without an answer yet: an error, or fallbacks."""
    if task.always_answers:
        assert ended.status == 0, ended.said
        assert "answers: asked to end; an empty mask and fallbacks are written" in ended.said
    else:
        assert (ended.status, ended.files) == (1, [])
        assert ended.last.startswith("error: asked to end: no answer yet after ")


@pytest.mark.parametrize(
    ("entry", "task"), [("algorithm", COMBINED), ("hecktor", SEGMENTATION)], ids=["image", "hecktor"]
)
def test_sigterm_during_imports(run: Runs, slow_import: dict[str, Any], task: Algorithm) -> None:
    """It is held back until somebody can handle it."""
    ended = run(task, settings=slow_import).at_pause().send(signal.SIGTERM).end()
    assert_ended_before_its_time(task, ended)


def test_sigterm_during_imports_of_the_first_process(
    run: Runs, slow_import: dict[str, Any], namespace: Callable[..., list[str]]
) -> None:
    """As in a container, where a signal that nobody handles yet would be lost."""
    before = namespace('exec "$@"', "--pid", "--fork", "--mount-proc", "--kill-child")
    running = run(SEGMENTATION, before=before, settings=slow_import).at_pause()
    (child,) = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    assert_ended_before_its_time(SEGMENTATION, running.send(signal.SIGTERM, int(child)).end())


def test_sigterm_before_python_runs_our_code(run: Runs, tmp_path: Path) -> None:
    """Python's own start, which looks for a `sitecustomize` and pauses in it here, has nothing to write or to say."""
    (tmp_path / "sitecustomize.py").write_text(f"import time\n{SAY_AND_WAIT}\n")
    settings = {"env": {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}}
    ended = run(SEGMENTATION, settings=settings).at_pause().send(signal.SIGTERM).end()
    assert (ended.status, ended.files, ended.said) == (-signal.SIGTERM, [], "")
