"""Other packages: lifelines on Rossi's prisoners, and lifelines and scikit-learn on bootstrap samples."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.metrics.classification import make_binary_metrics, make_probability_metrics
from evaluation.metrics.survival import SurvivalCohort, c_index_metric


def test_the_cox_model_of_rossi():
    """Rossi's Cox model with all seven covariates has a published C-index of 0.64033, as in lifelines."""
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
    """Weights count the patients of a bootstrap sample; the libraries score the sampled patients themselves."""
    metrics = pytest.importorskip("sklearn.metrics")
    from lifelines.utils import concordance_index as theirs

    rng = np.random.default_rng(0)
    times, events = rng.exponential(1000, 80).round(-1), rng.random(80) < 0.4
    risks, positive, probability = rng.normal(size=80).round(1), rng.random(80) < 0.4, rng.random(80).round(1)
    samples = rng.integers(0, 80, (20, 80))
    weights = np.stack([np.bincount(sample, minlength=80) for sample in samples]).astype(float)
    ours = {
        "c": c_index_metric(SurvivalCohort(times, events, risks), "non_concordant"),
        "auc": make_probability_metrics(positive, probability)["auc"],
        "accuracy": make_binary_metrics(positive, positive == (probability > 0.5))["balanced_accuracy"],
        "brier": make_probability_metrics(positive, probability)["brier"],
    }
    expected = {
        "c": [theirs(times[sample], -risks[sample], events[sample]) for sample in samples],
        "auc": [metrics.roc_auc_score(positive[sample], probability[sample]) for sample in samples],
        "accuracy": [
            metrics.balanced_accuracy_score(positive[sample], probability[sample] > 0.5) for sample in samples
        ],
        "brier": [metrics.brier_score_loss(positive[sample], probability[sample]) for sample in samples],
    }
    for name, metric in ours.items():
        assert metric(weights) == pytest.approx(expected[name], abs=1e-12), name
