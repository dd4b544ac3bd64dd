"""Scoring rules, one class per kind of answer, and the record of a metric.

Each field of a class of rules is a key of an answer's `rules`; a field with a default may be left out.
docs/editions.md explains every value, docs/metrics.md what counts in edge cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from contract.documents import Document
from contract.editions.answers import Direction, Kind

if TYPE_CHECKING:  # loads numpy, which `--help` does not need
    from evaluation.metrics.overlap import WeightedMetric

MissingRule = Literal["worst", "skip", "stop"]
EmptyRule = Literal["skip", "one", "zero", "drop_empty_reference"]

# Concordance of a comparable pair with a missing risk; the code of 2021 used 0.5.
MISSING_RISK_RULES: Final[dict[str, float]] = {"non_concordant": 0.0, "tie": 0.5}

NO_COMPARABLE_PAIR: Final = (
    "c_index: no comparable pair among {n} patients, expected at least one recurrence before another patient's "
    "last follow-up"
)
ONE_CLASS_ONLY: Final = "balanced_accuracy: the reference holds one class only, expected at least two"
DIRECTIONS: Final[dict[str, str]] = {
    "risk": "a risk, higher = earlier recurrence",
    "time": "a time, higher = later recurrence",
}

EXACT: Final = "exact"
EQUAL_SPACING: Final = "resample_equal_spacing"
SURFACES_OF: Final[dict[str, tuple[str, ...]]] = {"none": (), "gtvp": ("gtvp",), "both": ("gtvp", "gtvn")}


class MaskRules(Document):
    """Rules for masks.

    `bounding_box` says whether boxes must be given (`required`), are used if given (`optional`), or must not be given
    (`whole_image`).
    """

    missing: MissingRule
    geometry: Literal["exact", "resample_nearest", "resample_equal_spacing"]
    gtvp_empty: EmptyRule
    volume_unit: Literal["mm3", "voxels"]
    connectivity: Literal[6, 18, 26]
    iou_threshold: Annotated[float, Field(ge=0, lt=1)]
    iou_strict: bool
    matching: Literal["one_to_one", "any_overlap", "greedy"]
    surfaces: Literal["none", "gtvp", "both"]
    surface_tolerance_mm: Annotated[float, Field(ge=0, lt=1000)]
    bounding_box: Literal["required", "optional", "whole_image"]
    gtvn_empty: EmptyRule = "skip"


class RiskRules(Document):
    """Rules for risks.

    `direction` "risk" means that higher values predict earlier recurrence, "time" the opposite; by default that
    which the answer declares.
    """

    missing: MissingRule
    missing_risk: Literal["non_concordant", "tie"]
    # A factory: the answer's direction takes the place of an absent one, so that there is no default.
    direction: Direction = Field(default_factory=lambda: "risk")


class ClassRules(Document):
    """Rules for predicted classes.

    `not_counted` says what becomes of a patient whose class in the reference is one of the answer's `not_counted`:
    the patient is left out and named (`skip`), or each of these is a class of its own (`class`).
    """

    missing: MissingRule
    not_counted: Literal["skip", "class"] = "skip"


Rules: TypeAlias = MaskRules | RiskRules | ClassRules


def is_counted(error: object, missing: object) -> bool:
    """True if a case enters the metrics: one without a usable prediction, `error`, does unless the rule is `skip`."""
    return error is None or missing != "skip"


RULES_OF_KIND: Final[dict[Kind, type[Rules]]] = {"mask": MaskRules, "risk": RiskRules, "class": ClassRules}

# Tests that ask about something else than the metric.
KANG: Final = "kang"
SIGNED_RANK: Final = "wilcoxon_signed_rank"


@dataclass(frozen=True)
class Metric:
    """A metric of one kind of answer.

    Attributes:
        name: as in editions and metrics.json, without the answer's prefix.
        title: for tables and charts, with the unit.
        kind: of the answers that it measures.
        of: the metric as a function of case weights, from the kind's cohort (`MaskColumns`, `RiskCohort`,
            `ClassCohort`); None if the rows lack the data.
        unit: `mm`, `ml`, or empty for a fraction.
        bounds: the least and the greatest value.
        best: the best value; teams can be ranked only by a metric that is best at one of its bounds.
        second_test: name of the test that is shown beside the deciding one, such as `SIGNED_RANK` for a mean of
            per-case values; empty for none.
        deciding_test: name of the test that decides whether one team is better, `SIGNED_RANK` for the median of
            distances; empty for that of the bootstrapped difference.
        has_tau: whether Kendall's tau of the ranking by it is given even where it does not rank.
        rules: the rules that change its meaning.
    """

    name: str
    title: str
    kind: Kind
    of: Callable[[Any], WeightedMetric | None]
    unit: str = ""
    bounds: tuple[float, float] = (0.0, 1.0)
    best: float = 1.0
    second_test: str = ""
    deciding_test: str = ""
    has_tau: bool = False
    rules: tuple[str, ...] = ()

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
