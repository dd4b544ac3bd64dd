"""`hecktor study null`: the earlier segmentation as the prediction, the null algorithm of HNTS-MRG 2024."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from contract.errors import HecktorError, PredictionError
from evaluation.editions import known_profiles
from evaluation.editions.profile import EvaluationProfile, load_profile
from evaluation.editions.task import AnswerProfile, TaskProfile
from evaluation.inputs.plain_files import read_bounding_boxes
from evaluation.metrics.rules import MaskRules
from evaluation.options import add_bootstrap, add_workers
from evaluation.results.metrics_json import aggregates
from evaluation.results.scored import weighted_sums
from evaluation.rows.comparison import MaskScorer
from evaluation.rows.mask import MaskRow
from evaluation.statistics.bootstrap import estimate
from evaluation.studies.outputs import StudyResult, interval_text

DESCRIPTION: Final = "The earlier segmentation of each patient as the prediction."


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Score the earlier masks against the references by an edition's metrics of masks."""
    task, answer, rules = task_with_masks(load_profile(options.edition))
    rows, counted = score_earlier(options.earlier, options.ground_truth, rules, options)
    measured = {f"{answer.prefix}{name}": of for name, of in MaskScorer(rules).measure(counted).metrics.items()}
    measured |= weighted_sums(measured, task.metrics)
    # The ranked metrics alone, so that their draws are those of `hecktor evaluate`.
    metrics = {name: measured[name] for name in task.metrics if name in measured}
    rng = np.random.default_rng(options.seed)
    estimates = estimate(metrics, len(counted), options.bootstraps, rng)
    figures = aggregates(estimates)
    without = {row.case: row.error for row in rows if row.error is not None}
    content = {
        "edition": task.edition,
        "task": task.algorithm.name,
        "options": task.options,
        "cases": len(counted),
        "cases_without_earlier_mask": without,
        "bootstraps": options.bootstraps,
        "seed": options.seed,
        "redraws": estimates.redraws,
        "aggregates": figures,
    }
    summary = "".join(f"{name:<28} {interval_text(figure)}\n" for name, figure in figures.items())
    summary += f"{len(counted)} cases, {len(without)} without a usable earlier mask\n"
    return StudyResult(content, [row.as_json() for row in rows], summary)


def task_with_masks(profile: EvaluationProfile) -> tuple[TaskProfile, AnswerProfile, MaskRules]:
    """The edition's first task with a mask, that answer and its rules. Raises HecktorError if it has none."""
    for task in profile.tasks.values():
        for answer in task.answers.values():
            if isinstance(answer.rules, MaskRules):
                return task, answer, answer.rules
    raise HecktorError(f"edition {profile.name}", "no task with masks", "one")


def score_earlier(
    earlier: Path, ground_truth: Path, rules: MaskRules, options: argparse.Namespace
) -> tuple[Sequence[MaskRow], Sequence[MaskRow]]:
    """A row for each case of the ground truth, and those that enter the metrics by the rule for missing cases.

    Raises:
        HecktorError: folders or boxes that cannot be used; with the rule `stop`, a case without an earlier mask.
    """
    scorer = MaskScorer(rules)
    reference = scorer.read_reference(ground_truth, ())
    if options.bounding_boxes is not None:
        reference = replace(reference, boxes=read_bounding_boxes(options.bounding_boxes, reference.targets.keys()))
    elif rules.bounding_box == "required":
        raise HecktorError(
            "--bounding-boxes", f"none, but {options.edition} scores inside a bounding box", "a CSV file"
        )
    submission = scorer.read_files(earlier, reference.targets.keys(), ())
    rows = scorer.score(reference, submission, options.workers)
    usable = [row for row in rows if row.error is None]
    if not usable or (rules.missing == "stop" and len(usable) < len(rows)):
        case = next(row for row in rows if row.error is not None)
        raise PredictionError(f"earlier mask of {case.case}", str(case.error), "a mask on the reference's grid")
    return rows, usable if rules.missing == "skip" else rows


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the two folders, the edition and the bootstrap."""
    add = parser.add_argument
    add("--earlier", type=Path, required=True, help="folder of earlier masks on the references' grids")
    add("--ground-truth", type=Path, required=True, help="folder of reference masks of the same cases")
    add(
        "--edition",
        required=True,
        help=f"edition whose metrics of masks count: {', '.join(known_profiles())} or a profile.json",
    )
    add("--bounding-boxes", type=Path, help="CSV table with PatientID, x1, x2, y1, y2, z1, z2 in mm")
    add_bootstrap(parser)
    add_workers(parser)
