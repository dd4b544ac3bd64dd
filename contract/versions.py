"""Versions of installed packages, for provenance."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version(package: str, absent: str = "unknown") -> str:
    """The version of a package, `absent` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return absent
