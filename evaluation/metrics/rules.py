"""The rules of an evaluation profile, a class for each kind of answer, and what counts in edge cases.

Each field of a class is a key of the profile's `rules`; a field with a default may be left out. docs/editions.md
explains every value, docs/metrics.md what counts in edge cases.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from contract.documents import Document
from contract.editions.declaration import Direction, Kind

MissingRule = Literal["worst", "skip", "stop"]
EmptyRule = Literal["skip", "one", "zero", "drop_empty_reference"]
HD95Definition = Literal["max_directed", "pooled", "hecktor2021_code"]
SurfaceWeight = Literal["voxel", "area"]

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
HD95_DEFINITIONS: Final[tuple[HD95Definition, ...]] = get_args(HD95Definition)
SURFACE_WEIGHTS: Final[tuple[SurfaceWeight, ...]] = get_args(SurfaceWeight)
SURFACES_OF: Final[dict[str, tuple[str, ...]]] = {"none": (), "gtvp": ("gtvp",), "both": ("gtvp", "gtvn")}


class MaskRules(Document):
    """How masks are compared.

    `surface_weights` says whether surfaces are voxels of equal weight or pieces between them that weigh their area.
    `bounding_box` says whether boxes must be given (`required`), are used if given (`optional`), or must not be given
    (`whole_image`).
    """

    missing: MissingRule
    geometry: Literal["exact", "resample_nearest"]
    gtvp_empty: EmptyRule
    volume_unit: Literal["mm3", "voxels"]
    connectivity: Literal[6, 18, 26]
    iou_threshold: Annotated[float, Field(ge=0, lt=1)]
    iou_strict: bool
    matching: Literal["one_to_one", "any_overlap", "greedy"]
    surfaces: Literal["none", "gtvp", "both"]
    hd95: HD95Definition
    surface_tolerance_mm: Annotated[float, Field(ge=0, lt=1000)]
    bounding_box: Literal["required", "optional", "whole_image"]
    gtvn_empty: EmptyRule = "skip"
    surface_weights: SurfaceWeight = "voxel"

    @model_validator(mode="after")
    def _check_surfaces(self) -> MaskRules:
        if self.hd95 == CODE_OF_2021 and self.surface_weights != "voxel":
            raise ValueError(f"surface_weights 'voxel' with hd95={self.hd95}, not {self.surface_weights!r}")
        return self


class RiskRules(Document):
    """How risks are compared.

    `direction` "risk" means that higher values predict earlier recurrence, "time" the opposite; a profile of format 2
    may leave it out, since the edition's declaration states it.
    """

    missing: MissingRule
    missing_risk: Literal["non_concordant", "tie"]
    # A factory: the declaration's direction takes the place of an absent one, so that there is no default.
    direction: Direction = Field(default_factory=lambda: "risk")


class ClassRules(Document):
    """How predicted classes are compared.

    `not_counted` says what becomes of a patient whose class in the reference is one of the declaration's `not_counted`:
    the patient is left out and named (`skip`), or each of these is a class of its own (`class`).
    """

    missing: MissingRule
    not_counted: Literal["skip", "class"] = "skip"


Rules: TypeAlias = MaskRules | RiskRules | ClassRules

RULES_OF_KIND: Final[dict[Kind, type[Rules]]] = {"mask": MaskRules, "risk": RiskRules, "class": ClassRules}
