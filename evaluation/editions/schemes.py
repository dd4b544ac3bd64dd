"""Ways to order teams, as data: by a metric, by ranks under several parts, or by one part after another."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from contract.documents import Document, Text

Ties = Literal["min", "average", "max", "dense"]
TIE_RULES: Final[tuple[Ties, ...]] = get_args(Ties)
# Larger weights would lose the smaller ones of a sum in rounding.
Weight = Annotated[float, Field(gt=0, le=1e6)]


class Combination(Document):
    """Ranks teams by their ranks under several parts."""

    model_config = ConfigDict(populate_by_name=True)


class Borda(Combination):
    """Order teams by the sum of their ranks under each part, each rank times the part's weight if weights are given."""

    parts: Parts = Field(alias="borda")
    weights: tuple[Weight, ...] = ()

    @model_validator(mode="after")
    def _check_weights(self) -> Borda:
        check_weights(self, self.parts, self.weights)
        return self


class MeanRank(Borda):
    """The order of the Borda count, reported as the mean of the ranks."""

    parts: Parts = Field(alias="mean_rank")


class MedianRank(Combination):
    """Order teams by the median of their ranks under each part."""

    parts: Parts = Field(alias="median_rank")


class Lexicographic(Combination):
    """Order teams by the first part; the following ones only break ties."""

    parts: Parts = Field(alias="lexicographic")


_WORDS: Final[dict[str, type[Combination]]] = {
    "borda": Borda,
    "mean_rank": MeanRank,
    "median_rank": MedianRank,
    "lexicographic": Lexicographic,
}


def check_weights(document: Document, parts: tuple[object, ...], weights: tuple[float, ...]) -> None:
    """Raise ValueError, as pydantic's validators do, unless there is one weight for each part or none at all."""
    if "weights" in document.model_fields_set and len(weights) != len(parts):
        raise ValueError(f"{len(parts)} weights, one for each part")


def _kind(node: Any) -> str | None:
    """The tag of a scheme in JSON or as an object: `(metric)` for a name, or the word of its combination."""
    if isinstance(node, str):
        return "(metric)"
    if isinstance(node, Combination):
        return next(f"({word})" for word, model in _WORDS.items() if type(node) is model)
    words = [word for word in _WORDS if isinstance(node, dict) and word in node]
    return f"({words[0]})" if len(words) == 1 else None


Scheme: TypeAlias = Annotated[
    Annotated[Text, Tag("(metric)")]
    | Annotated[Borda, Tag("(borda)")]
    | Annotated[MeanRank, Tag("(mean_rank)")]
    | Annotated[MedianRank, Tag("(median_rank)")]
    | Annotated[Lexicographic, Tag("(lexicographic)")],
    Discriminator(
        _kind,
        custom_error_type="scheme",
        custom_error_message=f"a metric's name or an object with one of {', '.join(_WORDS)}",
    ),
]
Parts: TypeAlias = Annotated[tuple[Scheme, ...], Field(min_length=1)]
for _model in _WORDS.values():
    _model.model_rebuild()


class RankingProfile(Document):
    """The official ranking (a key of `schemes`), further rankings that are shown, and the rule for ties."""

    official: Text
    ties: Ties
    schemes: Annotated[dict[Text, Scheme], Field(min_length=1)]

    @property
    def official_metrics(self) -> tuple[str, ...]:
        """The metrics that decide the official ranking, in the scheme's order."""
        return tuple(dict.fromkeys(metrics_of_scheme(self.schemes[self.official])))


def metrics_of_scheme(scheme: Scheme) -> list[str]:
    """The metrics of a scheme, in its order."""
    return [scheme] if isinstance(scheme, str) else [name for part in scheme.parts for name in metrics_of_scheme(part)]
