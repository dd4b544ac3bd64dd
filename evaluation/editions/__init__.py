"""Evaluation profiles: metrics, rules and ranking of each edition of the challenge."""

from importlib.resources import files
from typing import Final

from contract.editions import DEFAULT_EDITION

DEFAULT_PROFILE: Final = DEFAULT_EDITION


def known_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with the package."""
    names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))
