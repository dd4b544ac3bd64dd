"""Balanced accuracy, risk-coverage curves and rank correlation, by hand and against plain code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from evaluation.metrics.classification import (
    confusion_matrix,
    encode_classes,
    make_binary_metrics,
    make_multiclass_metrics,
)
from evaluation.metrics.confidence import aurc, aurc_metric, risk_coverage, spearman, spearman_metric


def compute_values(positive, correct):
    metrics = make_binary_metrics(np.array(positive, dtype=np.bool_), np.array(correct, dtype=np.bool_))
    return {name: metric(np.ones((1, len(positive))))[0] for name, metric in metrics.items()}


def test_by_hand():
    """4 positive, 3 of them right; 2 negative, 1 right: 0.75, 0.5, their mean 0.625."""
    values = compute_values([1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 0])
    assert values == {"sensitivity": 0.75, "specificity": 0.5, "balanced_accuracy": 0.625}


CLASSES = ("T1", "T2", "T3", "T4")


def test_many_classes_by_hand():
    """T1 1 of 2, T2 2 of 2, T4 0 of 1 right, no T3: mean recall (1/2 + 1 + 0) / 3, accuracy 3/5."""
    actual = encode_classes(["T1", "T1", "T2", "T2", "T4"], CLASSES)
    predicted = encode_classes(["T1", "T3", "T2", "T2", None], CLASSES)
    metrics = make_multiclass_metrics(actual, predicted, 4)
    values = {name: metric(np.ones((1, 5)))[0] for name, metric in metrics.items()}
    assert values["balanced_accuracy"] == pytest.approx(0.5)
    assert values["accuracy"] == pytest.approx(0.6)
    assert [values[code] for code in "013"] == [0.5, 1.0, 0.0]
    assert np.isnan(values["2"])
    assert confusion_matrix(actual, predicted, 4).tolist() == [
        [1, 0, 1, 0, 0],
        [0, 2, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
    ]


def test_a_sample_with_one_class_has_no_balanced_accuracy():
    """T2 is absent from the second sample; the third one holds T1 once, wrong, and T2 once, right."""
    metrics = make_multiclass_metrics(np.array([0, 0, 1]), np.array([0, 1, 1]), 4)
    values = metrics["balanced_accuracy"](np.array([[1.0, 1, 1], [1, 1, 0], [0, 1, 1]]))
    assert values == pytest.approx([0.75, np.nan, 0.5], nan_ok=True)


def test_three_cases_by_hand() -> None:
    """Risks 0.1, 0.5, 0.3 by falling confidence: means 0.1, 0.3, 0.3, area 0.7 / 3; the oracle's 0.1, 0.2, 0.3: 0.2.

    Where none is surer than another, every mean is expected to be 0.3. If the second and third are equally sure, the
    second mean is (0.1 + 0.5) / 2 or (0.1 + 0.3) / 2, 0.25 on average.
    """
    confidence, risk = np.array([0.8, 0.7, 0.6]), np.array([0.1, 0.5, 0.3])
    assert risk_coverage(confidence, risk) == pytest.approx([0.1, 0.3, 0.3])
    assert aurc(confidence, risk) == pytest.approx(0.7 / 3)
    assert aurc(-risk, risk) == pytest.approx(0.2)
    assert risk_coverage(np.ones(3), risk) == pytest.approx([0.3, 0.3, 0.3])
    assert risk_coverage(np.array([0.8, 0.6, 0.6]), risk) == pytest.approx([0.1, 0.25, 0.3])


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_weights_repeat_cases(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, risk = rng.integers(0, 4, 6) / 4, rng.random(6)
    weights = rng.integers(0, 4, (3, 6)).astype(float)
    weights[:, 0] += 1
    samples = [np.repeat(np.arange(6), row.astype(int)) for row in weights]
    expected = [aurc(confidence[drawn], risk[drawn]) for drawn in samples]
    assert aurc_metric(confidence, risk)(weights) == pytest.approx(expected)


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_spearman_is_scipys_on_drawn_patients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, 5, 9).astype(float), rng.integers(0, 5, 9).astype(float)
    weights = np.vstack([np.ones(9), rng.multinomial(9, np.full(9, 1 / 9), 3)])
    correlations = spearman_metric(first, second)(weights)
    for row, value in zip(weights.astype(int), correlations, strict=True):
        drawn = np.repeat(np.arange(9), row)
        if np.ptp(first[drawn]) and np.ptp(second[drawn]):
            assert value == pytest.approx(spearmanr(first[drawn], second[drawn]).statistic)
            assert spearman(first[drawn], second[drawn]) == pytest.approx(value, abs=1e-12)
        else:
            assert np.isnan(value)
            assert spearman(first[drawn], second[drawn]) is None
