"""Container engines (Docker, Podman), and an image run by one of them as the platform runs it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract import sockets
from contract.errors import EngineError
from rehearsal.image_checks import ImageFacts, facts_of_inspection
from rehearsal.runners import PLATFORM_ENVIRONMENT, Call, Limits, clean_environment, thread_environment
from rehearsal.watching import Outcome, PeakMemory, cgroup_peak_reader, wait_for

# The order of trial: what the user's PATH gives first, then Debian's own client beside a newer one, then Podman.
CANDIDATES: Final = ("docker", "/usr/bin/docker", "podman")
_PODMAN_FILES: Final = 1048576


@dataclass(frozen=True)
class ContainerEngine:
    """A client that reaches its engine: Docker, or with `is_podman` Podman."""

    client: str
    is_podman: bool

    @property
    def name(self) -> str:
        """`docker` or `podman`."""
        return "podman" if self.is_podman else "docker"

    def command(self, *arguments: str, check: bool = True) -> str:
        """Run the client with `arguments` and hand back its stdout.

        Raises:
            EngineError: a non-zero exit status, where `check` asks for it.
        """
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
            raise EngineError(f"{self.name} {arguments[0]}: {lines[-1][:300]}")
        return done.stdout

    def image_facts(self, image: str) -> ImageFacts:
        """What the engine knows of an image.

        Raises:
            EngineError: there is no such image.
        """
        return facts_of_inspection(image, json.loads(self.command("image", "inspect", image))[0])

    def load(self, archive: Path) -> str:
        """Load a saved image (`.tar`, `.tar.gz`, `.tar.xz`) and hand back its name."""
        unpack = {".gz": ["gzip", "-dc"], ".xz": ["xz", "-dc"]}.get(archive.suffix, ["cat"])
        with subprocess.Popen([*unpack, str(archive)], stdout=subprocess.PIPE) as source:
            done = subprocess.run(
                [self.client, "load"], check=False, stdin=source.stdout, capture_output=True, text=True
            )
        if done.returncode != 0 or ":" not in done.stdout:
            raise EngineError(f"{archive.name}: {self.name} cannot load it ({done.stderr.strip()[-200:]})")
        return done.stdout.strip().splitlines()[-1].split(":", 1)[1].strip()

    def limit_arguments(self, limits: Limits) -> list[str]:
        """Memory, shared memory, data segment and CPUs as the client spells them."""
        memory = f"{limits.memory_bytes}"
        arguments = [f"--memory={memory}", f"--memory-swap={memory}", f"--shm-size={limits.shared_memory_bytes}"]
        if limits.data_segment_bytes is not None:
            arguments.append(f"--ulimit=data={limits.data_segment_bytes}:{limits.data_segment_bytes}")
        if self.is_podman:
            # Podman asks for more files and processes than some hosts allow, and then starts nothing.
            files = _hard_limit(resource.RLIMIT_NOFILE, _PODMAN_FILES)
            processes = _hard_limit(resource.RLIMIT_NPROC, _highest_pid())
            arguments += [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]
        # Docker refuses to promise more CPUs than there are.
        if limits.cpus is not None and limits.cpus < (os.cpu_count() or 1):
            arguments.append(f"--cpus={limits.cpus:g}")
        return arguments

    def unset_arguments(self, variable: str) -> list[str]:
        """How a variable of the image is removed: Docker drops one named without a value."""
        return ["--unsetenv", variable] if self.is_podman else ["--env", variable]

    def gpu_arguments(self) -> list[str]:
        """How all GPUs of the host are handed to a container."""
        return ["--device", "nvidia.com/gpu=all"] if self.is_podman else ["--gpus", "all"]


@dataclass(frozen=True)
class ContainerRunner:
    """Runs an image as the platform does: its own user, no network, read-only input, limits, a fresh /tmp."""

    engine: ContainerEngine
    image: str
    arguments: tuple[str, ...] = ()
    with_gpus: bool = False

    @property
    def description(self) -> str:
        """The image and what is added to its entry point."""
        return " ".join((self.image, *self.arguments))

    @property
    def is_isolated(self) -> bool:
        """True."""
        return True

    def run(self, call: Call) -> Outcome:
        """Run one container and remove it.

        Raises:
            EngineError: the engine refused to start it.
        """
        call.stdout.parent.mkdir(parents=True, exist_ok=True)
        for folder in (call.output_dir, call.tmp_dir):
            folder.chmod(0o777)
        with call.stdout.open("wb") as stdout, call.stderr.open("wb") as stderr:
            process = subprocess.Popen(self._command(call), stdout=stdout, stderr=stderr, env=clean_environment())
            try:
                outcome = wait_for(process, call.limits.time_limit_s, self._stopper(call.name), self._peak(call.name))
                self._raise_if_never_started(call, outcome)
                self._hand_over(call)
            finally:
                self.engine.command("rm", "--force", "--volumes", call.name, check=False)
        return outcome

    def _command(self, call: Call) -> list[str]:
        mounts = [(call.input_dir, sockets.INPUT_DIR, ":ro"), (call.output_dir, sockets.OUTPUT_DIR, "")]
        mounts.append((call.tmp_dir, Path("/tmp"), ""))  # noqa: S108 - a path inside the container
        if call.model_dir is not None:
            mounts.append((call.model_dir, sockets.MODEL_DIR, ":ro"))
        if call.ground_truth_dir is not None:
            mounts.append((call.ground_truth_dir, sockets.GROUND_TRUTH_DIR, ":ro"))
        command = [self.engine.client, "run", "--init", "--name", call.name, "--platform=linux/amd64"]
        command += ["--network=none", *self.engine.limit_arguments(call.limits)]
        for name, value in PLATFORM_ENVIRONMENT.items():
            command += ["--env", f"{name}={value}"]
        for name, value in thread_environment(call.limits).items():
            command += ["--env", f"{name}={value}"]
        for name in self.engine.image_facts(self.image).stripped_variables:
            command += self.engine.unset_arguments(name)
        for source, target, mode in mounts:
            command += ["--volume", f"{source.resolve()}:{target}{mode}"]
        command += self.engine.gpu_arguments() if self.with_gpus else []
        return [*command, self.image, *self.arguments]

    def _stopper(self, name: str) -> Any:
        def stop(force: bool) -> None:
            self.engine.command("kill", "--signal", "KILL" if force else "TERM", name, check=False)

        return stop

    def _peak(self, name: str) -> PeakMemory:
        def container_process() -> int | None:
            text = self.engine.command("inspect", "--format", "{{.State.Pid}}", name, check=False).strip()
            return int(text) if text.isdigit() and text != "0" else None

        return cgroup_peak_reader(container_process)

    def _raise_if_never_started(self, call: Call, outcome: Outcome) -> None:
        """The client's own status 125 means that no container ran; 126 and 127 that its entry point could not."""
        if outcome.exit_code == 125:
            lines = call.stderr.read_text(errors="replace").strip().splitlines() or ["no message"]
            said = [line for line in lines if not line.startswith("See ")]
            raise EngineError(f"{self.engine.name} could not start {self.image}: {said[-1][:300]}")

    def _hand_over(self, call: Call) -> None:
        """Where the caller is not root, let root of the image open what the image's user wrote."""
        if os.geteuid() == 0:
            return
        mount = [f"{folder.resolve()}:/{index}" for index, folder in enumerate((call.output_dir, call.tmp_dir))]
        self.engine.command(
            *("run", "--rm", "--network=none", "--user=0", "--entrypoint=/bin/sh"),
            *("--volume", mount[0], "--volume", mount[1], self.image, "-c", "chmod -R a+rwX /0 /1"),
            check=False,
        )


def find_engine(preferred: str | None = None) -> ContainerEngine:
    """The first container engine that answers.

    Args:
        preferred: a client to use instead of the usual candidates (`docker`, `podman` or a path).

    Raises:
        EngineError: none answers.
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
    """The kernel's limit of process numbers, to which Podman lowers its own limit of processes."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 32768
