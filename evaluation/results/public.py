"""Public results: the part of metrics.json that submitters may see.

A submitter chooses the answers, so every figure is an equation about the reference. Public results hold few of them,
round them, and hold none about fewer than ten patients, nor two whose difference is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from contract.errors import HecktorError
from evaluation.editions.task import TaskProfile, known_metrics
from evaluation.metrics.rules import MIN_PUBLIC_CASES
from evaluation.results.scored import ScoredCohort
from evaluation.rows.mask import MaskRow
from evaluation.statistics.bootstrap import Estimate, Estimates

DEFAULT_DIGITS: Final = 4
DIGITS_OF_SMALL_COHORT: Final = 3
SMALL_COHORT_BELOW: Final = 100
# Distances range up to 100 mm, all other metrics up to 1.
_FEWER_DIGITS_OF_MM: Final = 2
_PRIVATE_PROVENANCE: Final = ("seed", "redraws", "redraws_of_extra_metrics")


def check_public(task: TaskProfile) -> None:
    """Refuse rules under which public results would reveal single patients.

    Probabilities such as 0.5 - 2^-k, one for each patient, write the patients' classes into the digits of a mean.
    Where missing cases are skipped, a submitter chooses the patients of every figure.

    Raises:
        HecktorError: a ranked metric comes from submitted probabilities, or missing cases are skipped.
    """
    if any(answer.rules.missing == "skip" for answer in task.answers.values()):
        raise HecktorError("--public", "found together with missing=skip", "missing=worst or missing=stop")
    known = known_metrics(task.answers, "--public")
    for name, metric in task.metrics.items():
        if any(known[term][1].from_probability for term in metric.terms or (name,)):
            raise HecktorError("--public", f"{name} ranks and comes from probabilities", "other ranked metrics")


def private_seed(seed: int, cohort: ScoredCohort) -> list[int]:
    """A seed that nobody knows without the reference; all submissions to one reference share it.

    With known draws the ends of an interval are equations of many digits about the single patients. A reference of few
    patients can be guessed, so `seed` is part of the secret and not in the file.
    """
    rows = [(answer, row) for answer in cohort.answers for row in answer.rows]
    reference = sorted((one.profile.answer.name, row.case, one.scorer.reference_of(row)) for one, row in rows)
    return [seed, int.from_bytes(hashlib.sha256(repr(reference).encode()).digest())]


def digits_of(cohort: ScoredCohort, task: TaskProfile) -> int:
    """Digits behind the point of public figures: the profile's, or by the number of cases."""
    if task.public_digits is not None:
        return task.public_digits
    fewest = min(len(answer.reference.targets) for answer in cohort.answers)
    return DIGITS_OF_SMALL_COHORT if fewest < SMALL_COHORT_BELOW else DEFAULT_DIGITS


def public_estimates(estimates: Estimates, cohort: ScoredCohort, task: TaskProfile) -> Estimates:
    """Rounded estimates of all metrics of masks; of outcomes only the ranked ones, since each reveals more of them."""
    digits, hidden = digits_of(cohort, task), cohort.outcome_metrics - set(task.metrics)
    shown = {name: one for name, one in estimates.by_metric.items() if name not in hidden}
    rounded = {
        name: Estimate(*(_rounded(name, figure, digits) for figure in (one.value, one.ci95_low, one.ci95_high)))
        for name, one in shown.items()
    }
    return Estimates(rounded, estimates.redraws, estimates.extra_redraws)


def public_report(report: Mapping[str, Any], cohort: ScoredCohort, task: TaskProfile) -> dict[str, Any]:
    """The content of a public metrics.json from that of a full one whose `aggregates` are public already.

    `analyses` and `results` are empty: volume bins and their correlation order the patients by the reference's volume.
    Skipped cases are counted, except those whose reference is the reason.
    """
    digits = digits_of(cohort, task)
    provenance = {key: value for key, value in report["provenance"].items() if key not in _PRIVATE_PROVENANCE}
    skipped = report["cases"]["skipped"].items()
    counts = {why: len(names) for why, names in skipped if why not in cohort.excluded}
    return {
        **report,
        "centres": _public_centres(report["centres"], cohort, digits),
        "analyses": {},
        "cases": {**report["cases"], "skipped": counts, **_public_failures(report["cases"], cohort)},
        "provenance": {**provenance, "public_digits": digits},
        "results": [],
    }


