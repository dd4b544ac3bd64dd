"""The platform's checks of a container image at its upload."""

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
# The platform mounts these folders, which hides the image's content there.
_MOUNTED: Final = (str(MODEL_DIR), str(OUTPUT_DIR), "/tmp")  # noqa: S108 - paths inside the container
_TORCH: Final = re.compile(r"(?:\btorch==|\btorch-|PYTORCH_VERSION=v?)(2\.9(?:\.\d+)?)(?![\d])")
_CUDA: Final = re.compile(
    r"\b(?:CUDA_VERSION=|nvidia_cuda_runtime-)(13(?:\.\d+)*)|\bwhl/(cu13\d)\b|\btorch(?:==|-)\S+\+(cu13\d)\b"
    r"|\bnvidia_\w+_(cu13)-"
)


@dataclass(frozen=True)
class ImageFacts:
    """Properties of an image in an engine.

    Attributes:
        start_command: Entry point with its arguments.
        layer_commands: Commands that made its layers.
        wheels: Names of the folders that pip made for PyTorch and CUDA.
    """

    name: str
    user: str
    architecture: str
    api_method: str
    variables: tuple[str, ...]
    workdir: str = ""
    start_command: tuple[str, ...] = ()
    layer_commands: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()

    @property
    def stripped_variables(self) -> tuple[str, ...]:
        """Return the names of its environment variables that the platform removes."""
        names = [variable.split("=", 1)[0] for variable in self.variables]
        return tuple(name for name in names if name.startswith(STRIPPED_PREFIX))

    @classmethod
    def from_config(
        cls, name: str, config: Mapping[str, Any], architecture: str, layer_commands: Iterable[object] = ()
    ) -> ImageFacts:
        """Read the properties of an image from the configuration `config` of its containers."""
        labels = config.get("Labels") or {}
        return cls(
            name=name,
            user=str(config.get("User") or "").strip(),
            architecture=architecture,
            api_method=str(labels.get(API_METHOD_LABEL, "exec")),
            variables=tuple(map(str, config.get("Env") or ())),
            workdir=str(config.get("WorkingDir") or ""),
            start_command=tuple(str(part) for key in ("Entrypoint", "Cmd") for part in config.get(key) or ()),
            layer_commands=tuple(map(str, layer_commands)),
        )


def find_upload_problems(facts: ImageFacts) -> list[str]:
    """Find the reasons why the platform would refuse an image."""
    problems = []
    user = facts.user.split(":", 1)[0]
    if user in {"", "root", "0"}:
        actual = f"USER {facts.user}" if facts.user else "no USER, so it runs as root"
        problems.append(f"{facts.name}: {actual}, expected a user that is not root")
    if facts.architecture != "amd64":
        problems.append(f"{facts.name}: built for {facts.architecture or 'an unknown architecture'}, expected amd64")
    if facts.api_method not in API_METHODS:
        problems.append(f"{facts.name}: label {API_METHOD_LABEL}={facts.api_method!r}, expected exec or invoke")
    return [f"{problem}; the platform would refuse the image" for problem in problems]


def find_hidden_programs(facts: ImageFacts) -> list[str]:
    """Find programs that a container would not see, because the platform mounts another folder over their folder."""
    problems = []
    # A program without a folder is searched in PATH, so it is not checked.
    files = [
        part for number, part in enumerate(facts.start_command) if "/" in part or (number and not part.startswith("-"))
    ]
    paths_of = {"WORKDIR": (facts.workdir,), "ENTRYPOINT": tuple(posixpath.join(facts.workdir, file) for file in files)}
    for kind, paths in paths_of.items():
        for path in map(posixpath.normpath, filter(None, paths)):
            folder = next((mount for mount in _MOUNTED if path == mount or path.startswith(f"{mount}/")), None)
            if folder is not None and not (kind == "ENTRYPOINT" and path == facts.workdir):
                problems.append(
                    f"{facts.name}: {kind} {path} is hidden by the folder that the platform mounts at {folder}, "
                    "expected the program in another folder, such as /opt/app (move it in the Dockerfile)"
                )
                break
    return problems


def find_version_warnings(facts: ImageFacts) -> list[str]:
    """Find versions of PyTorch and CUDA that cause problems, in the image's variables, commands and wheels."""
    text = "\n".join((*facts.variables, *facts.layer_commands, *facts.wheels))
    warnings = []
    torch = _TORCH.search(text)
    if torch:
        warnings.append(
            f"{facts.name}: PyTorch {torch.group(1)}, which nnU-Net refuses; expected 2.8 or earlier, or 2.10"
        )
    cuda = _CUDA.search(text)
    if cuda:
        version = next(filter(None, cuda.groups()))
        warnings.append(f"{facts.name}: CUDA {version}, which needs driver 580; expected CUDA 12 for older drivers")
    return warnings


def is_archive(path: Path) -> bool:
    """Return whether the path has the suffix of a saved image.

    Raises:
        EngineError: The saved image does not exist, or it is larger than the platform allows.
    """
    if not path.name.endswith(ARCHIVE_SUFFIXES):
        return False
    if not path.is_file():
        raise EngineError(
            str(path), f"no such file: {path.absolute()}", "an image saved there, or the name of an image"
        )
    size = path.stat().st_size
    if size > SIZE_LIMIT_BYTES:
        raise EngineError(path.name, f"{size / 1e9:.2f} GB", "at most 10 GB; the platform would refuse the image")
    return True
