"""No patient is in both training and validation, no centre is on both sides, and folds are as even as possible."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baseline.release.cases import ReleaseCase
from baseline.release.splits import (
    Splits,
    derive_seed,
    load_or_make_splits,
    make_balanced_folds,
    make_nnunet_splits,
    make_splits,
    read_splits,
)
from baseline.work import WorkFolders
from contract.errors import HecktorError, InputError
from contract.patient import Patient
from tests.baseline.prepared import ANSWERS, outcomes

Stratum = tuple[str, bool | None, bool | None]
STRATA = st.tuples(
    st.sampled_from(["MDA", "CHUM", "USZ"]), st.sampled_from([True, False, None]), st.sampled_from([True, False, None])
)
FEW = {"deals": 20}


def make_cases(strata: list[Stratum]) -> list[ReleaseCase]:
    nowhere = Path("x")
    return [
        ReleaseCase(f"{centre}-{n:03d}", centre, *[nowhere] * 3, Patient(), outcomes(relapse, 100.0, hpv))
        for n, (centre, relapse, hpv) in enumerate(strata)
    ]


def get_statuses(case: ReleaseCase) -> tuple[object, ...]:
    """Return relapse and HPV status."""
    return tuple(case.get_outcome(answer) for answer in ANSWERS)


def compute_spread(folds: tuple[tuple[str, ...], ...], value: dict[str, object]) -> int:
    """Return the largest difference between two folds in how many patients share a value."""
    counts = [Counter(value[patient] for patient in fold) for fold in folds]
    return max(max(c[key] for c in counts) - min(c[key] for c in counts) for key in set(value.values()))


@given(st.lists(STRATA, min_size=1, max_size=80), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_folds_share_out_everyone_and_every_stratum_evenly(strata: list[Stratum], folds: int, seed: int) -> None:
    """Dealt in turn, n cards give each of k folds n // k or one more. The runs of a centre and its events do the same.

    Each of three centres adds at most one to the difference between folds in an event status, and each of nine pairs of
    centre and event at most one in an HPV status.
    """
    cases = make_cases(strata)
    dealt = make_balanced_folds(cases, ANSWERS, folds, np.random.default_rng(seed), **FEW)
    assert sorted(patient for fold in dealt for patient in fold) == sorted(case.patient_id for case in cases)
    assert compute_spread(dealt, dict.fromkeys((case.patient_id for case in cases), "everyone")) <= 1
    assert compute_spread(dealt, {case.patient_id: case.centre for case in cases}) <= 1
    assert compute_spread(dealt, {case.patient_id: (case.centre, get_statuses(case)[0]) for case in cases}) <= 1
    assert compute_spread(dealt, {case.patient_id: (case.centre, *get_statuses(case)) for case in cases}) <= 1
    assert compute_spread(dealt, {case.patient_id: get_statuses(case)[0] for case in cases}) <= 3
    assert compute_spread(dealt, {case.patient_id: get_statuses(case)[1] for case in cases}) <= 9


def test_events_and_hpv_are_even_in_a_cohort_of_the_release_s_size() -> None:
    """680 patients of seven centres are 136 a fold; relapses in random folds would differ by about a dozen."""
    rng = np.random.default_rng(5)
    names = ["MDA", "CHUM", "CHUP", "CHUS", "HGJ", "HMR", "USZ"]
    cases = make_cases(
        [
            (
                names[int(rng.choice(7, p=[0.4, 0.08, 0.1, 0.11, 0.08, 0.03, 0.2]))],
                bool(rng.random() < 0.2),
                None if rng.random() < 0.14 else bool(rng.random() < 0.9),
            )
            for _ in range(680)
        ]
    )
    folds = make_splits(cases, ANSWERS, 5, 0).folds
    assert [len(fold) for fold in folds] == [136] * 5
    assert compute_spread(folds, {case.patient_id: get_statuses(case)[0] for case in cases}) <= 2
    assert compute_spread(folds, {case.patient_id: get_statuses(case)[1] for case in cases}) <= 3


@settings(max_examples=25)
@given(st.lists(STRATA, min_size=5, max_size=40), st.integers(2, 5), st.integers(0, 99))
def test_no_patient_and_no_centre_leaks(strata: list[Stratum], folds: int, seed: int) -> None:
    cases = make_cases(strata)
    centre = {case.patient_id: case.centre for case in cases}
    dealt = make_balanced_folds(cases, ANSWERS, folds, np.random.default_rng(seed), **FEW)
    splits = Splits(seed=seed, folds=dealt, centres=make_splits(cases, ANSWERS, 2, seed).centres)
    entries = make_nnunet_splits(splits, centre)
    assert len(entries) == len(splits.names) == len(splits.held_out)
    for entry in entries:
        assert not set(entry["train"]) & set(entry["val"])
        assert set(entry["train"]) | set(entry["val"]) == set(centre)
    for entry in entries[folds:]:
        assert len({centre[patient] for patient in entry["val"]}) == 1
        assert not {centre[patient] for patient in entry["train"]} & {centre[patient] for patient in entry["val"]}
    for kind in (entries[:folds], entries[folds:]):
        if kind:
            assert Counter(patient for entry in kind for patient in entry["val"]) == Counter(dict.fromkeys(centre, 1))
    assert (len(entries) == folds) == (len(set(centre.values())) == 1)


def make_cohort(count: int = 12) -> list[ReleaseCase]:
    return make_cases([(("MDA", "CHUM")[n % 2], n % 3 == 0, n % 4 > 0) for n in range(count)])


def test_the_seed_decides_and_nothing_else() -> None:
    cases = make_cohort(30)
    assert make_splits(cases, ANSWERS, 3, 1) == make_splits(cases[::-1], ANSWERS, 3, 1)
    assert make_splits(cases, ANSWERS, 3, 1) != make_splits(cases, ANSWERS, 3, 2)


def test_splits_are_stored_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    splits = load_or_make_splits(path, make_cohort(), ANSWERS, 3, 7)
    before = path.read_bytes()
    assert load_or_make_splits(path, make_cohort()[::-1], ANSWERS, 3, 7) == splits == read_splits(WorkFolders(tmp_path))
    assert path.read_bytes() == before
    assert list(splits.centres) == ["CHUM", "MDA"]
    assert [fold["patients"] for fold in json.loads(before)["balance"]] == [4, 4, 4]
    # By hand: even numbers are MDA's, 6 of 12; every third relapses, 4 of 12.
    assert [fold["centre"] for fold in json.loads(before)["balance"]] == [{"CHUM": 2, "MDA": 2}] * 3
    assert sum(fold["relapse"]["True"] for fold in json.loads(before)["balance"]) == 4


@pytest.mark.parametrize(
    ("count", "folds", "seed", "message"),
    [
        (12, 4, 7, "3 folds with seed 7, now 4 and 7"),
        (12, 3, 8, "3 folds with seed 7, now 3 and 8"),
        (13, 3, 7, r"1 new patients \(MDA-012\) and 0 missing ones \(none\)"),
        (8, 3, 7, r"0 new patients \(none\) and 4 missing ones \(CHUM-009, CHUM-011, MDA-008 and 1 more\)"),
    ],
)
def test_kept_splits_of_something_else_are_refused(
    tmp_path: Path, count: int, folds: int, seed: int, message: str
) -> None:
    path = tmp_path / "splits.json"
    load_or_make_splits(path, make_cohort(), ANSWERS, 3, 7)
    with pytest.raises(InputError, match=rf"^splits\.json: {message}, expected the same \(remove the file"):
        load_or_make_splits(path, make_cohort(count), ANSWERS, folds, seed)


def test_a_patient_that_moved_to_another_centre(tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    load_or_make_splits(path, make_cohort(), ANSWERS, 3, 7)
    path.write_text(path.read_text().replace('"CHUM": [', '"USZ": [', 1))
    with pytest.raises(InputError, match=r"CHUM-001 is of USZ, now of CHUM"):
        load_or_make_splits(path, make_cohort(), ANSWERS, 3, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["folds"][0].append(c["folds"][1][0]), "is held out 2 times in one kind of splits"),
        (lambda c: c["centres"]["MDA"].pop(), "is held out 0 times in one kind of splits"),
        (lambda c: c["centres"]["MDA"].append("X-1"), "X-1 is held out 0 times in one kind of splits"),
        (lambda c: c.update(format_version=2), r"format_version: found 2, expected 1"),
    ],
)  # fmt: skip
def test_damaged_splits_are_refused(tmp_path: Path, change: Callable[[dict], None], message: str) -> None:
    path = tmp_path / "splits.json"
    load_or_make_splits(path, make_cohort(), ANSWERS, 3, 7)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=rf"^splits\.json(: |\.).*({message})"):
        read_splits(WorkFolders(tmp_path))


def test_patients_without_a_mask_are_held_out_but_not_the_networks() -> None:
    cases = make_cohort()
    splits = make_splits(cases, ANSWERS, 3, 0)
    with_mask = [case.patient_id for case in cases if case.centre == "MDA"]
    entries = make_nnunet_splits(Splits(seed=0, folds=splits.folds, centres={}), with_mask)
    assert all(set(entry["train"]) | set(entry["val"]) == set(with_mask) for entry in entries)
    without_chum, without_mda = make_nnunet_splits(splits, with_mask)[3:]
    assert without_chum == {"train": sorted(with_mask), "val": []}
    assert without_mda == {"train": [], "val": sorted(with_mask)}
    with pytest.raises(HecktorError, match=r"fold \d: no patient with a reference mask in '(train|val)'"):
        make_nnunet_splits(splits, with_mask[:1])


@pytest.mark.parametrize(
    ("patients", "folds", "message"),
    [
        (12, 1, "--folds: found 1, expected 2 to 12"),
        (12, 13, "--folds: found 13, expected 2 to 12: the release has 12 patients"),
        (1, 5, "release: 1 patient, expected at least 2, for two folds"),
        (2, 5, "--folds: found 5, expected 2: the release has 2 patients"),
    ],
)
def test_a_number_of_folds_that_cannot_be(patients: int, folds: int, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        make_splits(make_cohort(patients), ANSWERS, folds, 0)


def test_no_two_networks_start_alike() -> None:
    """Ten seeds, ten folds, two backbones and two processes give 400 different seeds, which PyTorch and NumPy accept."""
    seeds = {
        derive_seed(seed, fold, backbone, rank)
        for seed in range(10)
        for fold in range(10)
        for backbone in ("unet", "segresnet")
        for rank in (0, 1)
    }
    assert len(seeds) == 400
    assert 0 <= min(seeds) <= max(seeds) < 2**32
    assert derive_seed(3, 1, "unet") == derive_seed(3, 1, "unet")
