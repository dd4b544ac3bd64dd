"""Processes that work on cases: fresh ones, which end with the process that began them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor


def fresh_processes(count: int, begin: Callable[[], object] | None = None) -> ProcessPoolExecutor:
    """A pool of fresh interpreters: forked ones would inherit the locks of ITK's threads, and can hang.

    Args:
        count: processes, at least 1.
        begin: what each does first, a function of the module level.

    Returns:
        The pool. Its processes end at once where the one that made it is killed; others would wait for work for ever.
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
