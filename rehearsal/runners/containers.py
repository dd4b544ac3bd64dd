"""Containers that run as the platform runs them: for one case, or as a server."""

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
from rehearsal.platform.images import hidden_problems, upload_problems, version_warnings
from rehearsal.runners.disk import DiskWatch
from rehearsal.runners.engines import CLIENT_FAILED, NO_RIGHTS, ContainerEngine, engine_message
from rehearsal.runners.logs import Logs
from rehearsal.runners.monitor import PeakMemory, RunOutcome, Stopper, cgroup_peak_reader, wait_for
from rehearsal.runners.runner import Call, Runner, clean_environment, run_environment, watch_disk
from rehearsal.runners.servers import PORT, RunningServer

_POLL_S: Final = 0.05
_TMP: Final = Path("/tmp")  # noqa: S108 - a path inside the container
_HAND_OVER_S: Final = 60.0
_NEVER: Final = "0001-01-01"
_NO_GPU: Final = re.compile(r"gpu|nvidia|cdi|device driver", re.IGNORECASE)
_NEEDED_BY_GPUS: Final = (
    "an NVIDIA driver and the NVIDIA Container Toolkit on this machine "
    "(`nvidia-ctk runtime configure --runtime=docker`, for Podman `nvidia-ctk cdi generate`); "
    "without a GPU leave out --gpus"
)


