"""Colours of teams and of the reference, the same in every chart, table and picture; windows of scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Each has a contrast of at least 3 : 1 to the page in its light and its dark scheme, and is bright enough on a CT.
TEAM_COLOURS: Final = (
    "#1f86d6",
    "#d6409f",
    "#8b6cf0",
    "#d9480f",
    "#0f9d82",
    "#b07a10",
    "#0e93b0",
    "#7d8a12",
    "#a86a4b",
    "#c2559d",
)
NEUTRAL: Final = "#7c8794"
REFERENCE_COLOUR: Final = "#3dff6e"
CT_WINDOW_HU: Final = (-160.0, 240.0)
PET_SHOWN_SUV: Final = (2.0, 14.0)


def colours_of(teams: Sequence[str]) -> dict[str, str]:
    """A colour for each team: its own for the leading ten, grey for the others."""
    colours = [*TEAM_COLOURS, *[NEUTRAL] * len(teams)]
    return dict(zip(teams, colours, strict=False))
