"""Entry point of the algorithm images: `python -m algorithm --task segmentation|rfs|hpv`."""

import sys

from algorithm.cli import main
from contract.errors import run_main

sys.exit(run_main(main))