@dataclass(frozen=True)
class ContainerRunner:
    """Runs an image as the platform does: its own user, no network, read-only input, limits, a fresh /tmp."""

    is_isolated: ClassVar[bool] = True
    engine: ContainerEngine
    image: str
    arguments: tuple[str, ...] = ()
    with_gpus: bool = False
    title: str = ""

    @property
    def description(self) -> str:
        """The image (its `title` where `image` is an ID) and the arguments to its entry point."""
        return " ".join((self.title or self.image, *self.arguments))

    @property
    def api_method(self) -> str:
        return self.engine.image_facts(self.image).api_method

    def run(self, call: Call) -> RunOutcome:
        """Run one container and remove it; one labelled `invoke` gets `--no-serve`. Errors as in `start`."""
        no_serve = ("--no-serve",) if self.api_method == "invoke" else ()
        try:
            process = self._started(call, no_serve)
            stopper, peak = self._stopper(call.name), self._peak(call.name)
            with Logs(process, call.stdout, call.stderr), self._watch_disk(call) as disk:
                outcome = wait_for(process, call.limits.time_limit_s, stopper, peak, call.cancelled)
            self._raise_if_never_started(call, outcome.exit_code)
            self._hand_over(call)
            disk.measure()
        finally:
            self._remove(call.name)
        return replace(outcome, disk_failure=disk.failure)

    def start(self, call: Call) -> RunningServer:
        """Start one container as a server, with the image's own entry point.

        It has no network, as with `exec`, so the engine's `exec` starts the image's own `python3` in the container,
        which calls the server from within. Raises EngineError if the engine refuses to start it.
        """
        started_s = time.monotonic()
        try:
            process = self._started(call, ())
            logs = Logs(process, call.stdout, call.stderr)
        except BaseException:
            self._remove(call.name)
            raise
        peak = self._peak(call.name)
        server = RunningServer(
            process,
            logs,
            python=(self.engine.client, "exec", "--interactive", call.name, "python3", "-I", "-"),
            port=PORT,
            stopper=self._stopper(call.name),
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

    def _started(self, call: Call, options: Sequence[str]) -> subprocess.Popen[bytes]:
        call.stdout.parent.mkdir(parents=True, exist_ok=True)
        for folder in (call.output_dir, call.tmp_dir):
            folder.chmod(0o777)
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command(call, options), stdout=pipe, stderr=pipe, env=clean_environment())

    def _command(self, call: Call, options: Sequence[str]) -> list[str]:
        mounts: list[tuple[Path | None, Path, str]] = [
            (call.input_dir, platform.INPUT_DIR, ":ro"),
            (call.output_dir, platform.OUTPUT_DIR, ""),
            (call.tmp_dir, _TMP, ""),
            (call.model_dir, platform.MODEL_DIR, ":ro"),
            (call.ground_truth_dir, platform.GROUND_TRUTH_DIR, ":ro"),
        ]
        command = [self.engine.client, "run", "--init", "--name", call.name, "--platform=linux/amd64"]
        command += ["--network=none", *self.engine.limit_arguments(call.limits)]
        for name, value in run_environment(call.limits, _TMP).items():
            command += ["--env", f"{name}={value}"]
        for name in self.engine.image_facts(self.image).stripped_variables:
            command += self.engine.unset_arguments(name)
        for source, target, mode in mounts:
            command += [] if source is None else ["--volume", f"{source.resolve()}:{target}{mode}"]
        command += self.engine.gpu_arguments() if self.with_gpus else []
        return [*command, self.image, *self.arguments, *options]

    def _stopper(self, name: str) -> Stopper:
        def stop(force: bool) -> None:
            self.engine.command("kill", "--signal", "KILL" if force else "TERM", name, check=False)

        return stop

    def _is_running(self, name: str) -> bool:
        return self.engine.command("inspect", "--format", "{{.State.Running}}", name, check=False).strip() == "true"

    def _watch_disk(self, call: Call) -> DiskWatch:
        return watch_disk(call, self._stopper(call.name), lambda: self._layer_bytes(call.name))

    def _layer_bytes(self, name: str) -> int | None:
        """Return what a container has written outside its mounts, None without a container."""
        text = self.engine.command("inspect", "--size", "--format", "{{.SizeRw}}", name, check=False).strip()
        return int(text) if text.isdigit() else None

    def _remove(self, name: str) -> None:
        self.engine.command("rm", "--force", "--volumes", name, check=False)

    def _peak(self, name: str) -> PeakMemory:
        def container_process() -> int | None:
            text = self.engine.command("inspect", "--format", "{{.State.Pid}}", name, check=False).strip()
            return int(text) if text.isdigit() and text != "0" else None

        return cgroup_peak_reader(container_process)

    def _raise_if_never_started(self, call: Call, exit_code: int | None) -> None:
        """Raise EngineError if the engine ran no container; a program may end with the client's status 125, too."""
        if exit_code != CLIENT_FAILED or self._has_started(call.name):
            return
        message = engine_message(call.stderr.read_text(errors="replace"))
        expected = _NEEDED_BY_GPUS if self.with_gpus and _NO_GPU.search(message) else ""
        raise EngineError(f"{self.engine.name} could not start {self.title or self.image}", message, expected)

    def _has_started(self, name: str) -> bool:
        """Return whether a container's first process was ever started."""
        began = self.engine.command("inspect", "--format", "{{.State.StartedAt}}", name, check=False).strip()
        return bool(began) and not began.startswith(_NEVER)

    def _hand_over(self, call: Call) -> None:
        """Make files of the image's user accessible to a caller who is not root, by root of the image."""
        if os.geteuid() == 0:
            return
        mount = [f"{folder.resolve()}:/{index}" for index, folder in enumerate((call.output_dir, call.tmp_dir))]
        name, rights = f"{call.name}-files", ("--cap-add=DAC_OVERRIDE", "--cap-add=FOWNER")
        try:
            self.engine.command(
                *("run", "--rm", "--name", name, "--network=none", "--user=0", "--entrypoint=/bin/sh"),
                *(*NO_RIGHTS, *rights, "--volume", mount[0], "--volume", mount[1]),
                *(self.image, "-c", "chmod -R a+rwX /0 /1"),
                check=False,
                limit_s=_HAND_OVER_S,
            )
        finally:
            self._remove(name)


@dataclass(frozen=True)
class ImageFindings:
    """Of some images: why the platform would not accept them, why they could not run, and warnings."""

    refused: tuple[str, ...]
    hidden: tuple[str, ...]
    warnings: tuple[str, ...]


def image_findings(*runners: Runner | None) -> ImageFindings:
    """The platform's checks of the runners' images."""
    images = [runner for runner in runners if isinstance(runner, ContainerRunner)]
    facts = [
        replace(one.engine.image_facts(one.image), name=one.title or one.image, wheels=one.engine.wheels(one.image))
        for one in images
    ]
    kinds = (upload_problems, hidden_problems, version_warnings)
    return ImageFindings(*(tuple(line for one in facts for line in kind(one)) for kind in kinds))
