"""Run the algorithm with a fault and check what follows.

The output folder must hold complete, valid answers only, and exit status 0 requires an answer.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import active_children
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.case.inputs import Notices
from algorithm.cli import main
from algorithm.deadline import Deadline
from algorithm.network import tiles
from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.passes import Passes, Progress
from algorithm.network.tiles import NetworkImage, list_mirrored_passes
from baseline.cli import main as train_main
from baseline.network.plans import store_plan
from baseline.release.cases import ReleaseCase, write_cases
from baseline.work import WorkFolders
from contract.editions import Algorithm, AnswerSpec
from contract.errors import run_main
from contract.images.volumes import read_volume
from contract.io.files import read_json, write_json
from contract.patient import Patient
from rehearsal.platform.runs import check_outputs
from tests.algorithm.edition import EDITION, EDITION_2026
from tests.baseline.network.conftest import PATIENTS, PLAN, noise_work  # noqa: F401 - a fixture
from tests.conftest import CaseFolder, write_tiny_package
from tests.faults.fake_card import FakeCard, fake_card
from tests.faults.forked import Forks
from tests.signals import reset_signals

FAULTY = Path(__file__).with_name("faulty.py")
MAX_SECONDS = 120
# Both ways to answer a case, as words after `python -m`.
ENTRIES = {"algorithm": ("algorithm",), "hecktor": ("hecktor", "predict")}
# Methods without networks start faster and write in the same way.
THRESHOLD: Final = ("--method", "threshold")
CLINICAL: Final = ("--method", "clinical")
# A pass over the small case has 8 tiles; the tiny packages make 4 passes.
TILE: Final = "algorithm.network.tiles:_compute_tile_logits"
# What a card is asked to do the CPU does.
GPU: Final = "return algorithm.network.passes:list_backends 1 three_backends()"
EPOCHS: Final = 2
name_of = attrgetter("name")


@dataclass
class Run:
    """A run of one case.

    A run with a command prefix (`before`) or an environment starts a process of its own. All others are forked off a
    process that has imported the libraries.

    Attributes:
        faults: Faults as `faulty.py` reads them.
        limits: Resource limits of a forked run.
        log: File that takes stdout and stderr of a forked run.
    """

    forks: Forks
    case: CaseFolder
    package: Path
    task: Algorithm
    entry: str
    faults: Sequence[str] = ()
    options: Sequence[str] = ()
    limits: dict[str, int] = field(default_factory=dict)
    log: str | None = None
    before: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def edition(self) -> str:
        return (EDITION_2026 if self.task in EDITION_2026.algorithms else EDITION).name

    def start(self) -> None:
        model = () if "threshold" in self.options else ("--model", self.package)
        folders = ("--input", self.case.input, "--output", self.case.output, *model)
        names = ("--edition", self.edition, "--task", self.task.name, "--device", "cpu")
        words = [*ENTRIES[self.entry], *names, *map(str, folders), *self.options]
        if not self.before and not self.environment:
            self.process: Any = self.forks.begin(self.case.root, words, self.faults, self.limits, self.log)
            return
        command = [*self.before, sys.executable, str(FAULTY), "\n".join(self.faults), *words]
        # Nothing but the output may be written, so no bytecode.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **self.environment}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(reset_signals(command), text=True, env=environment, cwd="/", **pipes)

    def wait_for_pause(self) -> None:
        line = self.process.stdout.readline()
        assert line == "paused\n", self.process.communicate()[1]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program, which is the child of a command prefix."""
        process = self.process.pid
        if self.before:
            process = int(Path(f"/proc/{process}/task/{process}/children").read_text())
        os.kill(process, number)

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process; return its exit status (negative: the signal) and stderr."""
        try:
            stderr = self.process.communicate(timeout=MAX_SECONDS)[1]
        finally:
            self.process.kill()
        return self.process.returncode, stderr or ""


@dataclass(frozen=True)
class Fault:
    """A row of a table: a fault of a run of the algorithm, and what must follow.

    Attributes:
        name: Name of the row.
        task: Task that is answered.
        faults: Faults in the program as `faulty.py` reads them.
        last: Part of the last line of stderr, which the platform shows to the submitter.
        status: Exit status; negative: the signal.
        options: Further options of the command line.
        entry: Entry point.
        prepare: Changes the case, the package or the process.
        signals: Signals that are sent, one at each pause of the program; the run must end within 5 s after the last.
        says, hides: Parts of stderr, and patterns that must not be in it.
        has_files: Whether all answers must be there, or no file; by default answers if the status is 0.
        fallbacks: Answers that must be fallbacks. They are not checked for the N stage, which depends on the masks of
            the tiny network, because N0 needs a mask without GTVn.
    """

    name: str
    task: Algorithm
    faults: Sequence[str] = ()
    last: str = ""
    status: int = 0
    options: Sequence[str] = ()
    entry: str = "algorithm"
    prepare: Callable[[Run], None] = lambda _: None
    signals: Sequence[signal.Signals] = ()
    says: Sequence[str] = ()
    hides: Sequence[str] = ()
    has_files: bool | None = None
    fallbacks: Sequence[str] | None = None

    def check(self, run: Run) -> str:
        """Run the program with the fault, and check how it ends and what it leaves; return the last line of stderr."""
        record = run.case.root / "record.json"
        options = () if self.fallbacks is None else ("--record", str(record))
        run.faults, run.options = self.faults, (*self.options, *options)
        self.prepare(run)
        run.start()
        for number in self.signals:
            run.wait_for_pause()
            sent_s = time.monotonic()
            run.send(number)
        status, stderr = run.end()
        if self.signals:
            assert time.monotonic() - sent_s < 5
        assert status == self.status, stderr
        assert check_files(run, status) == (status == 0 if self.has_files is None else self.has_files), stderr
        last = next(iter(stderr.rstrip().splitlines()[::-1]), "")
        assert self.last in last, stderr
        assert [text for text in self.says if text not in stderr] == [], stderr
        assert [pattern for pattern in self.hides if re.search(pattern, stderr, re.DOTALL)] == [], stderr
        if self.fallbacks is not None:
            assert [name for name in read_json(record)["fallbacks"] if name != "n_stage"] == list(self.fallbacks)
        return last


def check_files(run: Run, status: int) -> bool:
    """Return whether a process left answers, which must be complete and valid, rather than no file.

    A process that was killed while it wrote may leave incomplete files next to the answers' folders.
    """
    output = run.case.output
    if status == -signal.SIGKILL:
        for path in output.glob(".partial-*"):
            path.unlink()
    files = {path for path in output.rglob("*") if path.is_file()}
    if not files:
        return False
    checked = check_outputs(output, run.task, run.case.ct.geometry)
    assert checked.warnings == ()
    assert files == {answer.path for answer in checked.outputs}
    for answer, written in zip(run.task.answers, checked.outputs, strict=True):
        check_value(answer, written.value)
    return True


def check_value(answer: AnswerSpec, value: Any) -> None:
    """Check that a value has its answer's type, and is a class of the answer or a time above 0."""
    if answer.kind == "mask":
        assert value is None
    elif answer.kind == "class":
        assert (value, type(value)) in [(name, type(name)) for name in answer.classes]
    else:
        assert type(value) is float
        assert answer.direction == "risk" or value > 0


