"""How much of the heads' loss is the segmentation's: answers from predicted and from reference masks.

::

    hecktor phantoms --edition hecktor2026 --layout platform --patients 60 --seed 7 --output out/unseen
    python -m benchmarks.studies.reference_masks --edition hecktor2026 --cohort out/unseen --output out/answers

writes folders that `hecktor evaluate --predictions` scores, each with masks and one table:

    package         the package's answers
    reference       its heads on the reference masks
    clinical        its heads on clinical variables alone
    rule            the declared rules on the predicted masks, and its risk
    rule_reference  the declared rules on the reference masks

Cases that are complete are not computed again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from tqdm import tqdm

from algorithm.answers import answer, restore
from algorithm.case.read import Case
from algorithm.context import RestoredMask, RunContext
from algorithm.heads.measure import Features, clinical_features
from algorithm.heads.methods import METHODS
from algorithm.heads.staging import staged
from algorithm.heads.values import answer_value
from algorithm.masks.segmentation import Segmentation
from algorithm.network.package import default_package_path
from algorithm.network.resident import Resident
from algorithm.pipeline import find_lesions
from algorithm.prediction import PredictRequest
from algorithm.region.grids import resample_mask
from algorithm.steps import measure
from contract.editions import Algorithm, Edition, load_edition
from contract.errors import InputError, run_main
from contract.files import read_json, write_csv, write_json
from contract.images.volumes import Volume, read_volume, write_mask

TEAMS: Final = ("package", "reference", "clinical", "rule", "rule_reference")
_ON_REFERENCE: Final = ("reference", "rule_reference")
Values = dict[str, Any]


@dataclass(frozen=True)
class MaskStudy:
    """An edition with one algorithm, and a cohort in the platform's layout."""

    edition: Edition
    cohort: Path
    output: Path

    @property
    def algorithm(self) -> Algorithm:
        return self.edition.algorithm()

    def mask_path(self, team: str, case: str) -> Path:
        return self.output / team / f"{case}.mha"

    def values_path(self, case: str) -> Path:
        return self.output / "values" / f"{case}.json"

    def is_complete(self, case: str) -> bool:
        masks = [self.mask_path(team, case) for team in TEAMS]
        return self.values_path(case).is_file() and all(path.is_file() for path in masks)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the answers of every team."""
    arguments = _parser().parse_args(argv)
    edition = load_edition(arguments.edition)
    root = arguments.model or default_package_path(edition.name)
    study = MaskStudy(edition, arguments.cohort, arguments.output)
    cases = sorted(path.parent.name for path in arguments.cohort.glob("*/input"))
    if not cases:
        raise InputError(arguments.cohort.name, "no <case>/input", "a cohort in the platform's layout")
    resident = Resident(root, "cpu")
    for case in tqdm(cases, desc="answer", unit="case"):
        if not study.is_complete(case):
            answer_case(study, resident, case)
    write_tables(study, cases)
    return 0


def answer_case(study: MaskStudy, resident: Resident, name: str) -> None:
    """Write every team's mask of one case, and the values of all teams."""
    run = RunContext(_request(study, name), resident, None)
    segmented = find_lesions(run)
    predicted = restore(run, segmented)
    if segmented.segmentation is None or predicted.array is None:
        raise InputError(name, "no segmentation", "an algorithm with a mask")
    reference = read_volume(study.cohort / "ground_truth" / f"{name}.mha", np.uint8)
    true = replace(segmented, segmentation=_certain(reference, segmented.segmentation))
    features, true_features = measure(run, segmented), measure(run, true)
    heads = dict(answer(run, predicted, features).values)
    true_heads = dict(answer(run, RestoredMask(true, reference.array), true_features).values)
    values = {
        "package": heads,
        "reference": true_heads,
        "clinical": _clinical(study, run, segmented.case),
        "rule": heads | _by_rule(study, features),
        "rule_reference": true_heads | _by_rule(study, true_features),
    }
    for team in TEAMS:
        mask = reference.array if team in _ON_REFERENCE else predicted.array
        write_mask(study.mask_path(team, name), mask, segmented.case.ct.geometry)
    write_json(study.values_path(name), values)


def _request(study: MaskStudy, name: str) -> PredictRequest:
    limit_s = study.algorithm.time_limit_s
    folder = study.cohort / name / "input"
    return PredictRequest(study.edition, study.algorithm, METHODS["baseline"], folder, None, "cpu", limit_s)


def _certain(reference: Volume, predicted: Segmentation) -> Segmentation:
    """The reference on the grid and with the images of the prediction."""
    mask = resample_mask(reference, predicted.grid)
    return Segmentation.from_mask(mask, predicted.ct, predicted.pet, predicted.grid)


def _clinical(study: MaskStudy, run: RunContext, case: Case) -> Values:
    features = clinical_features(case.patient, study.edition.clinical)
    names = {one.name: METHODS["clinical"].head_name(one) for one in study.algorithm.heads}
    heads = {name: run.resident.package.head(head) for name, head in names.items()}
    return {
        one.name: answer_value(one, heads[one.name], features, case.patient.centre) for one in study.algorithm.heads
    }


def _by_rule(study: MaskStudy, features: Features | None) -> Values:
    staging = [one for one in study.algorithm.heads if one.rule]
    return {one.name: staged(one.rule, features or {}) or one.stand_in for one in staging}


def write_tables(study: MaskStudy, cases: Sequence[str]) -> None:
    """Write each team's table with the columns of the edition's reference table."""
    values = {case: read_json(study.values_path(case)) for case in cases}
    for team in TEAMS:
        rows = [{"PatientID": case, **_columns(study, values[case][team])} for case in cases]
        write_csv(study.output / team / "answers.csv", list(rows[0]), rows)


def _columns(study: MaskStudy, values: Mapping[str, Any]) -> Values:
    return {one.columns["time" if one.kind == "risk" else "class"]: values[one.name] for one in study.algorithm.heads}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.reference_masks", description=__doc__)
    add = parser.add_argument
    add("--edition", required=True, help="edition with one algorithm: name or declaration.json")
    add("--cohort", type=Path, required=True, help="phantoms in the platform's layout")
    add("--output", type=Path, required=True, help="folder of the answers")
    add("--model", type=Path, help="folder of a model package (default: the one shipped for the edition)")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
