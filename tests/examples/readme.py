"""Run the commands of an example's README in a folder of the test."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from hecktor.cli import main
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MOST_COMMANDS = 6


def read_commands(example: str) -> list[list[str]]:
    """Return the commands of the README's first code block, in parts; at most six."""
    block = (EXAMPLES / example / "README.md").read_text(encoding="utf-8").split("```")[1]
    lines = block.replace("\\\n", " ").strip().splitlines()
    assert 0 < len(lines) <= MOST_COMMANDS
    return [shlex.split(line) for line in lines]


def run(command: list[str], output: Path, **replacements: str) -> None:
    """Run a command of `hecktor` or `python`, with `out/own` replaced by `output`, and further texts by name."""
    parts = [part.replace("out/own", str(output)).replace("$PWD", str(ROOT)) for part in command[1:]]
    # Paths start at the project's folder; a program of --command runs in its own folder.
    parts = [str(ROOT / part) if part.startswith("examples/") else part for part in parts]
    for name, value in replacements.items():
        parts = [part.replace(name, value) for part in parts]
    if command[0] == "python":
        subprocess.run([sys.executable, *parts], check=True)
        return
    assert command[0] == "hecktor"
    assert main(parts) == 0, command


def make_coarse_phantoms(command: list[str], folder: Path, *, patients: int | None = None) -> None:
    """Make the phantoms of a README's command with a coarse CT; by default as many as in the command."""
    values = {name: command[command.index(f"--{name}") + 1] for name in ("seed", "layout", "patients")}
    centres = tuple(centre.code for centre in CENTRES)
    options = CohortOptions(int(values["seed"]), centres, values["layout"], "head_and_neck", ct_coarsening=8)
    assert list(make_cohort(options, patients or int(values["patients"]), folder, jobs=1))
