"""`python -m benchmarks --experts`: nested metrics of each candidate alone, and of equal-weight means of candidates.

Settings, scaling of the scores and models are learnt without each outer fold's patients. With `--work` the patients are
those of a training with measured features (and its outcome network, if it has one), otherwise drawn phantoms.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from algorithm.heads.measure import Features
from baseline.heads.cohort import Floats, HeadCohort
from baseline.heads.fitting import cohort_of
from baseline.heads.metrics import area_under_curve, c_index, class_accuracy
from baseline.heads.models.classes import predicted
from baseline.heads.models.extra import BOOSTED_TREES, OUTCOME_NETWORK, with_extra_families
from baseline.heads.models.kinds import Target
from baseline.heads.models.selection import Family, choose, refit, scores_of
from baseline.heads.models.targets import targets_of
from baseline.outcome.folds import outcome_features
from baseline.release.cases import read_cases
from baseline.release.record import edition_of
from baseline.work import WorkFolders
from benchmarks.cases.phantom_features import draw, measured_cohorts
from contract.editions import load_edition
from contract.files import read_json, write_json

_EXTRA = (BOOSTED_TREES, OUTCOME_NETWORK)
# Scores of classes without training patients are far below.
_LOWEST = -100.0


def main(argv: Sequence[str] | None = None) -> int:
    """Print and write the metrics over all outer folds, as mean and standard deviation over repeated splits."""
    parser = argparse.ArgumentParser("python -m benchmarks --experts", description="Compare candidates of the heads.")
    parser.add_argument("--work", type=Path, help="working directory of a training (default: drawn phantoms)")
    parser.add_argument("--patients", type=int, default=600, help="number of drawn phantoms")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--repeats", type=int, default=3, help="number of splits into five outer folds")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(argv)
    document = {}
    for target, cohort in _cohorts(options):
        runs = [_metrics(target, cohort, np.random.default_rng(options.seed + n)) for n in range(options.repeats)]
        document[target.name] = {
            name: {
                "mean": float(np.mean([run[name] for run in runs])),
                "sd": float(np.std([run[name] for run in runs])),
            }
            for name in runs[0]
        }
        for name, row in document[target.name].items():
            sys.stdout.write(f"{target.name}: {name}: {row['mean']:.3f} +- {row['sd']:.3f}\n")
            sys.stdout.flush()
        write_json(options.output, document)
    return 0


def _cohorts(options: argparse.Namespace) -> list[tuple[Target, HeadCohort]]:
    if options.work is None:
        measured = measured_cohorts(draw(options.patients, options.seed), False)
        targets = [with_extra_families(target, (), trees=True) for target in targets_of(load_edition())]
        return [(target, measured[target.name]) for target in targets]
    work = WorkFolders(options.work.resolve())
    cases, rows = read_cases(work), read_json(work.features_json)["result"]
    by_network: Mapping[str, Features] = outcome_features(work, cases)
    rows = {name: {**row, **by_network.get(name, {})} for name, row in rows.items()}
    names = {name for row in by_network.values() for name in row}
    targets = [with_extra_families(target, names, trees=True) for target in targets_of(edition_of(work))]
    return [(target, cohort_of(target, cases, rows)) for target in targets]


def _metrics(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> dict[str, float]:
    """The metric of each candidate, and of means of the standardised scores with and without the extra candidates."""
    scores: dict[str, Floats] = {}
    for held_out in target.stratified(cohort, 5, rng):
        train = cohort.pick(np.setdiff1d(np.arange(len(cohort.ids)), held_out))
        rest, folds = cohort.pick(held_out), target.folds(train, False, rng)
        for family in target.competing(train):
            values = _standardised(target, family, train, rest, folds, rng)
            table = scores.setdefault(family.name, np.zeros((len(cohort.ids), *values.shape[1:])))
            table[held_out] = values
    linear = [name for name in scores if name not in _EXTRA]
    means = {"mean of linear candidates": linear}
    means |= {f"mean with {name}": [*linear, name] for name in _EXTRA if name in scores}
    if set(_EXTRA) <= scores.keys():
        means["mean of all"] = [*scores]
    combined = {name: np.mean([scores[part] for part in parts], axis=0) for name, parts in means.items()}
    return {name: _metric(target, cohort, values) for name, values in (scores | combined).items()}


def _standardised(
    target: Target, family: Family, train: HeadCohort, rest: HeadCohort, folds: Sequence[Any], rng: np.random.Generator
) -> Floats:
    chosen = choose(train, [family], folds, target.judge, rng)
    head = refit(train, chosen, rng)
    scores = scores_of(head, rest)
    if scores.ndim == 1:
        return np.asarray((scores - chosen.scores.mean()) / max(chosen.scores.std(), 1e-9), dtype=np.float64)
    # One scale for all classes: standardised class by class, other classes would win.
    finite = np.maximum(chosen.scores, _LOWEST)
    spread = (finite - finite.mean(1, keepdims=True)).std()
    return np.asarray(scores - scores.max(1, keepdims=True), dtype=np.float64) / max(float(spread), 1e-9)


def _metric(target: Target, cohort: HeadCohort, scores: Floats) -> float:
    """C-index, area under the curve of two classes, or balanced accuracy of more."""
    if target.answer.kind == "risk":
        return c_index(cohort.outcomes, scores)
    if target.answer.is_binary:
        return area_under_curve(cohort.outcomes, scores)
    return class_accuracy(cohort.outcomes, predicted(scores, cohort.possible))
