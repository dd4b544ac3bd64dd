"""An algorithm that misbehaves on demand, as a process or in a container; it needs only the standard library.

Without a behaviour it writes an empty mask on the CT's grid, a risk of 0.5 and a positive HPV status, or with
`--four-answers` the outputs of HECKTOR 2026: the mask, stages T2 and N1, and 800.5 days.
"""

import argparse
import hashlib
import http.server
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

MASK_FOLDER = "images/tumor-lymph-node-segmentation"
HEAD_NECK_MASK_FOLDER = "images/head-neck-tumor-segmentation"
VALUES = {"rfs.json": "0.5", "hpv-status.json": "true"}
FOUR_VALUES = {"t-stage.json": '"T2"', "n-stage.json": '"N1"', "rfs.json": "800.5"}
GEOMETRY_KEYS = ("Offset", "TransformMatrix", "ElementSpacing", "DimSize")


def read_header(folder: Path) -> dict[str, str]:
    (path,) = folder.iterdir()
    with path.open("rb") as file:
        lines = [line.decode("latin-1") for line in iter(file.readline, b"") if b"=" in line[:40]][:16]
    pairs = [re.split(r"\s*=\s*", line.strip(), maxsplit=1) for line in lines]
    return {pair[0]: pair[1] for pair in pairs if pair[0] in GEOMETRY_KEYS}


def write_mask(path: Path, header: dict[str, str], *, element: str = "MET_UCHAR", size: int = 1, fill: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 1
    for extent in header["DimSize"].split():
        count *= int(extent)
    text = "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\nCompressedData = False\n"
    text += "".join(f"{key} = {header[key]}\n" for key in GEOMETRY_KEYS)
    text += f"ElementType = {element}\nElementDataFile = LOCAL\n"
    path.write_bytes(text.encode() + bytes([fill]) * (count * size))


def answer(options: argparse.Namespace) -> None:
    header = read_header(options.input / "images" / "ct")
    mask = options.output / (HEAD_NECK_MASK_FOLDER if options.four_answers else MASK_FOLDER) / "output.mha"
    write_mask(mask, header)
    for name, value in (FOUR_VALUES if options.four_answers else VALUES).items():
        (options.output / name).write_text(value)
    write_record(options)
    spoil_mask(options.behave, mask, header)
    spoil_values(options.behave, options.output)


def write_record(options: argparse.Namespace) -> None:
    """Write the record that was asked for; unless it names a package, it names the package of `--model`."""
    record = json.loads(options.recorded)
    if record is None:
        return
    if isinstance(record, dict) and options.model:
        manifest = (options.model / "manifest.json").read_bytes()
        named = {"name": json.loads(manifest)["name"], "manifest_sha256": hashlib.sha256(manifest).hexdigest()}
        record = {"package": named, **record}
    Path(os.environ["HECKTOR_RUN_RECORD"]).write_text(json.dumps(record))


def spoil_mask(behaviour: str, mask: Path, header: dict[str, str]) -> None:
    if behaviour == "two-images":
        write_mask(mask.with_name("again.mha"), header)
    elif behaviour == "float-mask":
        write_mask(mask, header, element="MET_FLOAT", size=4)
    elif behaviour == "label-3":
        write_mask(mask, header, fill=3)
    elif behaviour == "wrong-geometry":
        write_mask(mask, {**header, "Offset": "7 8 9"})
    elif behaviour == "nifti":
        mask.rename(mask.with_name("output.nii.gz"))
    elif behaviour == "truncated":
        mask.write_bytes(mask.read_bytes()[:-5])


def spoil_values(behaviour: str, output: Path) -> None:
    if behaviour in {"NaN", "7"}:
        (output / "rfs.json").write_text(behaviour)
        (output / "hpv-status.json").write_text(behaviour)


def describe_surroundings(options: argparse.Namespace) -> dict[str, object]:
    memory = os.statvfs("/dev/shm")
    return {
        "uid": os.getuid(),
        "home": str(Path.home()),
        "shm_bytes": memory.f_blocks * memory.f_frsize,
        "tmp": [path.name for path in Path("/tmp").iterdir()],
        "pid": os.getpid(),
        "output": [path.name for path in options.output.iterdir()],
        "output_mode": oct(options.output.stat().st_mode & 0o777),
        "variables": sorted(name for name in os.environ if name.startswith("GRAND_CHALLENGE_")),
        "log_level": os.environ.get("LOG_LEVEL"),
        "inputs": sorted(str(path.relative_to(options.input)) for path in options.input.rglob("*") if path.is_file()),
    }


def catch_error(attempt: Callable[[], object]) -> str:
    """Return why an attempt failed; empty if it did not."""
    try:
        attempt()
    except OSError as problem:
        return str(problem)
    return ""


def describe_confinement(options: argparse.Namespace) -> dict[str, object]:
    """Return the surroundings, and why neither the network nor the input can be used."""
    return describe_surroundings(options) | {
        "network": catch_error(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)),
        "write-input": catch_error(lambda: (options.input / "inputs.json").write_text("[]")),
    }


