"""`scripts/device-check`: fetch wheels, install them, or run the parts.

Until the wheels are installed, this module needs only Python.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.device import wheels
from benchmarks.device.parts import PARTS
from contract.errors import run_main


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare, install, or run; return the exit status of `scripts/device-check`."""
    start_s = time.monotonic()
    options = _build_parser().parse_args(argv)
    if options.prepare:
        sys.stdout.write(
            "\n".join(wheels.prepare(options.python_version, options.platform, options.transfer_mib)) + "\n"
        )
        return 0
    site = wheels.install()
    if options.install:
        missing = wheels.find_missing([*wheels.PRESENT, *wheels.parse_requirements(wheels.LOCK.read_text())])
        sys.stdout.write(f"installed in {site}; still missing: {', '.join(missing) or 'nothing'}\n")
        return 0
    wheels.require_all()
    # This module needs the packages that were just installed.
    from benchmarks.device.check import check

    return check(options, start_s)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/device-check", description="Check what only a card shows.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny networks and images, to check that everything runs")
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--output", type=Path, default=Path("out/device-check.json"), help="(default: %(default)s)")
    parser.add_argument("--image", metavar="IMAGE:TAG", help="also run this image, such as hecktor-segmentation:cuda")
    parser.add_argument("--install", action="store_true", help="only unpack the wheels that were carried here")
    parser.add_argument("--prepare", action="store_true", help="fetch the wheels for a machine without a network")
    parser.add_argument(
        "--python-version", default="{}.{}".format(*sys.version_info), help="that of the wheels (%(default)s)"
    )
    parser.add_argument("--platform", default="x86_64", help="processor of the wheels (%(default)s)")
    parser.add_argument("--transfer-mib", type=float, default=64.0, help="MiB of one transfer (%(default)g)")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main))
