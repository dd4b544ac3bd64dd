"""Readers of files from others, as functions of bytes: for any bytes they return or give one line.

`test_readers.py` calls them with altered files.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import numpy as np

from algorithm.heads.documents import read_head
from contract.editions import load_edition
from contract.errors import HecktorError, ModelPackageError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.io.files import read_json
from contract.packages import MANIFEST, chosen_edition, read_manifest
from contract.patient import read_ehr
from contract.predictions import make_job_entry, make_socket_entry, read_inputs, read_predictions
from contract.servers import RequestHandler
from evaluation.inputs.masks import read_prediction
from evaluation.inputs.plain_files import read_bounding_boxes, read_risk_table

EDITION: Final = load_edition()
SEGMENTATION, RFS = EDITION.algorithms[0], EDITION.algorithms[1]
GRID: Final = Geometry((4, 3, 2), (1.0, 2.0, 3.0), (-5.0, 4.0, 7.0))
PACKAGE: Final = Path(__file__).parents[2] / "algorithm" / "default_model" / EDITION.name


@dataclass(frozen=True)
class FuzzedReader:
    """A function of the bytes of a file named `name`, and a valid file to start from."""

    name: str
    read: Callable[[Path], object]
    seed: Callable[[Path], object]

    def __call__(self, content: bytes) -> bool:
        """Return whether the content was accepted. Any exception except a HecktorError of one line is a bug."""
        with tempfile.TemporaryDirectory(prefix="hecktor-fuzz-") as folder:
            path = Path(folder) / self.name
            path.write_bytes(content)
            try:
                self.read(path)
            except HecktorError as error:
                if "\n" in error.message or not error.message.isprintable():
                    raise ValueError("an error of several lines") from error
                return False
            return True

    def valid(self) -> bytes:
        """Return the content of a valid file."""
        with tempfile.TemporaryDirectory(prefix="hecktor-fuzz-") as folder:
            self.seed(Path(folder) / self.name)
            return (Path(folder) / self.name).read_bytes()


def _write_mask(path: Path) -> None:
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[0, 1, 1:3] = 1
    write_volume(path, Volume(mask, GRID), compress=path.suffix == ".gz")


def _read_mask(path: Path) -> None:
    read_prediction(path, GRID, "resample_nearest")


def _read_manifest(path: Path) -> None:
    chosen_edition(None, path.parent)
    read_manifest(path.parent)


def _make_job() -> dict[str, Any]:
    ct = make_socket_entry(EDITION.inputs["ct"], 1, image=("0a", "A.mha"))
    return make_job_entry("0b", [ct], [make_socket_entry(RFS.answers[0].socket, 2, value=0.5)], algorithm_image="image")


def _read_request(path: Path) -> None:
    """Read a server's answer; only an incomplete request line may have no answer."""
    connection = _Connection(path.read_bytes())
    _Handler(connection, ("127.0.0.1", 1), None)  # type: ignore[arg-type]
    if b"\r\n\r\n" in connection.request and not connection.sent:
        raise ValueError("a request without an answer")


class _Connection:
    def __init__(self, request: bytes) -> None:
        self.request, self.sent = request, b""

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self.request)

    def sendall(self, content: bytes) -> None:
        self.sent += content

    def settimeout(self, _: float) -> None:
        pass


class _Handler(RequestHandler):
    timeout = 60

    def do_POST(self) -> None:  # noqa: N802
        if self.read_address() is not None:
            self.send_response(HTTPStatus.CREATED)
            self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _make_text_writer(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _make_copier(source: Path) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(source.read_bytes())


def _make_json_writer(content: object) -> Callable[[Path], object]:
    return _make_text_writer(json.dumps(content))


READERS: Final[dict[str, FuzzedReader]] = {
    "mask-mha": FuzzedReader("mask.mha", _read_mask, _write_mask),
    "mask-nii": FuzzedReader("mask.nii", _read_mask, _write_mask),
    "mask-nii-gz": FuzzedReader("mask.nii.gz", _read_mask, _write_mask),
    "manifest": FuzzedReader(MANIFEST, _read_manifest, _make_copier(PACKAGE / MANIFEST)),
    "head": FuzzedReader(
        "rfs.json",
        lambda path: read_head(read_json(path, error=ModelPackageError), path.name),
        _make_copier(PACKAGE / "heads" / "rfs.json"),
    ),
    "predictions": FuzzedReader("predictions.json", read_predictions, _make_json_writer([_make_job()])),
    "inputs": FuzzedReader("inputs.json", read_inputs, _make_json_writer(_make_job()["inputs"])),
    "ehr": FuzzedReader(
        "ehr.json",
        lambda path: read_ehr(path, EDITION.clinical),
        _make_json_writer({"Age": 71, "Gender": 1, "M-stage": "M0"}),
    ),
    "risks": FuzzedReader(
        "risks.csv",
        lambda path: read_risk_table(path, RFS.answers[0], "risk", ["A", "B"], []),
        _make_text_writer("PatientID,risk\nA,0.5\nB,1e3\n"),
    ),
    "boxes": FuzzedReader(
        "boxes.csv",
        lambda path: read_bounding_boxes(path, ["A"]),
        _make_text_writer("PatientID,x1,x2,y1,y2,z1,z2\nA,0,1,0,1,0,1\n"),
    ),
    "request": FuzzedReader(
        "request", _read_request, _make_text_writer("POST /invoke HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
    ),
}
