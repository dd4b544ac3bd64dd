"""The command `hecktor`; `__version__` is the version.

The package of a subcommand is imported only when the subcommand is called.
"""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """Return the installed version, which is looked up on access to keep the import of this package fast."""
    if name != "__version__":
        raise AttributeError(f"module 'hecktor' has no attribute {name!r}")
    from importlib.metadata import version

    return version("hecktor")