def _public_failures(cases: Mapping[str, Any], cohort: ScoredCohort) -> dict[str, Any]:
    """Missing and failed cases, numbers in place of names for answers with classes that do not count.

    Otherwise a patient whose answer is unusable and who is not named would have such a class.
    """
    unnamed = [one.profile.answer.name for one in cohort.answers if one.reference.not_counted]
    if unnamed and not cohort.has_several_answers:
        return {"missing": [], "failed": _numbered(unnamed[0], [*cases["missing"], *cases["failed"]])}
    of_answer = {name: [one for one in cases["failed"] if one["why"].startswith(f"{name}: ")] for name in unnamed}
    numbers = [number for name, failed in of_answer.items() for number in _numbered(name, failed)]
    hidden = [one for failed in of_answer.values() for one in failed]
    return {"failed": [*(one for one in cases["failed"] if one not in hidden), *numbers]}


def _numbered(answer: str, failed: Sequence[Any]) -> list[dict[str, str]]:
    return [{"case": f"{len(failed)} cases", "why": f"{answer}: no usable answer"}] if failed else []


def _public_centres(blocks: Mapping[str, Any], cohort: ScoredCohort, digits: int) -> dict[str, Any]:
    """Rounded metrics of masks in the centres that may be shown."""
    names = [name for name in cohort.metrics if name not in cohort.outcome_metrics]
    if not names:
        return {}
    public = {}
    for centre in shown_centres(cohort):
        figures = blocks[centre]["aggregates"]
        values = {name: {"value": _rounded(name, figures[name]["value"], digits)} for name in names}
        public[centre] = {"cases": blocks[centre]["cases"], "aggregates": values}
    return public


def shown_centres(cohort: ScoredCohort) -> list[str]:
    """Centres whose metrics reveal nobody, neither by themselves nor by their difference from the whole cohort.

    A shown centre has at least ten cases, and either none or at least ten of them have a mask, a GTVp and a GTVn. The
    same holds for all other cases together, those of an unknown centre included: the smallest centres are left out
    until it does.
    """
    centre_of = cohort.centres
    groups: dict[str | None, set[str]] = {}
    for case in cohort.cases:
        groups.setdefault(centre_of.get(case), set()).add(case)
    parts = _parts(cohort)
    shown = {name: cases for name, cases in groups.items() if name is not None and _is_safe(cases, parts)}
    others = set(cohort.cases).difference(*shown.values())
    while shown and not _is_safe(others, parts):
        others |= shown.pop(min(shown, key=lambda name: (len(shown[name]), name)))
    return sorted(shown)


def _parts(cohort: ScoredCohort) -> list[set[str]]:
    """All cases, those with a mask, and those with each structure: the cases that the metrics may depend on."""
    rows = [row for answer in cohort.answers for row in answer.counted if isinstance(row, MaskRow)]
    with_gtvp = {row.case for row in rows if row.gtvp.reference > 0}
    with_gtvn = {row.case for row in rows if row.gtvn.reference > 0}
    return [set(cohort.cases), {row.case for row in rows}, with_gtvp, with_gtvn]


def _is_safe(cases: set[str], parts: list[set[str]]) -> bool:
    """Whether no part holds one to nine of these cases."""
    return all(not cases & part or len(cases & part) >= MIN_PUBLIC_CASES for part in parts)


def _rounded(name: str, figure: float | None, digits: int) -> float | None:
    if figure is None:
        return None
    return round(figure, max(0, digits - _FEWER_DIGITS_OF_MM) if name.endswith("_mm") else digits)
