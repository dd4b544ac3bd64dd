"""`hecktor study baselines`: tumour volume and SUVmax as risk tables, for `hecktor evaluate` to score."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Final

from evaluation.studies.outputs import StudyResult, write_table
from evaluation.studies.scans import add_cohort, measure_burdens

DESCRIPTION: Final = "Tumour volume and SUVmax as predicted risks."
RISKS: Final = ("gtvp_volume_ml", "gtvp_suv_max", "tumour_volume_ml", "tumour_suv_max")


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Measure every case and write one table of risks for each measure."""
    lines = [asdict(burden) for burden in measure_burdens(options)]
    tables = [f"{name}.csv" for name in RISKS]
    for name, table in zip(RISKS, tables, strict=True):
        write_table(options.output / table, [{"PatientID": line["case"], "risk": line[name]} for line in lines])
    content = {"cases": len(lines), "risks": tables}
    return StudyResult(content, lines, f"{len(lines)} cases; ", files=tuple(tables))


add_options = add_cohort
