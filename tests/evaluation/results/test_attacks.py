"""Attacks on results by a submitter who chooses the answers: they succeed on all figures, and fail on public ones.

Each attack reads a result and its author's own answers only. The full result holds what public results once held.
"""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from contract.errors import HecktorError
from contract.images.volumes import write_mask
from evaluation.metrics.classification import binary_metrics
from evaluation.metrics.rules import MIN_PUBLIC_CASES
from evaluation.statistics.bootstrap import estimate, replicates
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

POSITIVE = (0, 1, 4, 5, 6, 9, 13)
KNOWN_SEED = 1  # of every phase here, as the default seed of an evaluation is known


def value(result, name):
    """A metric of the whole cohort, None if the result does not show it."""
    return result["aggregates"].get(name, {"value": None})["value"]


@pytest.fixture
def statuses(phase_of):
    """Make a phase of task 3 with these statuses, and evaluate answers `hpv[,probability]` by patient."""

    def make(truth):
        phase = phase_of(HPV)
        phase.truth_table("PatientID,HPV Status\n" + "".join(f"P{n:02d},{status}\n" for n, status in enumerate(truth)))

        def submit(answers, **changes):
            table = phase.root / "hpv.csv"
            lines = "".join(f"P{n:02d},{answer}\n" for n, answer in enumerate(answers))
            table.write_text(f"PatientID,hpv,probability\n{lines}")
            return phase.run(predictions=table, **changes)

        return submit

    return make


def statuses_from_brier(result, probabilities, attacked):
    """With p = 0.5 - 2^-(k+1), n x Brier - sum p^2 = sum y (1 - 2p) = sum y_k 2^-k: the statuses in binary."""
    if value(result, "brier") is None:
        return None
    total = Fraction(value(result, "brier")) * len(probabilities) - sum(Fraction(p) ** 2 for p in probabilities)
    bits = round(total * 2**attacked)
    return [bits >> (attacked - k) & 1 for k in range(1, attacked + 1)]


def test_statuses_are_not_in_the_digits_of_a_score(statuses):
    """Thirty statuses from one submission; the other twenty patients get 0.5 and add the same for either status."""
    truth = np.random.default_rng(3).integers(0, 2, 50).tolist()
    probabilities = [0.5 - 2.0 ** -(k + 1) if k <= 30 else 0.5 for k in range(1, 51)]
    submit = statuses(truth)
    answers = [f"{n % 2},{p!r}" for n, p in enumerate(probabilities)]
    assert statuses_from_brier(submit(answers, bootstraps=0), probabilities, 30) == truth[:30]
    public = submit(answers, public=True)
    assert statuses_from_brier(public, probabilities, 30) is None
    assert set(public["aggregates"]) == {"balanced_accuracy", "sensitivity", "specificity"}


ENDS = [
    (name, end) for name in ("sensitivity", "specificity", "balanced_accuracy") for end in ("ci95_low", "ci95_high")
]


def positives_from_intervals(result, answers, n_positive, digits):
    """The groups of patients whose statuses give the printed ends under the draws of the known seed."""
    n_patients, provenance = len(answers), result["provenance"]
    streams = np.random.default_rng(KNOWN_SEED).spawn(provenance["bootstraps"])
    drawn = np.stack([np.bincount(one.integers(0, n_patients, n_patients), minlength=n_patients) for one in streams])
    groups = list(combinations(range(n_patients), n_positive))
    positive = np.array([np.isin(np.arange(n_patients), group) for group in groups]).T
    recalls = []
    for side, answer in ((positive, 1), (~positive, 0)):
        with np.errstate(invalid="ignore"):  # a draw without this class: not the group
            recalls.append((drawn @ (side * (np.array(answers) == answer)[:, None])) / (drawn @ side))
    ends = np.concatenate([np.quantile(one, [0.025, 0.975], axis=0) for one in (*recalls, sum(recalls) / 2)])
    shown = [round(result["aggregates"][name][end], digits) for name, end in ENDS]
    matching = (np.round(ends, digits) == np.array(shown)[:, None]).all(axis=0)
    return [groups[number] for number in np.flatnonzero(matching)]


