"""Balanced accuracy, by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.metrics.classification import Answers, classification_metrics


def values(positive, correct):
    answers = Answers(np.array(positive, dtype=np.bool_), np.array(correct, dtype=np.bool_))
    metrics = classification_metrics(answers)
    return {name: metric(np.ones((1, len(positive))))[0] for name, metric in metrics.items()}


def test_by_hand():
    """4 positive, 3 of them right; 2 negative, 1 right: 0.75, 0.5, their mean 0.625."""
    found = values([1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 0])
    assert found == {"sensitivity": 0.75, "specificity": 0.5, "balanced_accuracy": 0.625}


def test_answering_positive_for_all_is_chance():
    assert values([1] * 9 + [0], [1] * 9 + [0])["balanced_accuracy"] == 0.5


@pytest.mark.parametrize("positive", [[1, 1], [0, 0]])
def test_one_class_only_is_undefined(positive):
    assert np.isnan(values(positive, [1, 1])["balanced_accuracy"])


def test_scikit_learn_agrees():
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    truth, predicted = rng.random(60) < 0.8, rng.random(60) < 0.6
    theirs = sklearn_metrics.balanced_accuracy_score(truth, predicted)
    assert values(truth, truth == predicted)["balanced_accuracy"] == pytest.approx(theirs)
