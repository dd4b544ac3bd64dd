"""`python -m hecktor COMMAND`, equal to `hecktor COMMAND`."""

import sys

from hecktor.cli import main

if __name__ == "__main__":  # worker processes import this module
    sys.exit(main())
