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
from tests.faults.conftest import Ended, Runs

pytestmark = pytest.mark.slow

# A call in the middle of each stage; a pass over the small case has 8 tiles. In `write` the answer is whole and has no
# name. From `restore` on the calls belong to the last answers, after the threshold's and the first pass's.
STAGES: Final = {
    "read": "algorithm.case.read:clean_pet 1",
    "localise": "algorithm.pipeline:find_region 1",
    "load": "algorithm.network.networks:load_weights 1",
    "first pass": "algorithm.network.tiles:_compute_tile_logits 3",
    "later pass": "algorithm.network.tiles:_compute_tile_logits 11",
    "restore": "algorithm.region.grids:restore_labels 3",
    "measure": "algorithm.answers:image_features 3",
    "head": "algorithm.pipeline:compute_answers 3",
    "write": "contract.io.files:_rename_partial 3",
}
# Fallbacks of four answers come first, and again with the threshold's mask; each time four files.
STAGES_OF_FOUR: Final = STAGES | {
    "restore": "algorithm.region.grids:restore_labels 4",
    "write": "contract.io.files:_rename_partial 17",
}
NO_ANSWER: Final = ("read", "localise")
BY_THRESHOLD: Final = ("load", "first pass")
# These stages make the last answers; the program waits for their end.
WRITING: Final = ("restore", "measure", "head", "write")
FOR_EVER_S: Final = 600


def make_pause(task: Algorithm, stage: str, seconds: float = FOR_EVER_S) -> str:
    return f"pause {(STAGES_OF_FOUR if task is COMBINED else STAGES)[stage]} {seconds}"


def make_parameter(task: Algorithm, stage: str, entry: str = "algorithm") -> Any:
    return pytest.param(entry, task, stage, id=f"{entry}-{task.name}-{stage.replace(' ', '-')}")


@pytest.mark.parametrize(
    ("entry", "task", "stage"),
    [
        *(make_parameter(SEGMENTATION, stage) for stage in STAGES if stage not in ("measure", "head")),
        make_parameter(SEGMENTATION, "later pass", "hecktor"),
        make_parameter(RFS, "measure"),
        make_parameter(RFS, "head"),
        *(make_parameter(COMBINED, stage) for stage in ("read", "load", "later pass", "write")),
    ],
)
def test_sigterm(run: Runs, task: Algorithm, stage: str) -> None:
    """Before the region is known only fallbacks can answer; afterwards there is an answer within 5 s."""
    seconds = 1 if stage in WRITING else FOR_EVER_S
    ended = run(task, make_pause(task, stage, seconds)).start_and_pause().send(signal.SIGTERM).end()
    assert ended.seconds < 5
    if stage in NO_ANSWER:
        check_no_answer_yet(task, ended)
        return
    assert ended.status == 0, ended.stderr
    assert f"{task.name} answered by package tiny: " in ended.last_line
    assert ("*** FALLBACK *** asked to end: no pass has been made yet" in ended.stderr) == (stage in BY_THRESHOLD)
    assert ("*** EARLY END *** asked to end" in ended.stderr) == (stage == "later pass")
    passes = {"load": "no pass", "first pass": "no pass", "later pass": "1 of 4 passes"}.get(stage, "4 of 4 passes")
    assert passes in ended.last_line


@pytest.mark.parametrize(
    ("entry", "task", "stage"),
    [
        *(make_parameter(SEGMENTATION, stage) for stage in ("localise", "first pass", "write")),
        *(make_parameter(COMBINED, stage) for stage in ("read", "write")),
    ],
)
def test_sigkill(run: Runs, task: Algorithm, stage: str) -> None:
    """Once the region is known, and with four answers from the beginning, whole and valid answers stay."""
    ended = run(task, make_pause(task, stage)).start_and_pause().send(signal.SIGKILL).end()
    assert ended.status == -signal.SIGKILL
    assert bool(ended.files) == (task.always_answers or stage not in NO_ANSWER)


@pytest.mark.parametrize(
    ("task", "stage"), [(RFS, "measure"), (COMBINED, "restore")], ids=lambda value: getattr(value, "name", value)
)
def test_sigterm_while_a_step_never_ends(run: Runs, task: Algorithm, stage: str) -> None:
    """The answers of the first pass stay."""
    ended = run(task, make_pause(task, stage)).start_and_pause().send(signal.SIGTERM).end()
    assert (ended.status, ended.seconds < 5) == (0, True), ended.stderr
    assert "*** EARLY END *** asked to end: the best answer so far is written" in ended.stderr
    assert "1 of 4 passes" in ended.last_line