CheckFault = Callable[[Fault], str]


def pause(at: str, seconds: float = 600) -> str:
    """Return the fault that pauses at a function and the number of its call."""
    return f"pause {at} {seconds}"


@functools.cache
def find_unshare() -> list[str]:
    """Return the command that starts a program in its own mount namespace; skip the test if mounting is not permitted."""
    for command in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        probe = [*command, "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip("mounting is not permitted, not even in a mount namespace")


def use_namespace(run: Run, script: str, *options: str) -> None:
    """Run a shell script in a mount namespace; the run is `"$@"` in it."""
    run.before = [*find_unshare(), *options, "sh", "-c", f"set -e\n{script}", "sh"]


@pytest.fixture
def check_fault(forks: Forks, case_folder: CaseFolder, tiny_package: Path, combined_package: Path) -> CheckFault:
    """Check a fault over the small case with a tiny package."""
    case_folder.write()

    def check(fault: Fault) -> str:
        package = combined_package if fault.task in EDITION_2026.algorithms else tiny_package
        return fault.check(Run(forks, case_folder, package, fault.task, fault.entry))

    return check


@pytest.fixture
def card() -> Iterator[FakeCard]:
    """Replace torch's functions by a simulated card."""
    with fake_card() as card:
        yield card


@pytest.fixture(scope="session")
def three_folds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a package of three folds, which makes six passes."""
    return write_tiny_package(tmp_path_factory.mktemp("three"), ("3d_fullres",) * 3)


@pytest.fixture
def predict_pair(pair_package: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Progress]:
    """Make four passes over noise on the CPU: folds 0 and 2 are a U-Net's, 1 and 3 a SegResNet's.

    `on_tile` is called before each tile, and learns whether it is the U-Net's.
    """
    compute = tiles._compute_tile_logits

    def run(on_tile: Callable[[bool], None], deadline: Deadline, notices: Notices | None = None) -> Progress:
        def tile(network: nn.Module, part: torch.Tensor, axes: tuple[int, ...], *, half: bool) -> torch.Tensor:
            on_tile(part.shape[2:] == (16, 16, 16))
            return compute(network, part, axes, half=half)

        monkeypatch.setattr(tiles, "_compute_tile_logits", tile)
        package, passes = load_package(pair_package), list_mirrored_passes(4, ())
        image = NetworkImage.from_channels(make_noise(24))
        notices = notices or Notices()
        return Passes(image, passes, Networks(package), deadline, torch.device("cpu"), notices=notices).make_all()

    return run


def make_noise(edge: int = 16) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 1, (2, edge, edge, edge)).astype(np.float32)


@dataclass(frozen=True)
class Prediction:
    """The run record, the mask and the log of `hecktor predict`."""

    record: dict[str, Any]
    mask: np.ndarray
    log: str


Predict = Callable[..., Prediction]


@pytest.fixture
def predict(
    case_folder: CaseFolder, tiny_package: Path, root_logger: None, capfd: pytest.CaptureFixture[str]
) -> Predict:
    """Run `hecktor predict` in this process over the small case."""
    case_folder.write()

    def run(device: str, *, package: Path = tiny_package) -> Prediction:
        record = case_folder.root / "record.json"
        folders = ["--input", str(case_folder.input), "--output", str(case_folder.output), "--model", str(package)]
        status = run_main(main, ["--task", "1", *folders, "--device", device, "--record", str(record)])
        log = capfd.readouterr().err
        assert status == 0, log
        mask = read_volume(next(case_folder.output.rglob("*.mha")), np.uint8).array
        return Prediction(read_json(record), mask, log)

    return run


def check_card(card: FakeCard, predict: Predict, device: str, images: int, says: str) -> None:
    """Check the device, the images that are brought to the card and the log of four passes; the mask is the CPU's."""
    prediction = predict("cuda")
    assert prediction.record["device"].startswith(device), prediction.log
    assert (prediction.record["passes_done"], card.images) == (4, images)
    assert says in prediction.log
    assert "Traceback" not in prediction.log
    np.testing.assert_array_equal(prediction.mask, predict("cpu").mask)


Train = Callable[..., tuple[int, list[str]]]
ignore_library_warnings = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


@pytest.fixture
def work(noise_work: WorkFolders) -> WorkFolders:  # noqa: F811
    """Return the planned folder with the files of `prepare` and `plan`, and without a checkpoint."""
    image = Path("image")
    write_cases(noise_work, [ReleaseCase(name, "A", image, image, image, Patient()) for name in PATIENTS])
    write_json(noise_work.prepare_json, {"options": {"release": "r"}})
    splits = {"folds": [[PATIENTS[1]], [PATIENTS[0]]], "centres": {"A": list(PATIENTS)}}
    write_json(noise_work.splits_json, {"format_version": 1, "seed": 3, **splits})
    store_plan(noise_work, "any", PLAN.with_options(epochs=EPOCHS, backbones=("unet",)))
    for checkpoint in noise_work.results.rglob("checkpoint_*.pth"):
        checkpoint.unlink()
    return noise_work


@pytest.fixture
def train(work: WorkFolders, capfd: pytest.CaptureFixture[str]) -> Train:
    """Run `hecktor train fold --device cuda` for fold 0 with two workers; return exit status and lines of stderr.

    Check that the worker processes have ended.
    """

    def run(*options: str) -> tuple[int, list[str]]:
        words = ["fold", "--work", str(work.root), "--fold", "0", "--device", "cuda", "--jobs", "2", *options]
        before = set(active_children())
        status = run_main(train_main, words)
        assert set(active_children()) <= before
        return status, capfd.readouterr().err.splitlines()

    return run
