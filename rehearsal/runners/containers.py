"""Container engines (Docker and Podman), and containers that run as on the platform: for one case, or as a server."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

from contract import platform
from contract.errors import EngineError
from rehearsal.platform.images import ImageFacts, find_hidden_programs, find_upload_problems, find_version_warnings
from rehearsal.runners.monitor import (
    DiskWatch,
    Logs,
    PeakMemory,
    RunOutcome,
    Stopper,
    make_cgroup_peak_reader,
    wait_for_end,
)
from rehearsal.runners.runner import (
    PORT,
    Call,
    Limits,
    Runner,
    RunningServer,
    build_environment,
    copy_clean_environment,
    run_bounded,
    watch_disk,
)

# Clients in the order of preference. Debian's own client may be installed in addition to a newer one.
CANDIDATES: Final = ("docker", "/usr/bin/docker", "podman")
NO_RIGHTS: Final = ("--cap-drop=ALL", "--security-opt=no-new-privileges")
_PODMAN_FILES: Final = 1048576
_PROCESSES: Final = 4096
_FIND_LIMIT_S: Final = 60.0
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

_POLL_S: Final = 0.05
_TMP: Final = Path("/tmp")  # noqa: S108 - a path inside the container
_GRANT_ACCESS_S: Final = 60.0
# Start time of a container that was never started.
_NEVER: Final = "0001-01-01"
_NO_GPU: Final = re.compile(r"gpu|nvidia|cdi|device driver", re.IGNORECASE)
_NEEDED_BY_GPUS: Final = (
    "an NVIDIA driver and the NVIDIA Container Toolkit on this machine "
    "(`nvidia-ctk runtime configure --runtime=docker`, for Podman `nvidia-ctk cdi generate`); "
    "without a GPU leave out --gpus"
)


@dataclass(frozen=True)
class ContainerEngine:
    """The client of a Docker engine, or of Podman (`is_podman`)."""

    client: str
    is_podman: bool

    @property
    def name(self) -> str:
        """Return the name of the engine, `docker` or `podman`."""
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
        layer_commands = self.run(
            "history", "--no-trunc", "--format", "{{.CreatedBy}}", image, check=False
        ).splitlines()
        return ImageFacts.from_config(image, config, architecture, layer_commands)

    def list_wheels(self, image: str) -> tuple[str, ...]:
        """List the folders that pip made for PyTorch and CUDA in an image; empty if the image has no `find`."""
        name = f"hecktor-wheels-{uuid.uuid4()}"
        command = [self.client, "run", "--rm", "--name", name, "--platform=linux/amd64", "--network=none", *NO_RIGHTS]
        command += [f"--pids-limit={_PROCESSES}", "--log-driver=none", "--entrypoint=find", image, *_WHEELS]
        try:
            with Path(os.devnull).open("rb") as nothing:
                _, output = run_bounded(command, nothing, _FIND_LIMIT_S)
        finally:
            self.run("rm", "--force", "--volumes", name, check=False)
        return tuple(Path(line).name for line in output.decode("utf-8", "replace").splitlines())

    def find_image_id(self, image: str) -> str:
        """Return the ID of an image; unlike a name, an archive cannot assign it to another image.

        Raises:
            EngineError: The image does not exist.
        """
        identity = self.run("image", "inspect", "--format", "{{.Id}}", image, check=False).strip()
        if not identity:
            raise EngineError(image, f"{self.name} has no such image", f"one of `{self.name} images`")
        return identity

    def load(self, archive: Path) -> str:
        """Load a saved image (`.tar`, `.tar.gz`, `.tar.xz`) and return its ID.

        The archive may contain any image names. They are removed after the load; a name that another image had before
        is given back to that image. The loaded image gets a name made of its ID.

        Raises:
            EngineError: The engine cannot load the archive, or it contains several images.
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
    """Find the first container engine that responds, among the usual clients or the client `preferred` (name or path).

    Raises:
        EngineError: No engine responds.
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
    raise EngineError(f"no container engine responds (tried {', '.join(candidates)}); expected Docker or Podman")


def format_engine_message(stderr: str) -> str:
    """Format the message of an engine's client as one line, without its hint at `--help`."""
    lines = [line.strip() for line in stderr.splitlines() if not USAGE_HINT.match(line)]
    return " ".join(line for line in lines if line)[:_MAX_MESSAGE] or "no message"


