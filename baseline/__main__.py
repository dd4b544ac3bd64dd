"""Entry point of training: `python -m baseline STEP`."""

import sys

from baseline.cli import main
from contract.errors import run_main

if __name__ == "__main__":
    sys.exit(run_main(main))
