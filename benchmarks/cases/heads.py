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

from baseline.heads.cross_validation import KINDS
from baseline.heads.document import cross_validation_document
from baseline.heads.metrics import area_under_curve, c_index
from baseline.heads.models.targets import targets_of
from benchmarks.cases.phantom_features import draw, measured_cohorts, oracle_logit, oracle_risk
from contract.editions import load_edition
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
    cohorts = measured_cohorts(cases, options.complete)
    targets = targets_of(load_edition())
    document = cross_validation_document([(target, cohorts[target.name]) for target in targets], options.seed, {})
    document["oracle"] = {
        "rfs_c_index": c_index(cohorts["rfs"].outcomes, oracle_risk(cases)),
        "hpv_area_under_curve": area_under_curve(cohorts["hpv"].outcomes, oracle_logit(cases)),
    }
    write_json(options.output, document)
    lines = [*_lines(document), f"{options.patients} patients in {time.monotonic() - begun:.0f} s"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _lines(document: dict[str, Any]) -> list[str]:
    lines = [f"oracle: {document['oracle']}"]
    for target in targets_of(load_edition()):
        for kind in KINDS:
            validation = document[target.name][kind]
            if "why_not" in validation:
                lines.append(f"{target.name} {kind}: none, {validation['why_not']}")
                continue
            rivals = {name: round(rival[target.metric], 3) for name, rival in validation["comparators"].items()}
            models = sorted(fold["model"] for fold in validation["folds"])
            lines.append(f"{target.name} {kind}: {target.metric} {validation[target.metric]:.3f}, {rivals}, {models}")
    return lines
