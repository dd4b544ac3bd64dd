"""Process cases on the workers of an existing Dask cluster, as on local processes.

The workers must see the masks under the same paths and have the same version of this package. Dask itself passes the
cases of a dead worker to another one, and gives up a case that kills several workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final

from contract.errors import HecktorError
from evaluation.execution.pool import Workers

CONNECT_TIMEOUT_S: Final = 30


def dask_workers(address: str) -> Workers:
    """The workers behind a scheduler's address, such as `tcp://10.0.0.1:8786`.

    Raises:
        HecktorError: dask.distributed is not installed; when the executor opens: no scheduler answers, or it has no
            worker, within 30 seconds.
    """
    try:
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise HecktorError("--scheduler", "dask.distributed is not installed", "`hecktor[cluster]`") from None
    return Workers(lambda _: _connected(address), (KilledWorker,))


@contextmanager
def _connected(address: str) -> Iterator[Executor]:
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError):
        raise HecktorError(f"--scheduler {address}", "no scheduler answers", "a running Dask scheduler") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
        except TimeoutError:
            raise HecktorError(f"--scheduler {address}", "it has no worker", "at least one") from None
        executor: Executor = client.get_executor(pure=False)
        with executor:
            yield executor
