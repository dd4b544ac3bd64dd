"""Compare the heads with usual models on simulated cohorts and nine public tables.

    python -m benchmarks --heads --output out/heads.jsonl

Each line of the output is one finished cohort or table, so that an interrupted run continues. The table of the means is
in docs/heads.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from baseline.heads.cohort import Floats, HeadCohort, Outcomes, balanced_accuracy
from baseline.heads.models.classes import find_balanced_point, find_stable_threshold
from baseline.heads.models.ensemble import fit_ensemble, select_ensemble
from baseline.heads.models.selection import Candidate, refit
from baseline.heads.models.targets import Target, make_targets
from baseline.heads.table import make_table_cohort
from contract.editions import load_edition

# Parameters of the simulated patients.
LATENT_FACTORS: Final = 12
PATIENTS: Final = 588
CENTRE_SHARES: Final = (0.40, 0.20, 0.12, 0.10, 0.08, 0.06, 0.04)
TEST_PATIENTS: Final = 1000
NEW_CENTRES: Final = 4
CENTRE_SHIFT_SD: Final = 0.4
CENTRE_OUTCOME_SD: Final = 0.4
HORIZON_DAYS: Final = 2500.0
EVENT_FRACTION: Final = 0.25
NEGATIVE_FRACTION: Final = 0.10
TABLE_FOLDS: Final = 5

_VOLUMES: Final = ("volume_ml", "tlg", "mtv_over_2.5_ml", "mtv_over_4.0_ml", "tlg_over_2.5", "tlg_over_4.0")
_STRUCTURE: Final = ("suv_max", "suv_mean", "suv_peak", "suv_cv", "cold_share", "hu_mean", "hu_sd", "hu_p10", "hu_p90")
_OTHERS: Final = (
    *("gtvp_surface_mm2", "gtvp_sphericity", "gtvp_diameter_mm", "gtvp_elongation", "gtvp_flatness"),
    *("gtvn_count", "gtvn_largest_ml", "gtvn_largest_diameter_mm", "gtvn_largest_sphericity", "gtvp_midline_mm"),
    *("gtvn_highest_above_gtvp_mm", "gtvp_bone_contact", "gtvp_air_contact", "total_volume_ml", "suv_max", "suv_peak"),
    *("total_lesion_glycolysis", "node_to_node_mm", "primary_to_node_mm", "dispersion_mm", "spread_mm"),
)
IMAGE_FEATURES: Final = (
    *(f"{label}_{name}" for label in ("gtvp", "gtvn") for name in (*_VOLUMES, *_STRUCTURE)),
    *_OTHERS,
)
CLINICAL_FEATURES: Final = ("age_years", "gender", "tobacco", "alcohol", "performance_status", "treatment", "m1")
RFS_SCENARIOS: Final = ("many weak", "few strong", "mixed", "weak", "non-linear")
HPV_SCENARIOS: Final = ("strong", "many weak", "non-linear")


@dataclass(frozen=True)
class Simulation:
    """The loadings of the features and the effects of the latent factors on the outcome.

    Attributes:
        loadings: Weights of the latent factors in each image feature, shape (features, factors).
        clinical: Weights of the latent factors in each clinical variable, shape (variables, factors).
        scenario: Name of the scenario.
    """

    loadings: Floats
    clinical: Floats
    scenario: str

    @classmethod
    def draw(cls, scenario: str, rng: np.random.Generator) -> Simulation:
        """Draw the loadings: each image feature depends on one to three factors, clinical variables weakly on all."""
        loadings = np.zeros((len(IMAGE_FEATURES), LATENT_FACTORS))
        for row in loadings:
            factors = rng.choice(LATENT_FACTORS, size=int(rng.integers(1, 4)), replace=False)
            row[factors] = rng.normal(0, 1, len(factors))
        loadings /= np.sqrt((loadings**2).sum(1, keepdims=True))
        clinical = rng.normal(0, 0.5 / math.sqrt(LATENT_FACTORS), (len(CLINICAL_FEATURES), LATENT_FACTORS))
        return cls(loadings, clinical, scenario)

    def compute_effect(self, latent: Floats) -> Floats:
        """Compute the log hazard or the logit of each patient, without the effect of the centre."""
        z = latent
        if self.scenario == "many weak":
            return np.asarray(z.sum(1) * 0.9 / math.sqrt(LATENT_FACTORS))
        if self.scenario in ("few strong", "strong"):
            return np.asarray(0.9 * z[:, 0] + 0.6 * z[:, 1])
        if self.scenario == "mixed":
            return np.asarray(0.6 * z[:, 0] + z[:, 1:].sum(1) * 0.6 / math.sqrt(LATENT_FACTORS - 1))
        if self.scenario == "weak":
            return np.asarray(z.sum(1) * 0.35 / math.sqrt(LATENT_FACTORS))
        return np.asarray(1.0 * (np.abs(z[:, 0]) - 0.8) + 0.8 * z[:, 1] * z[:, 2] + 0.5 * (z[:, 3] > 0.8))


@dataclass(frozen=True)
class Centres:
    """The shift of the features, the effect on the outcome, and the fraction of missing values of each centre."""

    shift: Floats
    outcome: Floats
    missing: Floats

    @classmethod
    def draw(cls, count: int, rng: np.random.Generator) -> Centres:
        """Draw the centres: a clinical variable is unknown in a third of them, and sometimes unknown in the others."""
        missing = np.where(rng.random((count, len(CLINICAL_FEATURES))) < 0.3, 1.0, rng.choice([0.0, 0.1], (count, 1)))
        missing[:, :2] = 0.0  # age and gender are always known
        shift = rng.normal(0, CENTRE_SHIFT_SD, (count, len(IMAGE_FEATURES)))
        return cls(shift, rng.normal(0, CENTRE_OUTCOME_SD, count), missing)


@dataclass(frozen=True)
class LatentPatients:
    """Patients before the outcome is drawn: centre numbers, log hazard or logit, and features."""

    centre: np.ndarray[Any, np.dtype[np.int64]]
    effect: Floats
    features: pd.DataFrame


def draw_patients(
    simulation: Simulation, centres: Centres, numbers: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator
) -> LatentPatients:
    """Draw patients of the centres `numbers`."""
    latent = rng.normal(0, 1, (len(numbers), LATENT_FACTORS))
    values = latent @ simulation.loadings.T * 0.85 + rng.normal(0, 0.53, (len(numbers), len(IMAGE_FEATURES)))
    values += centres.shift[numbers]
    is_skewed = [name.endswith("_ml") or "tlg" in name or "glycolysis" in name for name in IMAGE_FEATURES]
    values = np.where(is_skewed, np.expm1(np.maximum(values + 3, 0.0)), values)
    raw = latent @ simulation.clinical.T + rng.normal(0, 0.85, (len(numbers), len(CLINICAL_FEATURES)))
    clinical = (raw > 0.3).astype(np.float64)
    clinical[:, 0] = 60 + 10 * raw[:, 0]
    clinical[:, 4] = np.clip(np.floor(raw[:, 4] + 0.7), 0, 4)
    clinical[rng.random(clinical.shape) < centres.missing[numbers]] = np.nan
    no_nodes = rng.random(len(numbers)) < 0.15
    is_of_nodes = np.array([name.startswith("gtvn") for name in IMAGE_FEATURES])
    values[no_nodes[:, None] & is_of_nodes] = np.nan
    effect = simulation.compute_effect(latent) + 0.4 * raw[:, 4] + 0.02 * (clinical[:, 0] - 60)
    names = [*IMAGE_FEATURES, *CLINICAL_FEATURES]
    table = pd.DataFrame(np.column_stack([values, clinical]), columns=names)
    return LatentPatients(numbers, effect + centres.outcome[numbers], table)


def draw_times(effect: Floats, scale_days: float, rng: np.random.Generator) -> Outcomes:
    """Draw follow-up with Weibull hazards and uniform censoring."""
    times = scale_days * (rng.exponential(1, len(effect)) / np.exp(effect)) ** (1 / 0.9)
    ends = rng.uniform(300, HORIZON_DAYS, len(effect))
    return Outcomes((times <= ends).astype(np.int64), np.maximum(np.minimum(times, ends), 1.0))


def draw_classes(effect: Floats, intercept: float, rng: np.random.Generator) -> Outcomes:
    """Draw HPV status: the effect and the intercept make the patient positive."""
    is_positive = rng.random(len(effect)) > _compute_negative_probability(effect, intercept)
    return Outcomes(is_positive.astype(np.int64), classes=("False", "True"))


def find_parameter(fraction: float, compute_fraction: Callable[[float], float], low: float, high: float) -> float:
    """Find the parameter at which a decreasing function has the value `fraction`, by bisection."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if compute_fraction(middle) > fraction else (low, middle)
    return (low + high) / 2


