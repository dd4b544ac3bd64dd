"""Print the table of docs/evaluating.md on what public results reveal: attacks on simulated patients.

`.venv/bin/python docs/make_public_table.py`
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.files import write_csv
from evaluation import evaluate

PATIENTS: Final = 99
COHORTS: Final = 5
SEED: Final = 2025
_Flags = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]
# Submits values by patient number; returns the public figures of each metric: value and both ends of its interval.
Submit = Callable[[Mapping[int, float]], Mapping[str, _Floats]]


def main() -> int:
    """Print the table."""
    rng = np.random.default_rng(SEED)
    status, outcome = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(COHORTS):
            root = Path(folder) / str(number)
            status.append(attack_status(root / "hpv", rng.random(PATIENTS) < 0.6))
            days = np.sort(rng.choice(np.arange(30, 3000), PATIENTS, replace=False)).astype(np.float64)
            outcome.append(attack_outcome(root / "rfs", rng.permutation(days), rng.random(PATIENTS) < 0.35))
    sent, right = zip(*status, strict=True)
    highest, order, all_three = zip(*outcome, strict=True)
    alone = "one risk above all others, which are equal"
    rows = [
        ("HPV status", "positive for half of a group, negative for half of another", _range(sent, 1), _range(right)),
        ("relapse", alone, f"{PATIENTS}", _range(highest)),
        ("order of two follow-ups", alone, f"{PATIENTS}", _range(order)),
        (
            "relapse",
            "then one risk between earlier and later follow-ups, and among the later",
            f"{3 * PATIENTS}",
            _range(all_three),
        ),
    ]
    lines = ["| outcome | submissions | number | right |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


def submitter(folder: Path, task: str, column: str, truth: list[dict[str, object]]) -> Submit:
    """The public evaluation of a table of answers, with a seed that the submitter doesn't know."""
    folder.mkdir(parents=True)
    reference, answers = folder / "truth.csv", folder / "answers.csv"
    write_csv(reference, list(truth[0]), truth)

    def submit(values: Mapping[int, float]) -> Mapping[str, _Floats]:
        write_csv(answers, ["PatientID", column], [{"PatientID": _name(n), column: v} for n, v in values.items()])
        result = evaluate(reference, task=task, predictions=answers, public=True, seed=SEED)
        figures = {name: (one.value, one.ci95_low, one.ci95_high) for name, one in result.metrics.items()}
        return {name: np.array(three, dtype=np.float64) for name, three in figures.items()}

    return submit


def attack_status(folder: Path, positive: _Flags) -> tuple[int, float]:
    """Submissions until all statuses are known, and the share that is right.

    Each submission answers positive for one half of a group, negative for one half of another and nothing for all
    others: sensitivity and specificity are counts of both halves. The number of positives is known, as papers print it.
    """
    truth = [{"PatientID": _name(n), "HPV Status": int(one)} for n, one in enumerate(positive)]
    submit = submitter(folder, "hpv", "hpv", truth)
    total, decoded, sent = int(positive.sum()), np.zeros(len(positive), np.bool_), 0
    groups = [(list(range(len(positive))), total)]
    while groups:
        groups.sort(key=lambda group: -len(group[0]))
        first, second = groups.pop(0), groups.pop(0) if groups else ([], 0)
        asked, denied = (group[0][: len(group[0]) // 2] for group in (first, second))
        figures = submit({**dict.fromkeys(asked, 1), **dict.fromkeys(denied, 0)})
        sent += 1
        found = round(figures["sensitivity"][0] * total)
        negative = round(figures["specificity"][0] * (len(positive) - total))
        for (members, count), half, inside in ((first, asked, found), (second, denied, len(denied) - negative)):
            for part, positives in ((half, inside), (members[len(half) :], count - inside)):
                if positives in (0, len(part)):
                    decoded[part] = positives > 0
                else:
                    groups.append((part, positives))
    return sent, float(np.mean(decoded == positive))


def attack_outcome(folder: Path, days: _Floats, relapsed: _Flags) -> tuple[float, float, float]:
    """Shares decoded right: relapses and the order of two patients from one submission each, relapses from three.

    The highest risk wins the pairs with all who are followed longer, if its patient relapsed, and loses the pairs with
    all who relapsed before. So a value or an interval's end above 0.5 shows a relapse, and the value is the place in
    time. A risk between all earlier and all later patients differs from one that equals the later ones' by the pairs
    that it wins.
    """
    truth = [{"PatientID": _name(n), "Relapse": int(relapsed[n]), "RFS": days[n]} for n in range(len(days))]
    submit = submitter(folder, "rfs", "risk", truth)

    def figures(risks: Mapping[int, float]) -> _Floats:
        return submit(risks)["c_index"] - 0.5

    equal = dict.fromkeys(range(len(days)), 0.0)
    won = np.array([figures({**equal, patient: 1.0}) for patient in equal])
    decoded, value = won.max(1) > 0, won[:, 0]
    pair = value.max() / (len(days) - 1)  # the first relapse wins nearly all of its pairs
    relapses_before = np.where(decoded, [np.sum(decoded & (value > one)) for one in value], -value / pair)
    in_time, sure = np.argsort(relapses_before), decoded.copy()
    for place, patient in enumerate(in_time):
        earlier = {**equal, **dict.fromkeys(in_time[:place], 2.0)}
        sure[patient] |= (figures({**earlier, patient: 1.0}) - figures(earlier)).sum() > 0
    two = np.triu(np.ones((len(days), len(days)), np.bool_), 1)
    later, guess = (np.sign(values[:, None] - values)[two] for values in (days, relapses_before))
    order = np.mean(np.where(guess == 0, 0.5, guess == later))
    return float(np.mean(decoded == relapsed)), float(order), float(np.mean(sure == relapsed))


def _name(number: int) -> str:
    return f"P{number:03d}"


def _range(values: tuple[float, ...], scale: float = 100.0) -> str:
    low, high = (round(scale * one) for one in (min(values), max(values)))
    unit = " %" if scale > 1 else ""
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


if __name__ == "__main__":
    sys.exit(main())
