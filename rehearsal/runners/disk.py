"""Limit the disk space of a running program, since a limit on one file does not limit all files together."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rehearsal.runners.monitor import Stopper

_LOOK_S: Final = 0.5
MAX_MEASURE_S: Final = 60.0


class DiskWatch:
    """A thread that kills a program as soon as its folders hold more than `max_bytes` together.

    `layer_bytes` returns the bytes that a container has written outside these folders, None if they are unknown.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        max_bytes: int,
        stop: Stopper,
        layer_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._folders = folders
        self._max_bytes = max_bytes
        self._stop = stop
        self._layer_bytes = layer_bytes
        self._ended = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def __enter__(self) -> DiskWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def failure(self) -> str | None:
        """The reason why the program failed; None if its files fit."""
        return self._failure

    def measure(self) -> None:
        """Measure once more; files may be written, or become readable, shortly before the end."""
        if self._failure is not None:
            return
        try:
            size = measure_used_bytes(self._folders) + (self._layer_bytes() or 0)
        except subprocess.TimeoutExpired:
            self._fail(f"its files cannot be measured within {MAX_MEASURE_S:g} s")
            return
        if size > self._max_bytes:
            self._fail(f"its files take {size / 1e9:.3g} GB")

    def _fail(self, problem: str) -> None:
        limit = f"at most {self._max_bytes / 1e9:.3g} GB in /output and /tmp together"
        self._failure = f"disk limit exceeded: {problem}, expected {limit}; it was killed"

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.measure()
            if self._failure is not None:
                # This is repeated until the end, since the client of an engine may not have made its container yet.
                self._stop(True)


def measure_used_bytes(folders: Sequence[Path]) -> int:
    """Measure the disk space of all files below some folders at any depth; holes of sparse files do not count.

    Folders that this user cannot open count as empty.

    Raises:
        subprocess.TimeoutExpired: There are so many files that measuring them takes more than `MAX_MEASURE_S` seconds.
    """
    command = ["du", "--summarize", "--total", "--block-size=1", "--", *map(str, folders)]
    done = subprocess.run(command, check=False, capture_output=True, timeout=MAX_MEASURE_S)
    total = re.search(rb"^(\d+)\ttotal\n\Z", done.stdout, re.MULTILINE)
    return int(total[1]) if total else 0
