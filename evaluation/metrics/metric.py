"""What the project knows about a metric, as one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from contract.editions.declaration import Kind
from evaluation.metrics.overlap import WeightedMetric

# Tests that ask about something else than the metric.
KANG: Final = "kang"
MCNEMAR: Final = "mcnemar"
SIGNED_RANK: Final = "wilcoxon_signed_rank"


@dataclass(frozen=True)
class Metric:
    """A metric of one kind of answer.

    Attributes:
        name: as in profiles and metrics.json, without the answer's prefix.
        title: for tables and charts, with the unit.
        kind: of the answers that it measures.
        of: the metric as a function of case weights, from the kind's cohort (`MaskColumns`, `RiskCohort`,
            `ClassCohort`); None if the rows lack the data.
        unit: `mm`, or empty for a fraction.
        bounds: the least and the greatest value.
        best: the best value; teams can be ranked only by a metric that is best at one of its bounds.
        second_test: name of the test that is shown beside the deciding one, such as `SIGNED_RANK` for a mean or median
            of per-case values; empty for none.
        includes: whether the metric takes a row into account (`sensitivity` only positive patients).
        rules: the profile's rules that change its meaning.
        from_probability: whether it is computed from probabilities that submitters may add.
    """

    name: str
    title: str
    kind: Kind
    of: Callable[[Any], WeightedMetric | None]
    unit: str = ""
    bounds: tuple[float, float] = (0.0, 1.0)
    best: float = 1.0
    second_test: str = ""
    includes: Callable[[Any], bool] = lambda _: True
    rules: tuple[str, ...] = ()
    from_probability: bool = False

    @property
    def span(self) -> float:
        """The largest difference of two values."""
        return self.bounds[1] - self.bounds[0]

    @property
    def can_rank(self) -> bool:
        return self.best in self.bounds

    @property
    def higher_is_better(self) -> bool:
        """The direction of a metric that can rank."""
        return self.best == self.bounds[1]
