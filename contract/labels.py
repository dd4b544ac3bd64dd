"""Label values of all masks."""

from __future__ import annotations

from typing import Final

BACKGROUND: Final = 0
GTVP: Final = 1
GTVN: Final = 2

NAMES: Final[dict[int, str]] = {BACKGROUND: "background", GTVP: "GTVp", GTVN: "GTVn"}
FOREGROUND: Final[tuple[int, ...]] = (GTVP, GTVN)
LESIONS: Final[tuple[str, ...]] = tuple(NAMES[value] for value in FOREGROUND)
