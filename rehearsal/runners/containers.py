"""Run containers as the platform runs them: for one case, or as a server."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

from contract import platform
from contract.errors import EngineError
from rehearsal.platform.images import find_hidden_programs, find_upload_problems, find_version_warnings
from rehearsal.runners.disk import DiskWatch
from rehearsal.runners.engines import CLIENT_FAILED, NO_RIGHTS, ContainerEngine, format_engine_message
from rehearsal.runners.logs import Logs
from rehearsal.runners.monitor import PeakMemory, RunOutcome, Stopper, make_cgroup_peak_reader, wait_for_end
from rehearsal.runners.runner import Call, Runner, build_environment, copy_clean_environment, watch_disk
from rehearsal.runners.servers import PORT, RunningServer

_POLL_S: Final = 0.05
_TMP: Final = Path("/tmp")  # noqa: S108 - a path inside the container
_HAND_OVER_S: Final = 60.0
# Start time of a container that was never started.
_NEVER: Final = "0001-01-01"
_NO_GPU: Final = re.compile(r"gpu|nvidia|cdi|device driver", re.IGNORECASE)
_NEEDED_BY_GPUS: Final = (
    "an NVIDIA driver and the NVIDIA Container Toolkit on this machine "
    "(`nvidia-ctk runtime configure --runtime=docker`, for Podman `nvidia-ctk cdi generate`); "
    "without a GPU leave out --gpus"
)


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
        """The image, by its `title` if `image` is an ID, and the arguments of its entry point."""
        return " ".join((self.title or self.image, *self.arguments))

    @property
    def api_method(self) -> str:
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
            self._hand_over(call)
            disk.measure()
        finally:
            self._remove(call.name)
        return replace(outcome, disk_failure=disk.failure)

    def start(self, call: Call) -> RunningServer:
        """Start one container as a server, with the image's own entry point.

        It has no network, as with `exec`. So the engine's `exec` starts the image's own `python3` in the container,
        which calls the server from inside.

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
            hand_over=lambda: self._hand_over(call),
            remove=lambda: self._remove(call.name),
            started_s=started_s,
            disk=self._watch_disk(call),
        )
        try:
            while server.exit_code is None and not self._is_running(call.name):
                time.sleep(_POLL_S)
            logs.settle()
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
        return watch_disk(call, self._make_stopper(call.name), lambda: self._layer_bytes(call.name))

    def _layer_bytes(self, name: str) -> int | None:
        """Return the bytes that a container has written outside its mounts, None without a container."""
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

    def _hand_over(self, call: Call) -> None:
        """Let root of the image make the files of the image's user accessible to a caller who is not root."""
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
                limit_s=_HAND_OVER_S,
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
