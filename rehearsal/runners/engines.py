"""Container engines: the clients of Docker and Podman."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract.errors import EngineError
from rehearsal.platform.images import ImageFacts
from rehearsal.runners.runner import Limits, clean_environment
from rehearsal.runners.servers import bounded_output

# In this order: the first client in PATH, Debian's own client beside a newer one, Podman.
CANDIDATES: Final = ("docker", "/usr/bin/docker", "podman")
NO_RIGHTS: Final = ("--cap-drop=ALL", "--security-opt=no-new-privileges")
_PODMAN_FILES: Final = 1048576
_PROCESSES: Final = 4096
_LOOK_S: Final = 60.0
_NAMES: Final = ("-name", "torch-2*.dist-info", "-o", "-name", "nvidia_*.dist-info")
_WHEELS: Final = ("/", "-xdev", "-type", "d", "(", *_NAMES, ")")
_LOADED: Final = "hecktor-loaded"
# Exit status of an engine's client that could not do what it was asked for.
CLIENT_FAILED: Final = 125
# The line that Docker prints after the cause.
USAGE_HINT: Final = re.compile(r"(Run|See) '.*--help'")
_MAX_MESSAGE: Final = 2000
_ID: Final = re.compile(r"(sha256:)?[0-9a-f]{12,64}")


@dataclass(frozen=True)
class ContainerEngine:
    """The client of a Docker engine, or of Podman (`is_podman`)."""

    client: str
    is_podman: bool

    @property
    def name(self) -> str:
        """`docker` or `podman`."""
        return "podman" if self.is_podman else "docker"

    def command(self, *arguments: str, check: bool = True, limit_s: float | None = None) -> str:
        """Run the client with `arguments` and return its stdout. With `check` EngineError for a non-zero status.

        A client that runs longer than `limit_s` is killed, and its output is empty.
        """
        try:
            done = subprocess.run(
                [self.client, *arguments],
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
                env=clean_environment(),
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return ""
        if check and done.returncode != 0:
            raise EngineError(f"{self.name} {arguments[0]}", engine_message(done.stderr))
        return done.stdout

    def image_facts(self, image: str) -> ImageFacts:
        """Read the properties of an image. Raises EngineError if there is no such image."""
        inspected = json.loads(self.command("image", "inspect", image))[0]
        config, architecture = inspected.get("Config") or {}, str(inspected.get("Architecture", ""))
        made_by = self.command("history", "--no-trunc", "--format", "{{.CreatedBy}}", image, check=False).splitlines()
        return ImageFacts.of(image, config, architecture, made_by)

    def wheels(self, image: str) -> tuple[str, ...]:
        """The folders that pip made for PyTorch and CUDA in an image, by its own `find`; empty without one."""
        name = f"hecktor-wheels-{uuid.uuid4()}"
        command = [self.client, "run", "--rm", "--name", name, "--platform=linux/amd64", "--network=none", *NO_RIGHTS]
        command += [f"--pids-limit={_PROCESSES}", "--log-driver=none", "--entrypoint=find", image, *_WHEELS]
        try:
            with Path(os.devnull).open("rb") as nothing:
                _, output = bounded_output(command, nothing, _LOOK_S)
        finally:
            self.command("rm", "--force", "--volumes", name, check=False)
        return tuple(Path(line).name for line in output.decode("utf-8", "replace").splitlines())

    def identity(self, image: str) -> str:
        """The ID of an image, which no archive can give to another. Raises EngineError if there is none."""
        identity = self.command("image", "inspect", "--format", "{{.Id}}", image, check=False).strip()
        if not identity:
            raise EngineError(image, f"{self.name} has no such image", f"one of `{self.name} images`")
        return identity

    def load(self, archive: Path) -> str:
        """Load a saved image (`.tar`, `.tar.gz`, `.tar.xz`) and return its ID.

        The names in the archive are its writer's choice, so they are taken off again: a name that was another image's
        before is given back to it. The image keeps a name made of its ID.

        Raises:
            EngineError: the engine cannot load it, or it holds several images.
        """
        listed = self.command("image", "ls", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}")
        before = dict(line.rsplit(" ", 1) for line in listed.splitlines() if " " in line)
        unpack = {".gz": ["gzip", "-dc"], ".xz": ["xz", "-dc"]}.get(archive.suffix, ["cat"])
        with subprocess.Popen([*unpack, str(archive)], stdout=subprocess.PIPE) as source:
            done = subprocess.run(
                [self.client, "load"],
                check=False,
                stdin=source.stdout,
                capture_output=True,
                text=True,
                errors="replace",
            )
        loaded = [line.split(":", 1)[1].strip() for line in done.stdout.splitlines() if line.startswith("Loaded image")]
        names = [name.removeprefix("ID:").strip() for line in loaded for name in line.split(",")]
        if done.returncode != 0 or not names:
            raise EngineError(archive.name, f"{self.name} cannot load it ({engine_message(done.stderr)})")
        identities = list(dict.fromkeys(map(self.identity, names)))
        identity = identities[-1]
        own = f"{_LOADED}:{identity.removeprefix('sha256:')[:12]}"
        self.command("tag", identity, own)
        for name in names:
            if name in before:
                self.command("tag", before[name], name)
            elif not _ID.fullmatch(name) and name != own:
                self.command("rmi", name)
        if len(identities) > 1:
            expected = "exactly one; the platform would refuse the archive"
            raise EngineError(archive.name, f"{len(identities)} images in it", expected)
        return identity

    def limit_arguments(self, limits: Limits) -> list[str]:
        """Return options for memory, shared memory, data segment, processes, file size, rights, the log and CPUs."""
        memory = f"{limits.memory_bytes}"
        # The engine would keep a second log beside ours, without a bound.
        arguments = [f"--pids-limit={_PROCESSES}", "--log-driver=none", *NO_RIGHTS]
        arguments += [f"--memory={memory}", f"--memory-swap={memory}", f"--shm-size={limits.shared_memory_bytes}"]
        if limits.data_segment_bytes is not None:
            arguments.append(f"--ulimit=data={limits.data_segment_bytes}:{limits.data_segment_bytes}")
        if self.is_podman:
            # Podman requests more files and processes than some hosts allow, and then starts nothing.
            files = _hard_limit(resource.RLIMIT_NOFILE, _PODMAN_FILES)
            processes = _hard_limit(resource.RLIMIT_NPROC, _highest_pid())
            arguments += [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]
        size = _hard_limit(resource.RLIMIT_FSIZE, limits.file_bytes)
        arguments.append(f"--ulimit=fsize={size}:{size}")
        # Docker refuses more CPUs than the host has.
        if limits.cpus is not None and limits.cpus < (os.cpu_count() or 1):
            arguments.append(f"--cpus={limits.cpus:g}")
        return arguments

    def unset_arguments(self, variable: str) -> list[str]:
        """Options that remove a variable of the image; Docker removes a variable named without a value."""
        return ["--unsetenv", variable] if self.is_podman else ["--env", variable]

    def gpu_arguments(self) -> list[str]:
        """Options that give all GPUs of the host to a container."""
        return ["--device", "nvidia.com/gpu=all"] if self.is_podman else ["--gpus", "all"]


def find_engine(preferred: str | None = None) -> ContainerEngine:
    """The first container engine that answers, among the usual candidates or the client `preferred` (name or path).

    Raises EngineError if none answers.
    """
    candidates: Sequence[str] = CANDIDATES if preferred is None else (preferred,)
    for client in candidates:
        if shutil.which(client) is None:
            continue
        try:
            info = subprocess.run([client, "info"], check=False, capture_output=True, timeout=30)
            version = subprocess.run([client, "--version"], check=False, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if info.returncode == 0:
            return ContainerEngine(client, "podman" in version.stdout.lower())
    raise EngineError(f"no container engine answers (tried {', '.join(candidates)}); expected Docker or Podman")


def engine_message(stderr: str) -> str:
    """Return the whole message of an engine's client in one line, without its hint at `--help`."""
    lines = [line.strip() for line in stderr.splitlines() if not USAGE_HINT.match(line)]
    return " ".join(line for line in lines if line)[:_MAX_MESSAGE] or "no message"


def _hard_limit(kind: int, ceiling: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)


def _highest_pid() -> int:
    """The kernel's highest process number, to which Podman lowers its own limit of processes."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 32768
