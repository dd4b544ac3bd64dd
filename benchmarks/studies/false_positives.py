"""How often the tests of `hecktor rank` find one of two teams better, if they are equally good and if they are not.

::

    python -m benchmarks.studies.false_positives

simulates cohorts with two teams (benchmarks/studies/simulated_teams.py), compares them with the code of `hecktor rank`
and prints the tables of docs/ranking.md. A cell "0.051 / 0.38" is the fraction of cohorts in which the one-sided p of a
test is at most 0.05: if the teams are equal, and if team a is better.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias

import numpy as np
from tqdm import tqdm

from benchmarks.studies.simulated_teams import TEAMS, TwoTeams, alike, unlike
from contract.errors import run_main
from contract.markdown import table
from contract.options import whole_number
from evaluation.editions.profile import load_profile
from evaluation.metrics.overlap import Floats
from evaluation.ranking.comparisons import BOOTSTRAP, KANG, SIGNED_RANK
from evaluation.statistics.bootstrap import leave_one_out, replicates
from evaluation.statistics.gains import PairedGains, paired_gains
from evaluation.statistics.kang import kang
from evaluation.statistics.tests import mcnemar, signed_ranks

LEVEL: Final = 0.05
MCNEMAR: Final = "mcnemar"
ADVANTAGE: Final = 0.2  # of the better team, in standard deviations of a team's quality
SHARE: Final = "share_of_replicates"
TESTS: Final = (SIGNED_RANK, BOOTSTRAP, SHARE, KANG, MCNEMAR)
SCORE: Final = "score"
_GAIN: Final = "gain"
_COVERS_0: Final = "covers_0"

# By metric and test the one-sided p of each cohort; also the observed gain, and whether its interval covers 0.
Records: TypeAlias = Mapping[str, Mapping[str, list[float]]]
Simulate: TypeAlias = Callable[[np.random.Generator], TwoTeams]
Sizes: TypeAlias = tuple[int, int, int]  # cohorts, patients, bootstraps


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate and print the tables."""
    options = _parser().parse_args(argv)
    for patients in options.patients:
        sizes = (options.cohorts, patients, options.bootstraps)
        equal = simulate(partial(alike, patients, 0.0), sizes, options.seed)
        better = simulate(partial(alike, patients, ADVANTAGE), sizes, options.seed + 1)
        sys.stdout.write(f"{patients} patients\n\n{rates(equal, better)}\n\n")
        other = simulate(partial(unlike, patients), sizes, options.seed + 2)
        sys.stdout.write(f"{patients} patients, unlike teams with equal expected values\n\n{rates(other)}\n\n")
    return 0


def simulate(cohort: Simulate, sizes: Sizes, seed: int) -> Records:
    """Compare the two teams of each cohort by every metric and test."""
    cohorts, patients, bootstraps = sizes
    rng = np.random.default_rng(seed)
    records: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in tqdm(range(cohorts), desc=f"{patients} patients", unit="cohort", mininterval=10):
        teams = cohort(rng)
        for name, gains, shares in _of_metrics(teams, patients, bootstraps, rng):
            record = records[name]
            record[_GAIN].append(gains.difference[0, 1])
            record[_COVERS_0].append(float(gains.ci95_low[0, 1] <= 0 <= gains.ci95_high[0, 1]))
            for test, p in {BOOTSTRAP: gains.p[0, 1], SHARE: shares, **_other_tests(teams, name)}.items():
                record[test].append(float(p))
    return records


def _of_metrics(
    teams: TwoTeams, patients: int, bootstraps: int, rng: np.random.Generator
) -> list[tuple[str, PairedGains, float]]:
    """Each metric's gains, and the share of replicates without a gain, from draws that all metrics share."""
    metrics = {(name, team): pair[team] for name, pair in teams.metrics.items() for team in range(TEAMS)}
    draws, _ = replicates(metrics, patients, bootstraps, rng)
    everybody = np.ones((1, patients))
    figures = {
        name: (
            np.array([metric(everybody)[0] for metric in pair]),
            np.stack([draws[name, team] for team in range(TEAMS)]),
            np.stack([leave_one_out(metric, patients) for metric in pair]),
        )
        for name, pair in teams.metrics.items()
    }
    terms = _score_terms()
    if set(terms) <= set(figures):
        values, drawn, left_out = (
            np.asarray(sum(weight * figures[term][part] for term, weight in terms.items())) for part in range(3)
        )
        figures[SCORE] = values, drawn, left_out
    return [(name, *_gains(name, *parts)) for name, parts in figures.items()]


@cache
def _score_terms() -> Mapping[str, float]:
    """The weights of the official score of HECKTOR 2026."""
    return load_profile("hecktor2026").task(None).metrics[SCORE].terms


def _gains(name: str, values: Floats, drawn: Floats, left_out: Floats) -> tuple[PairedGains, float]:
    sign = -1.0 if name.endswith("_mm") else 1.0
    gains = paired_gains(sign * values, sign * drawn, sign * left_out)
    first, second = sign * drawn
    without = (first < second).sum() + 0.5 * (first == second).sum()
    return gains, float(without + 1) / (first.size + 1)


def _other_tests(teams: TwoTeams, name: str) -> dict[str, float]:
    tests: dict[str, Any] = {}
    if name in teams.per_case:
        tests[SIGNED_RANK] = signed_ranks(teams.per_case[name])[0, 1]
    if name in teams.correct:
        tests[MCNEMAR] = mcnemar(teams.correct[name], teams.counted[name]).p[0, 1]
    if name == "c_index" and teams.risks is not None:
        tests[KANG] = kang(teams.risks).p[0, 1]
    return tests


def rates(equal: Records, better: Records | None = None) -> str:
    """A table with the deciding test in bold, and the interval's coverage of 0 for equal teams."""
    heads = ["metric", *(["mean gain"] if better else []), "interval covers 0", *TESTS]
    lines = []
    for name, record in equal.items():
        decides = SIGNED_RANK if name.endswith("_mean") else BOOTSTRAP
        cells = [_rate(test, record, (better or {}).get(name)) for test in TESTS]
        cells = [f"**{cell}**" if test == decides else cell for test, cell in zip(TESTS, cells, strict=True)]
        gain = [f"{np.mean(better[name][_GAIN]):.3f}"] if better else []
        lines.append([f"`{name}`", *gain, f"{np.mean(record[_COVERS_0]):.3f}", *cells])
    return table(heads, lines)


def _rate(test: str, equal: Mapping[str, list[float]], better: Mapping[str, list[float]] | None) -> str:
    if test not in equal:
        return "-"
    found = [f"{(np.array(one[test]) <= LEVEL).mean():.{digits}f}" for one, digits in ((equal, 3), (better, 2)) if one]
    return " / ".join(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.false_positives", description=__doc__)
    add = parser.add_argument
    add("--cohorts", type=whole_number(1), default=2000, help="simulated cohorts a table (default: %(default)s)")
    add("--patients", type=whole_number(10), nargs="+", default=[100, 400], help="cohort sizes (default: 100 400)")
    add("--bootstraps", type=whole_number(1), default=1000, help="bootstrap replicates (default: %(default)s)")
    add("--seed", type=whole_number(0), default=13, help="seed of the simulation (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
