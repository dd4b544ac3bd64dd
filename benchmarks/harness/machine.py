"""Processor, memory and versions of the machine that a figure was measured on; never its name."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("hecktor", "numpy", "scipy", "SimpleITK", "torch", "nnunetv2", "pandas", "lifelines")


def machine_facts() -> dict[str, Any]:
    """Facts for the report; the version of a package that is not installed is None."""
    return {
        "cpu_model": _first(Path("/proc/cpuinfo"), r"model name\s*:\s*(.+)"),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        # Well above zero means that something else was running.
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def machine_line(facts: Mapping[str, Any]) -> str:
    """The facts as a line of text."""
    packages = ", ".join(f"{name} {facts['packages'][name]}" for name in ("torch", "SimpleITK", "numpy"))
    machine = f"{facts['cpu_model']}, {facts['usable_cores']} cores, {facts['memory_gib']} GiB, {facts['system']}"
    load = f"load {facts['load_average_at_start']} at the start"
    return f"{machine}, {load}. Python {facts['python']}, {packages}."


def _first(path: Path, pattern: str) -> str | None:
    match = re.search(pattern, path.read_text()) if path.is_file() else None
    return match.group(1).strip() if match else None


def _version(name: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def _commit() -> str | None:
    """The checked-out commit, with a plus if tracked files differ from it; None outside a checkout."""
    with suppress(OSError, subprocess.CalledProcessError):
        return _git("rev-parse", "HEAD") + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    return None


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    process = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    return process.stdout.strip()