def test_known_draws_do_not_give_the_patients_of_an_interval(statuses):
    """Fourteen patients, seven positive: 3432 groups, of which the ends under known draws leave the true one.

    No draw of the seed lacks a class. Public draws depend on the reference, and so are unknown, but stay the same.
    """
    truth, answers = [int(n in POSITIVE) for n in range(14)], [int(n % 2 == 0) for n in range(14)]
    submit = statuses(truth)
    lines = [f"{answer}," for answer in answers]
    old, new = submit(lines, bootstraps=300), submit(lines, bootstraps=300, public=True)
    assert old["provenance"]["redraws"] == 0
    assert positives_from_intervals(old, answers, 7, digits=3) == [POSITIVE]
    assert POSITIVE not in positives_from_intervals(new, answers, 7, digits=3)
    assert new == submit(lines, bootstraps=300, public=True)


def statuses_from_guesses(result, answers, n_positive, seed):
    """The statuses which, as the reference, make the draws that give the printed ends."""
    n_patients, fitting = len(answers), []
    shown = [result["aggregates"][name][end] for name, end in ENDS]
    for group in combinations(range(n_patients), n_positive):
        positive = np.isin(np.arange(n_patients), group)
        reference = [("hpv", f"P{n:02d}", (bool(status),)) for n, status in enumerate(positive)]
        secret = [seed, int.from_bytes(hashlib.sha256(repr(reference).encode()).digest())]
        metrics = binary_metrics(positive, positive == np.array(answers, dtype=bool))
        drawn = estimate(metrics, n_patients, result["provenance"]["bootstraps"], np.random.default_rng(secret))
        ends = [round(getattr(drawn.by_metric[name], end), 3) for name, end in ENDS]
        fitting += [group] * (ends == shown)
    return fitting


def test_a_secret_seed_keeps_a_small_reference_from_being_guessed(statuses):
    """Of nine patients four are positive: 126 groups, each with its own draws."""
    truth, answers = [int(n in {0, 2, 3, 7}) for n in range(9)], [1, 0, 1, 0, 1, 0, 0, 1, 1]
    submit = statuses(truth)
    lines = [f"{answer}," for answer in answers]
    default, secret = (submit(lines, bootstraps=100, public=True, seed=seed) for seed in (KNOWN_SEED, 987654321))
    assert statuses_from_guesses(default, answers, 4, KNOWN_SEED) == [(0, 2, 3, 7)]
    assert (0, 2, 3, 7) not in statuses_from_guesses(secret, answers, 4, KNOWN_SEED)
    assert "seed" not in secret["provenance"]


def positives_from_redraws(result, n_patients):
    """The patients who, as the only positive, give the printed number of repeated draws."""
    counts = {}
    for patient in range(n_patients):
        positive = np.arange(n_patients) == patient
        rng = np.random.default_rng(KNOWN_SEED)
        metrics = binary_metrics(positive, positive)
        counts[patient] = replicates(metrics, n_patients, result["provenance"]["bootstraps"], rng)[1]
    return [patient for patient, count in counts.items() if count == result["provenance"].get("redraws")]


def test_repeated_draws_do_not_name_the_only_positive_patient(statuses):
    submit = statuses([int(n == 5) for n in range(12)])
    lines = ["1,"] * 12
    assert positives_from_redraws(submit(lines, bootstraps=300), 12) == [5]
    assert positives_from_redraws(submit(lines, bootstraps=300, public=True), 12) == []


