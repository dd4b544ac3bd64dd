"""Entry point of everything: `python -m hecktor COMMAND`, the same as `hecktor COMMAND`."""

import sys

from hecktor.cli import main

if __name__ == "__main__":  # workers of a process pool import this module
    sys.exit(main())
