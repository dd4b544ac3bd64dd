"""Readers of files from others, as functions of bytes: whatever the bytes are, each returns or gives one line.

`test_readers.py` calls them with altered files.
"""

from __future__ import annotations

import gzip
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
from contract.archives import pack, unpack
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
from evaluation.results.board import read_board
from evaluation.results.metrics_json import read_metrics

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
        """Whether the content was accepted. Any exception but a HecktorError of one line is a bug."""
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
        """The content of a valid file."""
        with tempfile.TemporaryDirectory(prefix="hecktor-fuzz-") as folder:
            self.seed(Path(folder) / self.name)
            return (Path(folder) / self.name).read_bytes()


def _read_archive(path: Path) -> None:
    unpack(path, path.parent / "unpacked")
    outside = {one.name for one in path.parent.iterdir()} - {path.name, "unpacked"}
    links = [one for one in (path.parent / "unpacked").rglob("*") if one.is_symlink()]
    if outside or links:
        raise ValueError(f"written outside, or links: {outside} {links}")


def _write_archive(path: Path) -> None:
    folder = path.with_suffix("")
    (folder / "heads").mkdir(parents=True)
    (folder / "heads" / ("a" * 120)).write_bytes(bytes(700))
    pack(folder, path)
    path.write_bytes(gzip.decompress(path.read_bytes()))


def _write_mask(path: Path) -> None:
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[0, 1, 1:3] = 1
    write_volume(path, Volume(mask, GRID), compress=path.suffix == ".gz")


def _read_mask(path: Path) -> None:
    read_prediction(path, GRID, "resample_nearest")


def _read_manifest(path: Path) -> None:
    chosen_edition(None, path.parent)
    read_manifest(path.parent)


def _job() -> dict[str, Any]:
    ct = make_socket_entry(EDITION.inputs["ct"], 1, image=("0a", "A.mha"))
    return make_job_entry("0b", [ct], [make_socket_entry(RFS.answers[0].socket, 2, value=0.5)], algorithm_image="image")


def _read_request(path: Path) -> None:
    """A server's answer; an incomplete request line alone may have none."""
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


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _copy_of(source: Path) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(source.read_bytes())


def _json(content: object) -> Callable[[Path], object]:
    return _text(json.dumps(content))


_FIGURES: Final = {"value": 0.5, "ci95_low": 0.4, "ci95_high": 0.6}
_BOARD: Final = {
    "task": "rfs", "edition": "hecktor2025", "official": "c_index", "ties": "min", "metrics": {"c_index": "C-index"},
    "teams": [{"rank": 1, "team": "A", "metrics": {"c_index": {**_FIGURES, "rank": 1}}, "rankings": {"c_index": {"rank": 1}}}],
    "out_of_competition": [], "incomplete": [], "identical_answers": [], "stability": None, "comparisons": None,
    "runs": {}, "provenance": {}, "files": {}, "methods": {},
}  # fmt: skip
_ROW: Final = {"case": "A", "rfs_days": 5.0, "relapse": True, "risk": 0.5}
_METRICS: Final = {
    "aggregates": {"c_index": _FIGURES}, "centres": {}, "cases": {"in_ground_truth": 1, "used": 1, "answered": 1}, "warnings": [], "results": [_ROW],
    "provenance": {"format": 2, "task": "rfs", "edition": "hecktor2025", "options": {}},
}  # fmt: skip

READERS: Final[dict[str, FuzzedReader]] = {
    "archive": FuzzedReader("model.tar", _read_archive, _write_archive),
    "mask-mha": FuzzedReader("mask.mha", _read_mask, _write_mask),
    "mask-nii": FuzzedReader("mask.nii", _read_mask, _write_mask),
    "mask-nii-gz": FuzzedReader("mask.nii.gz", _read_mask, _write_mask),
    "manifest": FuzzedReader(MANIFEST, _read_manifest, _copy_of(PACKAGE / MANIFEST)),
    "head": FuzzedReader(
        "rfs.json",
        lambda path: read_head(read_json(path, error=ModelPackageError), path.name),
        _copy_of(PACKAGE / "heads" / "rfs.json"),
    ),
    "predictions": FuzzedReader("predictions.json", read_predictions, _json([_job()])),
    "inputs": FuzzedReader("inputs.json", read_inputs, _json(_job()["inputs"])),
    "ehr": FuzzedReader(
        "ehr.json", lambda path: read_ehr(path, EDITION.clinical), _json({"Age": 71, "Gender": 1, "M-stage": "M0"})
    ),
    "risks": FuzzedReader(
        "risks.csv",
        lambda path: read_risk_table(path, RFS.answers[0], "risk", ["A", "B"], []),
        _text("PatientID,risk\nA,0.5\nB,1e3\n"),
    ),
    "boxes": FuzzedReader(
        "boxes.csv",
        lambda path: read_bounding_boxes(path, ["A"]),
        _text("PatientID,x1,x2,y1,y2,z1,z2\nA,0,1,0,1,0,1\n"),
    ),
    "metrics": FuzzedReader("metrics.json", lambda path: read_metrics(path, "A"), _json(_METRICS)),
    "leaderboard": FuzzedReader("leaderboard.json", read_board, _json(_BOARD)),
    "request": FuzzedReader("request", _read_request, _text("POST /invoke HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")),
}
