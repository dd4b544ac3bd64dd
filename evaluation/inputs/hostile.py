"""Submitted files are hostile until shown otherwise: whatever reading one raises is told as a prediction's error."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from contract.errors import PredictionError

# What files made for it get out of the readers: links in a circle, headers of NaN, folders that may not be opened.
# Mistakes in the program itself, such as a name that does not exist, are none of these and end the run.
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
    """Read a submitted file `name` inside; what it makes a reader raise becomes a PredictionError without a path."""
    try:
        yield
    except _RAISED_BY_FILES as problem:
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise PredictionError(name, f"cannot be read ({reason or type(problem).__name__})") from None
