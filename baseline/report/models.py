"""Figures of the heads: metrics with intervals, coefficients, and the sentences at the top of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from algorithm.heads.documents import Head
from baseline.heads.cohort import (
    Flags,
    Outcomes,
    make_weighted_balanced_accuracy,
    make_weighted_c_index,
    make_weighted_class_accuracy,
)
from baseline.heads.cross_validation import compute_coefficients
from baseline.heads.models.targets import COMPARATORS, Target
from baseline.heads.record import (
    KINDS,
    METRIC_TITLES,
    CentreEstimate,
    KindRecord,
    ModelAnswers,
    TargetRecord,
    describe_new_centres,
    estimate_new_centres,
)
from evaluation.metrics.overlap import Difference, WeightedMetric
from evaluation.statistics.bootstrap import Estimate, estimate_unranked
from evaluation.statistics.tests import holm

GAP: Final = "gap"
BEHIND: Final = "behind"
BEHIND_OUTSIDE: Final = "behind_outside"
HEADS: Final = "heads"
TITLES: Final = {HEADS: "heads", **COMPARATORS}
MASK_KINDS: Final = {
    "automatic": "automatic masks",
    "reference": "reference masks",
    "cost": "reference minus automatic",
}
# A head may use all features; the page shows the features with the largest weights.
MAX_COEFFICIENTS: Final = 20


@dataclass(frozen=True)
class TargetEstimates:
    """A target with its record in `cross_validation.json` and the metrics of the heads and the comparators.

    `models` has estimates by model and by quantity. The quantities are the metric in each kind of cross-validation;
    `gap`, the metric in nested cross-validation minus the metric with centres left out; and, for a comparator,
    `behind`, the heads' metric minus the comparator's metric in nested cross-validation, and `behind_outside`, the same
    with centres left out. A kind that the cohort does not allow is absent.
    """

    target: Target
    record: TargetRecord
    models: Mapping[str, Mapping[str, Estimate]]

    def estimate_new_centres(self, new_centres: int | None = None) -> CentreEstimate:
        """Estimate the heads' metric at new centres; `new_centres` is their number in the test set."""
        return estimate_new_centres(self.record.leave_one_centre_out.by_centre.values(), new_centres)


def estimate_target(target: Target, record: TargetRecord, bootstraps: int, seed: int) -> TargetEstimates:
    """Estimate the metrics of the heads and of each comparator of a target.

    Intervals come from bootstrap samples of the patients with fixed scores, so that they do not show how other training
    patients would change the heads. All models share the samples.
    """
    outcomes = record.outcomes(target.answer)
    metrics: dict[tuple[str, str], WeightedMetric] = {}
    for kind, result in record.available.items():
        for name, answers in {HEADS: result, **result.comparators}.items():
            metrics[name, kind] = make_metric(target, outcomes, answers)
    nested, left_out = KINDS
    for name in list(dict.fromkeys(name for name, _ in metrics)):
        if (name, nested) in metrics and (name, left_out) in metrics:
            metrics[name, GAP] = Difference(metrics[name, nested], metrics[name, left_out])
        if (name, nested) in metrics and name != HEADS:
            metrics[name, BEHIND] = Difference(metrics[HEADS, nested], metrics[name, nested])
        if (name, left_out) in metrics and name != HEADS:
            metrics[name, BEHIND_OUTSIDE] = Difference(metrics[HEADS, left_out], metrics[name, left_out])
    models: dict[str, dict[str, Estimate]] = {}
    if metrics:
        flat = {f"{name} {quantity}": metric for (name, quantity), metric in metrics.items()}
        estimates = estimate_unranked(flat, len(record.patients), bootstraps, seed).by_metric
        for name, quantity in metrics:
            models.setdefault(name, {})[quantity] = estimates[f"{name} {quantity}"]
    return TargetEstimates(target, record, models)


def find_high_risk(scored: KindRecord) -> Flags:
    """Find the patients above the median score of their outer fold; each fold has its own model and scale."""
    scores, fold_of = np.asarray(scored.score), np.asarray(scored.fold_of_patient)
    high = np.zeros(len(scores), dtype=np.bool_)
    for fold in np.unique(fold_of):
        inside = fold_of == fold
        high[inside] = scores[inside] > np.median(scores[inside])
    return high


