"""The parts of `scripts/device-check`; each part runs in a process with a deadline, and all results form one JSON.

This module imports only the standard library and `contract`, since the command line lists the parts before packages are
installed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.device import wheels
from contract.io.files import format_json, read_json, write_json

# Deadline of the whole check on one card, without --image.
LIMIT_S: Final = 540.0
# The deadlines are for a card. On a CPU, which may be busy, all deadlines are multiplied by this factor.
CPU_FACTOR: Final = 5


# First argument of the process of a part.
RUN_PART: Final = "--run-part"
FAILED: Final = 1
NO_CARD: Final = 3
FORMAT_VERSION: Final = 1
_LOG_LINES: Final = 30


@dataclass(frozen=True)
class CheckPart:
    """A function `module:name` that measures in its own process, which is killed after `deadline_s`."""

    function: str
    deadline_s: float
    text: str


# The most important parts come first; a later part uses the phantoms and networks of earlier parts.
PARTS: Final[dict[str, CheckPart]] = {
    "machine": CheckPart("speed:describe_machine", 40, "card, driver, versions"),
    "convolution": CheckPart("speed:time_convolution", 40, "one 3D convolution in float32 and half precision"),
    "tiles": CheckPart("speed:time_tiles", 70, "a tile of nnU-Net's default network and of ResEnc-M"),
    "tail": CheckPart("speed:time_tail", 30, "softmax, addition and copy after a pass"),
    "patients": CheckPart("patients:run_patients", 130, "a head and neck and a whole body through `predict`"),
    "agreement": CheckPart("patients:compare_devices", 80, "masks of CPU and card"),
    "training": CheckPart("speed:train_plain", 120, "two epochs of the preset nnunet"),
    "fallbacks": CheckPart("patients:run_fallbacks", 120, "`predict` while another program fills the card"),
    "compiled": CheckPart("speed:train_compiled", 120, "two epochs with --compile"),
    "image": CheckPart("patients:run_image", 300, "the image that --image names on a phantom"),
}


def run_until(command: Sequence[str], deadline_s: float, log: Path) -> int | None:
    """Run a command with its output in `log`; return its exit status, or None if it was killed at its deadline.

    Processes that the command has started are killed, too.
    """
    with (
        log.open("wb") as stream,
        subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True) as process,
    ):
        try:
            return process.wait(max(0.0, deadline_s))
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def check(options: argparse.Namespace, start_s: float) -> int:
    """Run the chosen parts and print their JSON; `start_s` is the start of the check on the monotonic clock."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(wheels.ROOT), str(wheels.SITE)])
    if options.quick and options.device == "cpu":  # Tiny networks are slower with several threads.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    target: Path = options.output.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    outcomes: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".device-check-") as scratch:
        for name in select_parts(options.only, options.image):
            outcome = run_part(name, PARTS[name], options, Path(scratch), start_s)
            outcomes.append(outcome)
            if name == "machine" and options.device == "cuda" and not has_card(outcome):
                sys.stderr.write(
                    "device-check: no usable CUDA card, nothing was run (without one: --device cpu --quick)\n"
                )
                return NO_CARD
    document = summarise(options.device, options.quick, outcomes) | {"seconds": round(time.monotonic() - start_s, 1)}
    write_json(target, document)
    sys.stdout.write(format_json(document))
    sys.stderr.write("\n".join([*document["failures"], f"device-check: status {document['status']}, {target}"]) + "\n")
    return int(document["status"])


def select_parts(only: Sequence[str] | None, image: str | None) -> list[str]:
    """Select the parts to run in their order; the first part describes the machine and always runs."""
    wanted = {"machine", *(only or (set(PARTS) - {"image"})), *(["image"] if image else [])}
    return [name for name in PARTS if name in wanted]


def run_part(name: str, part: CheckPart, options: argparse.Namespace, scratch: Path, start_s: float) -> dict[str, Any]:
    """Run one part until its deadline or the deadline of the whole check; keep the rows that it has reported."""
    scale = 1 if options.device == "cuda" else CPU_FACTOR
    left_s = scale * LIMIT_S - (time.monotonic() - start_s)
    deadline_s = scale * part.deadline_s if name == "image" else min(scale * part.deadline_s, left_s)
    result = scratch / f"{name}.json"
    log = scratch / f"{name}.log"
    fields = {"function": part.function, "device": options.device, "quick": options.quick, "folder": str(scratch)}
    fields |= {"result": str(result), "seconds": deadline_s, "image": options.image}
    sys.stderr.write(f"{name}: {part.text}, at most {max(0.0, deadline_s):.0f} s\n")
    part_start_s = time.monotonic()
    status = run_until([sys.executable, "-m", "benchmarks.device", RUN_PART, json.dumps(fields)], deadline_s, log)
    seconds = time.monotonic() - part_start_s
    state = "stopped at its deadline" if status is None else "failed" if status else "done"
    rows = read_json(result) if result.is_file() else []
    outcome: dict[str, Any] = {"part": name, "state": state, "seconds": round(seconds, 1), "deadline_s": deadline_s}
    outcome["rows"] = rows
    outcome["log"] = []
    if state != "done" or any(row["failures"] for row in rows):
        outcome["log"] = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    lines = [*outcome["log"], *format_rows(rows), f"{state}, {seconds:.1f} s"]
    sys.stderr.write("".join(f"  {line}\n" for line in lines))
    return outcome


def format_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Format each row as one line."""
    return [
        f"{row['name']}: {', '.join(f'{key} {format_figure(value)}' for key, value in row['figures'].items())}"
        for row in rows
    ]


def format_figure(value: Any) -> str:
    """Format a number with four digits, any other value unchanged."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def has_card(outcome: Mapping[str, Any]) -> bool:
    """Return whether the part `machine` found a CUDA card."""
    return any(row["figures"].get("cards") for row in outcome["rows"])


def summarise(device: str, quick: bool, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make the document without its seconds: all parts, the failures, and the exit status.

    A part fails if its process fails, if a limit is exceeded or a check fails (such as the CPU answering instead of the
    card), or if its deadline comes before its first row. A part that was stopped later is only listed.
    """
    failures = []
    for outcome in outcomes:
        name, state = outcome["part"], outcome["state"]
        failures += [f"{name}: {row['name']}: {text}" for row in outcome["rows"] for text in row["failures"]]
        if state == "failed" or (state != "done" and not outcome["rows"]):
            failures.append(f"{name}: {state}")
    return {
        "format_version": FORMAT_VERSION,
        "device": device,
        "quick": quick,
        "status": FAILED if failures else 0,
        "failures": failures,
        "stopped": [outcome["part"] for outcome in outcomes if outcome["state"].startswith("stopped")],
        "parts": list(outcomes),
    }
