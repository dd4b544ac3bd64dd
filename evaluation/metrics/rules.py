"""The rules of an evaluation profile, a class for each kind of answer, and what counts in edge cases.

Each field of a class is a key of the profile's `rules`; a field with a default may be left out. `CHOICES` lists the
values of a field, `RANGES` the lower and upper bound of a number. docs/editions.md explains every value.

| case | what counts by default |
|---|---|
| GTVp or GTVn empty in reference and prediction | the case does not enter its mean DSC (`skip`), and is listed |
| GTVp or GTVn empty in the reference only | DSC 0 |
| GTVp or GTVn empty in the prediction only | DSC 0, by the formula |
| precision and recall of GTVp | as its DSC; an empty prediction of a tumour has precision 0 |
| surface distances, both masks empty | the case does not count |
| surface distances, one mask empty or no prediction | infinite, the surface DSC 0 |
| GTVn empty, aggregated DSC and lesions | no special rule: its volumes and lesions enter the sums |
| no prediction, or an unusable one | worst score: DSC 0 (an empty GTVp reference too), all reference \
voxels and lesions missed, risk non-concordant, class wrong |
| risk NaN, infinite or not a number | counts as missing |
| no comparable pair; only one class in the reference | undefined: `MetricError`, no metrics.json; of several \
answers in a result that is not public, this one's metric is null, with a warning |
| no GTVp, GTVn voxel or lesion in the whole cohort | the aggregate is null, with a warning |
| a case without a probability while others have one | the worst one: 0 for a positive, 1 for a negative |
| an undefined extra metric | null, without a warning |
| a class of the reference that the declaration does not count, such as T0 | the answer is not evaluated for this \
case, which is listed |
| no target in the reference | the answer is not evaluated for this case, which is listed |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from contract.editions.declaration import Kind
from contract.errors import HecktorError

Choices: TypeAlias = Mapping[str, tuple[object, ...]]
Ranges: TypeAlias = Mapping[str, tuple[float, float]]

MISSING_RULES: Final = ("worst", "skip", "stop")


# DSC of a case without reference voxels, (without, with) predicted voxels; None leaves the case out of the mean.
EMPTY_RULES: Final[dict[str, tuple[float | None, float | None]]] = {
    "skip": (None, 0.0),
    "one": (1.0, 0.0),
    "zero": (0.0, 0.0),
    "drop_empty_reference": (None, None),
}

# Concordance of a comparable pair with a missing risk; the code of 2021 used 0.5.
MISSING_RISK_RULES: Final[dict[str, float]] = {"non_concordant": 0.0, "tie": 0.5}

NO_COMPARABLE_PAIR: Final = (
    "c_index: no comparable pair among {n} patients, expected at least one recurrence before another patient's "
    "last follow-up"
)
ONE_CLASS_ONLY: Final = "balanced_accuracy: the reference holds one class only, expected at least two"
NOTHING_TO_MEASURE: Final = (
    "{metric}: nothing to measure (no voxel or lesion of its kind in any case, no probability, no patient at risk), "
    "so the value is null"
)
PART_IS_NULL: Final = "{metric}: null, since {parts} has no value"
INFINITE: Final = "{metric}: infinite, since in half of the cases or more one mask is empty or there is no prediction"
SIGN_MAY_BE_FLIPPED: Final = (
    "c_index is {value:.3f}, below 0.5: the sign may be flipped (expected: {direction}; negating a risk gives a time "
    "and the reverse)"
)
DIRECTIONS: Final[dict[str, str]] = {
    "risk": "a risk, higher = earlier recurrence",
    "time": "a time, higher = later recurrence",
}

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
        "direction": tuple(DIRECTIONS),
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
