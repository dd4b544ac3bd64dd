"""`hecktor study best-of-k`: the distribution of the best of k random predictions' scores on a cohort."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.editions import AnswerSpec
from contract.editions.answers import Kind
from contract.errors import MetricError
from contract.options import number_within, whole_number
from evaluation.inputs.ground_truth import read_classes, read_follow_up
from evaluation.metrics.classification import class_codes
from evaluation.metrics.concordance import rank_follow_up
from evaluation.metrics.overlap import Booleans, Floats
from evaluation.metrics.rules import NO_COMPARABLE_PAIR, ONE_CLASS_ONLY
from evaluation.statistics import DEFAULT_SEED
from reporting.studies.outputs import StudyResult, add_answer_options, find_answer

# Takes a number of random predictions and a generator, returns their scores.
DrawScores: TypeAlias = Callable[[int, np.random.Generator], Floats]

_DRAWS_AT_ONCE: Final = 10_000
_QUANTILES: Final = {"ci95_low": 0.025, "median": 0.5, "ci95_high": 0.975}


def random_c_index(times_days: Floats, events: Booleans) -> DrawScores:
    """C-indices of independent random risks.

    `times_days` is the follow-up and `events` True for a recurrence, both of shape (patients,). Raises MetricError
    without a comparable pair. `evaluation.metrics.survival.c_index_metric` defines comparable pairs.
    """
    number = rank_follow_up(times_days, events)
    later_than = [(int(patient), number > number[patient]) for patient in np.flatnonzero(events)]
    pairs = sum(int(later.sum()) for _, later in later_than)
    if pairs == 0:
        raise MetricError(NO_COMPARABLE_PAIR.format(n=times_days.size))

    def scores(draws: int, rng: np.random.Generator) -> Floats:
        risks = rng.random((times_days.size, draws))
        concordant = np.zeros(draws)
        for patient, later in later_than:
            concordant += (risks[later] < risks[patient]).sum(axis=0)
        return concordant / pairs

    return scores


def random_balanced_accuracy(reference: npt.NDArray[Any], n_classes: int = 2) -> DrawScores:
    """Balanced accuracies of random predictions, each class equally likely.

    `reference` is the class of each patient, shape (patients,). Raises MetricError if it holds one class only.
    """
    sizes = np.unique(reference, return_counts=True)[1][::-1]
    if sizes.size < 2:
        raise MetricError(ONE_CLASS_ONLY)

    def scores(draws: int, rng: np.random.Generator) -> Floats:
        recalls = [rng.binomial(size, 1 / n_classes, draws) / size for size in sizes]
        return np.asarray(np.sum(recalls, axis=0) / len(recalls))

    return scores


def summarised(best: Floats, winner: float | None = None) -> dict[str, float]:
    """Mean, standard deviation and quantiles; with a winner's score also the probability that chance reaches it.

    One is added to both counts of `p`, so that it is never 0 (Davison and Hinkley 1997, section 4.2).
    """
    figures = {"mean": float(best.mean()), "sd": float(best.std())}
    figures |= {name: float(np.quantile(best, share)) for name, share in _QUANTILES.items()}
    if winner is not None:
        figures["p"] = float(((best >= winner).sum() + 1) / (best.size + 1))
    return figures


def best_of(scores: DrawScores, tries: int, repeats: int, rng: np.random.Generator) -> Floats:
    """The best of `tries` independent random predictions in each repeat; shape (repeats,).

    Source: the HECKTOR 2021 overview, which asks whether the winner of 82 submissions beats chance.
    """
    step = max(1, _DRAWS_AT_ONCE // tries)
    parts = []
    for start in range(0, repeats, step):
        rows = min(step, repeats - start)
        parts.append(scores(rows * tries, rng).reshape(rows, tries).max(axis=1))
    return np.concatenate(parts)


DEFAULT_TRIES: Final = (1, 5, 20, 100)
_TITLES: Final[dict[Kind, str]] = {"risk": "C-index", "class": "balanced accuracy"}


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Draw the distribution of the best of each number of tries."""
    task, answer = find_answer(parser, options, tuple(_TITLES))
    title = _TITLES[answer.kind]
    scores, cohort = _null(answer, options.ground_truth)
    rng = np.random.default_rng(options.seed)
    summaries = [
        {"tries": tries, **summarised(best_of(scores, tries, options.repeats, rng), options.winner)}
        for tries in options.tries or DEFAULT_TRIES
    ]
    content = {
        "task": task.name,
        "answer": answer.name,
        "metric": title,
        **cohort,
        "repeats": options.repeats,
        "seed": options.seed,
        "winner": options.winner,
        "best_of": summaries,
    }
    summary = "".join(
        f"best of {one['tries']:>5}: {one['mean']:z.4f}, sd {one['sd']:z.4f}"
        + (f", p of the winner {one['p']:z.4f}\n" if "p" in one else "\n")
        for one in summaries
    )
    return StudyResult(content, summaries, summary)


def _null(answer: AnswerSpec, source: Path) -> tuple[DrawScores, dict[str, Any]]:
    """Random scores on a cohort's own targets, and the cohort's size."""
    if answer.kind == "risk":
        follow_up = read_follow_up(source, answer).targets.values()
        events = np.array([one.relapse for one in follow_up], dtype=np.bool_)
        days = np.array([one.rfs_days for one in follow_up], dtype=np.float64)
        return random_c_index(days, events), {"cases": int(events.size), "recurrences": int(events.sum())}
    codes = class_codes(list(read_classes(source, answer).targets.values()), answer.classes)
    counts = np.bincount(codes, minlength=len(answer.classes)).tolist()
    sizes = {str(value): count for value, count in zip(answer.classes, counts, strict=True)}
    by_class = {"positive": counts[1]} if answer.is_binary else {"classes": sizes}
    return random_balanced_accuracy(codes, len(answer.classes)), {"cases": int(codes.size), **by_class}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the task, its targets, and the settings of the draws."""
    add_answer_options(parser)
    add = parser.add_argument
    add("--ground-truth", type=Path, required=True, help="CSV table with the follow-up or the classes")
    tries = "number k of random predictions; may be repeated (default: 1, 5, 20, 100)"
    add("--tries", type=whole_number(1), action="append", metavar="K", help=tries)
    add("--repeats", type=whole_number(1), default=1000, help="number of repeats (default: %(default)s)")
    winner = "score of the winner, 0 to 1: also print how often chance reaches it"
    add("--winner", type=number_within(0, 1), help=winner)
    seed = "seed of the random predictions (default: %(default)s)"
    add("--seed", type=whole_number(0), default=DEFAULT_SEED, help=seed)
