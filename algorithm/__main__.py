"""Entry point of the algorithm images: `python -m algorithm --task segmentation|rfs|hpv`."""

import os
import sys
from functools import partial

from algorithm.budget import process_age_s
from algorithm.cli import main
from contract.errors import run_main

status = run_main(partial(main, spent_s=process_age_s()))
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)  # after an early end a thread may still compute: Python would wait for its libraries, or crash in them
