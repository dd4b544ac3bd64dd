"""Read and write `inputs.json` and `predictions.json` of the platform.

The platform writes each entry's socket under the key `socket` and again under the older key `interface`; the readers
accept either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError, model_validator

from contract.documents import PlatformDocument, make_document_error
from contract.editions import Socket
from contract.errors import HecktorError, PredictionError
from contract.images.volumes import find_image_suffix
from contract.io.files import read_json
from contract.platform import NAMED_IMAGE_SUFFIXES, TIFF_SUFFIXES, normalise_unicode

SUCCEEDED: Final = "Succeeded"
_CT_MARK: Final = "__CT"
_NAMED_SUFFIXES: Final = (*NAMED_IMAGE_SUFFIXES, *TIFF_SUFFIXES)


def _check_identifier(text: str) -> str:
    if not text or "/" in text or text in {".", ".."}:
        raise ValueError("the job's identifier")
    return text


# Any value that is not a string counts as missing.
_OptionalText = Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else "")]


class _SocketDescription(PlatformDocument):
    slug: str
    relative_path: _OptionalText = ""


class _Image(PlatformDocument):
    pk: _OptionalText = ""
    name: _OptionalText = ""


class SocketValue(PlatformDocument):
    """An input or output of a job: an `image` or a JSON `value`."""

    socket: _SocketDescription
    image: _Image | None = None
    value: Any = None

    @model_validator(mode="before")
    @classmethod
    def _accept_interface(cls, entry: Any) -> Any:
        if isinstance(entry, dict) and not entry.get("socket") and "interface" in entry:
            return {**entry, "socket": entry["interface"]}
        return entry

    @property
    def slug(self) -> str:
        return self.socket.slug

    @property
    def relative_path(self) -> str:
        """Path of the image folder or JSON file; empty if it is not listed."""
        return self.socket.relative_path

    @property
    def image_name(self) -> str:
        """Original file name of the image; empty if it is not listed."""
        return self.image.name if self.image else ""


class Job(PlatformDocument):
    """An algorithm job; `pk` is the name of its folder below `/input` of the evaluation."""

    pk: Annotated[str, AfterValidator(_check_identifier)]
    status: str
    inputs: tuple[SocketValue, ...]
    outputs: tuple[SocketValue, ...]

    def find_input_image_name(self, slug: str) -> str | None:
        """Find the original file name of the input image in socket `slug`, which identifies the case."""
        return next((item.image_name for item in self.inputs if item.slug == slug), "") or None

    def find_output(self, slug: str) -> SocketValue | None:
        """Find the output in socket `slug`; None if the job has no such output."""
        return next((item for item in self.outputs if item.slug == slug), None)


_JOBS: Final = TypeAdapter(tuple[Job, ...])
_SOCKET_VALUES: Final = TypeAdapter(tuple[SocketValue, ...])


def parse_case(image_name: str) -> str:
    """Extract the case from an image's file name: `CHUM-001.mha` and `CHUM-001__CT.nii.gz` are both `CHUM-001`.

    The case is returned in Unicode form NFC, because macOS decomposes letters in file names.
    """
    name = Path(image_name).name
    suffix = find_image_suffix(Path(name), _NAMED_SUFFIXES)
    stem = name[: -len(suffix)] if suffix else name
    return normalise_unicode(stem.removesuffix(_CT_MARK))


def make_socket_entry(
    socket: Socket, pk: int, *, image: tuple[str, str] | None = None, value: Any = None
) -> dict[str, Any]:
    """Make an entry of `inputs.json` or of a job's inputs or outputs.

    Args:
        socket: Socket of the entry.
        pk: Number of the entry.
        image: (image pk, original file name) of an image.
        value: Value of a JSON socket.
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


def make_job_entry(
    pk: str,
    inputs: Sequence[Mapping[str, Any]],
    outputs: Sequence[Mapping[str, Any]],
    *,
    algorithm_image: str,
    exec_duration_s: float | None = None,
    invoke_duration_s: float | None = None,
    status: str = SUCCEEDED,
) -> dict[str, Any]:
    """Make a job of `predictions.json`.

    Args:
        pk: Identifier of the job.
        inputs: Entries that `make_socket_entry` made.
        outputs: Entries that `make_socket_entry` made.
        algorithm_image: Name of the algorithm's image.
        exec_duration_s: Time of an image that runs one process for each case.
        invoke_duration_s: Time of an image that serves requests.
        status: Status of the job.
    """
    return {
        "pk": pk,
        "algorithm_image": algorithm_image,
        "status": status,
        "inputs": list(inputs),
        "outputs": list(outputs),
        "exec_duration": None if exec_duration_s is None else format_duration(exec_duration_s),
        "invoke_duration": None if invoke_duration_s is None else format_duration(invoke_duration_s),
    }


def format_duration(seconds: float) -> str:
    """Format a duration as the platform does: 72 s is `P0DT00H01M12S`; negative durations are 0."""
    total = max(0, round(seconds))
    days, hours = total // 86400, total // 3600 % 24
    minutes, remaining_s = total // 60 % 60, total % 60
    return f"P{days}DT{hours:02d}H{minutes:02d}M{remaining_s:02d}S"


def read_predictions(path: Path) -> tuple[Job, ...]:
    """Read `predictions.json`.

    Raises:
        PredictionError: The file is not a JSON list, a field that the platform always writes is absent from an entry,
            or a job appears twice.
    """
    content = read_json(path, error=PredictionError, max_bytes=256 * 1024 * 1024, accept_nan=True)
    try:
        jobs = _JOBS.validate_python(content)
    except ValidationError as problem:
        raise make_document_error(problem, path.name, PredictionError) from None
    twice = [pk for pk, count in Counter(job.pk for job in jobs).items() if count > 1]
    if twice:
        raise PredictionError(path.name, f"job {twice[0]} appears twice", "each job once")
    return jobs


def read_inputs(path: Path, *, error: type[HecktorError] = PredictionError) -> tuple[SocketValue, ...]:
    """Read `inputs.json`.

    Raises:
        HecktorError: Of class `error`: the file is not a JSON list of socket entries.
    """
    try:
        return _SOCKET_VALUES.validate_python(read_json(path, error=error, accept_nan=True))
    except ValidationError as problem:
        raise make_document_error(problem, path.name, error) from None
