"""One answer is written, by whichever of two threads comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from algorithm.masks.segmentation import Segmented

HANGING: Final = "a step does not end"
Result = TypeVar("Result")
LastResort = Callable[[str], Segmented]


class WriteOnce(Generic[Result]):
    """Writes one answer at most, from whichever thread comes first; the other thread waits for it.

    Args:
        write: writes what `prepare` made; its effects happen once.
        prepare: the steps from an answer to what is written.
    """

    def __init__(
        self, write: Callable[[Any], Result], prepare: Callable[[Segmented], Any] = lambda answer: answer
    ) -> None:
        self._write, self._prepare = write, prepare
        self._results: list[Result] = []
        self._closed = self._abandoned = False
        self._in_work, self._on_disk = threading.Lock(), threading.Lock()

    def write(self, answer: Segmented) -> None:
        """Write, unless an answer is written already or `write_last` was called."""
        with self._in_work:
            if self._results or self._closed:
                return
            prepared = self._prepare(answer)
            with self._on_disk:
                if not self._abandoned:
                    self._results.append(self._write(prepared))

    def write_last(
        self, answer: Callable[[], Segmented], patience_s: float = -1, otherwise: LastResort | None = None
    ) -> Result:
        """As `write`, and no thread writes afterwards even if this call fails.

        With `otherwise`, that answer is written if another thread still prepares its own after `patience_s` seconds.
        """
        self._closed = True
        in_time = self._in_work.acquire(timeout=patience_s)
        try:
            if not in_time and otherwise is not None:
                with self._on_disk:
                    self._abandoned = True
                answer = partial(otherwise, HANGING)
            if not self._results:
                self._results.append(self._write(self._prepare(answer())))
            return self._results[0]
        finally:
            if in_time:
                self._in_work.release()

    def close(self) -> None:
        """Write nothing from now on; a write that has begun ends."""
        self._closed = True

    def result(self) -> Result:
        return self._results[0]


def computed(compute: Callable[[], Segmented], output: WriteOnce[Any], failure: list[BaseException]) -> None:
    """Compute and write in this thread; an exception goes to `failure`."""
    try:
        output.write(compute())
    except BaseException as problem:  # noqa: BLE001  the waiting thread raises it again
        failure.append(problem)
