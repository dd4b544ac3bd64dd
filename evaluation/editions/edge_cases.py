"""All edge cases in one table: empty, missing, non-numeric and undefined values, and what counts instead.

| case | what counts by default |
|---|---|
| GTVp or GTVn empty in reference and prediction | the case does not enter its mean DSC (`skip`), and is listed |
| GTVp or GTVn empty in the reference only | DSC 0 |
| GTVp or GTVn empty in the prediction only | DSC 0, by the formula |
| precision and recall of GTVp | as its DSC; an empty prediction of a tumour has precision 0 |
| surface distances, both masks empty | the case does not count |
| surface distances, one mask empty or no prediction | infinite, the surface DSC 0 |
| GTVn empty, aggregated DSC and lesions | no special rule: its volumes and lesions enter the sums |
| no prediction, or an unusable one | worst score: DSC 0 (an empty GTVp reference too), all reference \
voxels and lesions missed, risk non-concordant, class wrong |
| risk NaN, infinite or not a number | counts as missing |
| no comparable pair; only one class in the reference | undefined: `MetricError`, no metrics.json; of several \
answers in a result that is not public, this one's metric is null, with a warning |
| no GTVp, GTVn voxel or lesion in the whole cohort | the aggregate is null, with a warning |
| a case without a probability while others have one | the worst one: 0 for a positive, 1 for a negative |
| an undefined extra metric | null, without a warning |
| a class of the reference that the declaration does not count, such as T0 | the answer is not evaluated for this \
case, which is listed |
| no target in the reference | the answer is not evaluated for this case, which is listed |
"""

from __future__ import annotations

from typing import Final

MISSING_RULES: Final = ("worst", "skip", "stop")
WORST_DSC: Final = 0.0
# A submitter knows the answers, so that a metric of fewer cases would reveal their reference.
MIN_PUBLIC_CASES: Final = 10


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


def scores_of_case(
    intersection: int, reference: int, predicted: int, *, failed: bool, rule: str
) -> tuple[float | None, float | None, float | None]:
    """Dice similarity coefficient, precision and recall of one label in one case, from voxel counts; in [0, 1].

    Args:
        intersection: voxels in both masks.
        reference: voxels in the reference.
        predicted: voxels in the prediction, 0 where `failed`.
        failed: no usable prediction.
        rule: a key of `EMPTY_RULES`.

    Returns:
        2 intersection / (reference + predicted), the fraction of the predicted voxels that are correct, and the
        fraction of the reference voxels that are predicted; all None if the case does not count. An empty prediction
        of a tumour has precision 0.
    """
    if reference > 0:
        precision = intersection / predicted if predicted > 0 else WORST_DSC
        return 2 * intersection / (reference + predicted), precision, intersection / reference
    # An empty reference does not excuse a failed case, unless the rule drops every empty reference.
    score = EMPTY_RULES[rule][predicted > 0 or failed]
    return score, score, score


def dsc_of_case(intersection: int, reference: int, predicted: int, *, failed: bool, rule: str) -> float | None:
    """The DSC alone; arguments as in `scores_of_case`."""
    return scores_of_case(intersection, reference, predicted, failed=failed, rule=rule)[0]
