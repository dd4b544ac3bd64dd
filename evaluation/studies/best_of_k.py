"""`hecktor study best-of-k`: the distribution of the best of k random predictions' scores on a cohort."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from contract.editions import Answer
from contract.editions.declaration import Kind
from contract.options import add_edition_options, chosen_algorithm, number_within, whole_number
from evaluation.inputs.ground_truth import read_classes, read_follow_up
from evaluation.metrics.classification import class_codes
from evaluation.report.drawing import COLOURS, new_figure, plot_style
from evaluation.statistics import DEFAULT_SEED
from evaluation.studies.chance import BestOf, DrawScores, best_of, random_balanced_accuracy, random_c_index
from evaluation.studies.outputs import StudyResult, add_answer_option, chosen_answer

DESCRIPTION: Final = "The best of k random predictions of the cohort's own targets."
DEFAULT_TRIES: Final = (1, 5, 20, 100)
_TITLES: Final[dict[Kind, str]] = {"risk": "C-index", "class": "balanced accuracy"}


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Draw the distribution of the best of each number of tries."""
    _, task = chosen_algorithm(parser, options)
    answer = chosen_answer(task, options.answer, tuple(_TITLES))
    title = _TITLES[answer.kind]
    scores, cohort = _null(answer, options.ground_truth)
    rng = np.random.default_rng(options.seed)
    distributions = [best_of(scores, tries, options.repeats, rng) for tries in options.tries or DEFAULT_TRIES]
    summaries = [one.summary(options.winner) for one in distributions]
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
        f"best of {one['tries']:>5}: {one['mean']:.4f}, sd {one['sd']:.4f}"
        + (f", p of the winner {one['p']:.4f}\n" if "p" in one else "\n")
        for one in summaries
    )
    return StudyResult(content, summaries, summary, _picture(distributions, options.winner, title))


def _null(answer: Answer, source: Path) -> tuple[DrawScores, dict[str, Any]]:
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


@plot_style
def _picture(distributions: Sequence[BestOf], winner: float | None, metric: str) -> Figure:
    """The distribution of the best of each number of tries, and the winner's score."""
    figure, (axes,) = new_figure(1, height=3.0, width=5.5)
    bins = np.linspace(0, 1, 101)
    for place, one in enumerate(distributions):
        weights = np.full(one.best.size, 1 / one.best.size)
        colour = COLOURS[place % len(COLOURS)]
        axes.hist(one.best, bins, weights=weights, histtype="step", color=colour, label=f"best of {one.tries}")
    if winner is not None:
        axes.axvline(winner, color="black", linestyle="dashed", linewidth=1.2, label="winner")
    low = min(float(one.best.min()) for one in distributions)
    high = max(winner or 0.0, *(float(one.best.max()) for one in distributions))
    axes.set(xlim=(low - 0.03, high + 0.03), xlabel=metric, ylabel="share of repeats")
    axes.legend(fontsize=8, frameon=False)
    return figure


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the task, its targets, and the settings of the draws."""
    add_edition_options(parser)
    add_answer_option(parser)
    add = parser.add_argument
    add("--ground-truth", type=Path, required=True, help="CSV table with the follow-up or the classes")
    tries = "number of predictions to take the best of; may be repeated (default: 1, 5, 20, 100)"
    add("--tries", type=whole_number(1), action="append", metavar="K", help=tries)
    add("--repeats", type=whole_number(1), default=1000, help="number of repeats (default: %(default)s)")
    winner = "score of the winner, 0 to 1: also print how often chance reaches it"
    add("--winner", type=number_within(0, 1), help=winner)
    seed = "seed of the random predictions (default: %(default)s)"
    add("--seed", type=whole_number(0), default=DEFAULT_SEED, help=seed)
