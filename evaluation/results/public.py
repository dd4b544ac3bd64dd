"""Public results: the aggregates alone, rounded, with intervals from a secret seed.

A submitter chooses the answers, so every figure is an equation about the reference. The number of unusable answers
would be one, too: an answer that is left out counts only for patients with a target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from contract.errors import HecktorError
from evaluation.editions.profile import TaskProfile, known_metrics
from evaluation.metrics.rules import RiskRules
from evaluation.results.scored import ScoredCohort
from evaluation.statistics.bootstrap import Estimate, Estimates

DEFAULT_DIGITS: Final = 4
DIGITS_OF_SMALL_COHORT: Final = 3
SMALL_COHORT_BELOW: Final = 100
# Distances range up to 100 mm, all other metrics up to 1.
_FEWER_DIGITS_OF_MM: Final = 2
_TIE: Final = "tie"
_PRIVATE_PROVENANCE: Final = ("seed", "redraws", "redraws_of_extra_metrics")


def public_options(task: TaskProfile, options: Mapping[str, str]) -> dict[str, str]:
    """The options of public results: a missing risk is a tie.

    A non-concordant one among equal risks would tell the number of pairs that its patient is in.
    """
    has_risks = any(isinstance(answer.rules, RiskRules) for answer in task.answers.values())
    return {**({"missing_risk": _TIE} if has_risks else {}), **options}


def check_public(task: TaskProfile) -> None:
    """Refuse rules under which public results would reveal single patients.

    Probabilities such as 0.5 - 2^-k, one for each patient, write the patients' classes into the digits of a mean. Where
    missing cases are skipped, a submitter chooses the patients of every figure; where they stop the evaluation, the
    error tells which patients count. Raises HecktorError: a ranked metric comes from submitted probabilities, missing
    cases are skipped or stop the evaluation, or a missing risk is not a tie.
    """
    for answer in task.answers.values():
        if answer.rules.missing != "worst":
            raise HecktorError("--public", f"found together with missing={answer.rules.missing}", "missing=worst")
        if isinstance(answer.rules, RiskRules) and answer.rules.missing_risk != _TIE:
            found = f"found together with missing_risk={answer.rules.missing_risk}"
            raise HecktorError("--public", found, f"missing_risk={_TIE}")
    known = known_metrics(task.answers, "--public")
    for name, metric in task.metrics.items():
        if any(known[term][1].from_probability for term in metric.terms or (name,)):
            raise HecktorError("--public", f"{name} ranks and comes from probabilities", "other ranked metrics")


def private_seed(seed: int, cohort: ScoredCohort) -> list[int]:
    """A seed that nobody knows without the reference; all submissions to one reference share it.

    With known draws the ends of an interval are equations of many digits about the single patients. A reference of few
    patients can be guessed, so `seed` is part of the secret and not in the file.
    """
    rows = [(answer, row) for answer in cohort.answers for row in answer.rows]
    reference = sorted((one.profile.answer.name, row.case, one.profile.scorer.reference_of(row)) for one, row in rows)
    return [seed, int.from_bytes(hashlib.sha256(repr(reference).encode()).digest())]


def digits_of(cohort: ScoredCohort, task: TaskProfile) -> int:
    """Digits behind the point of public figures: the profile's, or by the number of cases."""
    if task.public_digits is not None:
        return task.public_digits
    fewest = min(len(answer.reference.targets) for answer in cohort.answers)
    return DIGITS_OF_SMALL_COHORT if fewest < SMALL_COHORT_BELOW else DEFAULT_DIGITS


def public_estimates(estimates: Estimates, cohort: ScoredCohort, task: TaskProfile) -> Estimates:
    """Rounded estimates of all metrics of masks; of outcomes only the ranked ones, since each reveals more of them."""
    digits, hidden = digits_of(cohort, task), cohort.outcome_metrics - set(task.metrics)
    known = known_metrics(task.answers, "--public")
    in_mm = {name for name, (_, metric) in known.items() if metric.unit == "mm"}
    in_mm |= {name for name, metric in task.metrics.items() if in_mm.intersection(metric.terms)}
    rounded = {}
    for name, one in estimates.by_metric.items():
        if name in hidden:
            continue
        places = max(0, digits - _FEWER_DIGITS_OF_MM) if name in in_mm else digits
        figures = (one.value, one.ci95_low, one.ci95_high)
        rounded[name] = Estimate(*(None if figure is None else round(figure, places) for figure in figures))
    return replace(estimates, by_metric=rounded)


def public_report(report: Mapping[str, Any], cohort: ScoredCohort, task: TaskProfile) -> dict[str, Any]:
    """The content of a public metrics.json from that of a full one whose `aggregates` are public already.

    The number of cases is that of the reference alone, and so equal for all submissions.
    """
    provenance = {key: value for key, value in report["provenance"].items() if key not in _PRIVATE_PROVENANCE}
    return {
        "aggregates": report["aggregates"],
        "cases": {name: report["cases"][name] for name in ("in_ground_truth", "used")},
        "warnings": report["warnings"],
        "provenance": {**provenance, "public_digits": digits_of(cohort, task)},
    }