def _apply_hard_limit(kind: int, ceiling: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)


def _read_highest_pid() -> int:
    """Return the kernel's highest process number, to which Podman lowers its limit on processes."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 32768


@dataclass(frozen=True)
class ContainerRunner:
    """Runs an image as the platform does: its own user, no network, read-only input, limits, an empty /tmp."""

    is_isolated: ClassVar[bool] = True
    engine: ContainerEngine
    image: str
    arguments: tuple[str, ...] = ()
    with_gpus: bool = False
    title: str = ""

    @property
    def description(self) -> str:
        """Return the image, by its `title` if it has one, and the arguments of its entry point."""
        return " ".join((self.title or self.image, *self.arguments))

    @property
    def api_method(self) -> str:
        """Return the API method of the image's label, `exec` without a label."""
        return self.engine.read_image_facts(self.image).api_method

    def run(self, call: Call) -> RunOutcome:
        """Run one container and remove it; an image labelled `invoke` gets the argument `--no-serve`.

        Raises:
            EngineError: The engine refuses to start the container.
        """
        no_serve = ("--no-serve",) if self.api_method == "invoke" else ()
        try:
            process = self._start_process(call, no_serve)
            stopper = self._make_stopper(call.name)
            peak = self._make_peak_reader(call.name)
            with Logs(process, call.stdout, call.stderr), self._watch_disk(call) as disk:
                outcome = wait_for_end(process, call.limits.time_limit_s, stopper, peak, call.cancelled)
            self._raise_if_never_started(call, outcome.exit_code)
            self._grant_access(call)
            disk.measure()
        finally:
            self._remove(call.name)
        return replace(outcome, disk_failure=disk.failure)

    def start(self, call: Call) -> RunningServer:
        """Start one container as a server, with the image's own entry point.

        As for `exec`, the container has no network. Therefore the engine starts the image's own `python3` in the
        container, which calls the server from inside.

        Raises:
            EngineError: The engine refuses to start the container.
        """
        started_s = time.monotonic()
        try:
            process = self._start_process(call, ())
            logs = Logs(process, call.stdout, call.stderr)
        except BaseException:
            self._remove(call.name)
            raise
        peak = self._make_peak_reader(call.name)
        server = RunningServer(
            process,
            logs,
            python=(self.engine.client, "exec", "--interactive", call.name, "python3", "-I", "-"),
            port=PORT,
            stopper=self._make_stopper(call.name),
            peak_memory=lambda: peak(None),
            grant_access=lambda: self._grant_access(call),
            remove=lambda: self._remove(call.name),
            started_s=started_s,
            disk=self._watch_disk(call),
        )
        try:
            while server.exit_code is None and not self._is_running(call.name):
                time.sleep(_POLL_S)
            logs.flush()
            self._raise_if_never_started(call, server.exit_code)
        except BaseException:
            server.kill()
            raise
        return server

    def _start_process(self, call: Call, options: Sequence[str]) -> subprocess.Popen[bytes]:
        call.stdout.parent.mkdir(parents=True, exist_ok=True)
        for folder in (call.output_dir, call.tmp_dir):
            folder.chmod(0o777)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self._build_command(call, options), stdout=pipe, stderr=pipe, env=copy_clean_environment()
        )

    def _build_command(self, call: Call, options: Sequence[str]) -> list[str]:
        mounts: list[tuple[Path | None, Path, str]] = [
            (call.input_dir, platform.INPUT_DIR, ":ro"),
            (call.output_dir, platform.OUTPUT_DIR, ""),
            (call.tmp_dir, _TMP, ""),
            (call.model_dir, platform.MODEL_DIR, ":ro"),
            (call.ground_truth_dir, platform.GROUND_TRUTH_DIR, ":ro"),
        ]
        command = [self.engine.client, "run", "--init", "--name", call.name, "--platform=linux/amd64"]
        command += ["--network=none", *self.engine.build_limit_arguments(call.limits)]
        for name, value in build_environment(call.limits, _TMP).items():
            command += ["--env", f"{name}={value}"]
        for name in self.engine.read_image_facts(self.image).stripped_variables:
            command += self.engine.build_unset_arguments(name)
        for source, target, mode in mounts:
            command += [] if source is None else ["--volume", f"{source.resolve()}:{target}{mode}"]
        command += self.engine.build_gpu_arguments() if self.with_gpus else []
        return [*command, self.image, *self.arguments, *options]

    def _make_stopper(self, name: str) -> Stopper:
        def stop(force: bool) -> None:
            self.engine.run("kill", "--signal", "KILL" if force else "TERM", name, check=False)

        return stop

    def _is_running(self, name: str) -> bool:
        return self.engine.run("inspect", "--format", "{{.State.Running}}", name, check=False).strip() == "true"

    def _watch_disk(self, call: Call) -> DiskWatch:
        return watch_disk(call, self._make_stopper(call.name), lambda: self._measure_layer_bytes(call.name))

    def _measure_layer_bytes(self, name: str) -> int | None:
        """Return the bytes that a container has written outside its mounts; None if there is no container."""
        text = self.engine.run("inspect", "--size", "--format", "{{.SizeRw}}", name, check=False).strip()
        return int(text) if text.isdigit() else None

    def _remove(self, name: str) -> None:
        self.engine.run("rm", "--force", "--volumes", name, check=False)

    def _make_peak_reader(self, name: str) -> PeakMemory:
        def container_process() -> int | None:
            text = self.engine.run("inspect", "--format", "{{.State.Pid}}", name, check=False).strip()
            return int(text) if text.isdigit() and text != "0" else None

        return make_cgroup_peak_reader(container_process)

    def _raise_if_never_started(self, call: Call, exit_code: int | None) -> None:
        """Raise `EngineError` if the engine ran no container; a program may also end with the client's status 125."""
        if exit_code != CLIENT_FAILED or self._has_started(call.name):
            return
        message = format_engine_message(call.stderr.read_text(errors="replace"))
        expected = _NEEDED_BY_GPUS if self.with_gpus and _NO_GPU.search(message) else ""
        raise EngineError(f"{self.engine.name} could not start {self.title or self.image}", message, expected)

    def _has_started(self, name: str) -> bool:
        """Return whether a container's first process was ever started."""
        began = self.engine.run("inspect", "--format", "{{.State.StartedAt}}", name, check=False).strip()
        return bool(began) and not began.startswith(_NEVER)

    def _grant_access(self, call: Call) -> None:
        """Make the files of the image's user accessible to this user, by a container whose user is root.

        If this user is root, nothing is done.
        """
        if os.geteuid() == 0:
            return
        mounts = [f"{folder.resolve()}:/{index}" for index, folder in enumerate((call.output_dir, call.tmp_dir))]
        name = f"{call.name}-files"
        rights = ("--cap-add=DAC_OVERRIDE", "--cap-add=FOWNER")
        try:
            self.engine.run(
                *("run", "--rm", "--name", name, "--network=none", "--user=0", "--entrypoint=/bin/sh"),
                *(*NO_RIGHTS, *rights, "--volume", mounts[0], "--volume", mounts[1]),
                *(self.image, "-c", "chmod -R a+rwX /0 /1"),
                check=False,
                limit_s=_GRANT_ACCESS_S,
            )
        finally:
            self._remove(name)


@dataclass(frozen=True)
class ImageFindings:
    """Reasons why the platform would not accept images, reasons why they could not run, and warnings."""

    refused: tuple[str, ...]
    hidden: tuple[str, ...]
    warnings: tuple[str, ...]


def check_images(*runners: Runner | None) -> ImageFindings:
    """Check the images of some runners as the platform does."""
    images = []
    for runner in runners:
        if isinstance(runner, ContainerRunner):
            facts = runner.engine.read_image_facts(runner.image)
            wheels = runner.engine.list_wheels(runner.image)
            images.append(replace(facts, name=runner.title or runner.image, wheels=wheels))
    return ImageFindings(
        refused=tuple(line for image in images for line in find_upload_problems(image)),
        hidden=tuple(line for image in images for line in find_hidden_programs(image)),
        warnings=tuple(line for image in images for line in find_version_warnings(image)),
    )
