"""How many submissions an attacker needs to decode the reference from results, public ones and full ones.

::

    python -m benchmarks.studies.public_results --output out/public

simulates cohorts and attacks on them with the evaluation's own metrics, and writes public.json:

    brier       statuses in the binary digits of a full Brier score
    counts      statuses from sensitivity and specificity, by sets of patients from which every count is known
    c_index     relapses from C-indices in which one patient has a higher risk than all others
    intervals   bits about single patients in the ends of intervals whose draws are known, at least
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import run_main
from contract.files import write_json
from evaluation.metrics.classification import binary_metrics, probability_metrics
from evaluation.metrics.overlap import Booleans, Floats, Integers
from evaluation.metrics.survival import SurvivalCohort, c_index_metric
from evaluation.rows.scorer import whole_cohort

PATIENTS: Final = (99, 400)
POSITIVE: Final = 0.75
EVENTS: Final = 0.4
# Statuses that one double holds beside the sum of 0.25 for each of a few hundred patients.
BITS_A_SCORE: Final = 39
DRAWS: Final = 1000
STATUSES_SAMPLED: Final = 8192


def main(argv: Sequence[str] | None = None) -> int:
    """Run every attack on one cohort of each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.public_results", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder of public.json")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cohorts (default: %(default)s)")
    options = parser.parse_args(argv)
    lines = [line for n in PATIENTS for line in attacks(n, np.random.default_rng([options.seed, n]))]
    write_json(options.output / "public.json", {"seed": options.seed, "attacks": lines})
    for line in lines:
        sys.stdout.write(", ".join(f"{key} {value}" for key, value in line.items()) + "\n")
    return 0


