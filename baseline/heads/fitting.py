"""The step `heads`: each target's cohort from the measured patients, the heads that are shipped, and what to expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from tqdm import tqdm

from algorithm.heads.features import dose
from algorithm.heads.linear import LinearHead
from algorithm.heads.measure import Features, clinical_features
from baseline.heads.cross_validation import cross_validation_document
from baseline.heads.fitted import FittedHead, fit_clinical, fit_target
from baseline.heads.models.shared import Cohort, Outcomes
from baseline.heads.models.targets import HPV, RFS, TARGETS, Target
from baseline.release.cases import ReleaseCase
from contract import sockets
from contract.editions import load_edition
from contract.errors import MetricError
from contract.tasks import task_named

_DOSE_FEATURES: Final = tuple(f"_{name}" for name in dose.NAMES)
_HAS_OUTCOME: Final[Mapping[str, Callable[[ReleaseCase], bool]]] = {
    RFS.name: lambda case: case.rfs_days is not None and case.relapse is not None,
    HPV.name: lambda case: case.hpv is not None,
}


@dataclass(frozen=True)
class FittedHeads:
    """Heads by name, and of each that could not be fitted the reason."""

    heads: Mapping[str, FittedHead]
    why_not: Mapping[str, str]

    def also_known_as(self, names: Mapping[str, str]) -> FittedHeads:
        """The same with each centre's shifts under its other name too."""
        named = {key: replace(fitted, head=also_known_as(fitted.head, names)) for key, fitted in self.heads.items()}
        return replace(self, heads=named)

    def records(self) -> dict[str, Any]:
        """`heads.json`."""
        return {
            name: {
                "head": fitted.head.as_json(),
                "model": fitted.model,
                "setting": dict(fitted.setting),
                "tried": dict(fitted.tried),
                "metric": fitted.metric,
                "out_of_fold": fitted.out_of_fold,
                "penalty": fitted.penalty,
            }
            for name, fitted in self.heads.items()
        }


def cohort_of(target: Target, cases: Sequence[ReleaseCase], rows: Mapping[str, Features]) -> Cohort:
    """The patients whose outcome of this target is known, with image features and clinical variables.

    Dose features count only for a task that gets the dose in inference.
    """
    with_dose = sockets.RT_DOSE in task_named(target.name).optional_inputs
    told = [case for case in cases if _HAS_OUTCOME[target.name](case)]
    return Cohort(
        tuple(case.patient_id for case in told),
        tuple(case.centre for case in told),
        tuple(
            _inputs(rows[case.patient_id], with_dose) | clinical_features(case.patient, load_edition().clinical)
            for case in told
        ),
        Outcomes(
            np.array([case.rfs_days or 0.0 for case in told], dtype=np.float64),
            np.array([bool(case.relapse) for case in told], dtype=np.bool_),
            np.array([bool(case.hpv) for case in told], dtype=np.bool_),
        ),
    )


def _inputs(row: Features, with_dose: bool) -> dict[str, float | None]:
    return {name: value for name, value in row.items() if with_dose or not name.endswith(_DOSE_FEATURES)}


def fit_heads(cohorts: Sequence[tuple[Target, Cohort]], seed: int) -> FittedHeads:
    """Each target's head and the one on clinical variables alone, as far as the cohort has the outcomes for them."""
    found: dict[str, FittedHead | str] = {}
    for target, cohort in tqdm(cohorts, desc="fit heads", unit="target"):
        found[target.name] = _or_why_not(fit_target, target, cohort, seed)
        found[f"{target.name}_clinical"] = _or_why_not(fit_clinical, target, cohort, seed)
    heads = {name: one for name, one in found.items() if not isinstance(one, str)}
    return FittedHeads(heads, {name: one for name, one in found.items() if isinstance(one, str)})


def names_in_tables(cases: Sequence[ReleaseCase]) -> dict[str, str]:
    """Each centre's other name: what the tables mostly hold as `CenterID` of its patients, as an `ehr.json` would.

    Heads are harmonised by the IDs' codes; a number that stands for a centre in the tables would not be known
    otherwise. A name that two centres share, or that is another centre's code, tells nothing and is left out.
    """
    written: dict[str, Counter[str]] = {case.centre: Counter() for case in cases}
    for case in cases:
        if case.patient.centre is not None:
            written[case.centre][case.patient.centre] += 1
    usual = {code: names.most_common(1)[0][0] for code, names in written.items() if names}
    shared = Counter(usual.values())
    return {code: name for code, name in usual.items() if shared[name] == 1 and name not in written}


def also_known_as(head: LinearHead, names: Mapping[str, str]) -> LinearHead:
    """The head with each centre's shifts under its other name too."""
    terms = (
        replace(term, centres={**term.centres, **{names[c]: term.centres[c] for c in term.centres if c in names}})
        for term in head.terms
    )
    return replace(head, terms=tuple(terms))


def _or_why_not(
    fit: Callable[[Target, Cohort, np.random.Generator], FittedHead], target: Target, cohort: Cohort, seed: int
) -> FittedHead | str:
    try:
        return fit(target, cohort, np.random.default_rng(seed))
    except MetricError as problem:
        return problem.message


def judged(cohorts: Sequence[tuple[Target, Cohort]], fitted: FittedHeads, seed: int) -> dict[str, Any]:
    """`cross_validation.json`, with the reason for every head that is not there."""
    progress = tqdm(cohorts, desc="judge heads", unit="target")
    return cross_validation_document(progress, seed) | {"no_head": dict(fitted.why_not)}


def said(records: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """What was fitted and what to expect of it, a few lines."""
    lines = [
        f"{name}: {record['model']}, {record['metric']} {record['out_of_fold']:.3f} over the folds that chose it"
        for name, record in records.items()
    ]
    lines += [f"{name}: no head ({reason})" for name, reason in document["no_head"].items()]
    for target in TARGETS:
        for kind in ("nested", "leave_one_centre_out"):
            found, words = document[target.name][kind], kind.replace("_", " ")
            reached = found.get(target.metric)
            told = found.get("why_not", "undefined") if reached is None else f"{target.metric} {reached:.3f}"
            lines.append(f"{target.name}, {words}: {told}")
    return "\n".join(lines)


def expected(document: Mapping[str, Any]) -> dict[str, Any]:
    """Of `cross_validation.json` what a package's manifest tells: each kind's metric, over everyone and by centre."""
    kept = ("c_index", "balanced_accuracy", "by_centre", "why_not")
    return {
        target.name: {
            kind: {name: value for name, value in document[target.name][kind].items() if name in kept}
            for kind in ("nested", "leave_one_centre_out")
        }
        for target in TARGETS
    }