def draw_cohorts(kind: str, scenario: str, seed: int) -> dict[str, HeadCohort]:
    """Draw a training cohort, and test cohorts of its centres and of new centres."""
    rng = np.random.default_rng([seed, *scenario.encode(), *kind.encode()])
    simulation, known = Simulation.draw(scenario, rng), Centres.draw(len(CENTRE_SHARES), rng)
    new = Centres.draw(NEW_CENTRES, rng)
    shares = np.array(CENTRE_SHARES)
    parts = {
        "training": draw_patients(simulation, known, rng.choice(len(shares), PATIENTS, p=shares), rng),
        "known": draw_patients(simulation, known, rng.choice(len(shares), TEST_PATIENTS, p=shares), rng),
        "new": draw_patients(simulation, new, rng.choice(NEW_CENTRES, TEST_PATIENTS), rng),
    }
    effect = parts["training"].effect
    if kind == "rfs":
        follow_up_seed = int(rng.integers(2**31))

        def compute_event_fraction(log_scale: float) -> float:
            follow_up = np.random.default_rng(follow_up_seed)
            return float(draw_times(effect, math.exp(log_scale), follow_up).positive.mean())

        scale_days = math.exp(find_parameter(EVENT_FRACTION, compute_event_fraction, 3.0, 16.0))
        outcomes = {name: draw_times(part.effect, scale_days, rng) for name, part in parts.items()}
    else:
        intercept = find_parameter(
            NEGATIVE_FRACTION, lambda value: float(_compute_negative_probability(effect, value).mean()), -5.0, 12.0
        )
        outcomes = {name: draw_classes(part.effect, intercept, rng) for name, part in parts.items()}
    return {
        name: HeadCohort(
            tuple(f"{name}{number}" for number in range(len(part.centre))),
            tuple(f"{name[:3]}{centre}" for centre in part.centre),
            part.features,
            outcomes[name],
        )
        for name, part in parts.items()
    }


