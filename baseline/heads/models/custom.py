"""Entrants' heads as model families: fitted, checked and compared like the built-in ones (docs/own-model.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from algorithm.heads.documents import NEVER, CustomHead, Floats, Head, LinearHead, Patients, Term
from algorithm.heads.head_hook import (
    HeadTarget,
    bind_code,
    call,
    cubes_for,
    custom_heads,
    find_head,
    predictions,
    replace_custom,
    table,
)
from baseline.heads.cohort import HeadCohort
from baseline.heads.models.kinds import Target
from baseline.heads.models.selection import Family, SingleHead
from baseline.heads.models.terms import spread_of
from contract.code import Code, list_code_files, split_reference
from contract.errors import ModelPackageError
from contract.io.files import atomic_folder

KINDS: Final = ("risk", "class")
# Patients whose predictions one by one, before saving and after loading, are compared with those of all together.
_COMPARED: Final = 5


@dataclass(frozen=True)
class CustomFit:
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
            intercepts = np.full(len(names), NEVER)
            intercepts[present] = 0.0
            head = LinearHead(scale=self.reference, classes=names, intercepts=tuple(intercepts.tolist()), terms=())
            return [head for _ in settings]
        features = tuple(map(str, cohort.features.columns))
        model = call(self.reference, "made", find_head(self.code, self.reference), target)
        stream = rng.spawn(1)[0]  # our own models draw the same numbers with and without this one
        given = table(cohort, features), _outcomes(cohort, present), stream
        call(self.reference, "fit", model.fit, *given, *cubes_for(model, self.reference, cohort.cubes))
        parts: dict[str, Any] = {
            "hook": self.reference,
            "folder": f"{self.name}/{self.reference.replace(':', '.')}",
            "features": features,
            **({"classes": names, "fitted": target.classes} if len(names) > 2 else {}),
        }
        predict = _Fitted(self.reference, model, features, target.scores)
        if target.scores == 1:
            scores = predict(cohort)
            sd = spread_of(scores)
            parts |= {"mean": float(scores.mean()), "sd": sd if sd > 0 else 1.0}
        return [CustomHead(**parts).bound(predict)]


@dataclass(frozen=True)
class _Fitted:
    """Predictions of a fitted model."""

    reference: str
    model: Any
    features: tuple[str, ...]
    scores: int

    def __call__(self, patients: Patients) -> Floats:
        return predictions(self.reference, self.model, table(patients, self.features), self.scores, patients.cubes)


def _outcomes(cohort: HeadCohort, present: Sequence[int]) -> pd.DataFrame:
    """Days and events of a risk; of a class the number of each patient's among those that are `present`."""
    outcomes = cohort.outcomes
    if not present:
        return pd.DataFrame({"days": outcomes.times_days, "event": outcomes.positive})
    return pd.DataFrame({"class": np.searchsorted(present, outcomes.values)})


def custom_families(code: Code, references: Sequence[str], target: Target) -> list[Family]:
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
            fit = CustomFit(code, reference, target.name, target.answer.kind)
            families.append(Family(reference, fit, ({},), {}))
    return families


@dataclass(frozen=True)
class CustomHeads:
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
        """The head with the files of its custom heads written below `folder`, and their code no longer in memory.

        Raises:
            ModelPackageError: saving or loading fails, or the loaded model predicts otherwise, or otherwise for each
                patient alone than for all together.
        """
        result = replace_custom(head, lambda custom: _save(custom, folder))
        some = [cohort.pick(np.array([number])) for number in range(min(_COMPARED, len(cohort.ids)))]
        loaded = custom_heads(bind_code(result, self.code, folder))
        for fitted, custom in zip(custom_heads(head), loaded, strict=True):
            expected, alone = fitted.scores(cohort), np.concatenate([custom.scores(one) for one in some])
            for values, name in ((custom.scores(cohort), "after load"), (alone, "for one patient alone")):
                wanted = expected[: len(values)]
                size = float(np.abs(wanted[wanted > NEVER / 2]).max(initial=0.0))
                if not np.allclose(values, wanted, rtol=1e-5, atol=1e-8 * size):
                    raise ModelPackageError(
                        f"head {custom.hook}", f"{name} it predicts otherwise", "the same as after fit"
                    )
        return result


def _save(custom: Any, folder: Path) -> CustomHead:
    with atomic_folder(folder / custom.folder) as partial:
        call(custom.hook, "save", custom._predict.model.save, partial)
        if not list_code_files(partial):
            raise ModelPackageError(
                f"head {custom.hook}: save", "found no file", "files in the folder that it is given"
            )
    document: CustomHead = custom.bound(None)
    return document


def with_custom_heads(target: Target, custom: CustomHeads) -> Target:
    """The target with entrants' heads as candidates and, each alone, as comparators. Raises `ModelPackageError`."""
    families = custom_families(custom.code, custom.references, target)
    comparators = {**target.comparators, **{family.name: family for family in families}}
    return replace(target, families=(*target.families, *families), comparators=comparators)
