"""The search for rules: one rule after the other, each only if it gains and also holds with centres left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from algorithm.decisions.rules import DEFAULTS, NO_DECISIONS, Decisions
from baseline.decisions.cohort import Cohort, Counts
from baseline.decisions.score import Evaluations
from baseline.decisions.tables import ALL_THRESHOLDS, FOREGROUND_THRESHOLDS, GTVP_THRESHOLDS, Floats

# A rule must raise the edition's score by this much; a smaller gain is noise.
LEAST_GAIN: Final = 0.001
# The gain must also exceed this many of its standard deviations over bootstrap samples.
LEAST_CERTAINTY: Final = 1.0
_VOLUMES_ML: Final = (0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0)
_MEANS: Final = tuple(round(0.5 + 0.025 * step, 3) for step in range(1, 18))
_MAXIMA: Final = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
GRID: Final[Mapping[str, tuple[Any, ...]]] = {
    "largest_gtvp_only": (True,),
    "one_label_share": (0.1, 0.2, 0.3, 0.4, 0.5),
    "gtvp_volume_ml": _VOLUMES_ML,
    "gtvp_mean_probability": _MEANS,
    "gtvp_max_probability": _MAXIMA,
    "gtvn_volume_ml": _VOLUMES_ML,
    "gtvn_mean_probability": _MEANS,
    "gtvn_max_probability": _MAXIMA,
    "gtvn_suv_max": (1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
    "gtvn_suv_peak": (1.0, 1.5, 2.0, 2.5, 3.0),
    "gtvn_distance_mm": (160.0, 140.0, 120.0, 100.0, 80.0),
    "gtvn_contralateral_probability": (0.6, 0.7, 0.8, 0.9),
    "foreground_threshold": tuple(value for value in FOREGROUND_THRESHOLDS if value != 0.5),
    "gtvp_threshold": tuple(value for value in GTVP_THRESHOLDS if value != 0.5),
}

# A lower threshold adds faint lesions and true borders; a rule on the probability then removes the faint lesions.
PAIRS: Final = tuple(
    ("foreground_threshold", f"{label}_{measure}")
    for label in ("gtvp", "gtvn")
    for measure in ("max_probability", "mean_probability")
)
_MOVES: Final[tuple[tuple[str, ...], ...]] = (*((rule,) for rule in GRID), *PAIRS)


def search(evaluations: Evaluations, members: Floats) -> Decisions:
    """The rules for the patients with weight 1 in `members`, (patients,); none where nothing gains.

    For each rule, a step chooses the value for each centre without that centre, and adds the rule that gains most. The
    gain has to exceed its standard deviation. The rule then gets the best value for all members. Finally, rules that no
    longer gain beside the others are removed.
    """
    current = NO_DECISIONS
    while (better := _step(evaluations, members, current)) is not None:
        current = better
    return _pruned(evaluations, members, current)


def _step(evaluations: Evaluations, members: Floats, current: Decisions) -> Decisions | None:
    """The best next setting, None if no rule gains and holds."""
    settings = {move: list(_values(current, move)) for move in _MOVES}
    evaluations.counts([current, *(one for of_rule in settings.values() for one in of_rule)])
    before = _score(evaluations, current, members)
    best, chosen = 0.0, None
    for of_rule in settings.values():
        scores = [_score(evaluations, one, members) for one in of_rule]
        if scores and max(scores) - before >= LEAST_GAIN:
            held = _held_gain(evaluations, members, current, of_rule)
            if held > best:
                best, chosen = held, of_rule[scores.index(max(scores))]
    return chosen


def _values(current: Decisions, move: Sequence[str]) -> Iterator[Decisions]:
    """The current setting with all other values of one or two rules, as far as their components were measured."""
    for values in itertools.product(*(GRID[rule] for rule in move)):
        setting = replace(current, **dict(zip(move, values, strict=True)))
        if setting != current and setting.thresholds in ALL_THRESHOLDS:
            yield setting


def _held_gain(evaluations: Evaluations, members: Floats, current: Decisions, settings: Sequence[Decisions]) -> float:
    """The gain of a rule whose value for each centre is chosen without it; 0 if it is too small or too uncertain."""
    centres = evaluations.cohort.centres
    names = sorted(set(centres[members > 0]))
    if len(names) < 2:
        return 0.0
    others = np.stack([members * (centres != name) for name in names])
    choices = [current, *settings]
    scores = np.stack([evaluations.total(one)(others) for one in choices])
    best = [choices[number] for number in scores.argmax(0)]
    held_out = assembled(evaluations, [(centres == name, one) for name, one in zip(names, best, strict=True)])
    score, cohort = evaluations.score, evaluations.cohort
    after, before = score.total(score.metrics(cohort, held_out)), evaluations.total(current)
    gain = float((after(members[None]) - before(members[None]))[0])
    if gain < LEAST_GAIN:
        return 0.0
    drawn = evaluations.draws * members
    spread = float(np.nanstd(after(drawn) - before(drawn)))
    return gain if gain > LEAST_CERTAINTY * spread else 0.0


def _pruned(evaluations: Evaluations, members: Floats, current: Decisions) -> Decisions:
    for rule in current.as_json():
        without = replace(current, **{rule: DEFAULTS[rule]})
        if without.thresholds not in ALL_THRESHOLDS:
            continue
        if _score(evaluations, current, members) - _score(evaluations, without, members) < LEAST_GAIN:
            current = without
    return current


def _score(evaluations: Evaluations, setting: Decisions, members: Floats) -> float:
    return float(evaluations.total(setting)(members[None])[0])


def assembled(evaluations: Evaluations, parts: Sequence[tuple[Any, Decisions]]) -> Counts:
    """The counts in which each group of patients, a boolean array, has a setting of its own; others have none."""
    result = Counts(*(values.copy() for values in _columns(evaluations.of(NO_DECISIONS))))
    for patients, setting in parts:
        for target, source in zip(_columns(result), _columns(evaluations.of(setting)), strict=True):
            target[:, patients] = source[:, patients]
    return result


def _columns(counts: Counts) -> list[Floats]:
    return [getattr(counts, field.name) for field in fields(counts)]


def everyone(cohort: Cohort) -> Floats:
    """Weights that take every patient once."""
    return np.ones(len(cohort.patients))
