"""Read and write `inputs.json` and `predictions.json` of the platform.

The platform writes each entry's socket under `socket` and under the older `interface`. Reading accepts either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.editions import Socket
from contract.errors import HecktorError, PredictionError
from contract.files import read_json

SUCCEEDED = "Succeeded"


@dataclass(frozen=True)
class SocketValue:
    """An input or output of a job: an image (`image_pk`, `image_name`) or a JSON `value`."""

    slug: str
    relative_path: str
    image_pk: str | None = None
    image_name: str | None = None
    value: Any = None


@dataclass(frozen=True)
class Job:
    """An algorithm job; `pk` is the name of its folder below `/input` of the evaluation."""

    pk: str
    status: str
    inputs: tuple[SocketValue, ...]
    outputs: tuple[SocketValue, ...]

    def input_image_name(self, slug: str) -> str | None:
        """Original file name of the input image in socket `slug`, which identifies the case."""
        return next((item.image_name for item in self.inputs if item.slug == slug), None)

    def output(self, slug: str) -> SocketValue | None:
        """The output in socket `slug`, or None."""
        return next((item for item in self.outputs if item.slug == slug), None)


def socket_entry(socket: Socket, pk: int, *, image: tuple[str, str] | None = None, value: Any = None) -> dict[str, Any]:
    """An entry of `inputs.json` or of a job's inputs or outputs.

    Args:
        socket: socket of the entry.
        pk: number of the entry.
        image: (image pk, original file name) of an image.
        value: value of a JSON socket.
    """
    description = {
        "title": socket.title,
        "slug": socket.slug,
        "kind": socket.kind,
        "super_kind": socket.super_kind,
        "relative_path": socket.relative_path,
        "overlay_segments": [],
        "pk": socket.pk,
    }
    return {
        "socket": description,
        "interface": description,
        "value": value,
        "file": None,
        "image": None if image is None else {"pk": image[0], "name": image[1]},
        "pk": pk,
    }


def job_entry(
    pk: str,
    inputs: Sequence[Mapping[str, Any]],
    outputs: Sequence[Mapping[str, Any]],
    *,
    algorithm_image: str,
    exec_duration_s: float | None = None,
    invoke_duration_s: float | None = None,
    status: str = SUCCEEDED,
) -> dict[str, Any]:
    """A job of `predictions.json`; `inputs` and `outputs` are entries of `socket_entry`.

    `exec_duration_s` is for images that run one case per process, `invoke_duration_s` for images that serve requests.
    """
    return {
        "pk": pk,
        "algorithm_image": algorithm_image,
        "status": status,
        "inputs": list(inputs),
        "outputs": list(outputs),
        "exec_duration": None if exec_duration_s is None else iso_duration(exec_duration_s),
        "invoke_duration": None if invoke_duration_s is None else iso_duration(invoke_duration_s),
    }


def iso_duration(seconds: float) -> str:
    """Duration in the platform's spelling: 72 s is `P0DT00H01M12S`; negative durations are 0."""
    whole = max(0, round(seconds))
    minutes, seconds_left = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"P{days}DT{hours:02d}H{minutes:02d}M{seconds_left:02d}S"


def read_predictions(path: Path) -> tuple[Job, ...]:
    """Read `predictions.json`.

    Raises:
        PredictionError: not a JSON list, an entry without a field that the platform always writes, or a
            duplicate job.
    """
    content = read_json(path, error=PredictionError, max_bytes=256 * 1024 * 1024, accept_nan=True)
    if not isinstance(content, list):
        raise PredictionError(path.name, f"found a {type(content).__name__}", "a list of jobs")
    jobs = tuple(_job(entry, f"{path.name}: job {number}") for number, entry in enumerate(content))
    pks: set[str] = set()
    for job in jobs:
        if job.pk in pks:
            raise PredictionError(path.name, f"job {job.pk} appears twice", "each job once")
        pks.add(job.pk)
    return jobs


def read_inputs(path: Path, *, error: type[HecktorError] = PredictionError) -> tuple[SocketValue, ...]:
    """Read `inputs.json`.

    Raises:
        HecktorError: of class `error`: not a JSON list of socket entries.
    """
    content = read_json(path, error=error, accept_nan=True)
    if not isinstance(content, list):
        raise error(path.name, f"found a {type(content).__name__}", "a list of sockets")
    return tuple(_socket_value(entry, path.name, error) for entry in content)


def _job(entry: Any, where: str) -> Job:
    if not isinstance(entry, dict):
        raise PredictionError(where, f"found a {type(entry).__name__}", "an object")
    pk, status = entry.get("pk"), entry.get("status")
    if not isinstance(pk, str) or not pk or "/" in pk or pk in {".", ".."}:
        raise PredictionError(where, "no usable `pk`", "the job's identifier")
    if not isinstance(status, str):
        raise PredictionError(where, "no `status`", f"a text such as {SUCCEEDED!r}")
    sides = []
    for side in ("inputs", "outputs"):
        items = entry.get(side)
        if not isinstance(items, list):
            raise PredictionError(where, f"no list `{side}`", "a list of socket entries")
        sides.append(tuple(_socket_value(item, where, PredictionError) for item in items))
    return Job(pk, status, sides[0], sides[1])


def _socket_value(entry: Any, where: str, error: type[HecktorError]) -> SocketValue:
    description = None
    if isinstance(entry, dict):
        description = entry.get("socket") or entry.get("interface")
    if not isinstance(description, dict) or not isinstance(description.get("slug"), str):
        raise error(where, "an entry without a socket's slug", "`socket` or `interface`")
    image = entry.get("image") or {}
    if not isinstance(image, dict):
        raise error(where, f"`image` is a {type(image).__name__}", "an object")
    path = description.get("relative_path")
    return SocketValue(
        slug=description["slug"],
        relative_path=path if isinstance(path, str) else "",
        image_pk=image.get("pk"),
        image_name=image.get("name"),
        value=entry.get("value"),
    )
