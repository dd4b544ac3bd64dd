"""nnU-Net's planning without its pools of processes, each of which would import torch anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final


class _Done:
    """Results that are there already, as nnU-Net asks a pool for them."""

    def __init__(self, results: list[Any]) -> None:
        self.results = results

    def ready(self) -> bool:
        return True

    def get(self) -> list[Any]:
        return self.results


class _Pool:
    """A pool without processes: it calls the function at once, so that an error is raised where it happens."""

    _pool: Final = ()  # nnU-Net watches the workers

    def __init__(self, processes: int) -> None:
        del processes

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def starmap(self, function: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> list[Any]:
        return [function(*one) for one in arguments]

    def starmap_async(self, function: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> _Done:
        return _Done(self.starmap(function, arguments))


class _Multiprocessing:
    """The part of `multiprocessing` that nnU-Net uses to fingerprint and preprocess."""

    Pool: Final = _Pool

    def get_context(self, method: str) -> _Multiprocessing:
        del method
        return self


@contextmanager
def without_pools(jobs: int) -> Iterator[None]:
    """Within the block nnU-Net lists files in this process and, with one job, plans here.

    For a list of file names nnU-Net forks twelve processes; forked ones inherit the locks of ITK's threads.
    """
    from nnunetv2.experiment_planning.dataset_fingerprint import fingerprint_extractor
    from nnunetv2.preprocessing.preprocessors import default_preprocessor
    from nnunetv2.utilities import utils

    planning = (fingerprint_extractor, default_preprocessor) if jobs == 1 else ()
    changed: list[tuple[Any, str, Any]] = [(utils, "Pool", _Pool)]
    changed += [(module, "multiprocessing", _Multiprocessing()) for module in planning]
    before = [getattr(module, name) for module, name, _ in changed]
    for module, name, own in changed:
        setattr(module, name, own)
    try:
        yield
    finally:
        for (module, name, _), original in zip(changed, before, strict=True):
            setattr(module, name, original)
