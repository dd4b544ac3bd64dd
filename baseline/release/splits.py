"""Who is held out when: folds balanced by centre, event and HPV status, and each centre held out as a whole.

A patient is its ID, whatever task folders it stands in. The splits are dealt once, kept in `splits.json` and read
again: every step and every head is judged on the same ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from baseline.release.cases import ReleaseCase
from contract.errors import HecktorError, InputError
from contract.files import read_json, write_json

FORMAT_VERSION: Final = 1
# So many deals are tried, and the one with the evenest events and HPV statuses is kept.
DEALS: Final = 1000

Folds = tuple[tuple[str, ...], ...]
_Stratum = tuple[str, str, str]


@dataclass(frozen=True)
class Splits:
    """Both kinds of splits, each a list of held-out patients; whoever is not held out is trained on.

    `folds` are balanced; `centres` maps each centre, in order of name, to its patients, and is empty where there is
    one centre only. Either kind holds out each patient exactly once.
    """

    seed: int
    folds: Folds
    centres: Mapping[str, tuple[str, ...]]

    @property
    def held_out(self) -> Folds:
        """All splits by number, as `hecktor train fold --fold` counts them: the folds, then the centres."""
        return (*self.folds, *self.centres.values())

    @property
    def names(self) -> tuple[str, ...]:
        """What each of `held_out` is called."""
        return (*(f"fold {number}" for number in range(len(self.folds))), *(f"without {name}" for name in self.centres))


def make_splits(cases: Sequence[ReleaseCase], folds: int, seed: int) -> Splits:
    """Deal the patients into `folds` and group them by centre; the same for the same patients and seed.

    Raises:
        InputError: fewer than two folds, or fewer patients than folds.
    """
    if not 2 <= folds <= len(cases):
        raise InputError("--folds", f"found {folds}", f"2 to {len(cases)}, the number of patients")
    dealt = balanced_folds(cases, folds, np.random.default_rng(seed))
    centres: dict[str, list[str]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: (case.centre, case.patient_id)):
        centres[case.centre].append(case.patient_id)
    by_centre = {name: tuple(members) for name, members in centres.items()}
    return Splits(seed, dealt, by_centre if len(by_centre) > 1 else {})


def balanced_folds(cases: Sequence[ReleaseCase], folds: int, rng: np.random.Generator, deals: int = DEALS) -> Folds:
    """Share the patients out over `folds` so that centre, event and HPV status are spread evenly.

    Strata (centre, event, HPV status, each with missing as a value of its own) are dealt out like cards, one after
    the other without starting anew. A centre's strata follow each other, and so do those of an event within it:
    between any two folds the number of patients, of patients of a centre, of a centre's patients with one event
    status, and of a stratum's patients differ by at most one. Events and HPV statuses over all centres cannot
    follow each other too: the order of the centres and within them is shuffled `deals` times, and the deal is kept
    in which they differ least.
    """
    strata: dict[_Stratum, list[str]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.patient_id):
        strata[(case.centre, str(case.relapse), str(case.hpv))].append(case.patient_id)
    orders = [_shuffled(sorted(strata), rng) for _ in range(deals)]
    order = min(orders, key=lambda order: _unevenness(order, strata, folds))
    dealt: list[list[str]] = [[] for _ in range(folds)]
    turn = 0
    for key in order:
        for number in rng.permutation(len(strata[key])):
            dealt[turn % folds].append(strata[key][number])
            turn += 1
    return tuple(tuple(sorted(fold)) for fold in dealt)


def _shuffled(strata: Sequence[_Stratum], rng: np.random.Generator, level: int = 0) -> list[_Stratum]:
    """The strata with centres in random order, within each its events, and within those HPV statuses."""
    if level == 3:
        return list(strata)
    groups: dict[str, list[_Stratum]] = defaultdict(list)
    for key in strata:
        groups[key[level]].append(key)
    names = sorted(groups)
    mixed = [names[number] for number in rng.permutation(len(names))]
    return [key for name in mixed for key in _shuffled(groups[name], rng, level + 1)]


def _unevenness(order: Sequence[_Stratum], strata: Mapping[_Stratum, Sequence[str]], folds: int) -> tuple[int, int]:
    """Largest difference between two folds in an event or HPV status, then the sum of squares of all counts."""
    counts: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * folds)
    turn = 0
    for key in order:
        whole, rest = divmod(len(strata[key]), folds)
        for fold in range(folds):
            members = whole + ((fold - turn) % folds < rest)
            counts[(1, key[1])][fold] += members
            counts[(2, key[2])][fold] += members
        turn += len(strata[key])
    worst = max(max(row) - min(row) for row in counts.values())
    return worst, sum(count**2 for row in counts.values() for count in row)


def kept_splits(path: Path, cases: Sequence[ReleaseCase], folds: int, seed: int) -> Splits:
    """The splits in `path` where it stands, else new ones that are then kept there.

    Raises:
        InputError: the kept splits are of other patients, centres, number of folds or seed, or are damaged.
    """
    if not path.is_file():
        splits = make_splits(cases, folds, seed)
        write_json(path, _as_json(splits, cases))
        return splits
    splits = read_splits(path)
    advice = "expected the same (remove the file, or train in a new folder, to deal anew)"
    if (splits.seed, len(splits.folds)) != (seed, folds):
        found = f"{len(splits.folds)} folds dealt with seed {splits.seed}, now {folds} and {seed}"
        raise InputError(path.name, f"{found}, {advice}")
    known, now = {p for fold in splits.folds for p in fold}, {case.patient_id for case in cases}
    if known != now:
        new, gone = sorted(now - known), sorted(known - now)
        found = f"{len(new)} patients are not in it ({_some(new)}) and {len(gone)} are gone ({_some(gone)})"
        raise InputError(path.name, f"{found}, {advice}")
    centre_of = {case.patient_id: case.centre for case in cases}
    for centre, members in splits.centres.items():
        moved = [patient for patient in members if centre_of[patient] != centre]
        if moved:
            raise InputError(path.name, f"{moved[0]} is of {centre}, now of {centre_of[moved[0]]}, {advice}")
    return splits


def read_splits(path: Path) -> Splits:
    """Read `splits.json`.

    Raises:
        InputError: absent, damaged, or a patient is held out twice or never in one of both kinds.
    """
    content = read_json(path)
    try:
        if content["format_version"] != FORMAT_VERSION:
            raise InputError(path.name, f"format {content['format_version']}", f"{FORMAT_VERSION}")
        folds = tuple(tuple(map(str, fold)) for fold in content["folds"])
        centres = {str(name): tuple(map(str, members)) for name, members in content["centres"].items()}
        splits = Splits(int(content["seed"]), folds, centres)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise InputError(path.name, f"not a record of splits ({problem!r})", "seed, folds, centres") from None
    everyone = set(_all(splits.held_out))
    for kind in (splits.folds, tuple(splits.centres.values())):
        times = Counter(_all(kind))
        wrong = sorted(patient for patient in everyone if times[patient] != 1)
        if kind and wrong:
            found = f"{wrong[0]} is held out {times[wrong[0]]} times in one kind of splits"
            raise InputError(path.name, f"{found}", "each patient once")
    return splits


def as_nnunet_splits(splits: Splits, with_mask: Iterable[str]) -> list[dict[str, list[str]]]:
    """nnU-Net's `splits_final.json`, one entry for each of `held_out`, of the patients that have a reference mask.

    A centre without masks has nobody to validate on: it is held out for the heads alone.

    Raises:
        HecktorError: a balanced fold would train or validate on nobody.
    """
    usable = set(with_mask)
    entries: list[dict[str, list[str]]] = []
    for name, held_out in zip(splits.names, splits.held_out, strict=True):
        entry = {"train": sorted(usable - set(held_out)), "val": sorted(usable & set(held_out))}
        empty = [part for part, members in entry.items() if not members]
        if empty and len(entries) < len(splits.folds):
            raise HecktorError(name, f"no patient with a reference mask in {empty[0]!r}", "at least one")
        entries.append(entry)
    return entries


def _as_json(splits: Splits, cases: Sequence[ReleaseCase]) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "seed": splits.seed,
        "folds": [list(fold) for fold in splits.folds],
        "centres": {name: list(members) for name, members in splits.centres.items()},
        "balance": [_balance(fold, cases) for fold in splits.folds],
    }


def _balance(fold: Sequence[str], cases: Sequence[ReleaseCase]) -> dict[str, Any]:
    """What the reader of the file wants to know of a fold: how many of each."""
    members = [case for case in cases if case.patient_id in set(fold)]
    return {
        "patients": len(members),
        "centre": dict(sorted(Counter(case.centre for case in members).items())),
        "relapse": dict(sorted(Counter(str(case.relapse) for case in members).items())),
        "hpv": dict(sorted(Counter(str(case.hpv) for case in members).items())),
    }


def _all(held_out: Iterable[Sequence[str]]) -> list[str]:
    return [patient for members in held_out for patient in members]


def _some(patients: Sequence[str]) -> str:
    return ", ".join(patients[:3]) + (", ..." if len(patients) > 3 else "") if patients else "none"
