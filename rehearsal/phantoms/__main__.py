"""`python -m rehearsal.phantoms`, equal to `hecktor phantoms`."""

import sys

from rehearsal.phantoms.cli import main

if __name__ == "__main__":
    sys.exit(main())
