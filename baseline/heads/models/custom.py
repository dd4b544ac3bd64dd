"""Custom heads as model families, which are fitted, checked and compared like the built-in ones (docs/own-model.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from algorithm.heads.documents import NEVER, CustomHead, Floats, Head, LinearHead, Patients, Term
from algorithm.heads.head_hook import (
    HeadTarget,
    bind_code,
    call_head,
    compute_predictions,
    find_head,
    list_custom_heads,
    make_cube_arguments,
    make_feature_frame,
    replace_custom,
)
from baseline.heads.cohort import HeadCohort
from baseline.heads.models.selection import Family, SingleHead
from baseline.heads.models.targets import Target
from baseline.heads.models.terms import compute_spread
from contract.code import Code, list_code_files, split_reference
from contract.errors import ModelPackageError
from contract.io.files import atomic_folder

KINDS: Final = ("risk", "class")
# Number of patients who are also predicted one by one, to compare with the prediction for all patients together.
_COMPARED_PATIENTS: Final = 5


@dataclass(frozen=True)
class CustomFit:
    """The fitting function of one custom class for one answer; another process imports `code` again."""

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
        """Fit the head of the custom class, which has no settings; raise `ModelPackageError` if its code fails."""
        present = [] if self.kind == "risk" else np.unique(cohort.outcomes.values).tolist()
        names = cohort.outcomes.classes
        kind: Literal["risk", "class"] = "risk" if self.kind == "risk" else "class"
        target = HeadTarget(self.name, kind, tuple(names[number] for number in present))
        if len(present) == 1:
            intercepts = np.full(len(names), NEVER)
            intercepts[present] = 0.0
            head = LinearHead(scale=self.reference, classes=names, intercepts=tuple(intercepts.tolist()), terms=())
            return [head for _ in settings]
        features = tuple(map(str, cohort.features.columns))
        model = call_head(self.reference, "__init__", find_head(self.code, self.reference), target)
        stream = rng.spawn(1)[0]  # the built-in models draw the same numbers with and without custom heads
        outcomes = _make_outcome_table(cohort, present)
        cubes = make_cube_arguments(model, self.reference, cohort.cubes)
        call_head(self.reference, "fit", model.fit, make_feature_frame(cohort, features), outcomes, stream, *cubes)
        parts: dict[str, Any] = {
            "hook": self.reference,
            "folder": f"{self.name}/{self.reference.replace(':', '.')}",
            "features": features,
            **({"classes": names, "fitted": target.classes} if len(names) > 2 else {}),
        }
        predict = _FittedModel(self.reference, model, features, target.scores)
        if target.scores == 1:
            scores = predict(cohort)
            sd = compute_spread(scores)
            parts |= {"mean": float(scores.mean()), "sd": sd if sd > 0 else 1.0}
        return [CustomHead(**parts).with_predict(predict)]


@dataclass(frozen=True)
class _FittedModel:
    """Predictions of a fitted model."""

    reference: str
    model: Any
    features: tuple[str, ...]
    scores: int

    def __call__(self, patients: Patients) -> Floats:
        return compute_predictions(
            self.reference, self.model, make_feature_frame(patients, self.features), self.scores, patients.cubes
        )


def _make_outcome_table(cohort: HeadCohort, present: Sequence[int]) -> pd.DataFrame:
    """Make the table of outcomes: days and events of a risk, or each patient's class number within `present`."""
    outcomes = cohort.outcomes
    if not present:
        return pd.DataFrame({"days": outcomes.times_days, "event": outcomes.positive})
    return pd.DataFrame({"class": np.searchsorted(present, outcomes.values)})


def make_custom_families(code: Code, references: Sequence[str], target: Target) -> list[Family]:
    """Make a family for each custom head that can give this answer.

    Raises:
        ModelPackageError: The code does not exist or is not a head.
    """
    families = []
    for reference in references:
        kinds = getattr(find_head(code, reference), "kinds", KINDS)
        if not isinstance(kinds, list | tuple) or not kinds or not set(kinds) <= set(KINDS):
            raise ModelPackageError(f"head {reference}", f"kinds {kinds!r}", "some of 'risk', 'class'")
        if target.answer.kind in kinds:
            fit = CustomFit(code, reference, target.name, target.answer.kind)
            families.append(Family(reference, fit, ({},), {}, needs_slope=target.answer.kind == "risk"))
    return families


@dataclass(frozen=True)
class CustomHeads:
    """The custom heads that compete, and their code; false if there are no custom heads."""

    code: Code
    references: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.references)

    def compute_digests(self) -> dict[str, str]:
        """Compute the sha256 of the code of each head."""
        return {reference: self.code.digest(split_reference(reference, "head")[0]) for reference in self.references}

    def list_cube_sizes(self) -> set[tuple[int, float]]:
        """List number of voxels and spacing of the cubes that the heads need."""
        sizes = (getattr(find_head(self.code, reference), "cube", None) for reference in self.references)
        return {(size[0], float(size[1])) for size in sizes if size is not None}

    def save_heads(self, head: Head, cohort: HeadCohort, folder: Path) -> Head:
        """Write the files of the custom heads below `folder`, and return the head without their code in memory.

        Raises:
            ModelPackageError: Saving or loading fails, the loaded model predicts other values, or a prediction depends
                on the other patients.
        """
        result = replace_custom(head, lambda custom: _save_head(custom, folder))
        patients = [cohort.pick(np.array([number])) for number in range(min(_COMPARED_PATIENTS, len(cohort.ids)))]
        loaded = list_custom_heads(bind_code(result, self.code, folder))
        for fitted, custom in zip(list_custom_heads(head), loaded, strict=True):
            expected = fitted.scores(cohort)
            single = np.concatenate([custom.scores(patient) for patient in patients])
            for values, name in ((custom.scores(cohort), "after load"), (single, "for a single patient")):
                wanted = expected[: len(values)]
                largest = float(np.abs(wanted[wanted > NEVER / 2]).max(initial=0.0))
                if not np.allclose(values, wanted, rtol=1e-5, atol=1e-8 * largest):
                    problem = f"{name} it predicts other values"
                    raise ModelPackageError(f"head {custom.hook}", problem, "the same values as after fit")
        return result


def _save_head(custom: Any, folder: Path) -> CustomHead:
    with atomic_folder(folder / custom.folder) as partial:
        call_head(custom.hook, "save", custom._predict.model.save, partial)
        if not list_code_files(partial):
            expected = "files in the folder that is passed to it"
            raise ModelPackageError(f"head {custom.hook}: save", "found no file", expected)
    document: CustomHead = custom.with_predict(None)
    return document


def with_custom_heads(target: Target, custom: CustomHeads) -> Target:
    """Add custom heads to the target, as candidates and as comparators; raise `ModelPackageError` if one is invalid."""
    families = make_custom_families(custom.code, custom.references, target)
    comparators = {**target.comparators, **{family.name: family for family in families}}
    return replace(target, families=(*target.families, *families), comparators=comparators)
