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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from tqdm import tqdm

from algorithm import Predictor
from algorithm.case.notices import Notices
from algorithm.case.read import Case, read_case
from algorithm.heads.measure import Features, clinical_features, image_features
from algorithm.heads.methods import METHODS
from algorithm.heads.staging import staged
from algorithm.heads.values import answer_value
from algorithm.network.package import ModelPackage, default_package_path, load_package
from algorithm.network.segment import network_channels, network_grid
from algorithm.region.grids import resample_mask
from algorithm.region.localise import localise
from contract.editions import Algorithm, Answer, Edition, load_edition
from contract.errors import InputError, run_main
from contract.files import read_json, write_csv, write_json
from contract.images.volumes import Volume, read_volume, write_mask

TEAMS: Final = ("package", "reference", "clinical", "rule", "rule_reference")
_ON_REFERENCE: Final = ("reference", "rule_reference")
Values = dict[str, Any]


@dataclass(frozen=True)
class MaskStudy:
    """A package of an edition with one algorithm, on a cohort in the platform's layout."""

    edition: Edition
    package: ModelPackage
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
    study = MaskStudy(edition, load_package(root), arguments.cohort, arguments.output)
    cases = sorted(path.parent.name for path in arguments.cohort.glob("*/input"))
    if not cases:
        raise InputError(arguments.cohort.name, "no <case>/input", "a cohort in the platform's layout")
    predictor: Predictor | None = None
    for case in tqdm(cases, desc="answer", unit="case"):
        if not study.is_complete(case):
            predictor = predictor or Predictor(root, edition.source, None, "cpu", passes=arguments.passes)
            answer_case(study, predictor, case)
    write_tables(study, cases)
    return 0


def answer_case(study: MaskStudy, predictor: Predictor, name: str) -> None:
    """Write every team's mask of one case, and the values of all teams."""
    folder = study.cohort / name / "input"
    prediction = predictor.predict(folder)
    if prediction.mask is None:
        raise InputError(study.edition.name, "no mask among the answers", "one")
    case = read_case(folder, study.edition, study.algorithm, Notices())
    predicted = Volume(prediction.mask, prediction.geometry)
    reference = read_volume(study.cohort / "ground_truth" / f"{name}.mha", np.uint8)
    values = {**_by_teams(study, case, predicted, reference), "package": {**prediction.risks, **prediction.classes}}
    for team in TEAMS:
        mask = reference if team in _ON_REFERENCE else predicted
        write_mask(study.mask_path(team, name), mask.array, mask.geometry)
    write_json(study.values_path(name), values)


def _by_teams(study: MaskStudy, case: Case, predicted: Volume, reference: Volume) -> dict[str, Values]:
    clinical = clinical_features(case.patient, study.edition.clinical)
    on_predicted = features_on(study, case, predicted) | clinical
    on_reference = features_on(study, case, reference) | clinical
    heads = _answers(study, case, on_reference, reference, METHODS["baseline"].head_suffix)
    risk = _answers(study, case, on_predicted, predicted, METHODS["baseline"].head_suffix)
    return {
        "reference": heads,
        "clinical": _answers(study, case, clinical, None, METHODS["clinical"].head_suffix),
        "rule": risk | _by_rule(study, on_predicted),
        "rule_reference": heads | _by_rule(study, on_reference),
    }


def features_on(study: MaskStudy, case: Case, mask: Volume) -> dict[str, float | None]:
    """Features of a mask on the network's grid, where those of the package's own mask are measured."""
    grid = network_grid(localise(case), study.package.spacing_mm)
    ct, pet = network_channels(case, grid)
    return dict(image_features(resample_mask(mask, grid), ct, None if case.pet is None else pet, grid))


def _answers(study: MaskStudy, case: Case, features: Features, mask: Volume | None, suffix: str) -> Values:
    values: Values = {}
    for answer in study.algorithm.heads:
        excluded, only = _by_structures(study, answer, mask)
        head = study.package.head(answer.head + suffix)
        values[answer.name] = only or answer_value(answer, head, features, case.patient.centre, excluded)
    return values


def _by_structures(study: MaskStudy, answer: Answer, mask: Volume | None) -> tuple[tuple[Any, ...], Any]:
    """Classes that the mask's structures exclude, and the class that an absent structure gives, or None."""
    if mask is None or study.algorithm.mask is None:
        return (), None
    labels = study.algorithm.mask.labels
    present = {name: bool((mask.array == labels[name]).any()) for name in answer.without}
    absent = next((value for name, value in answer.without.items() if not present[name]), None)
    return tuple(answer.without.values()), absent


def _by_rule(study: MaskStudy, features: Features) -> Values:
    staging = [answer for answer in study.algorithm.heads if answer.rule]
    return {answer.name: staged(answer.rule, features) or answer.stand_in for answer in staging}


def write_tables(study: MaskStudy, cases: Sequence[str]) -> None:
    """Write each team's table with the columns of the edition's reference table."""
    values = {case: read_json(study.values_path(case)) for case in cases}
    for team in TEAMS:
        rows = [{"PatientID": case, **_columns(study, values[case][team])} for case in cases]
        write_csv(study.output / team / "answers.csv", list(rows[0]), rows)


def _columns(study: MaskStudy, values: Mapping[str, Any]) -> Values:
    return {
        answer.columns["time" if answer.kind == "risk" else "class"]: values[answer.name]
        for answer in study.algorithm.heads
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.reference_masks", description=__doc__)
    add = parser.add_argument
    add("--edition", required=True, help="edition with one algorithm: name or declaration.json")
    add("--cohort", type=Path, required=True, help="phantoms in the platform's layout")
    add("--output", type=Path, required=True, help="folder of the answers")
    add("--model", type=Path, help="folder of a model package (default: the one shipped for the edition)")
    add("--passes", type=int, help="largest number of passes for each case (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
