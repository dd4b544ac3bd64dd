"""The JSON file of an evaluation profile.

Format 1 holds one answer for each task of HECKTOR 2025; format 2 names its declaration and holds rules for each answer
of a task.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from contract.documents import Document, Text, expect_keys
from contract.editions.declaration import Kind
from evaluation.editions.schemes import RankingProfile, Weight, check_weights
from evaluation.metrics.rules import ClassRules, MaskRules, RiskRules

# The kinds of answers as format 1 spells them.
KINDS_OF_FORMAT_1: Final[dict[str, Kind]] = {"segmentation": "mask", "survival": "risk", "classification": "class"}


def _kind_of(rules: Any) -> str:
    """The tag of rules, by the keys that only one kind has."""
    keys = rules if isinstance(rules, dict) else type(rules).model_fields
    return "(risk)" if "missing_risk" in keys else "(mask)" if "geometry" in keys else "(class)"


AnyRules = Annotated[
    Annotated[MaskRules, Tag("(mask)")] | Annotated[RiskRules, Tag("(risk)")] | Annotated[ClassRules, Tag("(class)")],
    Discriminator(_kind_of),
]


class RankedMetric(Document):
    """A ranked metric: a measured one, or the weighted sum of others."""

    title: Text
    higher_is_better: bool
    weighted_sum: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    weights: tuple[Weight, ...] = ()

    @model_validator(mode="after")
    def _check_sum(self) -> RankedMetric:
        if self.weighted_sum is None:
            expect_keys(self, ("title", "higher_is_better"))
        else:
            expect_keys(self, ("title", "higher_is_better", "weighted_sum", "weights"))
            check_weights(self, self.weighted_sum, self.weights)
        return self


class AnswerRules(Document):
    """The rules of one answer; the prefix precedes the names of its metrics."""

    rules: AnyRules
    prefix: Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_-]*)?$")] | None = None


class ProfileTask(Document):
    """A task: format 1 has the kind and rules of its answer, format 2 its answers."""

    metrics: Annotated[dict[Text, RankedMetric], Field(min_length=1)]
    ranking: RankingProfile
    kind: Literal["segmentation", "survival", "classification"] | None = None
    rules: AnyRules | None = None
    answers: dict[Text, AnswerRules] | None = None
    public_digits: Annotated[int, Field(ge=1, le=6)] | None = None


class ProfileDocument(Document):
    """An evaluation profile: metrics, rules and ranking of each task of an edition."""

    format: Annotated[int, Field(ge=1, le=2)]
    name: Text
    title: Text
    declaration: Text | None = None
    tasks: Annotated[dict[Text, ProfileTask], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_format(self) -> ProfileDocument:
        own = ("kind", "rules") if self.format == 1 else ("answers",)
        expect_keys(self, ("format", "name", "title", "tasks"), () if self.format == 1 else ("declaration",))
        for task in self.tasks.values():
            expect_keys(task, (*own, "metrics", "ranking"), ("public_digits",))
        return self
