"""Best results that any method can reach on a cohort, except by chance.

A risk cannot order recurrences better than the true linear predictor. A stage cannot agree with the record better than
the stage of the anatomy, because errors of the record are random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rehearsal.phantoms.cohort import PhantomCase

_T_CLASSES = ("T1", "T2", "T3", "T4")
_N_CLASSES = ("N0", "N1", "N2", "N3")


def best_possible(cases: Sequence[PhantomCase]) -> dict[str, float | None]:
    """C-index of the true risk, and balanced accuracy of the anatomical stages against the recorded ones."""
    record = [case.staging for case in cases if case.staging]
    return {
        "c_index": c_index(
            [case.outcome.rfs_days for case in cases],
            [case.outcome.relapse for case in cases],
            [case.outcome.linear_predictor for case in cases],
        ),
        "t_balanced_accuracy": balanced_accuracy([(one.t_stage, one.t_anatomy) for one in record], _T_CLASSES),
        "n_balanced_accuracy": balanced_accuracy([(one.n_stage, one.n_anatomy) for one in record], _N_CLASSES),
    }


def c_index(days: Sequence[float], events: Sequence[bool], risks: Sequence[float]) -> float | None:
    """Harrell's C-index of a risk, ties of the risk count half; None without a comparable pair."""
    time, event, risk = np.asarray(days), np.asarray(events, dtype=bool), np.asarray(risks)
    comparable = event[:, None] & ((time[:, None] < time) | ((time[:, None] == time) & ~event))
    if not comparable.any():
        return None
    higher = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    return round(float(higher[comparable].mean()), 4)


def balanced_accuracy(pairs: Sequence[tuple[str | None, str]], classes: Sequence[str]) -> float | None:
    """Mean recall over the classes that the reference has; pairs are (reference, answer); None without any class.

    A pair with a reference outside `classes` does not count.
    """
    recalls = [
        np.mean([answer == reference for reference, answer in pairs if reference == one])
        for one in classes
        if any(reference == one for reference, _ in pairs)
    ]
    return round(float(np.mean(recalls)), 4) if recalls else None