@pytest.fixture
def cohort(phase_of, grid):
    """Make a phase of task 1: the case's centre and GTVp voxels by case; a prediction is its number of voxels."""

    def make(cases):
        phase = phase_of(SEGMENTATION)
        phase.truth_table("PatientID,CenterID\n" + "".join(f"{case},{one[0]}\n" for case, one in cases.items()))
        for case, (_, voxels) in cases.items():
            phase.truth_mask(case, row_of(grid, voxels))

        def submit(predicted, **changes):
            folder = phase.root / "masks"
            folder.mkdir(exist_ok=True)
            for case, voxels in predicted.items():
                write_mask(folder / f"{case}.mha", row_of(grid, voxels), grid)
            return phase.run(predictions=folder, workers=0, bootstraps=0, **changes)

        return submit

    return make


def row_of(grid, voxels):
    mask = np.zeros(grid.array_shape, np.uint8)
    mask.reshape(-1)[:voxels] = 1
    return mask


def figures_of_the_rest(result):
    """Number of cases and mean DSC of the patients whose centre is not shown, by subtraction; None without any."""
    shown = [block for block in result["centres"].values() if block["cases"] >= MIN_PUBLIC_CASES]
    count = result["cases"]["used"] - sum(block["cases"] for block in shown)
    if count == 0:
        return None
    total = value(result, "gtvp_dsc_mean") * result["cases"]["used"]
    rest = total - sum(block["aggregates"]["gtvp_dsc_mean"]["value"] * block["cases"] for block in shown)
    return count, rest / count


@pytest.mark.parametrize("centre", ["B", ""])
@pytest.mark.parametrize(("sizes", "left"), [((14,), 15), ((12, 11), 12), ((12, 11, 10), 11)])
def test_a_centre_does_not_follow_by_subtraction(cohort, centre, sizes, left):
    """One patient of another centre, or of none, with 5 voxels; the submitter predicts 3 of them: DSC 6 / 8."""
    cases = {f"{letter}{n:02d}": (letter, 4) for letter, size in zip("CDE", sizes, strict=False) for n in range(size)}
    submit = cohort({**cases, "X": (centre, 5)})
    predicted = {**dict.fromkeys(cases, 2), "X": 3}
    count, dsc = figures_of_the_rest(submit(predicted))
    assert (count, dsc) == (1, pytest.approx(0.75))
    count, dsc = figures_of_the_rest(submit(predicted, public=True))
    assert count == left
    assert dsc == pytest.approx((0.75 + (left - 1) * 2 / 3) / left, abs=0.02)


def test_large_centres_without_a_rest_are_shown(cohort):
    cases = {f"{letter}{n:02d}": (letter, 4) for letter in "CD" for n in range(10)}
    result = cohort(cases)(dict.fromkeys(cases, 2), public=True)
    assert {name: block["cases"] for name, block in result["centres"].items()} == {"C": 10, "D": 10}
    assert result["centres"]["C"]["aggregates"]["gtvp_dsc_mean"] == {"value": 0.667}
    assert figures_of_the_rest(result) is None


def test_a_centre_whose_mean_holds_one_patient_is_not_shown(cohort):
    """Twelve patients, eleven without a GTVp: with empty masks for these the centre's mean is one patient's DSC.

    So it is where an empty mask counts 1: (11 + 0.75) / 12.
    """
    cases = {f"C{n:02d}": ("C", 0) for n in range(11)} | {"C11": ("C", 5)}
    cases |= {f"D{n:02d}": ("D", 4) for n in range(12)}
    submit, predicted = cohort(cases), {case: min(voxels, 3) for case, (_, voxels) in cases.items()}
    assert submit(predicted)["centres"]["C"]["aggregates"]["gtvp_dsc_mean"]["value"] == pytest.approx(0.75)
    assert submit(predicted, public=True)["centres"] == {}
    assert submit(predicted, public=True, options={"gtvp_empty": "one"})["centres"] == {}


def fifth_of_the_volume(result):
    """The volume bin of the only patient with a prediction that is not empty, from 0 for the smallest; None unknown."""
    bins = result["analyses"].get("gtvp_dsc_by_volume", {}).get("bins", [])
    return next((number for number, part in enumerate(bins) if part["dsc_mean"] > 0), None)


