"""Unknown programs: odd output fails only its own case, and no link leads to a file of the host."""

import fcntl
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.editions import load_edition
from contract.errors import OutputError
from rehearsal.jobs.execution import Rehearsal
from rehearsal.pipeline import rehearse
from rehearsal.records import RehearsalResult, collect_records
from rehearsal.runners.runner import Limits, ProcessRunner
from tests.signals import reset_signals

HERE = Path(__file__).parent
# Answer as the toy does, and then, only for case A-1, run the code in ODD with O, the output folder, and M, the mask.
WELL = f"""
import json, os, pathlib, runpy, sys
arguments = sys.argv[1:]
I, O = (pathlib.Path(arguments[arguments.index(name) + 1]) for name in ("--input", "--output"))
sys.argv[0] = {str(HERE / "toy_algorithm.py")!r}
runpy.run_path(sys.argv[0], run_name="__main__")
M = O / "images/tumor-lymph-node-segmentation/output.mha"
R = pathlib.Path(os.environ["HECKTOR_RUN_RECORD"])
if json.loads((I / "inputs.json").read_text())[0]["image"]["name"].startswith("A-1"):
    exec(os.environ["ODD"])
"""


def rehearse_odd(
    tmp_path: Path,
    cohort: Path,
    odd: str,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits = Limits(2**30, 60),  # noqa: B008 - frozen
) -> RehearsalResult:
    program = tmp_path / "odd.py"
    program.write_text(WELL)
    monkeypatch.setenv("ODD", odd)
    python, edition = shlex.split(sys.executable), load_edition("hecktor2025")
    return rehearse(
        Rehearsal(
            edition=edition,
            task=edition.find_algorithm("segmentation"),
            cohort=cohort,
            output_dir=tmp_path / "out",
            algorithm=ProcessRunner((*python, str(program))),
            limits=limits,
            evaluation=ProcessRunner((*python, str(HERE / "toy_evaluation.py"))),
            ground_truth_dir=cohort / "ground_truth",
            on_failure="mark-missing",
        )
    )


