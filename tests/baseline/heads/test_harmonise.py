"""Planted centre shifts are found and undone; small centres are moved with care; unknown centres not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.harmonise import centre_shifts, depends_on_scanner
from baseline.heads.models.terms import matrix, scaled_terms

OFFSETS = {"A": 0.0, "B": 2.0, "C": -1.0}
SCALES = {"A": 1.0, "B": 2.0, "C": 0.5}


def planted(counts: dict[str, int], features: int = 30, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Standard normal values, moved and stretched by centre, a little differently in each feature."""
    rng = np.random.default_rng(seed)
    centres = [code for code, count in counts.items() for _ in range(count)]
    values = rng.standard_normal((len(centres), features))
    for code in counts:
        there = np.array(centres) == code
        values[there] = values[there] * SCALES[code] + OFFSETS[code] + rng.normal(0, 0.2, features)
    return values, centres


def harmonised(values: np.ndarray, centres: list[str]) -> np.ndarray:
    result = values.copy()
    for feature, moves in enumerate(centre_shifts(values, centres)):
        for code, move in moves.items():
            there = np.array(centres) == code
            result[there, feature] = (values[there, feature] - move.shift) / move.scale
    return result


def test_a_planted_shift_is_undone() -> None:
    """With 200 patients a centre the prior hardly counts: of three units between the means less than a tenth is left,
    and of a factor of four between the spreads less than 1.2."""
    values, centres = planted({"A": 200, "B": 200, "C": 200})
    after, codes = harmonised(values, centres), np.array(centres)
    means = np.array([after[codes == code].mean(0) for code in OFFSETS])
    spreads = np.array([after[codes == code].std(0) for code in OFFSETS])
    assert np.ptp(means, axis=0).max() < 0.3
    assert (spreads.max(0) / spreads.min(0)).max() < 1.2
    before = np.array([values[codes == code].mean(0) for code in OFFSETS])
    assert np.ptp(before, axis=0).min() > 2
    assert after.mean(0) == pytest.approx(values.mean(0), abs=0.1)  # the cohort as a whole stays where it was


def test_one_feature_has_nothing_to_borrow_from() -> None:
    """By hand: A is -1, 0, 0, 0, 1 and B is 1, 2, 2, 2, 3. Grand mean 1; within the centres a variance of 0.4, so in
    pooled standard deviations A is off by -1 / sqrt(0.4), with variance 0.5 / 0.4 = 1.25. In the values' own scale A's
    values v become (v - 1 + 1) / sqrt(1.25) + 1: shift -sqrt(1.25), scale sqrt(1.25)."""
    values = np.array([[-1.0], [0], [0], [0], [1], [1], [2], [2], [2], [3]])
    (moves,) = centre_shifts(values, ["A"] * 5 + ["B"] * 5)
    root = np.sqrt(1.25)
    assert [moves["A"].shift, moves["A"].scale] == pytest.approx([-root, root])
    after = harmonised(values, ["A"] * 5 + ["B"] * 5)
    assert after[:5] == pytest.approx(after[5:])


def test_a_small_centre_is_shrunk_towards_its_other_features() -> None:
    """Six patients at B, off by about 2 in every feature: the corrections differ less between the features than the
    raw means do, and lie around the same middle."""
    values, centres = planted({"A": 300, "B": 6}, features=40)
    raw = values[300:].mean(0) - values[:300].mean(0)
    after = harmonised(values, centres)
    left = after[300:].mean(0) - after[:300].mean(0)
    assert abs(left.mean()) < 0.5 * abs(raw.mean())
    shifts = np.array([moves["B"].shift for moves in centre_shifts(values, centres)])
    assert shifts.std() < raw.std()


def test_centres_without_a_correction() -> None:
    """Four patients are too few; a lone centre has nothing to be compared with; missing values stay missing."""
    values, centres = planted({"A": 20, "B": 4, "C": 20}, features=3)
    assert all(set(moves) == {"A", "C"} for moves in centre_shifts(values, centres))
    assert centre_shifts(values[:20], ["A"] * 20) == [{}, {}, {}]
    values[:, 1] = np.nan
    found = centre_shifts(values, centres)
    assert (set(found[0]), found[1]) == ({"A", "C"}, {})


def test_only_what_a_scanner_measures_is_moved_and_unknown_centres_stay() -> None:
    rng = np.random.default_rng(0)
    centres = ("A",) * 40 + ("B",) * 40
    rows = tuple(
        {"suv_max": float(rng.normal(10 + 5 * (code == "B"), 2)), "gtvn_count": float(rng.integers(0, 4))}
        for code in centres
    )
    outcomes = Outcomes(np.ones(80, int))
    cohort = HeadCohort(tuple(map(str, range(80))), centres, rows, outcomes)
    terms = scaled_terms(cohort, {"suv_max": "identity", "gtvn_count": "identity"}, harmonise=True)
    assert [set(term.centres) for term in terms] == [{"A", "B"}, set()]
    columns = matrix(terms, cohort)
    assert columns[:40, 0].mean() == pytest.approx(columns[40:, 0].mean(), abs=0.05)
    elsewhere = matrix(terms, replace(cohort, centres=("USZ",) * 80))
    assert elsewhere == pytest.approx(matrix([replace(term, centres={}) for term in terms], cohort))


@pytest.mark.parametrize(
    ("feature", "expected"),
    [("gtvp_suv_max", True), ("tlg_over_4.0", True), ("gtvn_hu_p10", True), ("gtvp_cold_share", True),
     ("total_volume_ml", False), ("gtvn_count", False), ("age_years", False), ("spread_mm", False)],
)  # fmt: skip
def test_features_that_depend_on_the_scanner(feature: str, expected: bool) -> None:
    assert depends_on_scanner(feature) is expected
