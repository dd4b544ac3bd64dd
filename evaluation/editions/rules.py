"""The rules that an evaluation profile chooses for each answer: a class for each kind of answer.

Each field of a class is a key of the profile's `rules`; a field with a default may be left out. `CHOICES` lists the
values of a field, `RANGES` the lower and upper bound of a number. docs/editions.md explains every value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from contract.editions import Answer
from contract.editions.declaration import DIRECTIONS, Kind
from contract.errors import HecktorError
from evaluation.editions.edge_cases import EMPTY_RULES, MISSING_RISK_RULES, MISSING_RULES

Choices: TypeAlias = Mapping[str, tuple[object, ...]]
Ranges: TypeAlias = Mapping[str, tuple[float, float]]

CODE_OF_2021: Final = "hecktor2021_code"
HD95_DEFINITIONS: Final = ("max_directed", "pooled", CODE_OF_2021)
SURFACE_WEIGHTS: Final = ("voxel", "area")
SURFACES_OF: Final[dict[str, tuple[str, ...]]] = {"none": (), "gtvp": ("gtvp",), "both": ("gtvp", "gtvn")}


@dataclass(frozen=True)
class MaskRules:
    """How masks are compared.

    `surface_weights` says whether surfaces are voxels of equal weight or pieces between them that weigh their area.
    `bounding_box` says whether boxes must be given (`required`), are used if given (`optional`), or must not be given
    (`whole_image`).
    """

    missing: str
    geometry: str
    gtvp_empty: str
    volume_unit: str
    connectivity: int
    iou_threshold: float
    iou_strict: bool
    matching: str
    surfaces: str
    hd95: str
    surface_tolerance_mm: float
    bounding_box: str
    gtvn_empty: str = "skip"
    surface_weights: str = "voxel"

    CHOICES: ClassVar[Choices] = {
        "missing": MISSING_RULES,
        "geometry": ("exact", "resample_nearest"),
        "gtvp_empty": tuple(EMPTY_RULES),
        "gtvn_empty": tuple(EMPTY_RULES),
        "volume_unit": ("mm3", "voxels"),
        "connectivity": (6, 18, 26),
        "iou_strict": (True, False),
        "matching": ("one_to_one", "any_overlap", "greedy"),
        "surfaces": tuple(SURFACES_OF),
        "hd95": HD95_DEFINITIONS,
        "surface_weights": SURFACE_WEIGHTS,
        "bounding_box": ("required", "optional", "whole_image"),
    }
    RANGES: ClassVar[Ranges] = {"iou_threshold": (0.0, 1.0), "surface_tolerance_mm": (0.0, 1000.0)}

    def __post_init__(self) -> None:
        """Raise HecktorError for definitions that exclude each other."""
        if self.hd95 == CODE_OF_2021 and self.surface_weights != SURFACE_WEIGHTS[0]:
            raise HecktorError(f"surface_weights with hd95={self.hd95}", f"{self.surface_weights!r}", "'voxel'")


@dataclass(frozen=True)
class RiskRules:
    """How risks are compared.

    `direction` "risk" means that higher values predict earlier recurrence, "time" the opposite; a profile of format 2
    may leave it out, since the edition's declaration states it.
    """

    missing: str
    missing_risk: str
    direction: str

    CHOICES: ClassVar[Choices] = {
        "missing": MISSING_RULES,
        "missing_risk": tuple(MISSING_RISK_RULES),
        "direction": DIRECTIONS,
    }
    RANGES: ClassVar[Ranges] = {}


@dataclass(frozen=True)
class ClassRules:
    """How predicted classes are compared.

    `not_counted` says what becomes of a patient whose class in the reference is one of the declaration's `not_counted`:
    the patient is left out and named (`skip`), or each of these is a class of its own (`class`).
    """

    missing: str
    not_counted: str = "skip"

    CHOICES: ClassVar[Choices] = {"missing": MISSING_RULES, "not_counted": ("skip", "class")}
    RANGES: ClassVar[Ranges] = {}


Rules: TypeAlias = MaskRules | RiskRules | ClassRules

RULES_OF_KIND: Final[dict[Kind, type[Rules]]] = {"mask": MaskRules, "risk": RiskRules, "class": ClassRules}

# Measured besides those of the kind, for the labels that `surfaces` names.
SURFACE_METRICS: Final[dict[str, tuple[str, str, str]]] = {
    label: (f"{label}_hd95_median_mm", f"{label}_asd_median_mm", f"{label}_surface_dsc_mean")
    for label in ("gtvp", "gtvn")
}

# Computed from the probabilities of a class that a submitter may add.
PROBABILITY_METRICS: Final = ("auc", "brier", "calibration_error", "calibration_in_the_large")
METRICS_OF_KIND: Final[dict[Kind, tuple[str, ...]]] = {
    "mask": (
        "gtvp_dsc_mean",
        "gtvn_dsc_mean",
        "gtvp_dsc_agg",
        "gtvn_dsc_agg",
        "dsc_agg_mean",
        "gtvn_f1_agg",
        "gtvn_precision_agg",
        "gtvn_recall_agg",
        "gtvp_precision_mean",
        "gtvp_recall_mean",
        "gtvp_f1",
    ),
    "risk": ("c_index", "uno_c", "auc_1y", "auc_2y", "auc_3y"),
    "class": ("balanced_accuracy", "sensitivity", "specificity", *PROBABILITY_METRICS),
}
# Metrics of an answer with more than two classes, besides the recall of each class.
MANY_CLASSES_METRICS: Final = ("balanced_accuracy", "accuracy")
RECALL_PREFIX: Final = "recall_"

# The meaning of a metric fixes its direction: lower is better for these, higher for all others.
LOWER_IS_BETTER: Final = frozenset(
    {"brier", "calibration_error", *(name for hd95, asd, _ in SURFACE_METRICS.values() for name in (hd95, asd))}
)
# Best at 0, between both ends: teams cannot be ranked by them.
WITHOUT_GOOD_END: Final = frozenset({"calibration_in_the_large"})


def bounds_of(measure: str) -> tuple[float, float]:
    """The least and the greatest value that a metric can have: distances are in mm, all others are fractions."""
    if measure.endswith("_mm"):
        return 0.0, math.inf
    return (-1.0, 1.0) if measure in WITHOUT_GOOD_END else (0.0, 1.0)


def measurable(answer: Answer, rules: Rules) -> tuple[str, ...]:
    """Names of the metrics that these rules measure for an answer."""
    if answer.kind == "class" and not answer.is_binary:
        return (*MANY_CLASSES_METRICS, *(f"{RECALL_PREFIX}{value}" for value in answer.classes))
    surfaces = SURFACES_OF[rules.surfaces] if isinstance(rules, MaskRules) else ()
    return (*METRICS_OF_KIND[answer.kind], *(name for label in surfaces for name in SURFACE_METRICS[label]))
