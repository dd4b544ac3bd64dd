"""Attainable scores on phantoms: the scores of the model that drew their outcomes, which knows the true risks."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.editions import AnswerSpec
from evaluation.metrics.classification import make_binary_metrics
from evaluation.metrics.survival import SurvivalCohort, c_index_metric
from evaluation.results.task import TaskResults
from rehearsal.phantoms.outcome import HPV_POSITIVE_FRACTION
from rehearsal.phantoms.tables import TRUTH_CSV
from reporting.report.leaderboard import lower_title

# The expected balanced accuracy is highest if a patient counts as positive whose odds exceed the odds of all phantoms.
_LOGIT_THRESHOLD: Final = math.log(HPV_POSITIVE_FRACTION / (1 - HPV_POSITIVE_FRACTION))
# Rule for a missing risk, which has no effect here: each phantom has a risk.
_MISSING_RISK_RULE: Final = "tie"


@dataclass(frozen=True)
class AttainableScores:
    """Scores that no method exceeds on these phantoms except by chance.

    Attributes:
        patients: Number of patients.
        relapses: Number of patients with an observed recurrence.
        positives: Number of HPV positive patients.
        c_index: C-index of the true linear predictor of the hazard; None without a comparable pair.
        balanced_accuracy: Balanced accuracy of the true HPV logit; None if all patients have the same status.
    """

    patients: int
    relapses: int
    positives: int
    c_index: float | None
    balanced_accuracy: float | None

    def find_value(self, results: TaskResults, metric: str) -> float | None:
        """Find the attainable value of a metric; None if it is unknown.

        Masks and stages of phantoms are exact, so all their metrics can reach the best value.
        """
        declared = results.profile.metrics.get(metric)
        if declared is not None and declared.terms:
            values = {name: self.find_value(results, name) for name in declared.terms}
            known = [weight * value for name, weight in declared.terms.items() if (value := values[name]) is not None]
            return sum(known) if len(known) == len(values) else None
        for answer in results.profile.answers.values():
            name = metric.removeprefix(answer.prefix) if metric.startswith(answer.prefix) else ""
            if name in answer.metrics:
                return self._find_answer_value(answer.answer, name, answer.metrics[name].best)
        return None

    def _find_answer_value(self, answer: AnswerSpec, metric: str, best: float) -> float | None:
        if answer.kind == "risk":
            return self.c_index if metric == "c_index" else None
        if answer.kind == "class" and answer.is_binary:
            return self.balanced_accuracy if metric == "balanced_accuracy" else None
        return best

    def describe(self, tasks: Sequence[TaskResults], team: str) -> str:
        """Describe in one sentence what a team reached in each task and what is attainable."""
        parts = []
        for results in tasks:
            metric = results.deciding_metrics[0]
            value, best = results.value(team, metric), self.find_value(results, metric)
            if value is not None and best is not None:
                parts.append(f"{lower_title(results.board.metrics[metric])} {value:z.2f} of {best:.2f}")
        figures = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts) or "no value"
        return (
            f"On {self.patients} synthetic patients, {self.positives} of them HPV positive and {self.relapses} with a "
            f"relapse, {team} reached {figures}; the model that drew the patients, which knows their true masks and "
            "risks, reaches the second value."
        )


def read_attainable(cohort: Path) -> AttainableScores:
    """Compute the attainable values from the truth of a cohort of phantoms."""
    with (cohort / TRUTH_CSV).open(newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))

    def read_column(name: str) -> npt.NDArray[np.float64]:
        return np.array([float(row[name]) for row in rows])

    relapses = read_column("relapse") == 1
    positive = read_column("hpv_positive") == 1
    survival = SurvivalCohort(read_column("rfs_days"), relapses, read_column("linear_predictor"))
    is_right = (read_column("hpv_logit") > _LOGIT_THRESHOLD) == positive
    weights = np.ones((1, len(rows)))
    c_index = float(c_index_metric(survival, _MISSING_RISK_RULE)(weights)[0])
    balanced_accuracy = float(make_binary_metrics(positive, is_right)["balanced_accuracy"](weights)[0])
    return AttainableScores(
        patients=len(rows),
        relapses=int(relapses.sum()),
        positives=int(positive.sum()),
        c_index=None if math.isnan(c_index) else c_index,
        balanced_accuracy=None if math.isnan(balanced_accuracy) else balanced_accuracy,
    )
