"""`hecktor study baselines`: tumour volume and SUVmax as risk tables, for `hecktor evaluate` to score."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contract.editions import load_edition
from evaluation.execution.options import add_workers
from evaluation.execution.pool import map_cases
from evaluation.studies.outputs import add_output, write_study, write_table
from evaluation.studies.scans import burden_of_dead_worker, find_scans, measure_burden

STUDY: Final = "baselines"
RISKS: Final = ("gtvp_volume_ml", "gtvp_suv_max", "tumour_volume_ml", "tumour_suv_max")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every case and write one table of risks for each measure."""
    options = _parser().parse_args(argv)
    scans = find_scans(options.cohort, load_edition().inputs)
    rows = map_cases(measure_burden, scans, options.workers, burden_of_dead_worker)
    lines = [row.line() for row in rows]
    for name in RISKS:
        table = [{"PatientID": line["case"], "risk": line[name]} for line in lines]
        write_table(options.output / f"{name}.csv", table)
    tables = [f"{name}.csv" for name in RISKS]
    written = [*tables, *write_study(options.output, STUDY, {"cases": len(lines), "risks": tables}, lines)]
    sys.stdout.write(f"{len(lines)} cases; written: {options.output}: {', '.join(written)}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hecktor study baselines", description="Tumour volume and SUVmax as predicted risks."
    )
    parser.add_argument(
        "--cohort", type=Path, required=True, help="cases with CT, PET and reference, as mounted or as released"
    )
    add_workers(parser)
    add_output(parser)
    return parser
