"""Turn errors that a submitted file causes in a reader into prediction errors."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from contract.errors import PredictionError

# Circular links, NaN in a header or a folder without permission make readers raise any of these.
_RAISED_BY_FILES: Final = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)


@contextmanager
def hostile(name: str) -> Iterator[None]:
    """Raise a PredictionError without a path for any error that reading the submitted file `name` raises.

    The block must only open and parse the file; any other error is a bug of ours and must end the run.
    """
    try:
        yield
    except _RAISED_BY_FILES as problem:
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise PredictionError(name, f"cannot be read ({reason or type(problem).__name__})") from None
