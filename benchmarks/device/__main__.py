"""`scripts/device-check`: fetch wheels, install them, or run the parts.

Until the wheels are installed, this module and `check` need only the standard library.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.device import wheels
from benchmarks.device.check import PARTS, RUN_PART, check
from contract.errors import run_main


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare, install, or run; return the exit status of `scripts/device-check`."""
    start_s = time.monotonic()
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == [RUN_PART]:  # `check` starts a process with this option for each part.
        from benchmarks.device.job import run_job

        run_job(arguments[1])
        return 0
    options = _build_parser().parse_args(arguments)
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
    return check(options, start_s)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/device-check", description="Measure on a CUDA card what a CPU cannot show."
    )
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="device of the networks (default: %(default)s)")
    add("--quick", action="store_true", help="run tiny networks and images, as a test of the program")
    add("--only", nargs="+", choices=tuple(PARTS), metavar="PART", help=f"run only these parts of {', '.join(PARTS)}")
    output_help = "JSON file to write (default: %(default)s)"
    add("--output", type=Path, default=Path("out/device-check.json"), help=output_help)
    add("--image", metavar="IMAGE:TAG", help="also run this image, such as hecktor-segmentation:cuda")
    add("--install", action="store_true", help="only install the wheels in build/device-check")
    add("--prepare", action="store_true", help="fetch the wheels for a machine without a network")
    python_help = "Python of the other machine (default: %(default)s)"
    add("--python-version", default="{}.{}".format(*sys.version_info), help=python_help)
    add("--platform", default="x86_64", help="processor of the other machine (default: %(default)s)")
    add("--transfer-mib", type=float, default=64.0, help="size of one transfer in MiB (default: %(default)g)")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main))
