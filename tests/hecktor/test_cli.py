from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import hecktor
from contract import processes as cpus
from hecktor import cli

ROOT = Path(__file__).parents[2]


def test_an_unknown_command_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["forecast"]) == 2
    assert "'forecast'" in capsys.readouterr().err.splitlines()[-1]


def test_the_version_equals_the_version_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"hecktor {stated}\n"
    assert hecktor.__version__ == stated
    with pytest.raises(AttributeError, match="'hecktor' has no attribute 'verison'"):
        hecktor.verison  # noqa: B018


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_a_missing_package_names_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Extras in messages exist in pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    def fail_to_import(module: str) -> None:
        raise ModuleNotFoundError(f"No module named 'torch.nn' ({module})", name="torch.nn")

    monkeypatch.setattr(cli.importlib, "import_module", fail_to_import)
    assert cli.main([name]) == 1
    extra = cli.EXTRAS[name]
    assert extra in extras
    expected = f"expected the extra `{extra}`: pip install 'hecktor[{extra}]'"
    assert capsys.readouterr().err == f"error: hecktor {name}: the Python package torch is not installed, {expected}\n"


def test_every_module_of_an_extra_is_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Installed metadata name the modules of the distributions in pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    distributions = {re.split(r"[^\w.-]", text)[0] for texts in extras.values() for text in texts} - {"hecktor"}
    modules_of: dict[str, set[str]] = {name: set() for name in distributions}
    for module, providers in metadata.packages_distributions().items():
        for name in distributions & set(map(str.lower, providers)):
            modules_of[name].add(module)
    # A distribution's main module: the name of the distribution where a module has it, such as torch without torchgen.
    modules = {module for name, provided in modules_of.items() for module in {name} & provided or provided - {"_gdcm"}}
    assert {"pydicom", "gdcm", "skimage", "torch", "distributed", "scipy"} <= modules
    for module in modules:

        def fail_to_import(_: str, module: str = module) -> None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)

        monkeypatch.setattr(cli.importlib, "import_module", fail_to_import)
        assert cli.main(["convert"]) == 1
        expected = "not installed, expected the extra `dicom`: pip install 'hecktor[dicom]'"
        assert capsys.readouterr().err == f"error: hecktor convert: the Python package {module} is {expected}\n"


