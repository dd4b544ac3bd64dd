"""Signals in the middle of every stage of the algorithm, and kills of all commands at random moments."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Final

import pytest

from contract.editions import Algorithm
from tests.algorithm.edition import COMBINED, HPV, RFS, SEGMENTATION
from tests.faults.conftest import CLINICAL, TILE, CheckFault, Fault, Run, name_of, pause, use_namespace
from tests.faults.kills import (
    TRAIN,
    is_whole,
    list_files,
    run_kills,
)

pytestmark = pytest.mark.slow

# A call in the middle of each stage. In `write` the answer is whole and has no name. From `restore` on the calls belong
# to the last answers, after the threshold's and the first pass's.
STAGES: Final = {
    "read": "algorithm.case.read:clean_pet 1",
    "localise": "algorithm.pipeline:find_region 1",
    "load": "algorithm.network.networks:load_weights 1",
    "first pass": f"{TILE} 3",
    "later pass": f"{TILE} 11",
    "restore": "algorithm.region.grids:restore_labels 3",
    "measure": "algorithm.answers:measure_image_features 3",
    "head": "algorithm.pipeline:compute_answers 3",
    "write": "contract.io.files:_rename_partial 3",
}
# Fallbacks of four answers come first, and again with the threshold's mask; each time four files.
STAGES_OF_FOUR: Final = STAGES | {
    "restore": "algorithm.region.grids:restore_labels 4",
    "write": "contract.io.files:_rename_partial 17",
}
NO_ANSWER: Final = ("read", "localise")
PASSES: Final = {"load": "no pass", "first pass": "no pass", "later pass": "1 of 4 passes"}
# These stages make the last answers; the program waits for their end.
WRITING: Final = ("restore", "measure", "head", "write")
KEPT: Final = "*** EARLY END *** asked to end: the best answer so far is written"
EMPTY_MASK: Final = "answers: asked to end; an empty mask and fallbacks are written"
NO_ANSWER_YET: Final = "error: asked to end: no answer yet after "
PAUSE: Final = "print('paused', flush=True) or time.sleep(600)"


def terminate(stage: str, task: Algorithm, entry: str = "algorithm") -> Fault:
    """SIGTERM: before the region is known only fallbacks can answer; afterwards there is an answer within 5 s."""
    name, at = f"SIGTERM {entry} {task.name} {stage}", (STAGES_OF_FOUR if task is COMBINED else STAGES)[stage]
    faults, signals = [pause(at, 1 if stage in WRITING else 600)], [signal.SIGTERM]
    if stage in NO_ANSWER and task.always_answers:
        return Fault(name, task, faults, entry=entry, signals=signals, says=[EMPTY_MASK])
    if stage in NO_ANSWER:
        return Fault(name, task, faults, NO_ANSWER_YET, 1, entry=entry, signals=signals)
    texts = {
        "*** FALLBACK *** asked to end: no pass has been made yet": stage in ("load", "first pass"),
        "*** EARLY END *** asked to end": stage == "later pass",
        f"{task.name} answered by package tiny: ": True,
    }
    says = [text for text, is_said in texts.items() if is_said]
    hides = [re.escape(text) for text, is_said in texts.items() if not is_said]
    last = PASSES.get(stage, "4 of 4 passes")
    return Fault(name, task, faults, last, entry=entry, signals=signals, says=says, hides=hides)


def kill(stage: str, task: Algorithm) -> Fault:
    """SIGKILL: once the region is known, and with four answers from the beginning, whole and valid answers stay."""
    faults = [pause((STAGES_OF_FOUR if task is COMBINED else STAGES)[stage])]
    has_files = task.always_answers or stage not in NO_ANSWER
    name = f"SIGKILL {task.name} {stage}"
    return Fault(name, task, faults, status=-signal.SIGKILL, signals=[signal.SIGKILL], has_files=has_files)


def pause_import(run: Run) -> None:
    """Pause the import of SimpleITK, on the way to the command line, for a second."""
    folder = run.case.root / "before"
    folder.mkdir()
    (folder / "SimpleITK.py").write_text(
        "import importlib, sys, time\n"
        "print('paused', flush=True)\n"
        "time.sleep(1)\n"
        f"sys.path.remove({str(folder)!r})\n"
        "del sys.modules['SimpleITK']\n"
        "sys.modules['SimpleITK'] = importlib.import_module('SimpleITK')\n"
    )
    run.environment["PYTHONPATH"] = str(folder)


def pause_import_of_first_process(run: Run) -> None:
    """In a container a signal to the first process would be lost before a handler exists."""
    pause_import(run)
    use_namespace(run, 'exec "$@"', "--pid", "--fork", "--mount-proc", "--kill-child")


def pause_start_of_python(run: Run) -> None:
    """Pause in `sitecustomize`, before our code runs."""
    (run.case.root / "sitecustomize.py").write_text(f"import time\n{PAUSE}\n")
    run.environment["PYTHONPATH"] = str(run.case.root)


TERM: Final = [signal.SIGTERM]
FAULTS: Final = [
    *(terminate(stage, SEGMENTATION) for stage in STAGES if stage not in ("measure", "head")),
    *(terminate(stage, RFS) for stage in ("measure", "head")),
    *(terminate(stage, COMBINED) for stage in ("read", "load", "later pass", "write")),
    terminate("later pass", SEGMENTATION, "hecktor"),
    *(kill(stage, SEGMENTATION) for stage in ("localise", "first pass", "write")),
    *(kill(stage, COMBINED) for stage in ("read", "write")),
    *(
        Fault(f"{task.name} {stage} never ends", task, [pause(at)], "1 of 4 passes", signals=[number], says=[KEPT])
        for task, stage, at, number in (
            (RFS, "measure", STAGES["measure"], signal.SIGTERM),
            (COMBINED, "restore", STAGES_OF_FOUR["restore"], signal.SIGTERM),
            (SEGMENTATION, "later pass at Ctrl-C", STAGES["later pass"], signal.SIGINT),
        )
    ),
    # The threshold's mask is written as soon as it is restored; the other answers have their fallbacks.
    *(
        Fault(f"combined first {at}", COMBINED, [pause(f"{at} 1")], signals=TERM, says=[f"asked to end; {says}"])
        for at, says in (
            ("algorithm.region.grids:restore_labels", "an empty mask and fallbacks are written"),
            ("algorithm.answers:measure_image_features", "fallbacks are written"),
        )
    ),
    Fault(
        "SIGKILL when the answer just has its name",
        RFS,
        [f"after contract.io.files:_rename_partial 1 {PAUSE}"],
        status=-signal.SIGKILL,
        options=CLINICAL,
        signals=[signal.SIGKILL],
        has_files=True,
    ),
    # The second SIGTERM comes while the answers are recorded.
    Fault(
        "SIGTERM twice",
        SEGMENTATION,
        [pause(STAGES["later pass"], 0.5), pause("algorithm.pipeline:finish_prediction 1", 1)],
        signals=TERM * 2,
        says=["*** EARLY END *** asked to end"],
        hides=["EARLY END .*EARLY END "],
    ),
    # Signals come while the head answers, and when the answer is written but the last line is not.
    *(
        Fault(f"SIGTERM {at}", HPV, [pause(f"{at} 1", 1)], "package tiny, method clinical: ", 0, CLINICAL, signals=TERM)
        for at in ("algorithm.answers:compute_head_answer", "algorithm.prediction:RunRecord.summary")
    ),
    # Signals during imports wait until the program can handle them.
    Fault("SIGTERM during imports", COMBINED, prepare=pause_import, signals=TERM, says=[EMPTY_MASK]),
    *(
        Fault(f"SIGTERM during imports of {name}", SEGMENTATION, (), NO_ANSWER_YET, 1, (), entry, prepare, TERM)
        for name, entry, prepare in (
            ("hecktor", "hecktor", pause_import),
            ("the first process", "algorithm", pause_import_of_first_process),
        )
    ),
    # Nothing is written.
    Fault(
        "SIGTERM before Python runs our code",
        SEGMENTATION,
        status=-signal.SIGTERM,
        prepare=pause_start_of_python,
        signals=TERM,
        hides=["."],
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_signal(check_fault: CheckFault, fault: Fault) -> None:
    check_fault(fault)


# Commands that start fast; the program `kills.py` meets all commands.
KILLED: Final = ("convert", "evaluate", "rank")


@pytest.mark.parametrize(
    ("commands", "kills", "seed"), [(KILLED, 3, 144), ((TRAIN,), 1, 2)], ids=["commands", "while networks train"]
)
def test_kills(tmp_path: Path, commands: tuple[str, ...], kills: int, seed: int) -> None:
    """Files after a kill are whole, of one run, and replaced by the repetition, which also resumes a training."""
    done = run_kills(kills, seed, tmp_path, commands)
    assert {kill.command for kill in done} == set(commands)
    assert [kill.problems for kill in done] == [[]] * kills


@pytest.mark.parametrize(
    ("name", "content", "whole"),
    [("a.json", b"{}", True), ("a.json", b"{", False), ("a.html", b"<p>", False), ("a.zip", b"PK", False)],
)
def test_whole_files(tmp_path: Path, name: str, content: bytes, whole: bool) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / ".partial-1").touch()
    assert is_whole(tmp_path / name) is whole
    assert list(list_files(tmp_path)) == [name]
