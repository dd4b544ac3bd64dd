"""Container engines: Docker and Podman, and the options in which they differ."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract.errors import EngineError
from rehearsal.images import ImageFacts
from rehearsal.runners.runner import Limits, clean_environment

# In this order: the first client in PATH, Debian's own client beside a newer one, Podman.
CANDIDATES: Final = ("docker", "/usr/bin/docker", "podman")
_PODMAN_FILES: Final = 1048576


@dataclass(frozen=True)
class ContainerEngine:
    """The client of a Docker engine, or of Podman (`is_podman`)."""

    client: str
    is_podman: bool

    @property
    def name(self) -> str:
        """`docker` or `podman`."""
        return "podman" if self.is_podman else "docker"

    def command(self, *arguments: str, check: bool = True) -> str:
        """Run the client with `arguments` and return its stdout. With `check` EngineError for a non-zero status."""
        done = subprocess.run(
            [self.client, *arguments],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            env=clean_environment(),
        )
        if check and done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise EngineError(f"{self.name} {arguments[0]}", f"{lines[-1][:300]}")
        return done.stdout

    def image_facts(self, image: str) -> ImageFacts:
        """Read the properties of an image. Raises EngineError if there is no such image."""
        inspected = json.loads(self.command("image", "inspect", image))[0]
        config, size_bytes = inspected.get("Config") or {}, int(inspected.get("Size", 0))
        return ImageFacts.of(image, config, inspected.get("Architecture", ""), size_bytes)

    def load(self, archive: Path) -> str:
        """Load a saved image (`.tar`, `.tar.gz`, `.tar.xz`) and return its name."""
        unpack = {".gz": ["gzip", "-dc"], ".xz": ["xz", "-dc"]}.get(archive.suffix, ["cat"])
        with subprocess.Popen([*unpack, str(archive)], stdout=subprocess.PIPE) as source:
            done = subprocess.run(
                [self.client, "load"], check=False, stdin=source.stdout, capture_output=True, text=True
            )
        if done.returncode != 0 or ":" not in done.stdout:
            raise EngineError(archive.name, f"{self.name} cannot load it ({done.stderr.strip()[-200:]})")
        return done.stdout.strip().splitlines()[-1].split(":", 1)[1].strip()

    def limit_arguments(self, limits: Limits) -> list[str]:
        """Options for memory, shared memory, data segment and CPUs."""
        memory = f"{limits.memory_bytes}"
        arguments = [f"--memory={memory}", f"--memory-swap={memory}", f"--shm-size={limits.shared_memory_bytes}"]
        if limits.data_segment_bytes is not None:
            arguments.append(f"--ulimit=data={limits.data_segment_bytes}:{limits.data_segment_bytes}")
        if self.is_podman:
            # Podman requests more files and processes than some hosts allow, and then starts nothing.
            files = _hard_limit(resource.RLIMIT_NOFILE, _PODMAN_FILES)
            processes = _hard_limit(resource.RLIMIT_NPROC, _highest_pid())
            arguments += [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]
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


def _hard_limit(kind: int, ceiling: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)


def _highest_pid() -> int:
    """The kernel's highest process number, to which Podman lowers its own limit of processes."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 32768
