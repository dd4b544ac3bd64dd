"""What a figure was measured on: processor, memory, versions; never the machine's name."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("hecktor", "numpy", "scipy", "SimpleITK", "torch", "nnunetv2", "pandas", "lifelines")


def machine_facts() -> dict[str, Any]:
    """Facts for the report; a package that is not installed is null."""
    return {
        "cpu_model": _first(Path("/proc/cpuinfo"), r"model name\s*:\s*(.+)"),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        # Above zero at the start means that something else was running, and the figures are worth less.
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _first(path: Path, pattern: str) -> str | None:
    found = re.search(pattern, path.read_text()) if path.is_file() else None
    return found.group(1).strip() if found else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checked-out commit, with a plus where files differ from it; None outside a checkout."""
    root = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        state = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if state.stdout.strip() else "")