def test_ctrl_c_keeps_the_best_answer(run: Runs) -> None:
    ended = run(SEGMENTATION, make_pause(SEGMENTATION, "later pass")).start_and_pause().send(signal.SIGINT).end()
    assert (ended.status, ended.seconds < 5) == (0, True), ended.stderr
    assert "*** EARLY END *** asked to end: the best answer so far is written" in ended.stderr
    assert "1 of 4 passes" in ended.last_line


@pytest.mark.parametrize(
    ("at", "written"),
    [
        ("algorithm.region.grids:restore_labels 1", "an empty mask and fallbacks are"),
        ("algorithm.answers:image_features 1", "fallbacks are"),
    ],
)
def test_sigterm_while_the_first_step_of_four_answers_never_ends(run: Runs, at: str, written: str) -> None:
    """The threshold's mask is written as soon as it is restored; the other answers have their fallbacks."""
    ended = run(COMBINED, f"pause {at} {FOR_EVER_S}").start_and_pause().send(signal.SIGTERM).end()
    assert (ended.status, ended.seconds < 5) == (0, True), ended.stderr
    assert f"answers: asked to end; {written} written" in ended.stderr


CLINICAL: Final = ("--method", "clinical")
SAY_AND_WAIT: Final = "print('paused', flush=True) or time.sleep(600)"


def test_sigkill_when_the_answer_just_has_its_name(run: Runs) -> None:
    ended = (
        run(RFS, f"after contract.io.files:_rename_partial 1 {SAY_AND_WAIT}", options=CLINICAL)
        .start_and_pause()
        .send(signal.SIGKILL)
    )
    assert ended.end().files == ["rfs.json"]


def test_sigterm_twice(run: Runs) -> None:
    """SIGTERM comes again while the answers are being recorded."""
    faults = make_pause(SEGMENTATION, "later pass", 0.5), "pause algorithm.pipeline:conclude 1 1"
    running = run(SEGMENTATION, *faults).start_and_pause().send(signal.SIGTERM).pause()
    ended = running.send(signal.SIGTERM).end()
    assert ended.status == 0, ended.stderr
    assert ended.stderr.count("*** EARLY END *** asked to end") == 1


@pytest.mark.parametrize("at", ["algorithm.answers:compute_head_answer", "algorithm.prediction:RunRecord.summary"])
def test_sigterm_with_clinical_variables(run: Runs, at: str) -> None:
    """Signals come while the head answers, and when the answer is written but the last line is not."""
    ended = run(HPV, f"pause {at} 1 1", options=CLINICAL).start_and_pause().send(signal.SIGTERM).end()
    assert ended.status == 0, ended.stderr
    assert "hpv answered by package tiny, method clinical: " in ended.last_line


@pytest.fixture
def slow_import(tmp_path: Path) -> dict[str, Any]:
    """Return settings that pause the import of SimpleITK, on the way to the command line, for a second."""
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


def check_no_answer_yet(task: Algorithm, ended: Ended) -> None:
    """Check that there is an error, or fallbacks."""
    if task.always_answers:
        assert ended.status == 0, ended.stderr
        assert "answers: asked to end; an empty mask and fallbacks are written" in ended.stderr
    else:
        assert (ended.status, ended.files) == (1, [])
        assert ended.last_line.startswith("error: asked to end: no answer yet after ")


@pytest.mark.parametrize(
    ("entry", "task"), [("algorithm", COMBINED), ("hecktor", SEGMENTATION)], ids=["image", "hecktor"]
)
def test_sigterm_during_imports(run: Runs, slow_import: dict[str, Any], task: Algorithm) -> None:
    """Signals wait until the program can handle them."""
    ended = run(task, settings=slow_import).start_and_pause().send(signal.SIGTERM).end()
    check_no_answer_yet(task, ended)


def test_sigterm_during_imports_of_the_first_process(
    run: Runs, slow_import: dict[str, Any], namespace: Callable[..., list[str]]
) -> None:
    """In a container a signal to the first process would be lost before a handler exists."""
    before = namespace('exec "$@"', "--pid", "--fork", "--mount-proc", "--kill-child")
    running = run(SEGMENTATION, before=before, settings=slow_import).start_and_pause()
    (child,) = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    check_no_answer_yet(SEGMENTATION, running.send(signal.SIGTERM, int(child)).end())


def test_sigterm_before_python_runs_our_code(run: Runs, tmp_path: Path) -> None:
    """Python pauses in `sitecustomize` before it starts the program, which leaves no file and no message."""
    (tmp_path / "sitecustomize.py").write_text(f"import time\n{SAY_AND_WAIT}\n")
    settings = {"env": {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}}
    ended = run(SEGMENTATION, settings=settings).start_and_pause().send(signal.SIGTERM).end()
    assert (ended.status, ended.files, ended.stderr) == (-signal.SIGTERM, [], "")
