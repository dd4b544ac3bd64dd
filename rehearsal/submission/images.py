"""Images, built and saved by the project's scripts and loaded from the saved archives."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from contract.editions import Algorithm, Edition
from contract.errors import EngineError
from contract.io.files import write_json
from contract.platform import ApiMethod
from rehearsal.platform.images import find_upload_problems
from rehearsal.runners.containers import ContainerEngine, ContainerRunner, find_engine
from rehearsal.runners.runner import Runner, build_code_options

SOURCE: Final = Path(__file__).resolve().parents[2]
Torch = Literal["cpu", "cuda"]
_NEEDED: Final = ("scripts/build", "scripts/save", "docker/algorithm.Dockerfile", "requirements/algorithm.txt")
_FIND_BUILDER: Final = "source scripts/engine-lib.sh && find_builder"


@dataclass(frozen=True)
class ImageBuilder:
    """Builder of image archives from this source tree: images of algorithms, or of their evaluations.

    The output of the scripts goes to a `log`; a script that fails raises EngineError.

    Attributes:
        engine: Engine that builds.
        source: Folder of the source tree.
        torch: The algorithms' build of PyTorch; None builds evaluation images, which contain no PyTorch.
        with_gpus: Whether the rehearsed images get all GPUs.
        level: Level of gzip, from 1 to 9 (small).
        revision: Label of the images, so that they differ from earlier images of equal content; empty for no label.
        code: Folders of custom code, which are copied into the images of algorithms.
        api_method: How the platform calls the images.
    """

    engine: ContainerEngine
    source: Path
    torch: Torch | None
    with_gpus: bool = False
    level: int = 5
    revision: str = ""
    code: tuple[Path, ...] = ()
    api_method: ApiMethod = "exec"

    def name(self, task: Algorithm) -> str:
        """Return the image's name in the engine, with the tag of `scripts/build`."""
        parts = ["cuda"] if self.torch == "cuda" else []
        if self.api_method == "invoke":
            parts.append("invoke")
        if self.torch is None:
            return f"{task.evaluation_image}:{'-'.join(parts) or 'latest'}"
        parts += ["require-model", *(folder.resolve().name for folder in self.code)]
        return f"{task.image}:{'-'.join(parts)}"

    def build(self, edition: Edition, tasks: Sequence[Algorithm], log: Path) -> None:
        """Run `scripts/build` for each task; images that have already been built take seconds.

        The algorithms refuse to answer without an uploaded model, because the shipped model would answer if the upload
        was forgotten. A custom edition is written next to the log, from where it is built into the images.
        """
        images = [task.evaluation_image if self.torch is None else task.image for task in tasks]
        flags = [] if self.torch is None else ["--require-model"]
        flags += ["--cuda"] if self.torch == "cuda" else []
        flags += ["--api-method", "invoke"] if self.api_method == "invoke" else []
        flags += ["--revision", self.revision] if self.revision else []
        custom = log.with_name("edition.json")
        if edition.content is not None:
            write_json(custom, edition.content)
        edition_option = ("--edition", edition.name if edition.content is None else str(custom))
        self._run_script("build", *images, *flags, *build_code_options(self.code), *edition_option, log=log)

    def save(self, task: Algorithm, folder: Path, log: Path) -> Path:
        """Run `scripts/save`, which fails for an archive larger than the platform allows; return the archive."""
        self._run_script("save", self.name(task), "--output", str(folder), "--level", str(self.level), log=log)
        (archive,) = folder.glob("*.tar.gz")
        return archive

    def load(self, archive: Path) -> Runner:
        """Load an archive and return a runner of its image by its identity, since another build may reuse the name.

        Raises:
            EngineError: The engine cannot load the archive, or the platform would refuse it.
        """
        image = self.engine.load(archive)
        problems = find_upload_problems(replace(self.engine.read_image_facts(image), name=archive.name))
        if problems:
            raise EngineError(problems[0])
        return ContainerRunner(self.engine, image, with_gpus=self.with_gpus)

    def _run_script(self, script: str, *arguments: str, log: Path) -> None:
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


def save_and_load(images: ImageBuilder, task: Algorithm, archive: Path, log: Path) -> Runner:
    """Save the image of a task as `archive`, load it from there, and return its runner."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        images.save(task, Path(folder), log).rename(archive)
    return images.load(archive)


def find_builder_engine(client: str | None, source: Path = SOURCE) -> ContainerEngine:
    """Find the container engine that builds images on this machine.

    Args:
        client: Client of the engine; None takes the first engine that can build.
        source: Folder of the source tree.

    Raises:
        EngineError: There is no source tree, or no engine that can build.
    """
    absent = [name for name in _NEEDED if not (source / name).is_file()]
    if absent:
        expected = "the source tree: images are built from it"
        raise EngineError(absent[0], "not found next to the installed packages", expected)
    environment = {**os.environ, **({} if client is None else {"HECKTOR_ENGINE": client})}
    command = ["bash", "-c", _FIND_BUILDER]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tried = client or "docker, podman"
        raise EngineError(f"no container engine can build images (tried {tried}); expected Docker or Podman")
    return find_engine(done.stdout.strip())
