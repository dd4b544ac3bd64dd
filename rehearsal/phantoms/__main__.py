"""`python -m rehearsal.phantoms` does what `hecktor phantoms` does."""

import sys

from rehearsal.phantoms.cli import main

if __name__ == "__main__":
    sys.exit(main())