@pytest.mark.parametrize("missing", ["evaluation.cli", "my_model_needs_this"])
def test_another_missing_module_keeps_its_trace(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing modules of this project and of user code are bugs, which no extra mends."""

    def fail_to_import(_: str) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(cli.importlib, "import_module", fail_to_import)
    with pytest.raises(ModuleNotFoundError, match=missing):
        cli.main(["evaluate"])


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_commands_have_a_usage_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert "usage: " in capsys.readouterr().out


USAGE_ERRORS = {
    "predict --time-limit nan": "argument --time-limit: found 'nan'",
    "predict --passes 0": "argument --passes: found '0'",
    "evaluate --bootstraps -1": "argument --bootstraps: found '-1'",
    "study observers --tolerance-mm 1001": "argument --tolerance-mm: found '1001'",
    "train plan --learning-rate inf": "argument --learning-rate: found 'inf'",
    "train prepare --folds 1": "argument --folds: found '1'",
    "train prepare --seed 2147483649": "argument --seed: found '2147483649'",
    "rehearse --cpus 1,5": "argument --cpus: found '1,5'",
    "report --output page.html --results a --results b": "argument --results: found two folders, expected one with a f",
    "view --cohort cohort --results a --results b": "argument --results: found two folders, expected one with a folder",
    "train prepare --relase R --work W": "--release (there is no --relase, did you mean --release?)",
    "train fold --work W --folds 1": "arguments: --folds 1 (there is no --folds, did you mean --fold?)",
    "train all --fold 2": "(there is no --fold, did you mean --folds?)",
    "rank M --ouput=B": "required: --output (there is no --ouput, did you mean --output?)",
    "rank M --output B --xyzzy": "unrecognized arguments: --xyzzy (there is no --xyzzy)",
}


@pytest.mark.parametrize("words", USAGE_ERRORS)
def test_usage_errors(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers out of range, a second folder of results, and options that are misspelt."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(words.split())
    assert USAGE_ERRORS[words] in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "option"),
    [("evaluate", "workers"), ("report", "workers"), ("train all", "jobs"), ("phantoms", "jobs"), ("demo", "jobs")],
)
def test_default_number_of_processes_heeds_the_cpu_quota(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, option: str
) -> None:
    """A container with `--cpus 2` runs on a host with 64 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(cpus, "CGROUP_ROOT", tmp_path)
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    options = re.sub(r"\s+", " ", capsys.readouterr().out.partition("options:")[2])
    assert re.search(rf"--{option} [A-Z]+ [^-]*\(default: (as many as pay, at most )?2\)", options), options


# Help answers in half a second without these.
HEAVY = {"torch", "monai", "nnunetv2", "numpy", "scipy", "pandas", "SimpleITK", "pydicom", "tqdm"}
LIGHT = ("convert", "demo", "evaluate", "package", "phantoms", "rank", "rehearse", "study", "submission")


def test_help_imports_no_heavy_library() -> None:
    """Commands run in turn in one process, so an import of the first one would be found in the next, too."""
    program = (
        "import sys\nfrom hecktor.cli import main\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        main([name, '--help'])\n    except SystemExit:\n        pass\n"
        f"    if found := {HEAVY!r} & set(sys.modules):\n        sys.exit(f'{{name}}: {{found}}')\n"
    )
    command = [sys.executable, "-c", program, *LIGHT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: hecktor") == len(LIGHT)


def test_the_package_runs_like_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "hecktor", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: unknown command 'nothing'" in done.stderr


ABSENT = {
    "predict --task 1 --input GIVEN --output out": "--input",
    "predict --ct GIVEN --output out": "--ct",
    "predict --task 1 --model GIVEN --output out": "--model",
    "evaluate --task 1 --predictions GIVEN --ground-truth . --output out": "--predictions",
    "evaluate --task 1 --teams . --ground-truth GIVEN --output out": "--ground-truth",
    "rank GIVEN --output out": "metrics",
    "rank . --methods GIVEN --output out": "--methods",
    "report --results GIVEN --output out": "--results",
    "view --cohort GIVEN": "--cohort",
    "view --cohort . --masks A=GIVEN": "--masks",
    "view --cohort . --masks GIVEN": "--masks",
    "study thresholds --cohort GIVEN --output out": "--cohort",
    "study observers A=. B=GIVEN --output out": "observers",
    "train all --release GIVEN --work out --output out": "--release",
    "train heads --work GIVEN": "--work",
    "train heads --work . --nnunet GIVEN": "--nnunet",
    "package --nnunet GIVEN --without-heads --output out": "--nnunet",
    "package --code . --weights . --weights GIVEN --without-heads --output out": "--weights",
    "submission --package GIVEN --output out": "--package",
    "phase --task 1 --ground-truth GIVEN --output out": "--ground-truth",
    "rehearse --task 1 --cases GIVEN --process --output out": "--cases",
    "rehearse --task 1 --cases . --process --code GIVEN --output out": "--code",
    "convert dicom --input GIVEN --output out": "--input",
}


@pytest.mark.parametrize("words", ABSENT)
def test_an_absent_path_is_named_whole_with_its_option(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All commands use the same sentence, with the deepest folder that exists; nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(words.replace("GIVEN", "typo/case").split()) == 1
    message = f"no such file or folder: {tmp_path}/typo/case ({tmp_path} exists)"
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {ABSENT[words]}: {message}, expected an existing one"
    assert list(tmp_path.iterdir()) == []


# Files instead of folders, folders instead of files, and folders without the files that a command reads.
A_FILE = "a file: HERE/table.csv, expected a folder"
A_FOLDER = "a folder: HERE/empty, expected a file"
NO_CASES = "empty: no case found, expected ground_truth/<case>.mha next to <case>/input"
NO_NNUNET = "empty: no plans.json, expected nnU-Net's results"
NO_RELEASE = "empty: found nothing, expected one or more of Task 1, Task 2, Task 3"
NO_BOARD = "empty: found no leaderboard.json, expected the results of `rank`"
NO_PACKAGE = "empty: no manifest.json, expected a model package"
NOT_PREPARED = "cases.json: not found in empty, expected `hecktor train prepare` first"
WRONG = {
    "predict --task 1 --input table.csv --output out": f"--input: {A_FILE}",
    "predict --task 1 --input empty --output out": "--input: no images in HERE/empty, expected the folder of a case",
    "predict --task 1 --ct empty --output out": "--ct: no cases in ",
    "predict --task 1 --ct table.csv --pet table.csv --output out": "--ct: the table table.csv with --pet or --ehr, ",
    "predict --task 1 --ct notes.txt --pet notes.txt --output out": "--ct: notes.txt, expected an image in .mha",
    "predict --task 1 --model empty --output out": NO_PACKAGE,
    "predict --task 1 --code table.csv --output out": f"--code: {A_FILE}",
    "evaluate --task 1 --teams table.csv --ground-truth empty --output out": f"--teams: {A_FILE}",
    "evaluate --task 1 --input table.csv --ground-truth empty --output out": f"--input: {A_FILE}",
    "evaluate --task 1 --teams empty --ground-truth empty --output out": "--teams empty: found nothing, expected a",
    "rank empty --output out": "empty: no TEAM/metrics.json, expected the results of `hecktor evaluate --teams`",
    "rank table.csv --output out": "metrics: a file: HERE/table.csv, expected a metrics.json, or a folder with one",
    "rank --output out": "metrics: no metrics.json is given, expected one of each team",
    "rank --table empty --output out": f"--table: {A_FOLDER}",
    "report --results table.csv --output out": f"--results: {A_FILE}",
    "report --results empty --output out": NO_BOARD,
    "view --cohort table.csv": f"--cohort: {A_FILE}",
    "view --cohort empty": NO_CASES,
    "study thresholds --cohort empty --output out": NO_CASES,
    "train all --release table.csv --work out --output out": f"--release: {A_FILE}",
    "train all --release empty --work out --output out": NO_RELEASE,
    "train fold --work table.csv": f"--work: {A_FILE}",
    "train fold --work empty": NOT_PREPARED,
    "train export --work empty --output out": NOT_PREPARED,
    "package --nnunet table.csv --without-heads --output out": f"--nnunet: {A_FILE}",
    "package --nnunet empty --without-heads --output out": NO_NNUNET,
    "package --nnunet empty --heads empty --output out": f"--heads: {A_FOLDER}",
    "package --code empty --weights empty --without-heads --output out": "--code empty: no __init__.py, expected an",
    "submission --package empty --output out": NO_PACKAGE,
    "submission --package empty --code table.csv --output out": f"--code: {A_FILE}",
    "phase --task 1 --ground-truth empty --bounding-boxes empty --output out": f"--bounding-boxes: {A_FOLDER}",
    "rehearse --task 1 --cases table.csv --process --output out": f"--cases: {A_FILE}",
    "rehearse --task 1 --cases empty --process --output out": "empty: no folder <ID>/input in it, expected a cohort",
    "convert dicom --input table.csv --output out": f"--input: {A_FILE}",
}


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_refuses_an_empty_value(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a path an empty text would be the current folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        cli.main([name, *(["ensemble"] if name == "study" else []), "--output", ""])
    assert "found an empty value (is a shell variable unset?)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_path_is_refused_before_the_libraries_are_imported(tmp_path: Path) -> None:
    """Faults get one sentence in about a second; the commands run in turn in one process."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.csv").write_text("PatientID\n")
    (tmp_path / "notes.txt").write_text("notes\n")
    program = (
        "import sys\nfrom hecktor.cli import main\n"
        "for words in sys.argv[1:]:\n    main(words.split())\n"
        f"    if found := {HEAVY - {'numpy', 'tqdm'}!r} & set(sys.modules):\n        sys.exit(f'{{words}}: {{found}}')\n"
    )
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{program}"
    command = [sys.executable, "-c", program, *WRONG]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(WRONG)
    for line, (words, message) in zip(lines, WRONG.items(), strict=True):
        assert line.startswith(f"error: {message}".replace("HERE", str(tmp_path))), words
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "notes.txt", "table.csv"}
