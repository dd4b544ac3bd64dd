"""Models with deep features are taken where the encoder knows something, and not where it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from algorithm.heads.linear import LinearHead, parse_head
from baseline import pipeline
from baseline.heads.cross_validation import metric, nested
from baseline.heads.fitted import fit_target
from baseline.heads.models.logistic import fit_logistic
from baseline.heads.models.selection import Family, choose, scores_of
from baseline.heads.models.shared import Cohort, Outcomes, matrix, scaled_terms, usual_transforms, weighted
from baseline.heads.models.targets import HPV, RFS, Target, only
from baseline.models_components import MOST_COMPONENTS, Components, with_components
from baseline.release.cases import ReleaseCase
from baseline.release.splits import kept_splits
from baseline.work import Work
from contract.errors import HecktorError
from contract.files import read_json
from contract.patient import Patient

CHANNELS, PATIENTS = 24, 180
PLAIN = {"age_years": "identity"}
RFS_FEW, RFS_DEEP = (family for family in RFS.families if "few" in family.name)
HPV_FEW, HPV_DEEP = (family for family in HPV.families if "few" in family.name)


def quick(target: Target) -> Target:
    """The first model and its partner with the encoder, with one setting each."""
    few = [replace(family, settings=family.settings[1:2]) for family in target.families if "few" in family.name]
    return replace(only(target, few), comparators={"clinical": target.comparators["clinical"]})


def planted(effect: float, patients: int = PATIENTS, seed: int = 0) -> Cohort:
    """Channels that a trait runs through, which decides both outcomes as far as `effect` says; age decides a little."""
    rng = np.random.default_rng(seed)
    trait, age = rng.normal(size=patients), rng.normal(size=patients)
    channels = np.outer(trait, rng.normal(size=CHANNELS)) + rng.normal(size=(patients, CHANNELS))
    risk = effect * trait + 0.3 * age
    event, censored = rng.exponential(900 / np.exp(risk)), rng.exponential(1500, patients)
    rows = [
        {"age_years": 60 + 9 * float(a), **{f"encoder_{n:03d}": float(v) for n, v in enumerate(own)}}
        for a, own in zip(age, channels, strict=True)
    ]
    rows[7] = {"age_years": 55.0}  # no lesion
    hpv = rng.random(patients) < 1 / (1 + np.exp(-2 * risk))
    return Cohort(
        tuple(f"{'ABC'[n % 3]}-{n:03d}" for n in range(patients)),
        tuple("ABC"[n % 3] for n in range(patients)),
        tuple(rows),
        Outcomes(np.minimum(event, censored), event <= censored, hpv),
    )


def test_two_channels_that_agree_are_one_component() -> None:
    """By hand: channels 1, 2, 3 and 10, 20, 30 both standardise to -r, 0, r with r = sqrt(3 / 2). The one component
    is (z1 + z2) / sqrt(2) up to its sign, the second holds nothing. A head of weight 1 on the component, whose own
    standard deviation is sqrt(2), weighs each channel by 1 / sqrt(2) / sqrt(2) = 1 / 2."""
    rows = tuple({"encoder_000": float(n), "encoder_001": 10.0 * n} for n in (1, 2, 3))
    cohort = Cohort(("a", "b", "c"), ("A",) * 3, rows, Outcomes(np.ones(3), np.ones(3, bool), np.ones(3, bool)))
    components = Components.of(cohort)
    assert components.names == ("component_0",)
    assert np.abs(components.loadings) == pytest.approx(np.full((2, 1), np.sqrt(0.5)))
    richer = components.added_to(cohort)
    (term,) = scaled_terms(richer, {"component_0": "identity"})
    assert term.sd == pytest.approx(np.sqrt(2))
    head = components.expanded(LinearHead("test", 0.5, weighted([term], [1.0]), None))
    assert [abs(term.weight) for term in head.terms] == pytest.approx([0.5, 0.5])
    assert sorted(scores_of(head, cohort)) == pytest.approx([0.5 - np.sqrt(1.5), 0.5, 0.5 + np.sqrt(1.5)])


def test_a_head_on_components_is_the_same_head_on_channels() -> None:
    """Scores of patients who were not fitted on, from plain data read back, equal those by the components."""
    cohort = planted(1.0)
    train, rest = cohort.pick(np.arange(120)), cohort.pick(np.arange(120, PATIENTS))
    components = Components.of(train)
    assert len(components.names) == MOST_COMPONENTS
    richer = components.added_to(train)
    terms = scaled_terms(richer, {**PLAIN, **dict.fromkeys(components.names, "identity")})
    on_components = LinearHead("test", 0.3, weighted(terms, np.arange(1.0, len(terms) + 1)), None)
    head = parse_head(components.expanded(on_components).as_json(), "head.json")
    assert {term.feature for term in head.terms} == {"age_years", *(f"encoder_{n:03d}" for n in range(CHANNELS))}
    held = components.added_to(rest)
    inside = (np.abs(matrix(terms, held)) < 4).all(1)
    assert inside.sum() > 50
    assert scores_of(head, rest)[inside] == pytest.approx(scores_of(on_components, held)[inside])
    assert np.isfinite(head.score({"age_years": 60.0}))  # without a lesion every channel is filled


def test_without_deep_features_nothing_is_added_nor_tried() -> None:
    cohort = planted(1.0)
    bare = replace(cohort, rows=tuple({"age_years": row["age_years"]} for row in cohort.rows))
    terms = scaled_terms(bare, PLAIN)
    (plain,), (deep,) = (
        fit(bare, terms, HPV_FEW.settings[:1], np.random.default_rng(0))
        for fit in (fit_logistic, with_components(fit_logistic))
    )
    assert deep == plain
    assert not any(family.deep for target in (RFS, HPV) for family in target.competing(bare))
    assert {family.name for family in RFS.competing(cohort) if family.deep} == {
        "Cox, few features and encoder", "Cox, all features and encoder"}  # fmt: skip
    assert set(usual_transforms(cohort)) == set(PLAIN)  # single channels never compete as features


@pytest.mark.parametrize(("target", "deep"), [(RFS, RFS_DEEP), (HPV, HPV_DEEP)], ids=["rfs", "hpv"])
def test_what_the_encoder_knows_earns_its_place_and_predicts(target: Target, deep: Family) -> None:
    """A trait with a log hazard ratio of 1.2 a standard deviation: C near 0.75, where age alone gives 0.57."""
    cohort = planted(1.2)
    found = nested(quick(target), cohort, np.random.default_rng(0))
    assert [fold.chosen.family.name for fold in found.folds] == [deep.name] * 5
    assert all({deep.name, deep.name.removesuffix(" and encoder")} <= set(fold.chosen.tried) for fold in found.folds)
    reached = metric(cohort, found)
    assert reached is not None
    assert reached > 0.68
    fitted = fit_target(quick(target), cohort, np.random.default_rng(0))
    assert fitted.model == deep.name
    assert sum(term.feature.startswith("encoder_") for term in fitted.head.terms) == CHANNELS
    scores = [fitted.head.score(row) for row in cohort.rows]
    assert scores == pytest.approx(scores_of(fitted.head, cohort).tolist())


@pytest.mark.parametrize("target", [RFS, HPV], ids=["rfs", "hpv"])
def test_channels_that_know_nothing_are_not_taken(target: Target) -> None:
    cohort = planted(0.0)
    fitted = fit_target(quick(target), cohort, np.random.default_rng(0))
    assert "encoder" not in fitted.model
    assert set(fitted.tried) >= {family.name for family in quick(target).families}


def test_permuted_outcomes_give_a_half() -> None:
    """The encoder's models alone, so that they must be taken; more channels than patients to fit on.

    An area under the curve of 40 and 40 has a standard error of sqrt(81 / (12 x 40 x 40)) = 0.065, the mean of
    sixteen permutations one of 0.016; C with some 50 relapses among 80 one near 0.045, the mean of five 0.02. Three of
    each are allowed.
    """
    rng, told, positive = np.random.default_rng(1), planted(1.2, patients=80).outcomes, np.arange(80) % 2 == 0
    rows = [{f"encoder_{n:03d}": float(value) for n, value in enumerate(rng.normal(size=100))} for _ in range(80)]
    areas, c_indices = [], []
    for seed in range(16):
        order = np.random.default_rng(seed).permutation(80)
        outcomes = Outcomes(told.rfs_days[order], told.relapse[order], positive[order])
        cohort = Cohort(tuple(map(str, range(80))), ("A",) * 80, tuple(rows), outcomes)
        areas.append(unseen(HPV, HPV_DEEP, cohort))
        if seed < 5:
            c_indices.append(unseen(RFS, RFS_DEEP, cohort))
    assert np.mean(areas) == pytest.approx(0.5, abs=0.049)
    assert np.mean(c_indices) == pytest.approx(0.5, abs=0.06)


def unseen(target: Target, family: Family, cohort: Cohort) -> float:
    """The target's metric of one model with one setting over five folds: nothing is chosen."""
    rng, one = np.random.default_rng(0), replace(family, settings=family.settings[1:2], transforms={})
    return choose(cohort, [one], target.stratified(cohort, 5, rng), target.judge, rng).metric