def place_of_the_volume(result, n_cases):
    """The place of this patient's volume from Spearman's correlation, ranks r of n volumes and one DSC above 0.

    rho = (r - (n + 1) / 2) sqrt(12 / ((n - 1)^2 (n + 1))) with ranks from 1.
    """
    block = result["analyses"].get("gtvp_dsc_by_volume")
    if block is None:
        return None
    return round(block["spearman"] / math.sqrt(12 / ((n_cases - 1) ** 2 * (n_cases + 1))) + (n_cases + 1) / 2)


def test_a_patients_place_among_the_volumes_stays_unknown(cohort):
    """Fifty tumours of 1 to 50 voxels; the submitter predicts one voxel for the tumour of 37 and nothing else."""
    cases = {f"C{voxels:02d}": ("C", voxels) for voxels in range(1, 51)}
    submit, predicted = cohort(cases), {case: int(case == "C37") for case in cases}
    old, new = submit(predicted), submit(predicted, public=True)
    assert (fifth_of_the_volume(old), place_of_the_volume(old, 50)) == (3, 37)
    assert (fifth_of_the_volume(new), place_of_the_volume(new, 50)) == (None, None)


def cases_without_gtvp(result):
    """How many of the patients with an empty prediction have no GTVp."""
    skipped = result["cases"]["skipped"].get("gtvp_empty_not_in_mean_dsc")
    return None if skipped is None else skipped if isinstance(skipped, int) else len(skipped)


def test_one_empty_mask_does_not_ask_for_an_empty_reference(cohort):
    """Whether C07 has a GTVp: an empty mask for C07, another one for everybody else."""
    cases = {f"C{n:02d}": ("C", 0 if n == 7 else 4) for n in range(12)}
    submit, predicted = cohort(cases), {case: int(case != "C07") for case in cases}
    assert cases_without_gtvp(submit(predicted)) == 1
    assert cases_without_gtvp(submit(predicted, public=True)) is None


@pytest.mark.parametrize(
    ("risks", "c_index", "public", "warning"),
    [((2, 1, 2, 3, 4), 0.15, 0.1, "c_index is 0.100"), ((2, 4, 1, 3, 3), 0.45, 0.5, None)],
)
def test_a_warning_shows_no_digit_that_the_figure_hides(phase_of, tmp_path, risks, c_index, public, warning):
    """Five recurrences one after the other, 10 pairs: 1.5 or 4.5 are concordant, ties by half."""
    phase = phase_of(RFS)
    phase.truth_table("PatientID,Relapse,RFS\n" + "".join(f"P{day},1,{day}\n" for day in range(1, 6)))
    table = phase.root / "risks.csv"
    table.write_text("PatientID,risk\n" + "".join(f"P{day},{risk}\n" for day, risk in enumerate(risks, start=1)))
    changes = {"predictions": table, "bootstraps": 0, "edition": one_digit_profile(tmp_path)}
    full, shown = phase.run(**changes), phase.run(**changes, public=True)
    assert value(full, "c_index") == pytest.approx(c_index)
    assert f"c_index is {c_index:.3f}" in full["warnings"][0]
    assert value(shown, "c_index") == public
    assert [line.partition(",")[0] for line in shown["warnings"]] == ([] if warning is None else [warning])


def one_digit_profile(tmp_path):
    """The default profile with one public digit."""
    from importlib.resources import files

    content = json.loads(files("evaluation.editions").joinpath("hecktor2025.json").read_text())
    content["name"] = "one-digit"
    for task in content["tasks"].values():
        task["public_digits"] = 1
    path = tmp_path / "one_digit.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_answers_of_chosen_patients_are_refused(cohort):
    """Under missing=skip a submitter of one mask would read this patient's DSC."""
    cases = {f"C{n:02d}": ("C", 4) for n in range(12)}
    with pytest.raises(HecktorError, match=r"--public: found together with missing=skip, expected missing=worst"):
        cohort(cases)({"C03": 2}, public=True, options={"missing": "skip"})
