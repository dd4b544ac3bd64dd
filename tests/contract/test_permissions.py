"""For paths without permission one line names the path, the user and the command to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="changes the user")

# Modules are imported first: another user may not be able to read this Python.
AS_USER_1000 = """
import os, sys
from pathlib import Path
from contract.archives import pack
from contract.errors import InputError, run_main
from contract.io.files import find_files, read_json, atomic_folder, write_text
from contract.images.volumes import list_images
from contract.io.locks import lock_output
os.setgroups([]); os.setgid(1000); os.setuid(1000)
path = Path(sys.argv[1])
"""


def run_as_user_1000(path: Path, *calls: str) -> list[str]:
    """Run each call as a command of user 1000 and return its error."""
    program = [AS_USER_1000, *(f"assert run_main(lambda _: {call}) == 1" for call in calls)]
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(program), path], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr.splitlines()


@pytest.fixture
def closed_folder(public_folder: Path) -> Path:
    """Write a folder of mode 700 with a file, as patient data lie on a disk."""
    folder = public_folder / "input"
    folder.mkdir(mode=0o700)
    (folder / "a.json").write_text("{}")
    return folder


READERS = (
    "read_json(path / 'a.json')",
    "list_images(path)",
    "find_files(path)",
    "pack(path.parent, Path('/dev/null'))",
    "(path / 'a.json').is_file()",
)
WRITERS = (
    "write_text(path / 'b.txt', '')",
    "write_text(path / 'new' / 'b.txt', '')",
    "atomic_folder(path / 'case').__enter__()",
    "lock_output(path / 'b').__enter__()",
    "lock_output(path).__enter__()",
)


def test_the_outermost_closed_folder_is_named(closed_folder: Path) -> None:
    expected = f"error: {closed_folder}: user 1000 has no permission (owner 0, mode 700), "
    expected += f"expected access for this user: chmod -R a+rX {closed_folder}"
    assert run_as_user_1000(closed_folder, *READERS) == [expected] * len(READERS)


def test_a_closed_file_is_named(closed_folder: Path) -> None:
    closed_folder.chmod(0o755)
    (closed_folder / "a.json").chmod(0o600)
    (error,) = run_as_user_1000(closed_folder, READERS[0])
    assert f"chmod -R a+rX {closed_folder}/a.json" in error


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_the_folder_of_an_output_must_be_writable(closed_folder: Path, mode: int) -> None:
    closed_folder.chmod(mode)
    expected = f"error: {closed_folder}: user 1000 has no permission (owner 0, mode {mode:o}), "
    expected += f"expected access for this user: chmod a+rwX {closed_folder}"
    assert run_as_user_1000(closed_folder, *WRITERS) == [expected] * len(WRITERS)
