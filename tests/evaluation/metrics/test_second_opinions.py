"""Other packages: lifelines on Rossi's prisoners, and lifelines and scikit-learn on bootstrap samples."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.metrics.classification import binary_metrics, probability_metrics
from evaluation.metrics.survival import SurvivalCohort, c_index_metric


def test_the_cox_model_of_rossi():
    """The published C-index of the Cox model with all seven covariates: 0.64033; lifelines finds the same."""
    lifelines = pytest.importorskip("lifelines")
    from lifelines.datasets import load_rossi
    from lifelines.utils import concordance_index as theirs

    table = load_rossi()
    model = lifelines.CoxPHFitter().fit(table, duration_col="week", event_col="arrest")
    risks = model.predict_partial_hazard(table).to_numpy()
    times, events = table["week"].to_numpy(dtype=float), table["arrest"].to_numpy(dtype=bool)
    ours = c_index_metric(SurvivalCohort(times, events, risks), "non_concordant")(np.ones((1, times.size)))[0]
    assert ours == pytest.approx(0.64033, abs=5e-6)
    assert ours == pytest.approx(theirs(times, -risks, events), abs=1e-12)


def test_replicates_equal_those_of_the_libraries():
    """The counts of a bootstrap sample as weights, and the libraries on the sampled patients themselves."""
    metrics = pytest.importorskip("sklearn.metrics")
    from lifelines.utils import concordance_index as theirs

    rng = np.random.default_rng(0)
    times, events = rng.exponential(1000, 80).round(-1), rng.random(80) < 0.4
    risks, positive, probability = rng.normal(size=80).round(1), rng.random(80) < 0.4, rng.random(80).round(1)
    samples = rng.integers(0, 80, (20, 80))
    weights = np.stack([np.bincount(sample, minlength=80) for sample in samples]).astype(float)
    found = {
        "c": c_index_metric(SurvivalCohort(times, events, risks), "non_concordant"),
        "auc": probability_metrics(positive, probability)["auc"],
        "accuracy": binary_metrics(positive, positive == (probability > 0.5))["balanced_accuracy"],
        "brier": probability_metrics(positive, probability)["brier"],
    }
    expected = {
        "c": [theirs(times[one], -risks[one], events[one]) for one in samples],
        "auc": [metrics.roc_auc_score(positive[one], probability[one]) for one in samples],
        "accuracy": [metrics.balanced_accuracy_score(positive[one], probability[one] > 0.5) for one in samples],
        "brier": [metrics.brier_score_loss(positive[one], probability[one]) for one in samples],
    }
    for name, metric in found.items():
        assert metric(weights) == pytest.approx(expected[name], abs=1e-12), name
