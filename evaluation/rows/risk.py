"""Risks: the row of a patient and its scorer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from contract.editions import AnswerSpec
from contract.errors import Finding
from evaluation.execution import Workers
from evaluation.inputs.ground_truth import FollowUp, Reference, read_follow_up
from evaluation.inputs.plain_files import read_risk_table
from evaluation.inputs.submission import Submission, SubmittedAnswer, read_risk
from evaluation.metrics.rules import DIRECTIONS, NO_COMPARABLE_PAIR, Metric, RiskRules
from evaluation.metrics.survival import RISK_METRICS, RiskCohort, SurvivalCohort
from evaluation.rows.scorer import (
    RowMetrics,
    ScoredRow,
    build_metrics,
    compute_cohort_value,
    parse_stored_row,
    read_submitted_value,
)


class RiskRow(ScoredRow):
    """A patient's predicted risk, None where missing, and follow-up."""

    risk: float | None
    rfs_days: Annotated[float, Field(ge=0)]
    relapse: bool

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_prediction(self.risk)
        return self


def make_survival_cohort(rows: Sequence[RiskRow], rules: RiskRules) -> SurvivalCohort:
    """Return the rows as arrays, with risks that are higher for earlier recurrence whatever the rule `direction`."""
    sign = -1.0 if rules.direction == "time" else 1.0
    return SurvivalCohort(
        times_days=np.array([row.rfs_days for row in rows], dtype=np.float64),
        events=np.array([row.relapse for row in rows], dtype=np.bool_),
        risks=np.array([np.nan if row.risk is None else sign * row.risk for row in rows]),
    )


@dataclass(frozen=True)
class RiskScorer:
    """Scorer of the risks of one answer."""

    answer: AnswerSpec
    rules: RiskRules
    metrics: tuple[Metric, ...] = RISK_METRICS

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[FollowUp]:
        """Read the follow-up of all patients from a table."""
        return read_follow_up(source, self.answer, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        """Read a table of predicted risks."""
        return read_risk_table(source, self.answer, self.rules.direction, cases, not_evaluated)

    def score(
        self, reference: Reference[FollowUp], submissions: Sequence[Submission], _workers: Workers
    ) -> list[Sequence[RiskRow]]:
        """Return the rows of each submission."""
        targets = reference.targets
        return [
            [self._score_answer(answer, targets[answer.case]) for answer in submission.answers]
            for submission in submissions
        ]

    def _score_answer(self, answer: SubmittedAnswer, follow_up: FollowUp) -> RiskRow:
        risk, error, failed = read_submitted_value(answer, read_risk)
        return RiskRow(case=answer.case, error=error, failed=failed, risk=risk, **asdict(follow_up))

    def measure(self, rows: Sequence[RiskRow]) -> RowMetrics:
        """Return C-indices and AUCs; a C-index below 0.5 gives a warning about the direction."""
        metrics = build_metrics(
            self.metrics, RiskCohort(make_survival_cohort(rows, self.rules), self.rules.missing_risk)
        )
        is_undefined = np.isnan(compute_cohort_value(metrics["c_index"], len(rows)))
        # Without risks there is no sign that could be wrong.
        has_risks = any(row.risk is not None for row in rows)
        return RowMetrics(
            metrics,
            warnings={"c_index": self._warn_below_chance} if has_risks else {},
            undefined=(NO_COMPARABLE_PAIR.format(n=len(rows)),) if is_undefined else (),
        )

    def _warn_below_chance(self, c_index: float, upper: float | None) -> str | None:
        """Return a warning if the C-index and its interval lie below 0.5."""
        if (c_index if upper is None else upper) >= 0.5:
            return None
        hint = f"expected: {DIRECTIONS[self.rules.direction]}; negating a risk gives a time and the reverse"
        return f"the C-index is {c_index:.3f}, below 0.5: the sign may be flipped ({hint})"

    def find_problems(self, _rows: Sequence[RiskRow]) -> tuple[Finding, ...]:
        """Return no warning: the warnings about risks follow from their metrics."""
        return ()

    def parse_row(self, content: Mapping[str, Any], place: str) -> RiskRow:
        """Parse a row of metrics.json."""
        return parse_stored_row(content, RiskRow, place)

    def row_as_json(self, row: RiskRow) -> dict[str, Any]:
        """Return the row as it is stored in metrics.json."""
        return row.model_dump()

    def reference_of(self, row: RiskRow) -> tuple[object, ...]:
        """Return the follow-up."""
        return row.rfs_days, row.relapse
