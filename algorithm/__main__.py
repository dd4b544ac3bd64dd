"""Entry point of the algorithm images: `python -m algorithm --task segmentation|rfs|hpv`."""

import os
import signal
import sys
import traceback
from contextlib import suppress
from functools import partial

# Until somebody handles it: in a container the first process never gets a signal that nobody handles, it is lost.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

from algorithm.cli import main  # noqa: E402
from algorithm.deadline import process_age_s  # noqa: E402
from contract.errors import run_main  # noqa: E402

try:
    status = run_main(partial(main, spent_s=process_age_s()))
except Exception:  # noqa: BLE001  a bug: its trace, and the end below
    traceback.print_exc()
    status = 1
for stream in (sys.stdout, sys.stderr):
    with suppress(OSError):  # the answer is written, wherever the log could not be
        stream.flush()
os._exit(status)  # after an early end a thread may still compute: Python would wait for its libraries, or crash in them