def make_metric(
    target: Target, outcomes: Outcomes, answers: ModelAnswers, patients: Sequence[int] | None = None
) -> WeightedMetric:
    """Make the target's metric of the answers for `patients`, given by their positions, or for all patients.

    `outcomes` are the outcomes of the same patients.
    """

    def select(values: Sequence[Any] | None) -> list[Any]:
        values = values or ()
        return list(values) if patients is None else [values[position] for position in patients]

    if target.answer.kind == "risk":
        return make_weighted_c_index(outcomes, np.asarray(select(answers.score), np.float64))
    if target.answer.is_binary:
        return make_weighted_balanced_accuracy(outcomes, np.asarray(select(answers.positive), np.bool_))
    numbers = [target.answer.classes.index(value) for value in select(answers.predicted_classes)]
    return make_weighted_class_accuracy(outcomes, np.array(numbers))


def estimate_on_references(
    target: Target, automatic: TargetRecord, reference: TargetRecord, bootstraps: int, seed: int
) -> tuple[int, dict[str, dict[str, Estimate]]]:
    """Compare heads on automatic masks with heads on reference masks, over the patients of both records.

    Each head was fitted and cross-validated on masks of its own kind.

    Returns:
        The number of patients, and estimates by kind of cross-validation: `automatic`, `reference` and their
        difference, the `cost` of automatic masks. Empty if no kind is in both records.
    """
    positions = _find_common_patients(automatic, reference)
    kinds = [kind for kind in automatic.available if kind in reference.available]
    if not kinds or not positions[0]:
        return 0, {}
    outcomes = automatic.outcomes(target.answer).pick(np.array(positions[0]))
    metrics: dict[str, WeightedMetric] = {}
    for kind in kinds:
        on_automatic = make_metric(target, outcomes, automatic.kinds[kind], positions[0])
        on_reference = make_metric(target, outcomes, reference.kinds[kind], positions[1])
        metrics[f"automatic {kind}"] = on_automatic
        metrics[f"reference {kind}"] = on_reference
        metrics[f"cost {kind}"] = Difference(on_reference, on_automatic)
    estimates = estimate_unranked(metrics, len(positions[0]), bootstraps, seed).by_metric
    return len(positions[0]), {kind: {name: estimates[f"{name} {kind}"] for name in MASK_KINDS} for kind in kinds}


def _find_common_patients(*records: TargetRecord) -> tuple[list[int], list[int]]:
    """Find the positions of the patients of both records, in the order of the first record."""
    first, second = ({row.id: position for position, row in enumerate(record.patients)} for record in records)
    names = [name for name in first if name in second]
    return [first[name] for name in names], [second[name] for name in names]


@dataclass(frozen=True)
class Coefficient:
    """A feature's weight per standard deviation in the shipped head and each outer fold; None and 0 if unused."""

    feature: str
    shipped: float | None
    folds: tuple[float, ...]

    @property
    def size(self) -> float:
        """Return the larger absolute value of the shipped weight and the mean over the folds."""
        mean = float(np.mean(self.folds)) if self.folds else 0.0
        return max(abs(self.shipped or 0.0), abs(mean))


def collect_coefficients(head: Head | None, folds: Sequence[Mapping[str, float]]) -> list[Coefficient]:
    """Collect the features of the shipped head and of the outer folds, by decreasing weight.

    `head` is None if no head is shipped.
    """
    shipped = {} if head is None else compute_coefficients(head)
    names = dict.fromkeys([*shipped, *(name for fold in folds for name in fold)])
    weights = [Coefficient(name, shipped.get(name), tuple(fold.get(name, 0.0) for fold in folds)) for name in names]
    return sorted(weights, key=lambda coefficient: -coefficient.size)


# Simple comparators that heads with images have to beat.
_SIMPLER: Final = ("clinical", "tumour_volume")
# Maximum two-sided p of a significant difference, after Holm's correction.
MAX_P: Final = 0.05
NOT_INCLUDED: Final = "The intervals do not include how other training patients or centres would change the heads."
_NETWORKS: Final = "the networks behind the masks may have seen other patients of the centre"


