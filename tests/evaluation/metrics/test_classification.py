"""Balanced accuracy, by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.metrics.classification import binary_metrics, confusion_matrix, encode_classes, multiclass_metrics


def compute_values(positive, correct):
    metrics = binary_metrics(np.array(positive, dtype=np.bool_), np.array(correct, dtype=np.bool_))
    return {name: metric(np.ones((1, len(positive))))[0] for name, metric in metrics.items()}


def test_by_hand():
    """4 positive, 3 of them right; 2 negative, 1 right: 0.75, 0.5, their mean 0.625."""
    values = compute_values([1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 0])
    assert values == {"sensitivity": 0.75, "specificity": 0.5, "balanced_accuracy": 0.625}


@pytest.mark.parametrize("positive", [[1, 1], [0, 0]])
def test_one_class_only_is_undefined(positive):
    assert np.isnan(compute_values(positive, [1, 1])["balanced_accuracy"])


CLASSES = ("T1", "T2", "T3", "T4")


def test_many_classes_by_hand():
    """T1 1 of 2, T2 2 of 2, T4 0 of 1 right, no T3: mean recall (1/2 + 1 + 0) / 3, accuracy 3/5."""
    actual = encode_classes(["T1", "T1", "T2", "T2", "T4"], CLASSES)
    predicted = encode_classes(["T1", "T3", "T2", "T2", None], CLASSES)
    metrics = multiclass_metrics(actual, predicted, 4)
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
    metrics = multiclass_metrics(np.array([0, 0, 1]), np.array([0, 1, 1]), 4)
    values = metrics["balanced_accuracy"](np.array([[1.0, 1, 1], [1, 1, 0], [0, 1, 1]]))
    assert values == pytest.approx([0.75, np.nan, 0.5], nan_ok=True)
