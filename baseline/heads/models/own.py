"""Entrants' own heads as families: fitted, checked and compared like our models (docs/own-model.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from algorithm.heads.documents import ClassHead, Features, Floats, Head, LinearHead, Term
from algorithm.heads.head_hook import (
    HeadTarget,
    call,
    check_own_cube,
    cubes_for,
    find_head,
    own_heads,
    predictions,
    replace_own,
    table,
    with_code,
)
from algorithm.heads.own import NEVER, Cubes, OwnClassHead, OwnHead
from baseline.heads.cohort import HeadCohort
from baseline.heads.models.kinds import Target
from baseline.heads.models.selection import Family, SingleHead
from contract.code import Code, code_files, files_digest, split_reference
from contract.errors import ModelPackageError
from contract.files import whole_folder

KINDS: Final = ("risk", "class")
# Patients whose predictions one by one, before saving and after loading, are compared with those of all together.
_COMPARED: Final = 5
_LEAST_SD: Final = 1e-6


@dataclass(frozen=True)
class OwnFit:
    """Fits one entrant's class to one answer; `code` is imported where it is needed, also in another process."""

    code: Code
    reference: str
    name: str
    kind: str

    def __call__(
        self,
        cohort: HeadCohort,
        _terms: Sequence[Term],
        settings: Sequence[Mapping[str, float]],
        rng: np.random.Generator,
    ) -> list[SingleHead]:
        """The one head of an entrant's class, which has no settings. Raises `ModelPackageError` for its faults."""
        present = [] if self.kind == "risk" else np.unique(cohort.outcomes.values).tolist()
        names = cohort.outcomes.classes
        target = HeadTarget(self.name, "risk" if self.kind == "risk" else "class", tuple(names[one] for one in present))
        if len(present) == 1:
            heads = {name: LinearHead(kind=self.reference, intercept=NEVER, terms=()) for name in names}
            heads[names[present[0]]] = LinearHead(kind=self.reference, intercept=0.0, terms=())
            return [ClassHead(classes=heads) for _ in settings]
        features = tuple(map(str, cohort.features.columns))
        rows = cohort.rows()
        head = find_head(self.code, self.reference)
        model = call(self.reference, "made", head, target)
        check_own_cube(model, head, f"head {self.reference}")
        stream = rng.spawn(1)[0]  # our own models draw the same numbers with and without this one
        given = table(rows, features), _outcomes(cohort, present), stream
        call(self.reference, "fit", model.fit, *given, *cubes_for(model, self.reference, cohort.cubes))
        parts: dict[str, Any] = {
            "hook": self.reference,
            "code_sha256": self.code.digest(split_reference(self.reference, "head")[0]),
            "folder": f"{self.name}/{self.reference.replace(':', '.')}",
            "files_sha256": "",
            "features": features,
        }
        predict = _Fitted(self.reference, model, features, target.scores)
        if len(names) > 2:
            return [OwnClassHead(**parts, classes=names, fitted=target.classes).bound(predict)]
        scores = predict(rows, cohort.cubes)
        mean, sd = float(scores.mean()), float(scores.std())
        return [OwnHead(**parts, mean=mean, sd=sd if sd > _LEAST_SD else 1.0).bound(predict)]


@dataclass(frozen=True)
class _Fitted:
    """Predictions of a fitted model."""

    reference: str
    model: Any
    features: tuple[str, ...]
    scores: int

    def __call__(self, rows: Sequence[Features], cubes: Cubes | None) -> Floats:
        return predictions(self.reference, self.model, table(rows, self.features), self.scores, cubes)


def _outcomes(cohort: HeadCohort, present: Sequence[int]) -> pd.DataFrame:
    """Days and events of a risk; of a class the number of each patient's among those that are `present`."""
    outcomes = cohort.outcomes
    if not present:
        return pd.DataFrame({"days": outcomes.times_days, "event": outcomes.positive})
    return pd.DataFrame({"class": np.searchsorted(present, outcomes.values)})


def own_families(code: Code, references: Sequence[str], target: Target) -> list[Family]:
    """A family for each entrant's head that can give this answer.

    Raises:
        ModelPackageError: no such code, or not a head.
    """
    families = []
    for reference in references:
        kinds = getattr(find_head(code, reference), "kinds", KINDS)
        if not isinstance(kinds, list | tuple) or not kinds or not set(kinds) <= set(KINDS):
            raise ModelPackageError(f"head {reference}", f"kinds {kinds!r}", "some of 'risk', 'class'")
        if target.answer.kind in kinds:
            fit = OwnFit(code, reference, target.name, target.answer.kind)
            families.append(Family(reference, fit, ({},), {}))
    return families


@dataclass(frozen=True)
class OwnHeads:
    """The entrants' heads that compete, and the code in which they are found; false for none."""

    code: Code
    references: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.references)

    def record(self) -> dict[str, str]:
        """The sha256 of each head's code."""
        return {one: self.code.digest(split_reference(one, "head")[0]) for one in self.references}

    def cube_sizes(self) -> set[tuple[int, float]]:
        """Voxels and spacing of the cubes that the heads need."""
        sizes = (getattr(find_head(self.code, one), "cube", None) for one in self.references)
        return {(size[0], float(size[1])) for size in sizes if size is not None}

    def saved(self, head: Head, cohort: HeadCohort, folder: Path) -> Head:
        """The head with the files of its own heads written below `folder`, and their code no longer in memory.

        Raises:
            ModelPackageError: saving or loading fails, or the loaded model predicts otherwise, or otherwise for each
                patient alone than for all together.
        """
        result = replace_own(head, lambda own: _save(own, folder))
        rows, some = cohort.rows(), [cohort.pick(np.array([n])) for n in range(min(_COMPARED, len(cohort.ids)))]
        for fitted, own in zip(own_heads(head), own_heads(with_code(result, self.code, folder)), strict=True):
            expected = fitted.of_rows(rows, cohort.cubes)
            alone = np.concatenate([own.of_rows(one.rows(), one.cubes) for one in some])
            for values, name in ((own.of_rows(rows, cohort.cubes), "after load"), (alone, "for one patient alone")):
                if not np.allclose(values, expected[: len(values)], rtol=1e-5, atol=1e-8):
                    raise ModelPackageError(
                        f"head {own.hook}", f"{name} it predicts otherwise", "the same as after fit"
                    )
        return result


def _save(own: Any, folder: Path) -> Head:
    fitted, path = own._predict, folder / own.folder
    with whole_folder(path) as partial:
        call(own.hook, "save", fitted.model.save, partial)
        if not code_files(partial):
            raise ModelPackageError(f"head {own.hook}: save", "found no file", "files in the folder that it is given")
    document: Head = own.model_copy(update={"files_sha256": files_digest(path)}).bound(None)
    return document


def with_own_heads(target: Target, own: OwnHeads) -> Target:
    """The target with entrants' heads as candidates and, each alone, as comparators. Raises `ModelPackageError`."""
    families = own_families(own.code, own.references, target)
    comparators = {**target.comparators, **{family.name: family for family in families}}
    return replace(target, families=(*target.families, *families), comparators=comparators)
