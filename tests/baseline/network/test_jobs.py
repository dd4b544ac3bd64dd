"""Tests which networks are trained, and the state after an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from baseline import cli, steps
from baseline.cli import main
from baseline.network import jobs
from baseline.network.jobs import TrainingJob, select_jobs, train_job
from baseline.network.nnunet import Machine
from baseline.network.plans import NetworkPlan
from baseline.network.progress import format_duration, format_epoch, read_epoch_seconds
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.io.files import write_text
from tests.baseline.prepared import make_planned_work
from tests.signals import reset_signals

PLAN = NetworkPlan(backbones=("unet", "segresnet"))
FOLDS = (("A-1", "B-1"), ("A-2",))
EVERYONE = ("A-1", "A-2", "B-1")


def make_work(root: Path, plan: NetworkPlan = PLAN, with_mask: tuple[str, ...] = EVERYONE) -> WorkFolders:
    return make_planned_work(root, with_mask, plan, FOLDS)


ALL = [TrainingJob(0, "unet"), TrainingJob(1, "unet"), TrainingJob(0, "segresnet"), TrainingJob(1, "segresnet")]


@pytest.mark.parametrize(
    ("fold", "backbone", "expected"),
    [
        (None, None, ALL),
        (1, None, [ALL[1], ALL[3]]),
        (None, "segresnet", ALL[2:]),
        (0, "unet", ALL[:1]),
        (3, "unet", [TrainingJob(3, "unet")]),
    ],
)
def test_selected_jobs(tmp_path: Path, fold: int | None, backbone: str | None, expected: list[TrainingJob]) -> None:
    """Folds of centres left out, here 2 and 3, are trained only on request."""
    assert select_jobs(make_work(tmp_path), fold, backbone) == expected


def test_unknown_folds_and_backbones(tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match=r"^--fold: found 4"):
        select_jobs(make_work(tmp_path), 4, None)
    with pytest.raises(HecktorError, match=r"^--backbone: found segresnet"):
        select_jobs(make_work(tmp_path, NetworkPlan()), None, "segresnet")


@pytest.mark.parametrize(
    ("machine", "with_mask", "message"),
    [
        (Machine("cpu", gpus=3), EVERYONE, "--gpus: found 3, expected 1 to 2, the planned batch"),
        (Machine("cuda"), EVERYONE, "--device: found cuda and no GPU"),
        (Machine("cpu", compile=True), EVERYONE, "--compile: found on the CPU, expected a GPU and --device cuda"),
        (
            Machine("cuda", compile=True, deterministic=True),
            EVERYONE,
            "--compile: found with --deterministic, expected",
        ),
        (Machine("cpu"), ("A-2",), "fold 0: (all reference masks are on one side|no patient with a reference mask)"),
    ],
)
def test_jobs_that_cannot_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, with_mask: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(HecktorError, match=f"^{message}"):
        train_job(make_work(tmp_path, with_mask=with_mask), TrainingJob(0, "unet"), machine)


@pytest.mark.parametrize(
    ("machine", "options"),
    [
        (Machine("cuda", compile=True), ["--compile"]),
        (Machine("cuda", deterministic=True), ["--deterministic"]),
        (Machine("cuda"), []),
    ],
)
def test_processes_of_their_own_get_the_options(tmp_path: Path, machine: Machine, options: list[str]) -> None:
    command = jobs._make_command(make_work(tmp_path), TrainingJob(1, "unet"), machine, threads=2)
    assert [word for word in command if word in ("--compile", "--deterministic")] == options


def test_on_one_core_the_unfinished_networks_are_trained_here_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, trained = make_work(tmp_path), []
    write_text(work.final(1, "unet"), "network")
    write_text(work.fold(0, "unet") / "checkpoint_latest.pth", "unfinished network")
    monkeypatch.setattr(jobs, "train_network", lambda _, __, fold, name, *___: trained.append(TrainingJob(fold, name)))
    monkeypatch.setattr(jobs, "_make_command", lambda *_: pytest.fail("a process"))
    assert jobs.train_jobs(work, ALL, Machine("cpu")) == [work.final(job.fold, job.backbone) for job in ALL]
    assert trained == [ALL[0], *ALL[2:]]


def test_each_line_of_folds_side_by_side_has_the_name_of_its_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Lines of both streams get the fold's name. Empty lines and the steps of a progress bar count as lines, and a line
    that already has the name is not changed.
    """
    code = "import sys; print(f'fold {sys.argv[1]} (unet): epoch 1\\n\\nwhat'); sys.stderr.write('1%\\r2%\\n')"
    monkeypatch.setattr(jobs, "_make_command", lambda _work, job, *_: [sys.executable, "-c", code, str(job.fold)])
    jobs.train_in_processes(make_work(tmp_path), ALL[:2], Machine("cpu", threads=2))
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == [f"fold {n} (unet): {text}" for n in (0, 1) for text in ("epoch 1", "what")]
    assert sorted(err.splitlines()) == [f"fold {n} (unet): {text}" for n in (0, 1) for text in ("1%", "2%")]


