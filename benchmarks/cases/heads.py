"""`python -m benchmarks --heads`: cross-validate the heads on phantoms, beside the generator's own risk.

600 patients took ten minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baseline.heads.cross_validation import cross_validation_document
from baseline.heads.models.shared import area_under_curve, concordance
from baseline.heads.models.targets import TARGETS
from benchmarks.cases.phantom_features import draw, measured_cohort, oracle_logit, oracle_risk
from contract.files import write_json


def main(argv: Sequence[str] | None = None) -> int:
    """Draw and measure phantoms, cross-validate, print the metrics and write them with the generator's own."""
    parser = argparse.ArgumentParser("python -m benchmarks --heads", description="Cross-validate heads on phantoms.")
    parser.add_argument("--patients", type=int, default=300)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--complete", action="store_true", help="use the true clinical variables, none missing")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(argv)
    begun = time.monotonic()
    cases = draw(options.patients, options.seed)
    cohort = measured_cohort(cases, options.complete)
    outcomes = cohort.outcomes
    document = cross_validation_document([(target, cohort) for target in TARGETS], options.seed)
    document["oracle"] = {
        "rfs_c_index": concordance(outcomes.rfs_days, outcomes.relapse, oracle_risk(cases)),
        "hpv_area_under_curve": area_under_curve(outcomes.hpv, oracle_logit(cases)),
    }
    write_json(options.output, document)
    lines = [*_lines(document), f"{options.patients} patients in {time.monotonic() - begun:.0f} s"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _lines(document: dict[str, Any]) -> list[str]:
    lines = [f"oracle: {document['oracle']}"]
    for target in TARGETS:
        for kind in ("nested", "leave_one_centre_out"):
            result = document[target.name][kind]
            comparators = {name: round(row[target.metric], 3) for name, row in result["comparators"].items()}
            models = sorted(fold["model"] for fold in result["folds"])
            lines.append(f"{target.name} {kind}: {target.metric} {result[target.metric]:.3f}, {comparators}, {models}")
    return lines
