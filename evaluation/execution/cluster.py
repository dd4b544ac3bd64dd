"""Process cases on the workers of an existing Dask cluster, as on local processes.

The workers must see the masks under the same paths and have the same version of this package. Dask itself passes the
cases of a dead worker to another one, and gives up a case that kills several workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from contract.errors import HecktorError

CONNECT_TIMEOUT_S: Final = 30


@dataclass(frozen=True)
class DaskWorkers:
    """The workers behind a scheduler's address, such as `tcp://10.0.0.1:8786`.

    Raises:
        HecktorError: dask.distributed is not installed.
    """

    address: str

    def __post_init__(self) -> None:
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise HecktorError("--scheduler", "dask.distributed is not installed", "`hecktor[cluster]`") from None

    @property
    def deaths(self) -> tuple[type[Exception], ...]:
        """The exception that Dask raises when it gives up a case."""
        from distributed.scheduler import KilledWorker

        return (KilledWorker,)

    def executor(self, n_items: int) -> AbstractContextManager[Executor]:
        """The cluster's workers; leaving the context only disconnects.

        Raises:
            HecktorError: no scheduler answers, or it has no worker, within 30 seconds.
        """
        del n_items
        return _connected(self.address)


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