def test_the_step_says_that_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = make_work(tmp_path, NetworkPlan())
    for fold in (0, 1):
        work.fold(fold).mkdir(parents=True)
        work.final(fold).touch()
    assert main(["fold", "--work", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "nothing to train: fold 0 (unet), fold 1 (unet) already finished\n"
    assert main(["fold", "--work", str(tmp_path), "--list"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_sigterm_ends_all_trainings_and_says_what_is_lost(tmp_path: Path) -> None:
    """Two processes that only sleep end together with the process that started them."""
    code = """
import sys
import threading
from pathlib import Path
from baseline.network import jobs
from baseline.network.progress import explain_interruption
from contract.errors import run_main
from test_jobs import ALL, make_work
from baseline.network.nnunet import Machine

sleep = "import os, time; os.write(1, str(os.getpid()).encode() + bytes([10])); time.sleep(600)"
jobs._make_command = lambda *_: [sys.executable, "-S", "-c", sleep]

def main(_):
    with explain_interruption():
        jobs.train_in_processes(make_work(Path(sys.argv[1])), ALL, Machine("cpu", threads=2))
    return 0

sys.exit(run_main(main))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    paths = {"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen(reset_signals(command), stdout=-1, stderr=-1, text=True, env=os.environ | paths) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(2)]
        process.terminate()
        _, stderr = process.communicate(timeout=60)
    assert sorted(words[:-1] for words in lines) == [["fold", "0", "(unet):"], ["fold", "1", "(unet):"]]
    children = [int(words[-1]) for words in lines]
    assert process.returncode == 1
    assert stderr.splitlines()[-1] == (
        "error: interrupted: trained networks are complete, and the same command resumes the others from their last "
        "checkpoint, at most 5 epochs back"
    )
    assert all(ends_soon(child) for child in children)


def test_an_interruption_between_two_starts_ends_the_training_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupting while the output of the second training is connected ends both trainings."""
    started: list[subprocess.Popen[bytes]] = []

    def interrupt(_job: TrainingJob, process: subprocess.Popen[bytes]) -> list[threading.Thread]:
        started.append(process)
        if len(started) == 2:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(jobs, "_make_command", lambda *_: [sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(jobs, "_forward_output", interrupt)
    with pytest.raises(KeyboardInterrupt):
        jobs.train_in_processes(make_work(tmp_path), ALL[:2], Machine("cpu", threads=2))
    for process in started:
        process.communicate()
    assert [process.returncode for process in started] == [-signal.SIGTERM] * 2


def ends_soon(child: int) -> bool:
    """Return whether the process ends within 30 s; a loaded machine may take a while to collect a killed process."""
    for _ in range(300):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_network_is_trained_by_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process gets an error at once, for example after the parent was killed while its trainings go on."""
    code = """
import sys
import threading
from pathlib import Path
from baseline.network import jobs
from baseline.network.jobs import TrainingJob, _lock_job

with _lock_job(TrainingJob(0, "unet"), Path(sys.argv[1])):
    print("begun", flush=True)
    sys.stdin.read()
"""
    monkeypatch.setattr(jobs, "train_network", lambda *_: Path("final"))
    work = make_work(tmp_path)
    command = [sys.executable, "-c", code, str(work.fold(0, "unet"))]
    with subprocess.Popen(command, stdin=-1, stdout=-1, env=os.environ | {"PYTHONPATH": ":".join(sys.path)}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        with pytest.raises(HecktorError, match=r"^fold 0 \(unet\): another process is training it"):
            train_job(work, TrainingJob(0, "unet"), Machine("cpu"))
        assert train_job(work, TrainingJob(1, "unet"), Machine("cpu")) == Path("final")
        process.communicate()
    assert train_job(work, TrainingJob(0, "unet"), Machine("cpu")) == Path("final")


def test_the_first_failure_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold 1 fails at once, and fold 0, which would take ten minutes, is ended."""
    code = "import sys, time; time.sleep(600) if sys.argv[1] == '0' else sys.exit(3)"
    monkeypatch.setattr(jobs, "_make_command", lambda _work, job, *_: [sys.executable, "-S", "-c", code, str(job.fold)])
    begun = time.monotonic()
    with pytest.raises(HecktorError, match=r"^training of fold 1 \(unet\) ended with status 3"):
        jobs.train_in_processes(make_work(tmp_path), ALL[:2], Machine("cpu", threads=2))
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("gpus", "unfinished_jobs", "expected"), [(4, 4, [1, 1, 1, 1]), (2, 4, [1, 1, 1, 1]), (3, 2, [1, 2]), (4, 1, [2])]
)
def test_each_network_has_a_card_first_and_the_last_ones_share_those_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, unfinished_jobs: int, expected: list[int]
) -> None:
    """Trainings on the fake cards 4 to 7 never share a card, and a network gets at most 2 cards, the planned batch
    size. Each card brings its part of the 12 cores.
    """
    code = """
import os, pathlib, sys, time
root, job, gpus, threads = pathlib.Path(sys.argv[1]), *sys.argv[2:]
cards = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
assert len(cards) == int(gpus)
for card in cards:
    (root / f"card {card}").touch(exist_ok=False)
time.sleep(0.5)
for card in cards:
    (root / f"card {card}").unlink()
(root / job).write_text(f"{','.join(cards)} {threads}")
"""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5,6,7")
    command = [sys.executable, "-S", "-c", code, str(tmp_path)]
    monkeypatch.setattr(
        jobs, "_make_command", lambda _, job, machine, threads: [*command, str(job), str(machine.gpus), str(threads)]
    )
    work = make_work(tmp_path)
    for job in ALL[unfinished_jobs:]:
        write_text(work.final(job.fold, job.backbone), "network")
    jobs.train_in_processes(work, ALL, Machine("cuda", gpus=gpus, threads=12))
    rows = [(tmp_path / str(job)).read_text().split() for job in ALL[:unfinished_jobs]]
    cards_of_jobs = [names.split(",") for names, _ in rows]
    assert sorted(map(len, cards_of_jobs)) == expected
    assert {card for cards in cards_of_jobs for card in cards} == set("4567"[: min(gpus, sum(expected))])
    assert [int(threads) for _, threads in rows] == [12 // gpus * len(cards) for cards in cards_of_jobs]


def test_a_waiting_job_begins_when_another_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs run at once. The first ends only after the third has written a file, so the third must begin when the
    second ends.
    """
    flag = tmp_path / "third"
    code = """
import pathlib, sys, time
flag = pathlib.Path(sys.argv[1])
if sys.argv[2] == "fold 0 (segresnet)":
    flag.touch()
for _ in range(600 if sys.argv[2] == "fold 0 (unet)" else 0):
    if flag.exists():
        sys.exit(0)
    time.sleep(0.1)
sys.exit(sys.argv[2] == "fold 0 (unet)")
"""
    command = [sys.executable, "-S", "-c", code, str(flag)]
    monkeypatch.setattr(jobs, "_make_command", lambda _work, job, *_: [*command, str(job)])
    jobs.train_in_processes(make_work(tmp_path), ALL[:3], Machine("cpu", threads=2))
    assert flag.exists()


# Progress and Ctrl-C


class Log:
    """Log of nnU-Net's trainer after twelve epochs: the first took an hour, the others a minute."""

    def __init__(self) -> None:
        seconds = [3600.0, *[60.0] * 11]
        self.values: dict[str, list[Any]] = {
            "epoch_start_timestamps": [0.0] * 12,
            "epoch_end_timestamps": seconds,
            "train_losses": [1.0, -0.25],
            "val_losses": [1.0, -0.125],
            "dice_per_class_or_region": [[0.0, 0.0], [0.7124, float("nan")]],
        }

    def get_value(self, name: str, step: int | None) -> Any:
        return self.values[name] if step is None else self.values[name][step]


def test_the_line_by_hand() -> None:
    """8 of 20 epochs are left at the median of the latest ten epochs, one minute: 8 minutes."""
    seconds = read_epoch_seconds(Log())
    assert sum(seconds) == 3600 + 11 * 60
    assert format_epoch("fold 3 (unet)", 20, Log(), seconds) == (
        "fold 3 (unet): epoch 12 of 20, loss -0.250, validation -0.125, pseudo-Dice GTVp 0.712, GTVn nan; 8 min 00 s left"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.7, "1 min 00 s"), (245, "4 min 05 s"), (3600, "1 h 00 min"), (12_000, "3 h 20 min"),
     (86_399, "1 d 00 h"), (183_600, "2 d 03 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


PATHS = {"PYTHONPATH": ":".join(sys.path)}
# A pool's shutdown waits forever if Ctrl-C interrupted a worker in the middle of an answer.
POOL = """
import os, signal, time
from baseline.network.progress import exit_at_interrupt

with exit_at_interrupt("made anew"):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
    finally:
        time.sleep(600)
"""


def test_ctrl_c_ends_a_pool_that_would_never_end(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    command = [sys.executable, tmp_path / "pool.py"]
    done = subprocess.run(
        reset_signals(command), capture_output=True, text=True, env=os.environ | PATHS, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "error: interrupted: made anew"


def test_ctrl_c_in_any_step_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    (tmp_path / "cases.json").touch()
    monkeypatch.setattr(steps, "measure_out_of_fold", interrupt)
    with pytest.raises(HecktorError, match=r"^interrupted: finished work is saved; run the same command again"):
        cli.main(["heads", "--work", str(tmp_path)])
