"""The log files of a run, whose size is limited however much the program prints."""

from __future__ import annotations

import os
import select
import subprocess
import threading
from pathlib import Path
from typing import IO, Final

# The first and the last bytes of a part of a log that are kept.
KEPT_BYTES: Final = 1024 * 1024
_BLOCK_BYTES: Final = 64 * 1024
_MAX_BLOCKS_IN_PIPE: Final = 32
_POLL_S: Final = 0.2


class Logs:
    """The output streams of a running program in two files.

    The output of a server has several parts, which `cut` separates. The first and the last KEPT_BYTES of each part are
    kept, and a line in the file states how many bytes between them were dropped. A thread reads each stream, so that
    the program does not have to wait.
    """

    def __init__(self, process: subprocess.Popen[bytes], stdout: Path, stderr: Path) -> None:
        pipes = (process.stdout, process.stderr)
        self._streams = [_Stream(pipe, path) for pipe, path in zip(pipes, (stdout, stderr), strict=True) if pipe]

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settle(self) -> None:
        """Write all output up to now into the files; raise `OSError` if a file cannot be written."""
        for stream in self._streams:
            stream.settle()

    def cut(self, *targets: Path) -> None:
        """Copy the output since the last cut to `targets`, the files for stdout and stderr."""
        for stream, target in zip(self._streams, targets, strict=True):
            target.write_bytes(stream.cut())

    def close(self) -> None:
        """Write all output and stop reading; a process that outlives the program cannot print any more."""
        for stream in self._streams:
            stream.close()


class _Stream:
    """One stream; the first bytes of a part are in the file, the last bytes stay in memory until `settle`."""

    def __init__(self, pipe: IO[bytes], path: Path) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._path = path
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: OSError | None = None
        # Position in the file at which the current part begins, bytes of its head, and bytes dropped after the head.
        self._part_start = 0
        self._head = 0
        self._dropped = 0
        self._tail = bytearray()
        path.write_bytes(b"")
        threading.Thread(target=self._follow, daemon=True).start()

    def settle(self) -> None:
        with self._lock:
            # Earlier output is in the pipe, which the program may fill faster than it is read here.
            for _ in range(0 if self._ended.is_set() else _MAX_BLOCKS_IN_PIPE):
                if not self._take():
                    break
            self._drop()
            note = f"\n[{self._dropped} bytes are left out here]\n" if self._dropped else ""
            self._write(note.encode() + self._tail)
            self._tail.clear()
            self._dropped = 0
        if self._error is not None:
            raise self._error

    def cut(self) -> bytes:
        """Return the text since the last cut, and begin a new part."""
        self.settle()
        with self._path.open("rb") as file:
            file.seek(self._part_start)
            part = file.read()
        self._part_start += len(part)
        self._head = 0
        return part

    def close(self) -> None:
        self.settle()
        self._ended.set()

    def _follow(self) -> None:
        """Read until the stream ends or is closed."""
        with self._pipe:
            while not self._ended.is_set():
                readable, _, _ = select.select([self._pipe], [], [], _POLL_S)
                with self._lock:
                    if readable and not self._ended.is_set() and self._take() == b"":
                        self._ended.set()

    def _take(self) -> bytes | None:
        """Read a block from the pipe; return None if the pipe is empty, and no bytes at its end."""
        try:
            block = os.read(self._pipe.fileno(), _BLOCK_BYTES)
        except BlockingIOError:
            return None
        room = KEPT_BYTES - self._head
        if len(block) > room:
            room = _find_letter_start(block, room)
            self._head = KEPT_BYTES
        else:
            self._head += len(block)
        self._write(block[:room])
        self._tail += block[room:]
        if len(self._tail) > 2 * KEPT_BYTES:
            self._drop()
        return block

    def _drop(self) -> None:
        """Keep only the last KEPT_BYTES of the tail, starting with a whole letter."""
        if len(self._tail) > KEPT_BYTES:
            start = _find_letter_start(self._tail, len(self._tail) - KEPT_BYTES)
            self._dropped += start
            del self._tail[:start]

    def _write(self, content: bytes | bytearray) -> None:
        """Append to the file; `settle` raises an error in the thread of the caller."""
        try:
            if content:
                with self._path.open("ab") as file:
                    file.write(content)
        except OSError as error:
            self._error = error


def _find_letter_start(text: bytes | bytearray, place: int) -> int:
    """Return `place`, or the start of its UTF-8 letter if `place` is inside a letter."""
    starts = (at for at in range(place, max(place - 4, -1), -1) if text[at] & 0xC0 != 0x80)
    return next(starts, place)
