"""The platform's checks of an uploaded image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

API_METHOD_LABEL: Final = "org.grand-challenge.api-method"
API_METHODS: Final[tuple[Literal["exec", "invoke"], ...]] = ("exec", "invoke")
STRIPPED_PREFIX: Final = "GRAND_CHALLENGE_"
SIZE_LIMIT_BYTES: Final = 10_000_000_000


@dataclass(frozen=True)
class ImageFacts:
    """Properties of an image; `manifests` is 1 for an image in an engine."""

    name: str
    user: str
    architecture: str
    api_method: str
    size_bytes: int
    variables: tuple[str, ...]
    manifests: int = 1

    @property
    def stripped_variables(self) -> tuple[str, ...]:
        """Names of its environment variables that the platform removes."""
        names = [variable.split("=", 1)[0] for variable in self.variables]
        return tuple(name for name in names if name.startswith(STRIPPED_PREFIX))

    @classmethod
    def of(
        cls, name: str, config: Mapping[str, Any], architecture: str, size_bytes: int, manifests: int = 1
    ) -> ImageFacts:
        """Properties of an image with the configuration `config` of its containers."""
        user, labels = str(config.get("User") or "").strip(), config.get("Labels") or {}
        api_method, variables = str(labels.get(API_METHOD_LABEL, "exec")), tuple(config.get("Env") or ())
        return cls(name, user, architecture, api_method, size_bytes, variables, manifests)


def upload_problems(facts: ImageFacts) -> list[str]:
    """Reasons why the platform would refuse this image; empty if it would accept it."""
    problems = []
    user = facts.user.split(":", 1)[0]
    if user in {"", "root", "0"}:
        shown = f"USER {facts.user}" if facts.user else "no USER, so it runs as root"
        problems.append(f"{facts.name}: {shown}, expected a user that is not root")
    if facts.architecture != "amd64":
        problems.append(f"{facts.name}: built for {facts.architecture or 'nothing known'}, expected amd64")
    if facts.manifests != 1:
        problems.append(f"{facts.name}: {facts.manifests} images in the archive, expected exactly one")
    if facts.api_method not in API_METHODS:
        problems.append(f"{facts.name}: label {API_METHOD_LABEL}={facts.api_method!r}, expected exec or invoke")
    if facts.size_bytes > SIZE_LIMIT_BYTES:
        problems.append(f"{facts.name}: {facts.size_bytes / 1e9:.2f} GB, expected at most 10 GB")
    return [f"{problem}; the platform would refuse the image" for problem in problems]
