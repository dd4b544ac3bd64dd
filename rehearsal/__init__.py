"""Phantom cohorts, and a simulator of the platform that runs images under its rules.

Names are imported on first use, so that `hecktor rehearse --help` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rehearsal.phantoms.make import Phantom, make_phantom

__all__ = ["Phantom", "make_phantom"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rehearsal.phantoms.make"), name)
