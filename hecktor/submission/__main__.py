"""`python -m hecktor.submission`: `hecktor submission`, and what `hecktor train export --submission` starts."""

from __future__ import annotations

import sys

from contract.errors import run_main
from hecktor.submission.cli import main

if __name__ == "__main__":
    sys.exit(run_main(main))
