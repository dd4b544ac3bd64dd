"""Cross-validation splits: folds balanced by centre and outcomes, and folds of whole centres.

The splits are made once and stored in `splits.json`, so that every network and every head uses the same ones.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, Literal

import numpy as np
from pydantic import model_validator

from baseline.release.cases import ReleaseCase, event_key
from baseline.work import WorkFolders
from contract.documents import Document, parse_document, read_document
from contract.editions import AnswerSpec
from contract.errors import HecktorError, InputError
from contract.io.files import write_json
from contract.patient import format_names

FORMAT_VERSION: Final[Literal[1]] = 1
# Number of random deals; the deal with the most even outcomes is used.
DEALS: Final = 1000

Folds = tuple[tuple[str, ...], ...]
# Counts of a fold: `patients`, and by centre and outcome.
Balance = dict[str, int | dict[str, int]]
_Stratum = tuple[str, ...]


class Splits(Document):
    """Content of `splits.json`: both kinds of splits as lists of held-out patients.

    All other patients are training patients. Each kind holds out every patient exactly once.

    Attributes:
        format_version: Version of the file.
        seed: Seed of the folds.
        folds: Balanced folds.
        centres: Patients of each centre, sorted by name; empty for a single centre.
        balance: Number of patients of each fold by centre and outcome, for readers of the file.
    """

    format_version: Literal[1] = FORMAT_VERSION
    seed: int
    folds: Folds
    centres: dict[str, tuple[str, ...]]
    balance: tuple[Balance, ...] = ()

    @model_validator(mode="after")
    def _check_patients(self) -> Splits:
        everyone = set(chain.from_iterable(self.held_out))
        for kind in (self.folds, tuple(self.centres.values())):
            times = Counter(chain.from_iterable(kind))
            wrong = sorted(patient for patient in everyone if times[patient] != 1)
            if kind and wrong:
                problem = f"{wrong[0]} is held out {times[wrong[0]]} times in one kind of splits"
                raise InputError("splits.json", problem, "each patient once")
        return self

    @property
    def held_out(self) -> Folds:
        """Return all splits in the numbering of `hecktor train fold --fold`: the folds, then the centres."""
        return (*self.folds, *self.centres.values())

    @property
    def names(self) -> tuple[str, ...]:
        return (*(f"fold {number}" for number in range(len(self.folds))), *(f"without {name}" for name in self.centres))


def make_splits(cases: Sequence[ReleaseCase], answers: Sequence[AnswerSpec], folds: int, seed: int) -> Splits:
    """Deal the patients into `folds`, balanced by the outcomes of `answers`, and group them by centre.

    The result depends only on patients and seed.
    """
    if len(cases) < 2:
        raise InputError("release", f"{len(cases)} patient{'s' * (len(cases) != 1)}", "at least 2, for two folds")
    if not 2 <= folds <= len(cases):
        limit = "2" if len(cases) == 2 else f"2 to {len(cases)}"
        raise InputError("--folds", f"found {folds}", f"{limit}: the release has {len(cases)} patients")
    dealt = make_balanced_folds(cases, answers, folds, np.random.default_rng(seed))
    centres: dict[str, list[str]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: (case.centre, case.patient_id)):
        centres[case.centre].append(case.patient_id)
    by_centre = {name: tuple(members) for name, members in centres.items()}
    balance = tuple(_count_balance(fold, cases, answers) for fold in dealt)
    return Splits(seed=seed, folds=dealt, centres=by_centre if len(by_centre) > 1 else {}, balance=balance)


def make_balanced_folds(
    cases: Sequence[ReleaseCase],
    answers: Sequence[AnswerSpec],
    folds: int,
    rng: np.random.Generator,
    deals: int = DEALS,
) -> Folds:
    """Distribute the patients over `folds` so that centre and outcomes are spread evenly.

    A stratum is a centre and the outcome of each answer; a missing outcome is a separate value. The strata are dealt
    like cards, one after the other. The strata of a centre are adjacent, and within a centre the strata with the same
    first outcome. Therefore any two folds differ by at most one patient in their size, in each centre, in each first
    outcome of a centre, and in each stratum. For outcomes over all centres this is impossible, so the order of centres
    and outcomes is shuffled `deals` times, and the deal with the smallest differences is used.
    """
    strata: dict[_Stratum, list[str]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.patient_id):
        strata[(case.centre, *(str(case.get_outcome(answer)) for answer in answers))].append(case.patient_id)
    orders = [_shuffle_strata(sorted(strata), rng) for _ in range(deals)]
    order = min(orders, key=lambda order: _measure_unevenness(order, strata, folds))
    cards = [strata[key][number] for key in order for number in rng.permutation(len(strata[key]))]
    return tuple(tuple(sorted(cards[fold::folds])) for fold in range(folds))


def _shuffle_strata(strata: Sequence[_Stratum], rng: np.random.Generator, level: int = 0) -> list[_Stratum]:
    """Shuffle the centres of the strata, and within each centre the values of each further level."""
    if not strata or level == len(strata[0]):
        return list(strata)
    groups: dict[str, list[_Stratum]] = defaultdict(list)
    for key in strata:
        groups[key[level]].append(key)
    names = sorted(groups)
    mixed = [names[number] for number in rng.permutation(len(names))]
    return [key for name in mixed for key in _shuffle_strata(groups[name], rng, level + 1)]


def _measure_unevenness(
    order: Sequence[_Stratum], strata: Mapping[_Stratum, Sequence[str]], folds: int
) -> tuple[int, int]:
    """Measure the largest difference of an outcome's count between two folds, and the sum of squares of all counts."""
    counts: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * folds)
    turn = 0
    for key in order:
        whole, rest = divmod(len(strata[key]), folds)
        for fold in range(folds):
            members = whole + ((fold - turn) % folds < rest)
            for level, outcome in enumerate(key[1:]):
                counts[(level, outcome)][fold] += members
        turn += len(strata[key])
    worst = max((max(row) - min(row) for row in counts.values()), default=0)
    return worst, sum(count**2 for row in counts.values() for count in row)


