"""Models with deep features: the encoder's channels are brought to a few principal components before they are fitted.

Components are learnt from the patients that are fitted on, without their outcomes. They are weighted sums of the
standardised channels, so a head on components is written as an ordinary head on channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from algorithm.heads.features.deep import is_deep

from algorithm.heads.linear import LinearHead, Term
from baseline.heads.models.selection import FitPath, Setting
from baseline.heads.models.shared import Cohort, Floats, matrix, scaled_terms, weighted

MOST_COMPONENTS: Final = 6
# A component of less than this share of the channels' variance is rounding.
LEAST_SHARE: Final = 1e-9


@dataclass(frozen=True)
class Components:
    """`loadings` (channels, components) of the standardised `channels`."""

    channels: tuple[Term, ...]
    loadings: Floats

    @classmethod
    def of(cls, cohort: Cohort) -> Components:
        """Learnt from these patients; none where they have no deep features."""
        names = dict.fromkeys(name for row in cohort.rows for name in row if is_deep(name))
        channels = scaled_terms(cohort, dict.fromkeys(names, "identity"))
        if not channels:
            return cls((), np.zeros((0, 0)))
        _, sizes, directions = np.linalg.svd(matrix(channels, cohort), full_matrices=False)
        there = int((sizes[:MOST_COMPONENTS] ** 2 > LEAST_SHARE * (sizes**2).sum()).sum())
        return cls(channels, directions[:there].T)

    @property
    def names(self) -> tuple[str, ...]:
        """The components' own names, largest first."""
        return tuple(f"component_{number}" for number in range(self.loadings.shape[1]))

    def added_to(self, cohort: Cohort) -> Cohort:
        """The patients with their components as further features."""
        values = matrix(self.channels, cohort) @ self.loadings
        rows = (
            {**row, **dict(zip(self.names, own, strict=True))} for row, own in zip(cohort.rows, values, strict=True)
        )
        return replace(cohort, rows=tuple(rows))

    def expanded(self, head: LinearHead) -> LinearHead:
        """A head on components and plain features as one on channels and plain features, of the same scores.

        Only what holds a component to four standard deviations goes: each channel is held to them.
        """
        on_components = {term.feature: term for term in head.terms if term.feature in self.names}
        slopes = np.array(
            [
                on_components[name].weight / on_components[name].sd if name in on_components else 0.0
                for name in self.names
            ]
        )
        offset = sum(term.weight * term.mean / term.sd for term in on_components.values())
        plain = tuple(term for term in head.terms if term.feature not in self.names)
        return replace(
            head, intercept=head.intercept - offset, terms=plain + weighted(self.channels, self.loadings @ slopes)
        )


def with_components(fit: FitPath) -> FitPath:
    """The same kind of model with the components beside the given terms."""

    def fit_with_components(
        cohort: Cohort, terms: Sequence[Term], settings: Sequence[Setting], rng: np.random.Generator
    ) -> list[LinearHead]:
        components = Components.of(cohort)
        richer = components.added_to(cohort)
        transforms: Mapping[str, str] = dict.fromkeys(components.names, "identity")
        heads = fit(richer, (*terms, *scaled_terms(richer, transforms)), settings, rng)
        return [components.expanded(head) for head in heads]

    return fit_with_components
