"""What the figures say, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from baseline.report.chance import Chance
from baseline.report.judgement import BEHIND, GAP, KINDS, METRIC_TITLES, Judged
from evaluation.statistics.bootstrap import Estimate


def gap_in_words(record: Mapping[str, Any], heads: Judged | None) -> str:
    """What the difference of the two kinds of cross-validation means for centres that nobody trained on."""
    missing = [f"{title}: {record[kind]['why_not']}" for kind, title in KINDS.items() if "why_not" in record[kind]]
    if missing or heads is None:
        return f"Not possible here: {'; '.join(missing)}. Nothing is said about the difference."
    metric = METRIC_TITLES[record["metric"]].capitalize().replace("C-index", "The C-index")
    inside, outside, gap = (heads.estimates[name] for name in (*KINDS, GAP))
    if inside.value is None or outside.value is None or gap.value is None:
        return f"{metric} does not exist for this cohort."
    figures = f"{inside.value:.3f} in nested cross-validation, {outside.value:.3f} with whole centres left out"
    return f"{metric}: {figures}{_meaning(gap.value, gap.ci95_low, gap.ci95_high)}."


def _meaning(gap: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ". There are too few patients for an interval of the difference"
    interval = f"(95% interval {low:.3f} to {high:.3f})"
    if low > 0:
        meaning = "Part of what works inside the training centres does not carry to a new one"
        return f", a drop of {gap:.3f} {interval}. {meaning}: at unseen centres expect the lower figure, or less"
    if high < 0:
        return f". Leaving centres out costs nothing here; it is even better by {-gap:.3f} {interval}"
    unsure = f"; the difference of {gap:.3f} cannot be told from none {interval}"
    limit = f". A drop of up to {high:.3f} at unseen centres is not ruled out by this many patients"
    return unsure + (limit if high > 0 else "")


def rivals_in_words(judged: Sequence[Judged]) -> list[str]:
    """Which comparators the heads do not surely surpass in nested cross-validation; nothing where there are none."""
    known = [(model.title, found) for model in judged if (found := model.estimates.get(BEHIND)) is not None]
    unsure = [title for title, found in known if found.ci95_low is None or found.ci95_low <= 0]
    if not known:
        return []
    if not unsure:
        return ["The heads are better than every comparator beyond the interval of the difference."]
    names = " or ".join(filter(None, (", ".join(unsure[:-1]), unsure[-1])))
    return [f"That the heads are better than {names} cannot be said from this many patients."]


def choice_in_words(shipped: Mapping[str, Any] | None) -> str:
    """Which model is shipped, and among which it was chosen.

    Args:
        shipped: the head's record in `heads.json`, None where there is none.
    """
    if shipped is None:
        return "There is no head of this target."
    setting = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in shipped["setting"].items())
    chosen = f"Shipped: {shipped['model']}" + (f" ({setting})" if setting else "")
    metric = METRIC_TITLES[shipped["metric"]]
    return (
        f"{chosen}, with a {metric} of {shipped['out_of_fold']:.3f} over the folds that chose it among "
        f"{len(shipped['tried'])} models. That figure flatters the choice; those below do not."
    )


def chance_in_words(chance: Chance, found: Estimate | None, metric: str) -> str:
    """Whether trying often could explain the value of `metric`, a key of `METRIC_TITLES`."""
    spread = (
        f"On this cohort's outcomes an answer that knows nothing has a {METRIC_TITLES[metric]} of 0.5 with a spread of "
        f"{chance.sd:.3f}."
    )
    if found is None or found.value is None:
        return spread
    enough = [k for k, best in chance.best_of.items() if best >= found.value]
    nested = f"The {found.value:.3f} of the nested cross-validation"
    if enough:
        told = f"{nested} is no more than the best of {min(enough)} such answers"
        return f"{spread} {told}: trying that often could explain it."
    most = max(chance.best_of)
    told = f"{nested} lies above the expected best of {most} such answers"
    return f"{spread} {told} ({chance.best_of[most]:.3f}): trying that often does not explain it."
