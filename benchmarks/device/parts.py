"""The parts of `scripts/device-check` with their deadlines, and how a part is stopped.

This module imports only the standard library, since the command line lists the parts before packages are installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Deadline of the whole check on one card, without --image.
LIMIT_S: Final = 540.0
# The deadlines are for a card. On a CPU, which may be busy, all deadlines are multiplied by this factor.
CPU_FACTOR: Final = 5


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
    "training": CheckPart("training:train_plain", 120, "two epochs of the preset nnunet"),
    "fallbacks": CheckPart("patients:run_fallbacks", 120, "`predict` while another program fills the card"),
    "nccl": CheckPart("training:train_on_two_cards", 90, "two folds, each on two cards"),
    "compiled": CheckPart("training:train_compiled", 120, "two epochs with --compile"),
    "image": CheckPart("patients:run_image", 300, "the image of --image on a phantom"),
}


def run_until(command: Sequence[str], deadline_s: float, log: Path) -> int | None:
    """Run a command with its output in `log`; return its exit status, or None if it was killed at its deadline.

    Processes that the command leaves behind are killed, too.
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
