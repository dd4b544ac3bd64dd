"""Entry point of `scripts/bench`: measure algorithm, evaluation, rank and report.

`--peers` compares the evaluation with other packages, `--heads` compares the heads with other models.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from contract.errors import run_main


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite that the first argument names."""
    arguments = list(argv or ())
    if arguments[:1] == ["--peers"]:
        from benchmarks import peers

        return peers.main(arguments[1:])
    if arguments[:1] == ["--heads"]:
        from benchmarks import heads

        return heads.main(arguments[1:])
    from benchmarks import suite

    return suite.main(arguments)


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