def describe_targets_at_new_centres(targets: Sequence[TargetEstimates], new_test_centres: int | None = None) -> str:
    """Describe the metrics to expect at new centres, or why there is no estimate."""
    known, unknown = [], []
    for target in targets:
        estimate, title = target.estimate_new_centres(new_test_centres), _lower_title(target.target.title)
        if estimate.value is not None:
            known.append(f"a {METRIC_TITLES[target.target.metric]} of {describe_new_centres(estimate)} for {title}")
        else:
            why = target.record.leave_one_centre_out.why_not or "the metric is undefined"
            unknown.append(f"No estimate for {title} at new centres: {why.removeprefix(f'{target.target.name}: ')}.")
    if not targets:
        return f"No estimate for new centres: {_NETWORKS}."
    if not known:
        return " ".join(unknown)
    expected = (
        f"At a new centre expect {_join_words(known)} (each centre predicted by heads that were fitted without it)"
    )
    return " ".join([f"{expected}; {_NETWORKS}. {NOT_INCLUDED}", *unknown])


def describe_benefit_of_images(targets: Sequence[TargetEstimates]) -> str:
    """Describe whether heads that use images beat clinical variables and tumour volume.

    A difference counts if it is significant after Holm's correction over all targets and comparators. Heads count as
    better only if they are also better with each centre left out, in the mean over all patients and at most of the
    centres.
    """
    tested = [target for target in targets if not target.record.nested.why_not]
    comparisons = [(target, name) for target in tested for name in _SIMPLER if name in target.models]
    differences = [target.models[name].get(BEHIND) for target, name in comparisons]
    p_values = [1.0 if difference is None or difference.p is None else difference.p for difference in differences]
    corrected = holm(np.array(p_values, dtype=np.float64))
    p_of = {(target.target.name, name): p for (target, name), p in zip(comparisons, corrected, strict=True)}
    parts = []
    for target in targets:
        title = _lower_title(target.target.title)
        if why := target.record.nested.why_not:
            parts.append(f"not compared for {title} ({why.removeprefix(f'{target.target.name}: ')})")
            continue
        names = [name for name in _SIMPLER if name in target.models]
        compared = [_describe_comparison(target, name, float(p_of[target.target.name, name])) for name in names]
        parts += [f"{_join_words(compared)} for {title}"] if compared else []
    return f"In nested cross-validation, heads that use images are {'; '.join(parts)}." if parts else ""


def _describe_comparison(target: TargetEstimates, comparator: str, p_value: float) -> str:
    """Compare the heads with a comparator in words; `p_value` is corrected for all comparisons."""
    difference, name = target.models[comparator].get(BEHIND), TITLES[comparator]
    if difference is None or difference.value is None:
        return f"not comparable with {name} (the difference is undefined)"
    low, high = difference.ci95_low, difference.ci95_high
    if low is None or high is None:
        return f"not comparable with {name} (too few patients differ)"
    metric = METRIC_TITLES[target.target.metric]
    figures = f"{metric} {difference.value:+z.3f}, 95% interval {low:+z.3f} to {high:+z.3f}"
    if p_value > MAX_P:
        note = ", significant only before correction" if low > 0 or high < 0 else ""
        return f"not significantly different from {name} ({figures}{note})"
    if difference.value < 0:
        return f"worse than {name} ({figures})"
    if not is_better_outside(target, comparator):
        return f"not shown to be better than {name} ({figures}, which leave-one-centre-out does not confirm)"
    return f"better than {name} ({figures}; leave-one-centre-out agrees)"


def is_better_outside(target: TargetEstimates, comparator: str) -> bool:
    """Return whether the heads beat a comparator with centres left out.

    The interval of the difference over all patients must lie above 0, and so must the difference at most centres.
    """
    difference = target.models[comparator].get(BEHIND_OUTSIDE)
    if difference is None or difference.ci95_low is None or not difference.ci95_low > 0:
        return False
    left_out = target.record.leave_one_centre_out
    of_heads, of_comparator = left_out.by_centre, left_out.comparators[comparator].by_centre
    pairs = [(of_heads[name], of_comparator.get(name)) for name in of_heads]
    differences = [first - second for first, second in pairs if first is not None and second is not None]
    return not differences or sum(np.sign(differences)) > 0


def _join_words(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _lower_title(title: str) -> str:
    """Begin a title with a small letter, except for an abbreviation such as HPV."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]
