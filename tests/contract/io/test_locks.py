"""Each output has one writer at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contract.errors import OutputError
from contract.io.locks import lock_output

HOLDER = """
import sys
from pathlib import Path
from contract.io.locks import lock_output
with lock_output(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def list_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@contextmanager
def lock_in_another_process(target: Path) -> Iterator[subprocess.Popen[str]]:
    """Write `target` in another process while the block runs."""
    words = [sys.executable, "-c", HOLDER, str(target)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        yield holder
        assert holder.stdin is not None
        holder.stdin.close()


def test_a_second_writer_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    """Links to the folder are the same folder."""
    target = tmp_path / "new" / "case"
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with lock_in_another_process(target):
        for path in (target, tmp_path / "link" / "case"):
            with pytest.raises(OutputError, match="another process is writing there"), lock_output(path):
                pass
        with lock_output(tmp_path / "new" / "other"):
            pass
    with lock_output(target):
        pass
    assert list_names(tmp_path) == ["link"]


def test_a_killed_writer_does_not_lock(tmp_path: Path) -> None:
    with lock_in_another_process(tmp_path / "case") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with lock_output(tmp_path / "case"):
        pass
    assert list_names(tmp_path) == []


@pytest.mark.skipif(os.getuid() != 0, reason="changes the user")
def test_the_folder_is_locked_itself_if_its_parent_is_not_writable(public_folder: Path) -> None:
    """An example is /output in a container."""
    target = public_folder / "output"
    target.mkdir()
    target.chmod(0o777)
    code = HOLDER.replace("with", "import os; os.setuid(1000)\nwith", 1)
    words = [sys.executable, "-c", code, str(target)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        second = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert "another process is writing there" in second.stderr
        holder.communicate("")
    assert list_names(public_folder) == ["output"]
