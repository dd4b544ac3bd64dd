"""Entry point of the algorithm images: `python -m algorithm --task segmentation|rfs|hpv`."""

from contract.entry import hold_sigterm, run_program

hold_sigterm()  # before the imports, which take seconds

from algorithm.cli import platform_program  # noqa: E402

run_program(platform_program)
