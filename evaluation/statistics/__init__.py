"""Bootstrap, intervals and tests of teams."""

from typing import Final

DEFAULT_SEED: Final = 2025
DEFAULT_BOOTSTRAPS: Final = 1000
