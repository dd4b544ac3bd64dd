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
from rehearsal.runners.runner import Limits, copy_clean_environment
from rehearsal.runners.servers import run_bounded

# Clients in the order of preference. Debian's own client may be installed in addition to a newer one.
CANDIDATES: Final = ("docker", "/usr/bin/docker", "podman")
NO_RIGHTS: Final = ("--cap-drop=ALL", "--security-opt=no-new-privileges")
_PODMAN_FILES: Final = 1048576
_PROCESSES: Final = 4096
_FIND_S: Final = 60.0
_WHEEL_NAMES: Final = ("-name", "torch-2*.dist-info", "-o", "-name", "nvidia_*.dist-info")
_WHEELS: Final = ("/", "-xdev", "-type", "d", "(", *_WHEEL_NAMES, ")")
# Name of loaded images, whose tag is the image's ID.
_LOADED_NAME: Final = "hecktor-loaded"
# Exit status of an engine's client whose command failed.
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

    def run(self, *arguments: str, check: bool = True, limit_s: float | None = None) -> str:
        """Run the client with `arguments` and return its stdout.

        A client that runs longer than `limit_s` is killed, and its output is empty.

        Raises:
            EngineError: The client ended with a non-zero status, and `check` is true.
        """
        try:
            done = subprocess.run(
                [self.client, *arguments],
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
                env=copy_clean_environment(),
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return ""
        if check and done.returncode != 0:
            raise EngineError(f"{self.name} {arguments[0]}", format_engine_message(done.stderr))
        return done.stdout

    def read_image_facts(self, image: str) -> ImageFacts:
        """Read the properties of an image; raise `EngineError` if it does not exist."""
        description = json.loads(self.run("image", "inspect", image))[0]
        config = description.get("Config") or {}
        architecture = str(description.get("Architecture", ""))
        made_by = self.run("history", "--no-trunc", "--format", "{{.CreatedBy}}", image, check=False).splitlines()
        return ImageFacts.from_config(image, config, architecture, made_by)

    def list_wheels(self, image: str) -> tuple[str, ...]:
        """List the folders that pip made for PyTorch and CUDA in an image; empty if the image has no `find`."""
        name = f"hecktor-wheels-{uuid.uuid4()}"
        command = [self.client, "run", "--rm", "--name", name, "--platform=linux/amd64", "--network=none", *NO_RIGHTS]
        command += [f"--pids-limit={_PROCESSES}", "--log-driver=none", "--entrypoint=find", image, *_WHEELS]
        try:
            with Path(os.devnull).open("rb") as nothing:
                _, output = run_bounded(command, nothing, _FIND_S)
        finally:
            self.run("rm", "--force", "--volumes", name, check=False)
        return tuple(Path(line).name for line in output.decode("utf-8", "replace").splitlines())

    def find_image_id(self, image: str) -> str:
        """Find the ID of an image, which an archive cannot give to another image.

        Raises:
            EngineError: The image does not exist.
        """
        identity = self.run("image", "inspect", "--format", "{{.Id}}", image, check=False).strip()
        if not identity:
            raise EngineError(image, f"{self.name} has no such image", f"one of `{self.name} images`")
        return identity

    def load(self, archive: Path) -> str:
        """Load a saved image (`.tar`, `.tar.gz`, `.tar.xz`) and return its ID.

        The archive may contain any names, so these are removed again, and a name that belonged to another image before
        is given back to that image. The loaded image keeps a name made of its ID.

        Raises:
            EngineError: The engine cannot load the archive, or it holds several images.
        """
        listed = self.run("image", "ls", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}")
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
            raise EngineError(archive.name, f"{self.name} cannot load it ({format_engine_message(done.stderr)})")
        identities = list(dict.fromkeys(map(self.find_image_id, names)))
        identity = identities[-1]
        own_name = f"{_LOADED_NAME}:{identity.removeprefix('sha256:')[:12]}"
        self.run("tag", identity, own_name)
        for name in names:
            if name in before:
                self.run("tag", before[name], name)
            elif not _ID.fullmatch(name) and name != own_name:
                self.run("rmi", name)
        if len(identities) > 1:
            expected = "exactly one; the platform would refuse the archive"
            raise EngineError(archive.name, f"{len(identities)} images in it", expected)
        return identity

    def build_limit_arguments(self, limits: Limits) -> list[str]:
        """Build the options for memory, shared memory, data segment, processes, file size, rights, log and CPUs."""
        memory = f"{limits.memory_bytes}"
        # Without a log driver the engine keeps no log of unlimited size.
        arguments = [f"--pids-limit={_PROCESSES}", "--log-driver=none", *NO_RIGHTS]
        arguments += [f"--memory={memory}", f"--memory-swap={memory}", f"--shm-size={limits.shared_memory_bytes}"]
        if limits.data_segment_bytes is not None:
            arguments.append(f"--ulimit=data={limits.data_segment_bytes}:{limits.data_segment_bytes}")
        if self.is_podman:
            # Podman requests more files and processes than some hosts allow, and then starts nothing.
            files = _apply_hard_limit(resource.RLIMIT_NOFILE, _PODMAN_FILES)
            processes = _apply_hard_limit(resource.RLIMIT_NPROC, _read_highest_pid())
            arguments += [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]
        size = _apply_hard_limit(resource.RLIMIT_FSIZE, limits.file_bytes)
        arguments.append(f"--ulimit=fsize={size}:{size}")
        # Docker refuses more CPUs than the host has.
        if limits.cpus is not None and limits.cpus < (os.cpu_count() or 1):
            arguments.append(f"--cpus={limits.cpus:g}")
        return arguments

    def build_unset_arguments(self, variable: str) -> list[str]:
        """Build the options that remove a variable of the image; Docker removes a variable without a value."""
        return ["--unsetenv", variable] if self.is_podman else ["--env", variable]

    def build_gpu_arguments(self) -> list[str]:
        """Build the options that give all GPUs of the host to a container."""
        return ["--device", "nvidia.com/gpu=all"] if self.is_podman else ["--gpus", "all"]


def find_engine(preferred: str | None = None) -> ContainerEngine:
    """Find the first container engine that answers, among the usual clients or the client `preferred` (name or path).

    Raises:
        EngineError: No engine answers.
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


def format_engine_message(stderr: str) -> str:
    """Format the message of an engine's client as one line, without its hint at `--help`."""
    lines = [line.strip() for line in stderr.splitlines() if not USAGE_HINT.match(line)]
    return " ".join(line for line in lines if line)[:_MAX_MESSAGE] or "no message"


def _apply_hard_limit(kind: int, ceiling: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)


def _read_highest_pid() -> int:
    """Read the kernel's highest process number, to which Podman lowers its limit of processes."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 32768
