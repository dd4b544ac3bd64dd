"""The process of one part: `python -m benchmarks.device.part '{"function": ..., ...}'`, started by `check`."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.device.job import CheckJob
from contract.errors import run_main


def main(argv: list[str]) -> int:
    """Run the function of the part with a `CheckJob` of the remaining fields; paths are absolute."""
    fields = json.loads(argv[0])
    module, _, function = fields.pop("function").partition(":")
    job = CheckJob(**{**fields, "folder": Path(fields["folder"]), "result": Path(fields["result"])})
    getattr(import_module(f"benchmarks.device.{module}"), function)(job)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(lambda argv: main(list(argv or ())), sys.argv[1:]))
