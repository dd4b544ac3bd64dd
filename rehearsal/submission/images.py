"""Algorithm images, built and saved by the project's scripts and loaded from the saved archives."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from contract.editions import Algorithm
from contract.errors import EngineError
from rehearsal.images.archives import facts_of_archive
from rehearsal.images.checks import upload_problems
from rehearsal.runners.containers import ContainerRunner
from rehearsal.runners.engines import ContainerEngine, find_engine
from rehearsal.runners.runner import Runner

SOURCE: Final = Path(__file__).resolve().parents[2]
TAGS: Final = {"cuda": "cuda", "cpu": "latest"}
_NEEDED: Final = ("scripts/build", "scripts/save", "docker/algorithm.Dockerfile", "requirements/algorithm.txt")
_FIND_BUILDER: Final = "source scripts/engine-lib.sh && find_builder"


class ImageMaker(Protocol):
    """Makes the image archives of a submission."""

    def build(self, tasks: Sequence[Algorithm], log: Path) -> None:
        """Build an image for each task; the build's output goes to `log`."""

    def save(self, task: Algorithm, folder: Path, log: Path) -> Path:
        """Save a built image into `folder` and return the archive."""

    def load(self, archive: Path) -> Runner:
        """Check an archive as at an upload, load it, and return its runner."""

    def name(self, task: Algorithm) -> str:
        """The image's name in the engine."""


@dataclass(frozen=True)
class BuiltImages:
    """Images of this source tree; `torch` is cuda or cpu."""

    engine: ContainerEngine
    source: Path
    torch: str
    with_gpus: bool
    level: int

    def name(self, task: Algorithm) -> str:
        return f"hecktor-{task.name}:{TAGS[self.torch]}"

    def build(self, tasks: Sequence[Algorithm], log: Path) -> None:
        """Run `scripts/build`; images that are already built take seconds.

        Raises:
            EngineError: it failed.
        """
        flags = ["--cuda"] if self.torch == "cuda" else []
        self._script("build", *(task.name for task in tasks), *flags, log=log)

    def save(self, task: Algorithm, folder: Path, log: Path) -> Path:
        """Run `scripts/save`.

        Raises:
            EngineError: it failed, for example because the archive is larger than the platform allows.
        """
        self._script("save", self.name(task), "--output", str(folder), "--level", str(self.level), log=log)
        (archive,) = folder.glob("*.tar.gz")
        return archive

    def load(self, archive: Path) -> Runner:
        """Load an archive and run its image by its identity, since another build may reuse the name.

        Raises:
            EngineError: the platform would refuse it, it is damaged, or the engine cannot load it.
        """
        problems = upload_problems(facts_of_archive(archive, verify=True))
        if problems:
            raise EngineError(problems[0])
        loaded = self.engine.load(archive)
        identity = self.engine.command("image", "inspect", "--format", "{{.Id}}", loaded).strip()
        return ContainerRunner(self.engine, identity, with_gpus=self.with_gpus)

    def _script(self, script: str, *arguments: str, log: Path) -> None:
        with log.open("ab") as file:
            done = subprocess.run(
                [str(self.source / "scripts" / script), *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HECKTOR_ENGINE": self.engine.client},
                check=False,
            )
        if done.returncode != 0:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            message = lines[-1][:300] if lines else "no message"
            raise EngineError(f"scripts/{script} ended with status {done.returncode}", message)


def find_images(engine: str | None, torch: str, with_gpus: bool, level: int, source: Path = SOURCE) -> BuiltImages:
    """The image builder of this machine.

    Args:
        engine: a client, or None for the first that can build.
        torch: cuda or cpu.
        with_gpus: give all GPUs to the rehearsed images.
        level: gzip's, 1 (fast) to 9 (small).
        source: the source tree.

    Raises:
        EngineError: there is no source tree, or no engine that can build.
    """
    absent = [name for name in _NEEDED if not (source / name).is_file()]
    if absent:
        raise EngineError(
            f"{absent[0]}", "not found beside the installed packages", "the source tree: images are built from it"
        )
    environment = {**os.environ, **({} if engine is None else {"HECKTOR_ENGINE": engine})}
    command = ["bash", "-c", _FIND_BUILDER]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tried = "docker, podman" if engine is None else engine
        raise EngineError(f"no container engine that can build answers (tried {tried}), expected Docker or Podman")
    return BuiltImages(find_engine(done.stdout.strip()), source, torch, with_gpus, level)
