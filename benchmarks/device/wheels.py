"""Fetch wheels for a machine without a network, and install them there. Each folder of wheels fits one transfer.

This module imports only the standard library and `contract.errors`, since other packages are not installed yet.
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
# Packages that the other machine must have, and packages that are installed with them.
PRESENT: Final = ("torch", "numpy", "scipy", "pandas", "scikit-learn", "pillow", "matplotlib")
_REQUIRED_BY_PRESENT: Final = (
    *("contourpy", "cycler", "filelock", "fonttools", "fsspec", "jinja2", "joblib", "kiwisolver", "markupsafe"),
    *("mpmath", "networkx", "packaging", "pyparsing", "python-dateutil", "pytz", "sympy", "threadpoolctl"),
    *("typing-extensions", "tzdata"),
)
# Packages that neither inference nor training imports.
_NOT_IMPORTED: Final = ("imagecodecs",)
# Packages that are published only as source. They are pure Python, so a wheel that is built here works everywhere.
_SOURCES: Final = ("acvl-utils",)
_PLATFORMS: Final = ("manylinux2014", "manylinux1", *(f"manylinux_2_{minor}" for minor in range(39, 4, -1)), "linux")
# Reserve of a transfer: headers of an archive of a thousand files, and growth of the tree.
_RESERVE_MIB: Final = 3.0
MIB: Final = 2**20


def parse_requirements(lock: str) -> dict[str, str]:
    """Parse the lock file; return by name the lines with version and checksums of each package to transfer."""
    entries = re.findall(r"^([a-z0-9-]+)(==[^\n]*\\\n(?: +--hash=[^\n]*\n?)+)", lock, flags=re.MULTILINE)
    excluded = {*PRESENT, *_REQUIRED_BY_PRESENT, *_NOT_IMPORTED}
    return {name: name + rest for name, rest in entries if name not in excluded}


def split_into_folders(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Split files into folders of at most `limit` bytes: the first folder with room takes a file, largest file first.

    Raises:
        HecktorError: A file is larger than the limit.
    """
    folders: list[list[str]] = []
    for name in sorted(sizes, key=lambda file: (-sizes[file], file)):
        if sizes[name] > limit:
            expected = f"at most {limit / MIB:.1f} MiB in addition to the tree: a larger --transfer-mib"
            raise HecktorError(name, f"found {sizes[name] / MIB:.1f} MiB", expected)
        for folder in folders:
            if sum(sizes[file] for file in folder) + sizes[name] <= limit:
                folder.append(name)
                break
        else:
            folders.append([name])
    return folders


def prepare(python_version: str, platform: str, transfer_mib: float) -> list[str]:
    """Fetch the locked wheels into `wheels-1`, `wheels-2` and so on.

    Returns:
        A line for each transfer with its folders and the command to run after it.

    Raises:
        HecktorError: pip failed, or a wheel does not fit a transfer.
    """
    tree = measure_tree_bytes()
    limit = int((transfer_mib - _RESERVE_MIB) * MIB) - tree
    for folder in FOLDER.glob("wheels-*"):
        shutil.rmtree(folder)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        wheels = _fetch(Path(scratch), python_version, platform)
        for wheel in wheels:
            if wheel.stat().st_size > limit:
                recompress(wheel)
        folders = split_into_folders({wheel.name: wheel.stat().st_size for wheel in wheels}, limit)
        lines = [f"tree without ignored files: {tree / MIB:.1f} MiB; one transfer: {transfer_mib:g} MiB"]
        for number, names in enumerate(folders, start=1):
            target = FOLDER / f"wheels-{number}"
            target.mkdir()
            for name in names:
                shutil.move(Path(scratch) / name, target / name)
            size = sum(path.stat().st_size for path in target.iterdir()) / MIB
            is_last = number == len(folders)
            command = "scripts/device-check [options]" if is_last else "scripts/device-check --install"
            content = f"the tree and {target.relative_to(ROOT)} ({len(names)} wheels, {size:.1f} MiB)"
            lines.append(f"transfer {number}: {content}, then {command}")
    return lines


def install() -> str:
    """Install the wheels of all folders whose packages are missing; return the folder of the installed packages.

    Raises:
        HecktorError: pip refused a wheel.
    """
    wanted = parse_requirements(LOCK.read_text())
    missing = set(find_missing(wanted))
    wheels = [path for path in sorted(FOLDER.glob("wheels-*/*.whl")) if _parse_name(path) in missing]
    if wheels:
        options = ("--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(SITE))
        _run_pip("install", *options, *map(str, wheels))
    return str(SITE)


def find_missing(names: Sequence[str] | Mapping[str, str]) -> list[str]:
    """Find the packages among `names` that are installed neither in this Python nor in `SITE`."""
    if str(SITE) not in sys.path:
        sys.path.append(str(SITE))
    return [name for name in names if not _is_installed(name)]


def require_all() -> None:
    """Raise `HecktorError` with the names of all missing packages."""
    missing = find_missing([*PRESENT, *parse_requirements(LOCK.read_text())])
    if missing:
        expected = "them installed, or their wheels (`scripts/device-check --prepare`) in build/device-check/wheels-*"
        raise HecktorError(sys.executable, f"found no package {', '.join(missing)}", expected)


def measure_tree_bytes() -> int:
    """Measure the size of all files that git tracks or does not ignore."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise HecktorError("--prepare", f"git failed ({done.stderr.decode().strip()})", "a git clone")
    paths = {ROOT / name.decode() for name in done.stdout.split(b"\0") if name}
    return sum(path.lstat().st_size for path in paths if path.is_symlink() or path.is_file())


def recompress(wheel: Path) -> None:
    """Compress a wheel with LZMA, which pip can read: SimpleITK's wheel shrinks from 50 to 27 MiB."""
    packed = wheel.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    packed.replace(wheel)


def _fetch(folder: Path, python_version: str, platform: str) -> list[Path]:
    wanted = parse_requirements(LOCK.read_text())
    binary, source = folder / "binary.txt", folder / "source.txt"
    binary.write_text("".join(lines for name, lines in wanted.items() if name not in _SOURCES))
    source.write_text("".join(lines for name, lines in wanted.items() if name in _SOURCES))
    platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_{platform}")]
    versions = ("--python-version", python_version, "--implementation", "cp", *platforms)
    common = ("--no-deps", "--require-hashes", "-r")
    _run_pip("download", "--only-binary=:all:", *versions, "--dest", str(folder), *common, str(binary))
    _run_pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), *common, str(source))
    return sorted(folder.glob("*.whl"))


def _run_pip(command: str, *arguments: str) -> None:
    words = (sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise HecktorError(f"pip {command}", lines[0] if lines else f"exit status {done.returncode}", "success")


def _parse_name(wheel: Path) -> str:
    return wheel.name.partition("-")[0].replace("_", "-").lower()


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
