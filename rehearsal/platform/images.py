"""Container images: the platform's checks at an upload."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract.errors import EngineError
from contract.platform import API_METHOD_LABEL, API_METHODS, MODEL_DIR, OUTPUT_DIR

STRIPPED_PREFIX: Final = "GRAND_CHALLENGE_"
SIZE_LIMIT_BYTES: Final = 10_000_000_000
ARCHIVE_SUFFIXES: Final = (".tar", ".tar.gz", ".tar.xz")
# What the platform mounts hides what the image has there.
_MOUNTED: Final = (str(MODEL_DIR), str(OUTPUT_DIR), "/tmp")  # noqa: S108 - paths inside the container
_TORCH: Final = re.compile(r"(?:\btorch==|\btorch-|PYTORCH_VERSION=v?)(2\.9(?:\.\d+)?)(?![\d])")
_CUDA: Final = re.compile(
    r"\b(?:CUDA_VERSION=|nvidia_cuda_runtime-)(13(?:\.\d+)*)|\bwhl/(cu13\d)\b|\btorch(?:==|-)\S+\+(cu13\d)\b"
    r"|\bnvidia_\w+_(cu13)-"
)


@dataclass(frozen=True)
class ImageFacts:
    """Properties of an image in an engine.

    `started` is its entry point with its arguments, `made_by` the commands that made its layers, `wheels` the folders
    that pip made for PyTorch and CUDA.
    """

    name: str
    user: str
    architecture: str
    api_method: str
    variables: tuple[str, ...]
    workdir: str = ""
    started: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()

    @property
    def stripped_variables(self) -> tuple[str, ...]:
        """Names of its environment variables that the platform removes."""
        names = [variable.split("=", 1)[0] for variable in self.variables]
        return tuple(name for name in names if name.startswith(STRIPPED_PREFIX))

    @classmethod
    def of(cls, name: str, config: Mapping[str, Any], architecture: str, made_by: Iterable[object] = ()) -> ImageFacts:
        """Properties of an image with the configuration `config` of its containers."""
        user, labels = str(config.get("User") or "").strip(), config.get("Labels") or {}
        api_method, variables = str(labels.get(API_METHOD_LABEL, "exec")), tuple(map(str, config.get("Env") or ()))
        workdir = str(config.get("WorkingDir") or "")
        started = tuple(str(part) for key in ("Entrypoint", "Cmd") for part in config.get(key) or ())
        return cls(name, user, architecture, api_method, variables, workdir, started, tuple(map(str, made_by)))


def upload_problems(facts: ImageFacts) -> list[str]:
    """Reasons why the platform would refuse this image; empty if it would accept it."""
    problems = []
    user = facts.user.split(":", 1)[0]
    if user in {"", "root", "0"}:
        shown = f"USER {facts.user}" if facts.user else "no USER, so it runs as root"
        problems.append(f"{facts.name}: {shown}, expected a user that is not root")
    if facts.architecture != "amd64":
        problems.append(f"{facts.name}: built for {facts.architecture or 'nothing known'}, expected amd64")
    if facts.api_method not in API_METHODS:
        problems.append(f"{facts.name}: label {API_METHOD_LABEL}={facts.api_method!r}, expected exec or invoke")
    return [f"{problem}; the platform would refuse the image" for problem in problems]


def hidden_problems(facts: ImageFacts) -> list[str]:
    """Reasons why its program would not be found: it is in a folder over which the platform mounts another one."""
    problems = []
    # A program without a folder is looked for in PATH.
    named = [one for number, one in enumerate(facts.started) if "/" in one or (number and not one.startswith("-"))]
    parts = {"WORKDIR": (facts.workdir,), "ENTRYPOINT": tuple(posixpath.join(facts.workdir, one) for one in named)}
    for kind, paths in parts.items():
        for path in map(posixpath.normpath, filter(None, paths)):
            folder = next((one for one in _MOUNTED if path == one or path.startswith(f"{one}/")), None)
            if folder is not None and not (kind == "ENTRYPOINT" and path == facts.workdir):
                problems.append(
                    f"{facts.name}: {kind} {path} is hidden by what the platform mounts at {folder}, "
                    "expected the program in another folder, such as /opt/app (move it in the Dockerfile)"
                )
                break
    return problems


def version_warnings(facts: ImageFacts) -> list[str]:
    """Warnings about versions of PyTorch and CUDA, as far as the image's variables, commands and wheels tell them."""
    text, warnings = "\n".join((*facts.variables, *facts.made_by, *facts.wheels)), []
    if found := _TORCH.search(text):
        found_version = found.group(1)
        warnings.append(
            f"{facts.name}: PyTorch {found_version}, which nnU-Net refuses; expected 2.8 or earlier, or 2.10"
        )
    if found := _CUDA.search(text):
        version = next(filter(None, found.groups()))
        warnings.append(f"{facts.name}: CUDA {version}, which needs driver 580; expected CUDA 12 for older drivers")
    return warnings


def is_archive(path: Path) -> bool:
    """True if this names a saved image, whose size the platform would accept.

    Raises:
        EngineError: there is no such file, or it is larger than the platform allows.
    """
    if not path.name.endswith(ARCHIVE_SUFFIXES):
        return False
    if not path.is_file():
        raise EngineError(
            str(path), f"no such file: {path.absolute()}", "an image saved there, or the name of an image"
        )
    if (size := path.stat().st_size) > SIZE_LIMIT_BYTES:
        raise EngineError(path.name, f"{size / 1e9:.2f} GB", "at most 10 GB; the platform would refuse the image")
    return True