def compute_checksums(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_an_odd_output_fails_only_its_own_case(tmp_path: Path, cohort: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compute_checksums(cohort)
    result = rehearse_odd(tmp_path, cohort, "M.unlink(); M.symlink_to('/etc/hostname')", monkeypatch)
    assert [failure[:5] for failure in result.failures] == ["A-1: "]
    assert "output.mha: a symbolic link" in result.failures[0]
    record = json.loads((tmp_path / "out" / "rehearsal.json").read_text())
    assert [case["failure"] is None for case in record["cases"]] == [False, True]
    assert compute_checksums(cohort) == before
    assert not list((tmp_path / "out").glob(".rehearsal-*"))


MB = 10**6
FILL = "os.posix_fallocate(os.open(str({path}), os.O_CREAT | os.O_RDWR), 0, {mb} * 10**6)"
FILES = "; ".join(
    FILL.format(path=f"{folder} / 'f{number}'", mb=20) for folder in ("O", "R.parent") for number in (1, 2)
)
DEEP = (
    "os.chdir(O)\nfor _ in range(400): os.mkdir('d'); os.chdir('d')\n"
    "for name in 'ab': open(name, 'wb').write(bytes(29 * 10**6))"
)


@pytest.mark.parametrize(
    ("odd", "fault"),
    [
        ("os.execvp('sh', ['sh', '-c', f'head -c 31000000 /dev/zero > {O}/f'])", "File too large"),
        (f"import time\n{FILES}\ntime.sleep(300)", "disk limit exceeded: its files take 0.08"),
        (FILES, "disk limit exceeded: its files take 0.08"),
        (DEEP, "disk limit exceeded: its files take 0.05"),
    ],
    ids=["shell", "several files", "just before the end", "deep"],
)
def test_a_program_cannot_fill_the_disk(
    tmp_path: Path, cohort: Path, monkeypatch: pytest.MonkeyPatch, odd: str, fault: str
) -> None:
    """Files may have 30 MB each and 50 MB together: four files of 20 MB, or two of 29 MB, are too much."""
    limits = Limits(2**30, 60, file_bytes=30 * MB, disk_bytes=50 * MB)
    result = rehearse_odd(tmp_path, cohort, odd, monkeypatch, limits)
    assert [failure[:5] for failure in result.failures] == ["A-1: "]
    assert fault in result.failures[0]
    assert result.cases[0].seconds < 30
    assert (tmp_path / "out" / "rehearsal.json").exists()
    assert not list((tmp_path / "out").glob(".rehearsal-*"))


def test_a_tiff_goes_to_the_evaluation_as_it_is(tmp_path: Path, cohort: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = "M.unlink(); M.with_suffix('.tif').write_bytes(b'II*\\0' + bytes(100))"
    result = rehearse_odd(tmp_path, cohort, odd, monkeypatch)
    assert result.failures == ()
    assert any("a TIFF" in warning for warning in result.warnings)
    assert sorted(path.name for path in (tmp_path / "out" / "predictions").iterdir()) == ["A-1.tif", "B-2.mha"]


def test_a_run_record_that_is_a_link_is_not_read(tmp_path: Path, cohort: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.json").write_text('{"method": "secret"}')
    result = rehearse_odd(tmp_path, cohort, f"R.symlink_to({str(tmp_path / 'secret.json')!r})", monkeypatch)
    assert result.failures == ()
    assert collect_records(result.cases) == {"A-1": None, "B-2": None}
    assert any("run-record.json: a symbolic link" in warning for warning in result.warnings)


def test_a_command_cannot_change_the_cohort(tmp_path: Path, cohort: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compute_checksums(cohort)
    odd = "[open(path, 'ab').write(b'SPOILT') for path in (I / 'images/ct').iterdir()]"
    result = rehearse_odd(tmp_path, cohort, odd, monkeypatch)
    assert "the input folder was changed" in result.failures[0]
    assert compute_checksums(cohort) == before


def test_a_failed_job_names_the_faults_of_its_outputs_too(
    tmp_path: Path, cohort: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = "M.write_bytes(b'no image'); M.with_name('two.mha').touch(); sys.exit(1)"
    (failure,) = rehearse_odd(tmp_path, cohort, odd, monkeypatch).failures
    assert "exit status 1" in failure
    assert "found 2 images (output.mha, two.mha)" in failure


def test_a_folder_in_use_is_refused(tmp_path: Path, cohort: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    handle = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(OutputError, match="another rehearsal is writing there"):
        rehearse_odd(tmp_path, cohort, "", monkeypatch)
    os.close(handle)


@pytest.mark.parametrize(("number", "parallel"), [(signal.SIGTERM, 1), (signal.SIGHUP, 2)], ids=["TERM", "HUP"])
def test_a_signal_ends_the_programs_and_removes_their_folders(
    tmp_path: Path, cohort: Path, number: signal.Signals, parallel: int
) -> None:
    program = tmp_path / "sleeps.py"
    program.write_text(
        f"import os, pathlib, time\npathlib.Path({str(tmp_path)!r}, f'started-{{os.getpid()}}').touch()\ntime.sleep(300)\n"
    )
    options = ["--task", "1", "--cases", str(cohort), "--output", str(tmp_path / "out"), "--jobs", str(parallel)]
    command = [sys.executable, "-m", "hecktor", "rehearse", *options, "--command", f"python {program}"]
    # The program must end even if this process ignores the signal, as under nohup.
    before = signal.signal(number, signal.SIG_IGN)
    try:
        check_end(command, tmp_path, number, parallel)
    finally:
        signal.signal(number, before)
    assert list((tmp_path / "out").glob(".rehearsal-*")) == []


def check_end(command: list[str], tmp_path: Path, number: signal.Signals, parallel: int) -> None:
    with subprocess.Popen(reset_signals(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        while len(started := list(tmp_path.glob("started-*"))) < parallel and running.poll() is None:
            time.sleep(0.1)
        running.send_signal(number)
        assert running.wait(100) == 128 + number
    assert len(started) == parallel
    assert not any(Path("/proc", path.name.removeprefix("started-")).exists() for path in started)
