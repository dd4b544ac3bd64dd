"""`hecktor study best-of-k`: what the best of k random predictions scores on this cohort."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from contract.errors import HecktorError
from contract.options import number_within, whole_number
from contract.tasks import HPV, RFS, Task, task_named
from evaluation.inputs.ground_truth import read_follow_up, read_hpv_status
from evaluation.pipeline import DEFAULT_SEED
from evaluation.report.drawing import COLOURS, new_figure, one_look
from evaluation.studies.chance import BestOf, DrawScores, best_of, random_balanced_accuracy, random_c_index
from evaluation.studies.outputs import add_output, write_study

STUDY: Final = "best-of-k"
DEFAULT_TRIES: Final = (1, 5, 20, 100)
_TITLES: Final = {RFS.name: "C-index", HPV.name: "balanced accuracy"}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the distributions; raises HecktorError for what a user can mend."""
    options = _parser().parse_args(argv)
    task = task_named(options.task)
    scores, cohort = _null(task, options.ground_truth)
    rng = np.random.default_rng(options.seed)
    found = [best_of(scores, tries, options.repeats, rng) for tries in options.tries or DEFAULT_TRIES]
    summaries = [one.summary(options.winner) for one in found]
    content = {
        "task": task.name,
        "metric": _TITLES[task.name],
        **cohort,
        "repeats": options.repeats,
        "seed": options.seed,
        "winner": options.winner,
        "best_of": summaries,
    }
    written = write_study(
        options.output, STUDY, content, summaries, _picture(found, options.winner, _TITLES[task.name])
    )
    for summary in summaries:
        p = f", p of the winner {summary['p']:.4f}" if options.winner is not None else ""
        line = f"best of {summary['tries']:>5}: {summary['mean']:.4f}, sd {summary['sd']:.4f}{p}"
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"written: {options.output}: {', '.join(written)}\n")
    return 0


def _null(task: Task, source: Path) -> tuple[DrawScores, dict[str, Any]]:
    """Random scores on a cohort's own targets, and what the cohort is."""
    if task is RFS:
        follow_up = read_follow_up(source).targets.values()
        events = np.array([one.relapse for one in follow_up], dtype=np.bool_)
        days = np.array([one.rfs_days for one in follow_up], dtype=np.float64)
        return random_c_index(days, events), {"cases": int(events.size), "recurrences": int(events.sum())}
    if task is HPV:
        positive = np.array(list(read_hpv_status(source).targets.values()), dtype=np.bool_)
        return random_balanced_accuracy(positive), {"cases": int(positive.size), "positive": int(positive.sum())}
    raise HecktorError(f"task {task.name}", "no random prediction of it", f"{RFS.name} or {HPV.name}")


@one_look
def _picture(found: Sequence[BestOf], winner: float | None, metric: str) -> Figure:
    """The distribution of the best of each number of tries, and the winner's score."""
    figure, (axes,) = new_figure(1, height=3.0, width=5.5)
    bins = np.linspace(0, 1, 101)
    for place, one in enumerate(found):
        weights = np.full(one.best.size, 1 / one.best.size)
        colour = COLOURS[place % len(COLOURS)]
        axes.hist(one.best, bins, weights=weights, histtype="step", color=colour, label=f"best of {one.tries}")
    if winner is not None:
        axes.axvline(winner, color="black", linestyle="dashed", linewidth=1.2, label="winner")
    low = min(float(one.best.min()) for one in found)
    high = max(winner or 0.0, *(float(one.best.max()) for one in found))
    axes.set(xlim=(low - 0.03, high + 0.03), xlabel=metric, ylabel="share of repeats")
    axes.legend(fontsize=8, frameon=False)
    return figure


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hecktor study best-of-k", description="The best of k random predictions of the cohort's own targets."
    )
    parser.add_argument("--task", required=True, help="2 (C-index) or 3 (balanced accuracy)")
    parser.add_argument("--ground-truth", type=Path, required=True, help="CSV file of the targets")
    parser.add_argument(
        "--tries",
        type=whole_number(1),
        action="append",
        metavar="K",
        help="predictions to take the best of; may be given several times (1, 5, 20, 100)",
    )
    parser.add_argument("--repeats", type=whole_number(1), default=1000, help="how often (%(default)s)")
    parser.add_argument(
        "--winner", type=number_within(0, 1), help="the score whose chance of being reached is asked for"
    )
    parser.add_argument("--seed", type=whole_number(0), default=DEFAULT_SEED, help="seed of the draws (%(default)s)")
    add_output(parser)
    return parser
