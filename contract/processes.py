"""Worker processes that end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor


def fresh_processes(count: int, begin: Callable[[], object] | None = None) -> ProcessPoolExecutor:
    """Start a pool of spawned interpreters; forked ones inherit the locks of ITK's threads and can hang.

    Args:
        count: number of processes, at least 1.
        begin: initializer of each process, a function at module level.

    Returns:
        The pool. Its processes exit when the parent is killed; without that they would wait for work forever.
    """
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(begin,))


def _begin(begin: Callable[[], object] | None) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.join,), daemon=True).start()
    if begin is not None:
        begin()


def _end_after(wait: Callable[[], object]) -> None:
    wait()
    os._exit(1)
