"""The command `hecktor`; the package of a subcommand is imported only when the subcommand is called."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Final, NoReturn

import hecktor
from contract.entry import hold_sigterm, run_program
from contract.errors import HecktorError, run_main

Main = Callable[[Sequence[str] | None], int]

# Subcommand with its module, which defines `main(argv) -> int`, and its purpose.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "predict": ("algorithm.cli", "run one patient through the algorithm"),
    "evaluate": ("evaluation.cli", "score predictions against the ground truth"),
    "rank": ("evaluation.ranking.cli", "rank teams from their metrics.json files"),
    "report": ("reporting.report.cli", "write a report page with plots and pictures"),
    "view": ("reporting.viewer.cli", "view cases in a browser: scans, contours, lesions"),
    "study": ("reporting.studies.cli", "run another analysis: ensembles, observers, thresholds and more"),
    "train": ("baseline.cli", "train a model package on the released data"),
    "package": ("baseline.package.cli", "make a model package from a finished nnU-Net training"),
    "check-model": ("baseline.package.check", "compare the masks of a model package with nnUNetv2_predict's"),
    "submission": ("rehearsal.submission.cli", "make and rehearse the files to upload"),
    "phase": ("hecktor.phase.cli", "make and test the files of a challenge phase, with its settings"),
    "rehearse": ("rehearsal.cli", "run images on cases as the platform does"),
    "demo": ("hecktor.demo", "run synthetic patients through all steps to a leaderboard and a report"),
    "new": ("hecktor.new", "write the skeleton of a custom model or edition"),
    "check-edition": ("hecktor.check_edition", "check a custom edition and print its metrics and rankings"),
    "phantoms": ("rehearsal.phantoms.cli", "make a synthetic patient cohort"),
    "convert": ("convert.cli", "write a case from a DICOM study with CT and PET"),
}

# The extra that a subcommand needs.
EXTRAS: Final[dict[str, str]] = {
    "predict": "algorithm",
    **dict.fromkeys(("evaluate", "rank", "check-edition"), "evaluation"),
    **dict.fromkeys(("report", "view", "study"), "reporting"),
    **dict.fromkeys(("train", "package", "check-model"), "baseline"),
    "phantoms": "rehearsal",
    **dict.fromkeys(("demo", "new", "phase", "rehearse", "submission"), "all"),
    "convert": "dicom",
}
# Top-level modules whose names differ from the names of their distributions.
_DISTRIBUTION_OF: Final[dict[str, str]] = {
    "gdcm": "python-gdcm",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
}


def entry() -> NoReturn:
    """Run the command line of the console script `hecktor` and end the process."""
    arguments = sys.argv[1:]
    if arguments[:1] != ["predict"]:
        run_program(main, arguments)
    # The imports take seconds, and a SIGTERM must not be lost in the meantime.
    hold_sigterm()
    run_program(_run_predict, arguments[1:])


def _run_predict(arguments: Sequence[str] | None) -> int:
    return _run_command("predict", lambda: importlib.import_module("algorithm.cli").program, arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status, which is 2 for an unknown subcommand."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in {"-h", "--help"}:
        sys.stdout.write(_format_usage())
        return 0 if arguments else 2
    if arguments == ["--version"]:
        sys.stdout.write(f"hecktor {hecktor.__version__}\n")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        sys.stderr.write(_format_usage() + f"error: unknown command {name!r}: expected one of {', '.join(COMMANDS)}\n")
        return 2
    return run_main(lambda words: _run_command(name, lambda: load_command(name), words), rest)


def _run_command(name: str, load: Callable[[], Main], arguments: Sequence[str] | None) -> int:
    """Load and run the main function of a subcommand.

    Raises:
        HecktorError: A package of an extra is not installed; the message names the extra.
    """
    try:
        return load()(arguments)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if _DISTRIBUTION_OF.get(package, package) not in _find_optional_distributions():
            raise
        problem = f"the Python package {package} is not installed"
        extra = EXTRAS[name]
        expected = f"the extra `{extra}`: pip install 'hecktor[{extra}]'"
        raise HecktorError(f"hecktor {name}", problem, expected) from missing


def _find_optional_distributions() -> set[str]:
    """Return the distributions that the package's extras require.

    A missing module of any other distribution is a bug, or belongs to user code.
    """
    try:
        requirements = metadata.requires("hecktor") or []
    except metadata.PackageNotFoundError:
        return set()
    names = {re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in requirements if "extra ==" in text}
    return names - {"hecktor"}


def load_command(name: str) -> Main:
    """Import the main function of a subcommand."""
    main_function: Main = importlib.import_module(COMMANDS[name][0]).main
    return main_function


def _format_usage() -> str:
    lines = "".join(f"  {name:<13} {purpose}\n" for name, (_, purpose) in COMMANDS.items())
    help_line = "hecktor <command> --help shows the options, hecktor --version the version."
    return f"usage: hecktor <command> [options]\n\n{lines}\n{help_line}\n"