def test_the_step_with_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it the heads hold channels and the record tells what was tried; without it nothing speaks of them; two
    folds are refused before anything is measured."""
    cohort = planted(1.5, patients=90)
    image = Path("image.nii.gz")
    cases = [
        ReleaseCase(name, centre, image, image, None, Patient(age_years=row["age_years"]), None, None, bool(hpv))
        for name, centre, row, hpv in zip(cohort.ids, cohort.centres, cohort.rows, cohort.outcomes.hpv, strict=True)
    ]
    deep = {name: dict(row) for name, row in zip(cohort.ids, cohort.rows, strict=True)}
    for row in deep.values():
        del row["age_years"]
    rows = {name: {"total_volume_ml": 10.0} for name in cohort.ids}
    work = Work(tmp_path)
    work.write_cases(cases)
    pipeline.keep(work.features_json, "key", rows)
    monkeypatch.setattr(pipeline, "out_of_fold_features", lambda *_: rows)
    monkeypatch.setattr(pipeline, "out_of_fold_encoder", lambda *_: deep)
    monkeypatch.setattr(pipeline, "TARGETS", (quick(RFS), quick(HPV)))
    kept_splits(work.splits_json, cases, folds=3, seed=0)
    told = pipeline.fit_all_heads(work, "cpu", encoder_features=True)
    assert f"hpv: {HPV_DEEP.name}" in told
    head = parse_head(read_json(work.heads_json)["hpv"]["head"], "hpv")
    assert any(term.feature.startswith("encoder_") for term in head.terms)
    assert HPV_DEEP.name in work.judged()["hpv"]["nested"]["folds"][0]["tried"]
    told = pipeline.fit_all_heads(work, "cpu")
    assert "encoder" not in told + work.heads_json.read_text() + work.cross_validation_json.read_text()
    other = Work(tmp_path / "two")
    other.root.mkdir()
    other.write_cases(cases)
    kept_splits(other.splits_json, cases, folds=2, seed=0)
    with pytest.raises(HecktorError, match="--encoder-features: found 2 folds"):
        pipeline.fit_all_heads(other, "cpu", encoder_features=True)