def fill(*folders: Path) -> None:
    """Take 80 MB of the disk and stay."""
    for folder in folders:
        for name in ("one", "two"):
            os.posix_fallocate(os.open(folder / name, os.O_CREAT | os.O_RDWR), 0, 20_000_000)
    time.sleep(60)


def misbehave(options: argparse.Namespace) -> None:  # noqa: C901
    behaviour = options.behave
    if behaviour == "missing":
        sys.exit(0)
    elif behaviour == "exit-3":
        sys.stderr.write("first\nthe scanner was off\n\n")
        sys.exit(3)
    elif behaviour == "ignore-sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    elif behaviour == "sleep":
        time.sleep(60)
    elif behaviour == "write-input":
        (options.input / "inputs.json").write_text("[]")
    elif behaviour == "memory":
        bytearray(b"x") * 2**32
    elif behaviour == "chatter":
        sys.stderr.writelines(f"line {number}\n" for number in range(600))
    elif behaviour == "flood":
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8")
            stream.write("first\n")
            stream.writelines("x" + "\u00e9" * 499 + "\n" for _ in range(5000))
            stream.write("last\n")
            stream.flush()
    elif behaviour == "fill":
        fill(options.output, Path(tempfile.gettempdir()))
    elif behaviour == "fill-elsewhere":
        fill(Path.home(), Path("/var/tmp"))
    elif behaviour.startswith("status-"):
        sys.stderr.write("my own error\n")
        sys.stderr.flush()
        os._exit(int(behaviour.removeprefix("status-")))
    elif behaviour == "report":
        sys.stderr.write(json.dumps(describe_surroundings(options)) + "\n")
    elif behaviour == "confined":
        sys.stderr.write(json.dumps(describe_confinement(options)) + "\n")
    elif behaviour == "die":
        sys.stderr.write("the scanner was off\n")
        sys.stderr.flush()
        os._exit(3)


def serve(options: argparse.Namespace) -> None:
    """Answer one case for each call; only the server has some of the behaviours."""
    calls = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def reply(self, status: int, text: str = "") -> None:
            self.send_response(status)
            self.send_header("Location", "/ready")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            redirected = options.behave == "redirect" and self.path == "/health"
            self.reply(302 if redirected else 200)

        def do_POST(self) -> None:
            calls.append(self.path)
            if options.behave == "first-is-bad" and len(calls) == 1:
                sys.stderr.write("first\nlast\n\n")
                self.reply(500, "the scanner was off")
                return
            misbehave(options)
            answer(options)
            self.reply(200 if options.behave == "200" else 201)

        def log_message(self, *arguments: object) -> None:
            pass

    if options.behave == "die-at-start":
        sys.exit("error: no model")
    http.server.HTTPServer(("", options.port), Handler).serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, default=Path("/input"))
    parser.add_argument("--output", type=Path, default=Path("/output"))
    model_folder = Path("/opt/ml/model")
    parser.add_argument("--model", type=Path, default=model_folder if model_folder.is_dir() else None)
    parser.add_argument("--behave", default="well")
    parser.add_argument("--four-answers", action="store_true", help="write the outputs of HECKTOR 2026")
    parser.add_argument("--recorded", default="null", help="content of the run record")
    parser.add_argument("--serve", action="store_true", default=os.environ.get("TOY_SERVES") == "1")
    parser.add_argument("--no-serve", dest="serve", action="store_false")
    parser.add_argument("--port", type=int, default=4743)
    options = parser.parse_args()
    if options.serve:
        serve(options)
    else:
        misbehave(options)
        answer(options)
