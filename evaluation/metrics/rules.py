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
ONE_CLASS_ONLY: Final = "balanced_accuracy: the reference contains only one class, expected at least two"
DIRECTIONS: Final[dict[str, str]] = {
    "risk": "a risk, higher = earlier recurrence",
    "time": "a time, higher = later recurrence",
}

EXACT: Final = "exact"
EQUAL_SPACING: Final = "resample_equal_spacing"
SURFACES_OF: Final[dict[str, tuple[str, ...]]] = {"none": (), "gtvp": ("gtvp",), "both": ("gtvp", "gtvn")}


class MaskRules(Document):
    """Rules for masks.

    `bounding_box` says whether the option for bounding boxes is necessary (`required`), possible (`optional`) or
    refused (`whole_image`).
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

    `direction` "risk" means that higher values predict earlier recurrence, "time" the opposite. By default it is the
    direction that the answer declares.
    """

    missing: MissingRule
    missing_risk: Literal["non_concordant", "tie"]
    # A factory, so that the JSON schema states no default: if the key is absent, the answer's direction is used.
    direction: Direction = Field(default_factory=lambda: "risk")


class ClassRules(Document):
    """Rules for predicted classes.

    `not_counted` decides about a patient whose class in the reference is among the answer's `not_counted` classes.
    With `skip` the patient is left out and named; with `class` each of these classes counts like any other class.
    """

    missing: MissingRule
    not_counted: Literal["skip", "class"] = "skip"


Rules: TypeAlias = MaskRules | RiskRules | ClassRules


def is_counted(error: object, missing: object) -> bool:
    """Return whether a case enters the metrics.

    A case with an `error`, which has no usable prediction, enters them unless the rule `missing` is `skip`.
    """
    return error is None or missing != "skip"


RULES_OF_KIND: Final[dict[Kind, type[Rules]]] = {"mask": MaskRules, "risk": RiskRules, "class": ClassRules}

# Names of tests that do not test the difference of the metric itself.
KANG: Final = "kang"
SIGNED_RANK: Final = "wilcoxon_signed_rank"


@dataclass(frozen=True)
class Metric:
    """Declaration of a metric of one kind of answer.

    Attributes:
        name: Name in editions and metrics.json, without the answer's prefix.
        title: Title in tables and charts, with the unit.
        kind: Kind of the answers that the metric measures.
        build: Makes the metric, a function of case weights, from the cohort (`MaskColumns`, `RiskCohort` or
            `ClassCohort`). Returns None if the rows do not have the data.
        unit: `mm`, `ml`, or empty for a fraction.
        bounds: Smallest and largest value.
        best: Best value. Teams can be ranked only by a metric whose best value is one of its bounds.
        second_test: Name of a test that is shown next to the deciding test, such as `SIGNED_RANK` for a mean of
            per-case values; empty if there is no such test.
        deciding_test: Name of the test that decides whether one team is better, such as `SIGNED_RANK` for the median of
            distances; empty for the test of the bootstrapped difference.
        has_tau: Whether Kendall's tau of the ranking by this metric is reported even where the metric does not rank.
        rules: Names of the rules that change the meaning of the metric.
        has_case_values: Whether the metric is a mean or median of values of individual cases.
    """

    name: str
    title: str
    kind: Kind
    build: Callable[[Any], WeightedMetric | None]
    unit: str = ""
    bounds: tuple[float, float] = (0.0, 1.0)
    best: float = 1.0
    second_test: str = ""
    deciding_test: str = ""
    has_tau: bool = False
    rules: tuple[str, ...] = ()
    has_case_values: bool = False

    @property
    def span(self) -> float:
        """The largest difference of two values."""
        return self.bounds[1] - self.bounds[0]

    @property
    def can_rank(self) -> bool:
        return self.best in self.bounds

    @property
    def higher_is_better(self) -> bool:
        """Whether higher is better, for a metric that can rank."""
        return self.best == self.bounds[1]
