"""The parts of `scripts/device-check`: what each is, how long it may take, and how it is stopped.

Imports only the standard library, since the command line names the parts before anything is installed.
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

# The whole check on one card, without --image.
LIMIT_S: Final = 540.0
# The deadlines are a card's; a busy CPU gets as many times as long, the whole check too.
ON_CPU: Final = 5


@dataclass(frozen=True)
class CheckPart:
    """A function `module:name` that measures in a process of its own, which is killed after `deadline_s`."""

    function: str
    deadline_s: float
    text: str


# Most worth knowing first; a later part uses the phantoms and networks of earlier ones.
PARTS: Final[dict[str, CheckPart]] = {
    "machine": CheckPart("speed:machine", 40, "card, driver, versions"),
    "convolution": CheckPart("speed:convolution", 40, "one 3D convolution in float32 and half precision"),
    "tiles": CheckPart("speed:tiles", 50, "a tile of nnU-Net's default network and of ResEnc-M"),
    "patients": CheckPart("patients:patients", 130, "a head and neck and a whole body through `predict`"),
    "agreement": CheckPart("patients:agreement", 80, "masks of CPU and card"),
    "training": CheckPart("training:plain", 120, "two epochs of the preset nnunet"),
    "fallbacks": CheckPart("patients:fallbacks", 120, "`predict` while another program fills the card"),
    "nccl": CheckPart("training:two_cards", 90, "two folds, each on two cards"),
    "compiled": CheckPart("training:compiled", 120, "two epochs with --compile"),
    "image": CheckPart("patients:image", 300, "the image of --image on a phantom"),
}


def run_until(command: Sequence[str], deadline_s: float, log: Path) -> int | None:
    """Run a command with its output in `log`; its exit status, or None if it was killed at its deadline.

    Processes that it leaves behind are killed with it.
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
