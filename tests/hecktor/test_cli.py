from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract import processes as cpus
from contract.errors import InputError
from hecktor import cli


def test_usage_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert cli.main([]) == 2
    for text in capsys.readouterr().out.split("usage: ")[1:]:
        assert all(f"  {name} " in text for name in cli.COMMANDS)


def test_an_unknown_command_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["forecast"]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("error: unknown command 'forecast': expected one of predict")
    )


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_each_command_has_a_main_and_a_usage_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert "usage: " in capsys.readouterr().out


def test_errors_and_exit_statuses_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(argv: Sequence[str] | None) -> int:
        if argv:
            raise InputError(f"{argv[0]}: odd")
        return 3

    monkeypatch.setitem(sys.modules, "odd_module", types.SimpleNamespace(main=main))
    monkeypatch.setitem(cli.COMMANDS, "odd", ("odd_module", "test"))
    assert cli.main(["odd"]) == 3
    assert cli.main(["odd", "a.mha"]) == 1
    assert capsys.readouterr().err == "error: a.mha: odd\n"


@pytest.mark.parametrize(
    ("command", "option", "found", "expected"),
    [
        ("predict", "--time-limit", "nan", "a finite number above 0"),
        ("predict", "--passes", "0", "a whole number of at least 1"),
        ("evaluate", "--bootstraps", "-1", "a whole number of at least 0"),
        ("study observers", "--tolerance-mm", "1001", "a number from 0 to 1000"),
        ("study failures", "--failed-below", "1.5", "a number from 0 to 1"),
        ("train plan", "--memory-gb", "0", "a finite number above 0"),
        ("train plan", "--learning-rate", "inf", "a finite number above 0"),
        ("train prepare", "--folds", "1", "a whole number of at least 2"),
        ("train prepare", "--seed", str(2**31 + 1), "a whole number from 0 to 2147483648"),
        ("rehearse", "--cpus", "1,5", "a finite number above 0"),
        ("demo", "--patients", "0", "a whole number of at least 1"),
    ],
)
def test_invalid_numbers_are_usage_errors(
    capsys: pytest.CaptureFixture[str], command: str, option: str, found: str, expected: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*command.split(), option, found])
    message = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2
    assert message == f"hecktor {command}: error: argument {option}: found {found!r}, expected {expected}"


@pytest.mark.parametrize(
    ("command", "option"),
    [("evaluate", "workers"), ("report", "workers"), ("train all", "jobs"), ("phantoms", "jobs"), ("demo", "jobs")],
)
def test_default_number_of_processes_heeds_the_cpu_quota(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, option: str
) -> None:
    """As in a container with `--cpus 2` on a host with 64 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(cpus, "CGROUP_ROOT", tmp_path)
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    options = re.sub(r"\s+", " ", capsys.readouterr().out.partition("options:")[2])
    assert re.search(rf"--{option} [A-Z]+ [^-]*\(default: (as many as pay, at most )?2\)", options), options


# Help answers in half a second without these.
HEAVY = {"torch", "monai", "nnunetv2", "numpy", "scipy", "pandas", "SimpleITK", "pydicom", "tqdm"}
LIGHT = ("convert", "evaluate", "package", "phantoms", "rank", "rehearse", "study", "submission")


@pytest.mark.parametrize("command", LIGHT)
def test_help_imports_no_heavy_library(command: str) -> None:
    program = (
        "import sys\nfrom hecktor.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        f"sys.exit(' '.join({HEAVY!r} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, command, "--help"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_runs_like_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "hecktor", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: unknown command 'nothing'" in done.stderr
