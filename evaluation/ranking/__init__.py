"""Rank teams."""

from __future__ import annotations

from typing import Final

DEFAULT_RANKINGS: Final = 1000
