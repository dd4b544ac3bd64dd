"""The disk space that a running program may use, measured while it runs: a limit on a file does not bound them all."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rehearsal.runners.monitor import Stopper

_LOOK_S: Final = 0.5
_MEASURE_S: Final = 60.0


class DiskWatch:
    """A thread that kills a program as soon as its folders hold more than `max_bytes` together.

    `layer_bytes` returns what a container has written elsewhere, None if that is unknown.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        max_bytes: int,
        stop: Stopper,
        layer_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._folders, self._max_bytes, self._stop, self._layer_bytes = folders, max_bytes, stop, layer_bytes
        self._ended = threading.Event()
        self._excess_bytes: int | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def __enter__(self) -> DiskWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def failure(self) -> str | None:
        """The reason why the program failed; None if its files fit."""
        if self._excess_bytes is None:
            return None
        return (
            f"disk limit exceeded: its files take {self._excess_bytes / 1e9:.3g} GB, "
            f"expected at most {self._max_bytes / 1e9:.3g} GB in /output and /tmp together; it was killed"
        )

    def measure(self) -> None:
        """Measure once more, for files that were written shortly before the end or could not be seen until then."""
        size = used_bytes(self._folders) + (self._layer_bytes() or 0)
        if size > self._max_bytes and self._excess_bytes is None:
            self._excess_bytes = size

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.measure()
            if self._excess_bytes is not None:
                # Again and again: the client of an engine may not have made its container yet.
                self._stop(True)


def used_bytes(folders: Sequence[Path]) -> int:
    """Return the disk space of all files below some folders, whatever their depth; holes of sparse files take none.

    Folders that this user cannot open count as empty.
    """
    command = ["du", "--summarize", "--total", "--block-size=1", "--", *map(str, folders)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=_MEASURE_S)
    except subprocess.TimeoutExpired:
        return 0
    total = re.search(rb"^(\d+)\ttotal\n\Z", done.stdout, re.MULTILINE)
    return int(total[1]) if total else 0
