"""Risks: the row of a patient."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from contract.editions import AnswerSpec
from evaluation.execution import Workers
from evaluation.inputs.ground_truth import FollowUp, Reference, read_follow_up
from evaluation.inputs.plain_files import read_risk_table
from evaluation.inputs.submission import Submission, read_risk
from evaluation.metrics.rules import DIRECTIONS, NO_COMPARABLE_PAIR, Metric, RiskRules
from evaluation.metrics.survival import RISK_METRICS, RiskCohort, SurvivalCohort
from evaluation.rows.scorer import RowMetrics, ScoredRow, compute_cohort_value, measured, read_submitted_value


class RiskRow(ScoredRow):
    """A patient's predicted risk, None where missing, and follow-up."""

    risk: float | None
    rfs_days: Annotated[float, Field(ge=0)]
    relapse: bool

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_prediction(self.risk)
        return self


def make_risk_row(
    case: str, follow_up: FollowUp, risk: float | None, error: str | None = None, failed: bool = False
) -> RiskRow:
    """The row of a patient."""
    return RiskRow(case=case, error=error, failed=failed, risk=risk, **asdict(follow_up))


def make_survival_cohort(rows: Sequence[RiskRow], rules: RiskRules) -> SurvivalCohort:
    """The rows as arrays; risks are higher for earlier recurrence under both rules for the direction."""
    sign = -1.0 if rules.direction == "time" else 1.0
    return SurvivalCohort(
        times_days=np.array([row.rfs_days for row in rows], dtype=np.float64),
        events=np.array([row.relapse for row in rows], dtype=np.bool_),
        risks=np.array([np.nan if row.risk is None else sign * row.risk for row in rows]),
    )


@dataclass(frozen=True)
class RiskScorer:
    """Scores the risks of one answer."""

    answer: AnswerSpec
    rules: RiskRules
    metrics: tuple[Metric, ...] = RISK_METRICS
    row: type[RiskRow] = RiskRow

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[FollowUp]:
        return read_follow_up(source, self.answer, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        return read_risk_table(source, self.answer, self.rules.direction, cases, not_evaluated)

    def score(
        self, reference: Reference[FollowUp], submissions: Sequence[Submission], _workers: Workers
    ) -> list[Sequence[RiskRow]]:
        read = partial(read_submitted_value, read=read_risk)
        return [
            [make_risk_row(answer.case, reference.targets[answer.case], *read(answer)) for answer in submission.answers]
            for submission in submissions
        ]

    def measure(self, rows: Sequence[RiskRow]) -> RowMetrics:
        """C-indices and AUCs; a C-index below 0.5 gives a warning about the direction."""
        cohort = RiskCohort(make_survival_cohort(rows, self.rules), self.rules.missing_risk)
        metrics = measured(self.metrics, cohort)
        value = compute_cohort_value(metrics["c_index"], len(rows))
        undefined = (NO_COMPARABLE_PAIR.format(n=len(rows)),) if np.isnan(value) else ()
        answered = any(row.risk is not None for row in rows)  # no sign is wrong where there is no risk
        return RowMetrics(metrics, warnings={"c_index": self._flipped} if answered else {}, undefined=undefined)

    def _flipped(self, c_index: float, upper: float | None) -> str | None:
        """A warning if the upper end of the interval, or without one the value, is below 0.5."""
        if (c_index if upper is None else upper) >= 0.5:
            return None
        hint = f"expected: {DIRECTIONS[self.rules.direction]}; negating a risk gives a time and the reverse"
        return f"the C-index is {c_index:.3f}, below 0.5: the sign may be flipped ({hint})"

    def check_row(self, row: RiskRow) -> None:
        """Accept every row: its model requires all that is measured."""

    def reference_of(self, row: RiskRow) -> tuple[object, ...]:
        return row.rfs_days, row.relapse