def _compute_negative_probability(effect: Floats, intercept: float) -> Floats:
    return np.asarray(1 / (1 + np.exp(intercept + effect)))


# Models


@dataclass(frozen=True)
class ScoredModel:
    """A fitted model: the function that scores a cohort, and minimum scores of a positive patient by name."""

    score: Callable[[HeadCohort], Floats]
    thresholds: Mapping[str, float] = field(default_factory=dict)


def fit_heads(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> ScoredModel:
    """Fit a head as for a package; for two classes, also return the two thresholds between which its threshold lies."""
    ensemble = select_ensemble(target, cohort, rng)
    head = target.complete_head(fit_ensemble(ensemble, cohort, rng), cohort, ensemble.scores, rng)
    if head.threshold is None:
        return ScoredModel(head.scores)
    positive = cohort.outcomes.positive
    stable = find_stable_threshold(positive, ensemble.scores, np.random.default_rng(0))
    balanced = find_balanced_point(positive, ensemble.scores, stable)
    return ScoredModel(head.scores, {"": head.threshold, ", stable": stable, ", balanced": balanced})


def fit_only_forest(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> ScoredModel:
    """Fit only the target's forest, even with fewer patients than a package would need."""
    family = next(family for family in target.families if family.name.startswith("forest"))
    head = refit(cohort, Candidate(family, family.settings[0], np.zeros(0), 0.5), rng)
    return ScoredModel(head.scores)


def fit_usual_model(target: Target, cohort: HeadCohort, _rng: np.random.Generator) -> ScoredModel:
    """Fit lifelines' Cox model with penalty 0.1, or scikit-learn's class-balanced logistic regression with C = 0.01.

    Both use all features, standardised, with medians for missing values.
    """
    from lifelines import CoxPHFitter
    from sklearn.linear_model import LogisticRegression

    medians = cohort.features.median()
    table = cohort.features.fillna(medians)
    table = table.loc[:, table.std() > 0]
    means, deviations = table.mean(), table.std()
    columns = (table - means) / deviations
    if target.answer.kind == "risk":
        outcomes = {"days": cohort.outcomes.times_days, "event": cohort.outcomes.positive}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = CoxPHFitter(penalizer=0.1).fit(columns.assign(**outcomes), "days", "event")
        weights, intercept = model.params_.to_numpy(), 0.0
    else:
        logistic = LogisticRegression(C=0.01, class_weight="balanced", max_iter=5000)
        logistic.fit(columns, cohort.outcomes.positive)
        weights, intercept = logistic.coef_[0], float(logistic.intercept_[0])

    def score(patients: HeadCohort) -> Floats:
        filled = patients.features[means.index].fillna(medians[means.index])
        return np.asarray(((filled - means) / deviations).to_numpy() @ weights + intercept, dtype=np.float64)

    return ScoredModel(score, {} if target.answer.kind == "risk" else {"": 0.0})


MODELS: Final = {"heads": fit_heads, "usual model": fit_usual_model, "forest": fit_only_forest}


# Results


def measure_cohorts(kind: str, scenario: str, seed: int) -> dict[str, float]:
    """Fit all models to a simulated training cohort, and return each metric of each test cohort and model."""
    target = next(target for target in make_targets(load_edition("hecktor2025")) if target.name == kind)
    cohorts = draw_cohorts(kind, scenario, seed)
    values: dict[str, float] = {}
    for name, fit in MODELS.items():
        model = fit(target, cohorts["training"], np.random.default_rng(seed))
        for place in ("known", "new"):
            outcomes, scores = cohorts[place].outcomes, model.score(cohorts[place])
            values[f"{place}/{name}"] = target.selection_metric(cohorts[place], scores)
            for label, threshold in model.thresholds.items():
                accuracy = balanced_accuracy(outcomes, scores >= threshold)
                values[f"{place}, balanced accuracy/{name}{label}"] = accuracy
    return values


def measure_table(name: str) -> dict[str, float]:
    """Cross-validate all models on a public table, over the same five outer folds; the metric is the mean of the folds.

    Each fold has a value `fold/model`.
    """
    frame, columns = load_tables()[name]
    target, cohort = make_table_cohort(frame, **columns)
    values: dict[str, float] = {}
    outer = target.make_balanced_folds(cohort, TABLE_FOLDS, np.random.default_rng(0))
    for number, held_out in enumerate(outer):
        train = cohort.pick(np.setdiff1d(np.arange(len(cohort.ids)), held_out))
        rest = cohort.pick(held_out)
        for model, fit in MODELS.items():
            scores = fit(target, train, np.random.default_rng(number)).score(rest)
            values[f"fold {number}/{model}"] = target.selection_metric(rest, scores)
    return values


def load_tables() -> dict[str, tuple[pd.DataFrame, dict[str, str]]]:
    """Load the tables with the names of their columns of outcomes and centres, as `fit_table` takes them."""
    from lifelines import datasets
    from sklearn.datasets import load_breast_cancer

    gbsg2 = datasets.load_gbsg2()
    gbsg2 = gbsg2.assign(
        horTh=(gbsg2.horTh == "yes").astype(int),
        menostat=(gbsg2.menostat == "Post").astype(int),
        tgrade=gbsg2.tgrade.str.len(),
    )
    lung = datasets.load_lung().dropna(subset=["inst"])
    rulers = datasets.load_dd()
    regimes = {regime: (rulers.regime == regime).astype(int) for regime in sorted(set(rulers.regime))[1:]}
    rulers = rulers[["duration", "observed", "start_year", "un_continent_name"]].assign(**regimes)
    lupus = datasets.load_lupus()
    lupus = pd.DataFrame(
        {
            "years": lupus["time_between_diagnosis_and_last_observation_(years)"],
            "dead": lupus.dead.astype(int),
            **{name: lupus[name].astype(float) for name in ("is_male", "is_white", "age_at_diagnosis")},
            "months": lupus["time_elapsed_between_estimated_onset_and_diagnosis_(months)"],
        }
    )
    cancer = load_breast_cancer(as_frame=True)
    return {
        "rossi": (datasets.load_rossi(), {"time": "week", "event": "arrest"}),
        "gbsg2": (gbsg2, {"time": "time", "event": "cens"}),
        "lung": (lung.assign(inst=lung.inst.astype(int)), {"time": "time", "event": "status", "centre": "inst"}),
        "larynx": (datasets.load_larynx(), {"time": "time", "event": "death"}),
        "kidney": (datasets.load_kidney_transplant(), {"time": "time", "event": "death"}),
        "leukemia": (datasets.load_leukemia(), {"time": "t", "event": "status"}),
        "dd": (rulers, {"time": "duration", "event": "observed", "centre": "un_continent_name"}),
        "lupus": (lupus, {"time": "years", "event": "dead"}),
        "breast cancer": (cancer.data.assign(malignant=cancer.target == 0), {"target": "malignant"}),
    }


TABLES: Final = ("rossi", "gbsg2", "lung", "larynx", "kidney", "leukemia", "dd", "lupus", "breast cancer")


@dataclass(frozen=True)
class Item:
    """One cohort or table of the experiment; `kind` is rfs, hpv or table."""

    kind: str
    scenario: str
    repetition: int = 0

    @property
    def key(self) -> str:
        """Return the key of the item in the output."""
        return f"{self.kind}/{self.scenario}/{self.repetition}"


def list_items(repetitions: int) -> list[Item]:
    """List the tables, and then the cohorts of the first repetition of all scenarios, of the second, and so on."""
    scenarios = [("rfs", name) for name in RFS_SCENARIOS] + [("hpv", name) for name in HPV_SCENARIOS]
    cohorts = [Item(kind, name, number) for number in range(repetitions) for kind, name in scenarios]
    return [*(Item("table", name) for name in TABLES), *cohorts]


def measure_item(item: Item) -> tuple[str, dict[str, float]]:
    """Measure one cohort or table."""
    if item.kind == "table":
        return item.key, measure_table(item.scenario)
    return item.key, measure_cohorts(item.kind, item.scenario, item.repetition)


def read_results(path: Path) -> dict[str, dict[str, float]]:
    """Read the finished items; empty without a file."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return dict(json.loads(line) for line in lines)


def format_results(results: Mapping[str, Mapping[str, float]]) -> str:
    """Format one row for each scenario and metric: means with standard errors, and the paired differences.

    The difference is between the heads and the best other model in the mean.
    """
    rows: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    for key, values in results.items():
        kind, scenario, _ = key.split("/")
        for name, value in values.items():
            place, model = name.split("/")
            if model == "heads":
                keys = [f"{place}/{compared}" for compared in MODELS]
                all_values = [values[key] for key in keys if key in values]
                row = (kind, scenario, "folds" if kind == "table" else place)
                rows.setdefault(row, []).append((value, *all_values[1:]))
    lines = [
        "| cohorts | metric at | n | heads | usual model | forest | heads - best other |",
        "|---|---|---|---|---|---|---|",
    ]
    differences = []
    for (kind, scenario, place), metrics in rows.items():
        table = np.array(metrics)
        best = 1 + int(table[:, 1:].mean(0).argmax())
        difference = table[:, 0] - table[:, best]
        if "accuracy" not in place:
            differences.append(difference.mean())
        cells = [*(f"{value:.3f}" for value in table.mean(0)), *["-"] * (3 - table.shape[1])]
        error = difference.std(ddof=1) / math.sqrt(len(table)) if len(table) > 1 else math.nan
        cells.append(f"{difference.mean():+.3f} ({error:.3f})")
        lines.append(f"| {kind} {scenario} | {place} | {len(table)} | {' | '.join(cells)} |")
    lines.append(f"Mean of the differences without balanced accuracy: {np.mean(differences):+.4f}")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run the experiment or continue it, and print the table; return 1 if a cohort or table failed."""
    parser = argparse.ArgumentParser(prog="benchmarks --heads", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/heads.jsonl"), help="finished cohorts (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=15, help="cohorts of each scenario (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (%(default)s)")
    options = parser.parse_args(argv)
    results = read_results(options.output)
    items = [item for item in list_items(options.repetitions) if item.key not in results]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the new processes, whose threads would compete for the same CPUs
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool, options.output.open("a") as stream:
        key_of = {pool.submit(measure_item, item): item.key for item in items}
        failed = False
        for future in as_completed(key_of):
            try:
                key, values = future.result()
            except Exception as problem:  # noqa: BLE001 - the other cohorts continue
                sys.stderr.write(f"{key_of[future]}: {type(problem).__name__}: {problem}\n")
                failed = True
                continue
            results[key] = values
            print(json.dumps([key, values]), file=stream, flush=True)
    print(format_results(results))  # noqa: T201 - the result of the command
    return int(failed)
