"""The command `hecktor`, which imports the package of a subcommand when it is called; `__version__` is the version."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """The installed version, looked up when it is asked for: importing a module does no work."""
    if name != "__version__":
        raise AttributeError(f"module 'hecktor' has no attribute {name!r}")
    from importlib.metadata import version

    return version("hecktor")