def attacks(n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """One line for each attack and number of digits: submissions, and the share of patients decoded right."""
    positive = rng.random(n) < POSITIVE
    cohort = simulated_follow_up(n, rng)
    lines = [{"attack": "brier", "patients": n, "digits": "all", **brier_attack(positive)}]
    for digits in (4, 3):
        lines.append({"attack": "counts", "patients": n, "digits": digits, **count_attack(positive, digits)})
        lines.append({"attack": "c_index", "patients": n, "digits": digits, **c_index_attack(cohort, digits)})
    bits = {digits: interval_bits(n, digits, rng) for digits in (4, 3, 2)}
    return [*lines, *({"attack": "intervals", "patients": n, "digits": key, "bits": one} for key, one in bits.items())]


def brier_attack(positive: Booleans) -> dict[str, Any]:
    """Decode statuses from Brier scores of probabilities 0.5 - 2^-(k+1), 0.5 for patients who are not asked about.

    n x Brier - sum p^2 = sum y (1 - 2p), which is the number with the binary digits y.
    """
    decoded: list[int] = []
    submissions = 0
    while len(decoded) < positive.size:
        asked = min(BITS_A_SCORE, positive.size - len(decoded))
        probability = np.full(positive.size, 0.5)
        probability[len(decoded) : len(decoded) + asked] -= 0.5 ** np.arange(2, asked + 2)
        score = whole_cohort(probability_metrics(positive, probability)["brier"], positive.size)
        total = Fraction(score) * positive.size - sum(Fraction(float(p)) ** 2 for p in probability)
        number = round(total * 2**asked)
        decoded += [number >> (asked - 1 - place) & 1 for place in range(asked)]
        submissions += 1
    return {"submissions": submissions, "right": _share(np.array(decoded) == positive)}


def detecting_sets(n: int) -> tuple[Booleans, list[tuple[int, int]]]:
    """Sets of patients, shape (submissions, n), whose numbers of positives determine every status.

    Patient (s, j) belongs to the set t where the intersection of s and t, sets as bits of a number, is one of the first
    2^j subsets of s with an odd number of elements. Source: Lindstroem 1965, on coins and weighings.
    """
    patients: list[tuple[int, int]] = []
    last = 0
    while len(patients) < n:
        last += 1
        patients += [(last, j) for j in range(last.bit_count())]
    patients = patients[:n]
    odd = {s: [t for t in range(s + 1) if t & s == t and t.bit_count() % 2] for s in range(1, last + 1)}
    chosen = [[(s & t) in odd[s][: 2**j] for s, j in patients] for t in range(1, last + 1)]
    return np.array(chosen, dtype=np.bool_), patients


def statuses_from_counts(counts: Integers, sets: Booleans, patients: Sequence[tuple[int, int]]) -> Booleans:
    """The statuses from the number of positives in every detecting set, from the largest `s` to the smallest."""
    left, positive = np.array([0, *counts]), np.zeros(len(patients), dtype=np.bool_)
    for s in range(len(counts), 0, -1):
        inside = [t for t in range(s + 1) if t & s == t]
        signed = sum((-1) ** (1 + t.bit_count()) * int(left[t]) for t in inside)
        for place, (owner, j) in enumerate(patients):
            if owner == s and signed >> j & 1:
                positive[place] = True
                left[1:] -= sets[:, place]
    return positive


def count_attack(positive: Booleans, digits: int) -> dict[str, Any]:
    """Decode statuses from rounded sensitivities and specificities, one detecting set answered positive each time."""
    n = positive.size
    sets, patients = detecting_sets(n)
    shown = []
    for answer in sets:
        metrics = binary_metrics(positive, answer == positive)
        shown.append([round(whole_cohort(metrics[name], n), digits) for name in ("sensitivity", "specificity")])
    counts = counts_from(np.array(shown), sets.sum(axis=1), n)
    decoded = statuses_from_counts(counts, sets, patients)
    return {"submissions": len(sets), "right": _share(decoded == positive)}


def counts_from(shown: Floats, sizes: Integers, n: int) -> Integers:
    """Positives in each set: those of the total number of positives that fits all figures best."""
    fits = []
    for total in range(1, n):
        counts = np.rint(shown[:, 0] * total).astype(np.intp)
        specificity = (n - total - (sizes - counts)) / (n - total)
        misfit = np.abs(counts / total - shown[:, 0]).max() + np.abs(specificity - shown[:, 1]).max()
        fits.append((float(misfit), counts))
    return min(fits, key=lambda fit: fit[0])[1]


def simulated_follow_up(n: int, rng: np.random.Generator) -> SurvivalCohort:
    """Exponential times to recurrence and to censoring, risks of 0."""
    recurrence, censoring = rng.exponential(1 / EVENTS, n), rng.exponential(1 / (1 - EVENTS), n)
    return SurvivalCohort(1000 * np.minimum(recurrence, censoring), recurrence <= censoring, np.zeros(n))


def c_index_attack(cohort: SurvivalCohort, digits: int) -> dict[str, Any]:
    """Decode relapses from C-indices, each with a risk of 1 for one patient and 0 for all others.

    C is above 0.5 where the patient is the earlier one in more comparable pairs than the later one, which needs a
    relapse. A late relapse stays below 0.5.
    """
    n = cohort.events.size
    shown = [round(whole_cohort(c_index_metric(replace(cohort, risks=one), "tie"), n), digits) for one in np.eye(n)]
    return {"submissions": n, "right": _share((np.array(shown) > 0.5) == cohort.events)}


def interval_bits(n: int, digits: int, rng: np.random.Generator) -> float:
    """Entropy of the printed ends over statuses with equal counts, a lower bound, since samples are finite."""
    streams = np.random.default_rng(2025).spawn(DRAWS)
    draws = np.stack([np.bincount(one.integers(0, n, n), minlength=n) for one in streams]).astype(np.float64)
    asked, total = np.arange(n) < n // 2, round(POSITIVE * n)
    inside = total // 2
    keys: dict[tuple[float, ...], int] = {}
    for _ in range(STATUSES_SAMPLED):
        positive = np.zeros(n)
        positive[rng.permutation(n // 2)[:inside]] = 1
        positive[n // 2 + rng.permutation(n - n // 2)[: total - inside]] = 1
        recalls = [(draws @ (side * asked_side)) / (draws @ side) for side, asked_side in _sides(positive, asked)]
        ends = np.quantile([*recalls, (recalls[0] + recalls[1]) / 2], [0.025, 0.975], axis=1)
        key = tuple(np.round(ends, digits).ravel().tolist())
        keys[key] = keys.get(key, 0) + 1
    share = np.array([*keys.values()]) / STATUSES_SAMPLED
    return round(float(-(share * np.log2(share)).sum()), 1)


def _share(right: Booleans) -> float:
    return round(float(right.mean()), 2)


def _sides(positive: Floats, asked: Booleans) -> tuple[tuple[Floats, Booleans], tuple[Floats, Booleans]]:
    return (positive, asked), (1 - positive, ~asked)


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
