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
from evaluation.metrics.classification import encode_classes
from evaluation.metrics.concordance import rank_follow_up
from evaluation.metrics.overlap import Booleans, Floats
from evaluation.metrics.rules import NO_COMPARABLE_PAIR, ONE_CLASS_ONLY
from evaluation.statistics import DEFAULT_SEED
from reporting.studies.outputs import StudyResult, add_answer_options, find_answer

# A function of a number of random predictions and a generator; it returns the scores of these predictions.
DrawScores: TypeAlias = Callable[[int, np.random.Generator], Floats]

DEFAULT_TRIES: Final = (1, 5, 20, 100)
_MAX_DRAWS_AT_ONCE: Final = 10_000
_QUANTILES: Final = {"ci95_low": 0.025, "median": 0.5, "ci95_high": 0.975}
_METRIC_TITLES: Final[dict[Kind, str]] = {"risk": "C-index", "class": "balanced accuracy"}


def random_c_index(times_days: Floats, events: Booleans) -> DrawScores:
    """Return a function that draws C-indices of independent random risks.

    `evaluation.metrics.survival.c_index_metric` defines comparable pairs.

    Args:
        times_days: Follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).

    Raises:
        MetricError: No pair of patients is comparable.
    """
    number = rank_follow_up(times_days, events)
    comparable = [(int(patient), number > number[patient]) for patient in np.flatnonzero(events)]
    n_pairs = sum(int(later.sum()) for _, later in comparable)
    if n_pairs == 0:
        raise MetricError(NO_COMPARABLE_PAIR.format(n=times_days.size))

    def draw_scores(draws: int, rng: np.random.Generator) -> Floats:
        risks = rng.random((times_days.size, draws))
        concordant = np.zeros(draws)
        for patient, later in comparable:
            concordant += (risks[later] < risks[patient]).sum(axis=0)
        return concordant / n_pairs

    return draw_scores


def random_balanced_accuracy(reference: npt.NDArray[Any], n_classes: int = 2) -> DrawScores:
    """Return a function that draws balanced accuracies of random predictions, each class equally likely.

    Args:
        reference: Class of each patient, shape (patients,).
        n_classes: Number of classes of the predictions.

    Raises:
        MetricError: The reference contains only one class.
    """
    sizes = np.unique(reference, return_counts=True)[1][::-1]
    if sizes.size < 2:
        raise MetricError(ONE_CLASS_ONLY)

    def draw_scores(draws: int, rng: np.random.Generator) -> Floats:
        recalls = [rng.binomial(size, 1 / n_classes, draws) / size for size in sizes]
        return np.asarray(np.sum(recalls, axis=0) / len(recalls))

    return draw_scores


def summarise_scores(best: Floats, winner: float | None = None) -> dict[str, float]:
    """Return mean, standard deviation and quantiles, and the probability `p` that chance reaches the winner's score.

    There is no `p` without a winner. Its numerator and its denominator are increased by 1, so it is never 0
    (Davison and Hinkley 1997, section 4.2).
    """
    figures = {"mean": float(best.mean()), "sd": float(best.std())}
    figures |= {name: float(np.quantile(best, fraction)) for name, fraction in _QUANTILES.items()}
    if winner is not None:
        figures["p"] = float(((best >= winner).sum() + 1) / (best.size + 1))
    return figures


def draw_best_scores(draw_scores: DrawScores, tries: int, repeats: int, rng: np.random.Generator) -> Floats:
    """Return the best of `tries` independent random predictions in each repeat, shape (repeats,).

    Source: the HECKTOR 2021 overview, which asks whether the winner of 82 submissions beats chance.
    """
    step = max(1, _MAX_DRAWS_AT_ONCE // tries)
    parts = []
    for start in range(0, repeats, step):
        rows = min(step, repeats - start)
        parts.append(draw_scores(rows * tries, rng).reshape(rows, tries).max(axis=1))
    return np.concatenate(parts)


def run_best_of_k(parser: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Draw the distribution of the best score for each number of tries."""
    task, answer = find_answer(parser, options, tuple(_METRIC_TITLES))
    draw_scores, cohort = _read_targets(answer, options.ground_truth)
    rng = np.random.default_rng(options.seed)
    lines = []
    for tries in options.tries or DEFAULT_TRIES:
        best = draw_best_scores(draw_scores, tries, options.repeats, rng)
        lines.append({"tries": tries, **summarise_scores(best, options.winner)})
    content = {
        "task": task.name,
        "answer": answer.name,
        "metric": _METRIC_TITLES[answer.kind],
        **cohort,
        "repeats": options.repeats,
        "seed": options.seed,
        "winner": options.winner,
        "best_of": lines,
    }
    summary = ""
    for line in lines:
        summary += f"best of {line['tries']:>5}: {line['mean']:z.4f}, sd {line['sd']:z.4f}"
        summary += f", p of the winner {line['p']:z.4f}\n" if "p" in line else "\n"
    return StudyResult(content, lines, summary)


def _read_targets(answer: AnswerSpec, source: Path) -> tuple[DrawScores, dict[str, Any]]:
    """Read the cohort's targets; return random scores on them, and the numbers of patients for the JSON file."""
    if answer.kind == "risk":
        targets = read_follow_up(source, answer).targets.values()
        events = np.array([target.relapse for target in targets], dtype=np.bool_)
        days = np.array([target.rfs_days for target in targets], dtype=np.float64)
        return random_c_index(days, events), {"cases": int(events.size), "recurrences": int(events.sum())}
    codes = encode_classes(list(read_classes(source, answer).targets.values()), answer.classes)
    counts = np.bincount(codes, minlength=len(answer.classes)).tolist()
    if answer.is_binary:
        sizes: dict[str, Any] = {"positive": counts[1]}
    else:
        sizes = {"classes": {str(value): count for value, count in zip(answer.classes, counts, strict=True)}}
    return random_balanced_accuracy(codes, len(answer.classes)), {"cases": int(codes.size), **sizes}


def add_best_of_k_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the task, its targets and the draws."""
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
