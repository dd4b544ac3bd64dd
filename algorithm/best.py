"""The best answer in hand: offered by whoever computes, taken by whoever must answer, written once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from algorithm.masks.segmentation import Segmentation


class BestAnswer:
    """Shared by the thread that computes and the one that watches the clock.

    `stop` asks the computing thread to go on no further; `take` hands out the best segmentation so far.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.written = False
        self._make: Callable[[], Segmentation] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def offer(self, make: Callable[[], Segmentation]) -> None:
        """Put a better answer in the place of the last one; `make` is called only if it is needed."""
        self._make = make

    def take(self) -> Segmentation | None:
        """The best answer so far, None before there is any."""
        make = self._make
        return None if make is None else make()

    @property
    def in_hand(self) -> bool:
        """Whether there is an answer to take."""
        return self._make is not None

    def write_once(self, write: Callable[[], object]) -> None:
        """Call `write` unless an answer is written already; whoever comes while one is being written waits for it."""
        with self._lock:
            if not self.written and not self._closed:
                write()
                self.written = True

    def write_last(self, write: Callable[[], object]) -> None:
        """As `write_once`, and nobody writes after it, even if `write` raises."""
        with self._lock:
            self._closed = True
            if not self.written:
                write()
                self.written = True
