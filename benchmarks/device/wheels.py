"""Wheels for a machine without a network: fetched beforehand in folders that fit one transfer each, unpacked there.

Imports only the standard library: on the other machine nothing else is installed yet.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from contract.errors import HecktorError

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "requirements" / "algorithm.lock"
FOLDER: Final = ROOT / "build" / "device-check"
SITE: Final = FOLDER / "site"
# What the other machine must have, and what these require themselves.
PRESENT: Final = ("torch", "numpy", "scipy", "pandas", "scikit-learn", "pillow", "matplotlib")
_OF_PRESENT: Final = (
    *("contourpy", "cycler", "filelock", "fonttools", "fsspec", "jinja2", "joblib", "kiwisolver", "markupsafe"),
    *("mpmath", "networkx", "packaging", "pyparsing", "python-dateutil", "pytz", "sympy", "threadpoolctl"),
    *("typing-extensions", "tzdata"),
)
# Neither inference nor training imports it.
_NOT_IMPORTED: Final = ("imagecodecs",)
# Published as source alone; pure Python, so that a wheel built here fits every machine.
_SOURCES: Final = ("acvl-utils",)
_PLATFORMS: Final = ("manylinux2014", "manylinux1", *(f"manylinux_2_{minor}" for minor in range(39, 4, -1)), "linux")
# What the headers of an archive of a thousand files, and a tree that grows a little, add to a transfer.
_RESERVE_MIB: Final = 3.0
MIB: Final = 2**20


def requirements(lock: str) -> dict[str, str]:
    """The lines of each package to carry, by name, with its checksums."""
    entries = re.findall(r"^([a-z0-9-]+)(==[^\n]*\\\n(?: +--hash=[^\n]*\n?)+)", lock, flags=re.MULTILINE)
    left_out = {*PRESENT, *_OF_PRESENT, *_NOT_IMPORTED}
    return {name: name + rest for name, rest in entries if name not in left_out}


def split(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Names in as few folders of at most `limit` bytes as first fit finds, largest first.

    Raises:
        HecktorError: a file is larger than the limit.
    """
    folders: list[list[str]] = []
    for name in sorted(sizes, key=lambda one: (-sizes[one], one)):
        if sizes[name] > limit:
            found = f"found {sizes[name] / MIB:.1f} MiB"
            raise HecktorError(name, found, f"at most {limit / MIB:.1f} MiB beside the tree: a larger --transfer-mib")
        for folder in folders:
            if sum(sizes[one] for one in folder) + sizes[name] <= limit:
                folder.append(name)
                break
        else:
            folders.append([name])
    return folders


def prepare(python_version: str, platform: str, transfer_mib: float) -> list[str]:
    """Fetch the locked wheels into `wheels-1`, `wheels-2` and so on; returns lines that say what to send when.

    Raises:
        HecktorError: pip failed, or a wheel does not fit a transfer.
    """
    tree = tree_bytes()
    limit = int((transfer_mib - _RESERVE_MIB) * MIB) - tree
    for old in FOLDER.glob("wheels-*"):
        shutil.rmtree(old)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        wheels = _fetch(Path(scratch), python_version, platform)
        for wheel in wheels:
            if wheel.stat().st_size > limit:
                pack_smaller(wheel)
        folders = split({wheel.name: wheel.stat().st_size for wheel in wheels}, limit)
        lines = [f"tree without ignored files: {tree / MIB:.1f} MiB; one transfer: {transfer_mib:g} MiB"]
        for number, names in enumerate(folders, start=1):
            target = FOLDER / f"wheels-{number}"
            target.mkdir()
            for name in names:
                shutil.move(Path(scratch) / name, target / name)
            size = sum(path.stat().st_size for path in target.iterdir()) / MIB
            last = number == len(folders)
            call = "scripts/device-check [options]" if last else "scripts/device-check --install"
            where = target.relative_to(ROOT)
            lines.append(f"transfer {number}: the tree and {where} ({len(names)} wheels, {size:.1f} MiB), then {call}")
    return lines


def install() -> str:
    """Unpack the wheels of all folders, except those of packages that are there; returns what is importable from.

    Raises:
        HecktorError: pip refused a wheel.
    """
    wanted = requirements(LOCK.read_text())
    missing = set(absent(wanted))
    wheels = [path for path in sorted(FOLDER.glob("wheels-*/*.whl")) if _name(path) in missing]
    if wheels:
        options = ("--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(SITE))
        _pip("install", *options, *map(str, wheels))
    return str(SITE)


def absent(names: Sequence[str] | Mapping[str, str]) -> list[str]:
    """The packages among `names` that this Python does not find, in `SITE` neither."""
    if str(SITE) not in sys.path:
        sys.path.append(str(SITE))
    return [name for name in names if not _is_there(name)]


def require_all() -> None:
    """Raise HecktorError with the names of all packages that are missing."""
    missing = absent([*PRESENT, *requirements(LOCK.read_text())])
    if missing:
        expected = "them installed, or their wheels (`scripts/device-check --prepare`) in build/device-check/wheels-*"
        raise HecktorError(sys.executable, f"found no package {', '.join(missing)}", expected)


def tree_bytes() -> int:
    """Size of the files that git tracks or does not ignore."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise HecktorError("--prepare", f"git failed ({done.stderr.decode().strip()})", "a git clone")
    paths = {ROOT / name.decode() for name in done.stdout.split(b"\0") if name}
    return sum(path.lstat().st_size for path in paths if path.is_symlink() or path.is_file())


def pack_smaller(wheel: Path) -> None:
    """Compress a wheel anew with LZMA, which pip reads as well: SimpleITK's takes 27 MiB instead of 50."""
    packed = wheel.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    packed.replace(wheel)


def _fetch(folder: Path, python_version: str, platform: str) -> list[Path]:
    wanted = requirements(LOCK.read_text())
    binary, source = folder / "binary.txt", folder / "source.txt"
    binary.write_text("".join(lines for name, lines in wanted.items() if name not in _SOURCES))
    source.write_text("".join(lines for name, lines in wanted.items() if name in _SOURCES))
    platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_{platform}")]
    versions = ("--python-version", python_version, "--implementation", "cp", *platforms)
    common = ("--no-deps", "--require-hashes", "-r")
    _pip("download", "--only-binary=:all:", *versions, "--dest", str(folder), *common, str(binary))
    _pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), *common, str(source))
    return sorted(folder.glob("*.whl"))


def _pip(command: str, *arguments: str) -> None:
    words = (sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise HecktorError(f"pip {command}", lines[0] if lines else f"exit status {done.returncode}", "success")


def _name(wheel: Path) -> str:
    return wheel.name.partition("-")[0].replace("_", "-").lower()


def _is_there(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
