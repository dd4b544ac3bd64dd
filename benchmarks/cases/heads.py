"""`python -m benchmarks --heads`: cross-validate the heads on phantoms, beside the generator's own risk.

600 patients took ten minutes on one core. With `--work` the patients are those of a training with measured features.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baseline.heads.cohort import HeadCohort
from baseline.heads.cross_validation import KINDS
from baseline.heads.document import REPEATS, cross_validation_document, spread_text
from baseline.heads.fitting import cohort_of
from baseline.heads.metrics import area_under_curve, c_index
from baseline.heads.models.kinds import Target
from baseline.heads.models.targets import targets_of
from baseline.release.cases import read_cases
from baseline.release.record import edition_of
from baseline.work import WorkFolders
from benchmarks.cases.phantom_features import draw, measured_cohorts, oracle_logit, oracle_risk
from contract.editions import load_edition
from contract.files import read_json, write_json


def main(argv: Sequence[str] | None = None) -> int:
    """Draw and measure phantoms, cross-validate, print the metrics and write them with the generator's own."""
    parser = argparse.ArgumentParser("python -m benchmarks --heads", description="Cross-validate heads on phantoms.")
    parser.add_argument("--work", type=Path, help="working directory of a training (default: drawn phantoms)")
    parser.add_argument("--patients", type=int, default=300, help="number of drawn phantoms")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--complete", action="store_true", help="use the true clinical variables, none missing")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="number of nested cross-validations")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(argv)
    begun = time.monotonic()
    cohorts, oracle = _of_phantoms(options) if options.work is None else (_of_training(options.work), {})
    document = cross_validation_document(cohorts, options.seed, {}, options.jobs, options.repeats) | oracle
    write_json(options.output, document)
    patients = max(len(cohort.ids) for _, cohort in cohorts)
    lines = [
        *_lines(document, [target for target, _ in cohorts]),
        f"{patients} patients in {time.monotonic() - begun:.0f} s",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _of_phantoms(options: argparse.Namespace) -> tuple[list[tuple[Target, HeadCohort]], dict[str, Any]]:
    """Cohorts of drawn phantoms, and the metrics of the generator's own risk and logit."""
    cases = draw(options.patients, options.seed)
    cohorts = measured_cohorts(cases, options.complete)
    oracle = {
        "rfs_c_index": c_index(cohorts["rfs"].outcomes, oracle_risk(cases)),
        "hpv_area_under_curve": area_under_curve(cohorts["hpv"].outcomes, oracle_logit(cases)),
    }
    return [(target, cohorts[target.name]) for target in targets_of(load_edition())], {"oracle": oracle}


def _of_training(folder: Path) -> list[tuple[Target, HeadCohort]]:
    """Cohorts of a training, by the features that its heads are fitted on; an outcome network is left out."""
    work = WorkFolders(folder.resolve())
    cases, rows = read_cases(work), read_json(work.features_json)["result"]
    return [(target, cohort_of(target, cases, rows)) for target in targets_of(edition_of(work))]


def _lines(document: dict[str, Any], targets: Sequence[Target]) -> list[str]:
    lines = [f"oracle: {document['oracle']}"] if "oracle" in document else []
    for target in targets:
        for kind in KINDS:
            validation = document[target.name][kind]
            if "why_not" in validation:
                lines.append(f"{target.name} {kind}: none, {validation['why_not']}")
                continue
            rivals = {name: round(rival[target.metric], 3) for name, rival in validation["comparators"].items()}
            models = sorted(fold["model"] for fold in validation["folds"])
            value = f"{target.metric} {validation[target.metric]:.3f}{spread_text(validation)}"
            lines.append(f"{target.name} {kind}: {value}, {rivals}, {models}")
    return lines