def load_or_make_splits(
    path: Path, cases: Sequence[ReleaseCase], answers: Sequence[AnswerSpec], folds: int, seed: int
) -> Splits:
    """Load the splits in `path`, or make and store new splits if there is no such file."""
    if not path.is_file():
        splits = make_splits(cases, answers, folds, seed)
        write_json(path, splits.model_dump(mode="json"))
        return splits
    splits = read_document(path, Splits)
    advice = "expected the same (remove the file, or use a new working directory, for new splits)"
    if (splits.seed, len(splits.folds)) != (seed, folds):
        problem = f"{len(splits.folds)} folds with seed {splits.seed}, now {folds} and {seed}"
        raise InputError(path.name, f"{problem}, {advice}")
    known, now = set(chain.from_iterable(splits.folds)), {case.patient_id for case in cases}
    if known != now:
        new, missing = sorted(now - known), sorted(known - now)
        problem = (
            f"{len(new)} new patients ({format_names(new) or 'none'}) and "
            f"{len(missing)} missing ones ({format_names(missing) or 'none'})"
        )
        raise InputError(path.name, f"{problem}, {advice}")
    centre_of = {case.patient_id: case.centre for case in cases}
    for centre, members in splits.centres.items():
        moved = [patient for patient in members if centre_of[patient] != centre]
        if moved:
            raise InputError(path.name, f"{moved[0]} is of {centre}, now of {centre_of[moved[0]]}, {advice}")
    return splits


def read_splits(work: WorkFolders) -> Splits:
    """Read `splits.json`."""
    return parse_document(work.read(work.splits_json), Splits, work.splits_json.name)


def make_nnunet_splits(splits: Splits, with_mask: Iterable[str]) -> list[dict[str, list[str]]]:
    """Make nnU-Net's `splits_final.json`: an entry for each of `held_out`, with the patients who have a reference.

    A centre without masks has no validation patients: it is held out for the heads only.
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


def _count_balance(fold: Sequence[str], cases: Sequence[ReleaseCase], answers: Sequence[AnswerSpec]) -> Balance:
    members = [case for case in cases if case.patient_id in set(fold)]
    return {
        "patients": len(members),
        "centre": dict(sorted(Counter(case.centre for case in members).items())),
        **{
            event_key(answer): dict(sorted(Counter(str(case.get_outcome(answer)) for case in members).items()))
            for answer in answers
        },
    }


def derive_seed(seed: int, fold: int, network: str, rank: int = 0) -> int:
    """Derive the seed, below 2^32, of a fold's network (a backbone, or features by their name) in one process.

    A sum of seed and fold is not used, because fold 1 of one seed would start like fold 0 of the next seed.
    """
    name = zlib.crc32(network.encode())
    return int(np.random.SeedSequence([seed, fold, name, rank]).generate_state(1)[0])
