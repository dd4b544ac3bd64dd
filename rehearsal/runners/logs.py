"""The log files of a run: bounded, whatever the program prints."""

from __future__ import annotations

import os
import select
import subprocess
import threading
from pathlib import Path
from typing import IO, Final

KEPT_BYTES: Final = 1024 * 1024
_PIECE: Final = 64 * 1024
_PIPE_PIECES: Final = 32
_LOOK_S: Final = 0.2


class Logs:
    """The output streams of a running program in two files.

    Of each part, which a server's `cut` ends, the first and the last KEPT_BYTES are kept, and the file says how many
    bytes are left out between them. A thread reads each stream, so that the program does not wait.
    """

    def __init__(self, process: subprocess.Popen[bytes], stdout: Path, stderr: Path) -> None:
        pipes = (process.stdout, process.stderr)
        self._streams = [_Stream(pipe, path) for pipe, path in zip(pipes, (stdout, stderr), strict=True) if pipe]

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settle(self) -> None:
        """Have in the files what the program has printed up to now. Raises OSError if one cannot be written."""
        for stream in self._streams:
            stream.settle()

    def cut(self, *targets: Path) -> None:
        """Copy what was written since the last cut, of stdout and of stderr, to `targets`."""
        for stream, target in zip(self._streams, targets, strict=True):
            target.write_bytes(stream.cut())

    def close(self) -> None:
        """Settle and read no further: a process that outlives the program cannot print any more."""
        for stream in self._streams:
            stream.close()


class _Stream:
    """One stream. Of a part the first bytes are in the file, the last ones in memory until `settle`."""

    def __init__(self, pipe: IO[bytes], path: Path) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe, self._path = pipe, path
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._problem: OSError | None = None
        self._begun = self._head = self._dropped = 0
        self._tail = bytearray()
        path.write_bytes(b"")
        threading.Thread(target=self._follow, daemon=True).start()

    def settle(self) -> None:
        with self._lock:
            # What was printed before is in the pipe, but a program may print faster than this reads.
            for _ in range(0 if self._ended.is_set() else _PIPE_PIECES):
                if not self._take():
                    break
            self._drop()
            note = f"\n[{self._dropped} bytes are left out here]\n" if self._dropped else ""
            self._write(note.encode() + self._tail)
            self._tail.clear()
            self._dropped = 0
        if self._problem is not None:
            raise self._problem

    def cut(self) -> bytes:
        """The text written since the last cut; a new part begins."""
        self.settle()
        with self._path.open("rb") as file:
            file.seek(self._begun)
            part = file.read()
        self._begun, self._head = self._begun + len(part), 0
        return part

    def close(self) -> None:
        self.settle()
        self._ended.set()

    def _follow(self) -> None:
        """Read until the stream ends or is closed."""
        with self._pipe:
            while not self._ended.is_set():
                readable, _, _ = select.select([self._pipe], [], [], _LOOK_S)
                with self._lock:
                    if readable and not self._ended.is_set() and self._take() == b"":
                        self._ended.set()

    def _take(self) -> bytes | None:
        """Keep what the pipe holds; None if it is empty, no bytes at its end."""
        try:
            block = os.read(self._pipe.fileno(), _PIECE)
        except BlockingIOError:
            return None
        room = KEPT_BYTES - self._head
        if len(block) > room:
            room, self._head = _start_of_letter(block, room), KEPT_BYTES
        else:
            self._head += len(block)
        self._write(block[:room])
        self._tail += block[room:]
        if len(self._tail) > 2 * KEPT_BYTES:
            self._drop()
        return block

    def _drop(self) -> None:
        """Keep the last KEPT_BYTES of the tail, without half a letter at their start."""
        if len(self._tail) > KEPT_BYTES:
            start = _start_of_letter(self._tail, len(self._tail) - KEPT_BYTES)
            self._dropped += start
            del self._tail[:start]

    def _write(self, content: bytes | bytearray) -> None:
        """Append to the file; the reason why it cannot be written is raised by `settle`, in the caller's thread."""
        try:
            if content:
                with self._path.open("ab") as file:
                    file.write(content)
        except OSError as problem:
            self._problem = problem


def _start_of_letter(text: bytes | bytearray, place: int) -> int:
    """`place`, or the start of the UTF-8 letter of which it is a later byte."""
    starts = (at for at in range(place, max(place - 4, -1), -1) if text[at] & 0xC0 != 0x80)
    return next(starts, place)
