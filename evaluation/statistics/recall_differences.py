"""Standard errors of differences between recalls in closed form, without a bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Floats, MeanRecall, WeightedMetric, split_into_recalls

# Added to each of the four cells of a class: both teams right, only the first, only the second, neither.
ADDED_PATIENTS_PER_CELL: Final = 0.5


@dataclass(frozen=True)
class RecallDeviations:
    """Uncertainty of the difference between each pair of teams; both arrays have shape (teams, teams).

    Attributes:
        sd: Standard error of the difference, in the metric's unit.
        df: Degrees of freedom of `sd`; 0 if a class has a single patient.
    """

    sd: Floats
    df: Floats


def compute_recall_deviations(metrics: Sequence[WeightedMetric]) -> RecallDeviations | None:
    """Compute the uncertainty of the difference between each pair of teams.

    Let b patients of a class of n be right only for the first team, and c only for the second. Half a patient is added
    to each of the four cells: b' = b + 1/2, c' = c + 1/2 and N = n + 2. Then the difference of the two recalls has the
    variance v = (b' + c' - (b' - c')^2 / N) / N^2. The variance of a metric is the sum of w^2 v over its classes with
    their weights w, and its degrees of freedom follow from Welch and Satterthwaite with n - 1 for each class. A class
    without patients has no weight.

    Two cases go beyond this formula. A weighted sum may count a patient in several classes, for example by T and N
    stage. Then the patient's parts are added before they are squared, and the term with the fewest degrees of freedom
    decides. If the teams do not count the same patients, a patient whom only one team counts adds to the variance of
    this team's recall.

    Args:
        metrics: The metric of each team, on the patients of one cohort.

    Returns:
        The uncertainty; None if the metric has other parts than recalls.

    Sources: Agresti and Min 2005, Statistics in Medicine 24:729-740; Welch 1947, Biometrika 34:28-35; Satterthwaite
    1946, Biometrics Bulletin 2:110-114.
    """
    recalls_of_teams = [split_into_recalls(metric) for metric in metrics]
    if not all(recalls_of_teams):
        return None
    shape = (len(metrics), len(metrics))
    added_variance, df = np.zeros(shape), np.full(shape, np.inf)
    residuals = np.zeros((len(metrics), next(iter(recalls_of_teams[0])).correct.size))
    for terms in zip(*(recalls.items() for recalls in recalls_of_teams), strict=True):
        classes = _split_into_classes(terms)
        df = np.minimum(df, _degrees_of_freedom(classes))
        residuals += sum(patient_class.residuals for patient_class in classes)
        added_variance += sum(patient_class.variance_of_added_patients() for patient_class in classes)
    return RecallDeviations(np.sqrt(_sum_squared_distances(residuals) + added_variance), df)


@dataclass(frozen=True)
class _Class:
    """One class of patients as it enters the metric of each team.

    Attributes:
        patients: Number of patients; shape (teams,).
        recall: Fraction of right answers, with the added patients; shape (teams,).
        share: Change of the metric by one more right answer; shape (teams,).
        residuals: Each patient's answer minus the recall, times the share; shape (teams, cases).
    """

    patients: Floats
    recall: Floats
    share: Floats
    residuals: Floats

    def variance(self) -> Floats:
        """Return the class's part of the variance of the difference, w^2 v; shape (teams, teams)."""
        return _sum_squared_distances(self.residuals) + self.variance_of_added_patients()

    def variance_of_added_patients(self) -> Floats:
        """Return the part of this variance that comes from the added patients; shape (teams, teams)."""
        variance = np.zeros((self.share.size, self.share.size))
        for first in (0.0, 1.0):
            for second in (0.0, 1.0):
                gap = ((first - self.recall) * self.share)[:, None] - (second - self.recall) * self.share
                variance += ADDED_PATIENTS_PER_CELL * gap**2
        return variance


def _split_into_classes(terms: Sequence[tuple[MeanRecall, float]]) -> list[_Class]:
    """Return the classes of one term of a weighted sum, which has a mean recall and its weight for each team."""
    correct = np.stack([recall.correct for recall, _ in terms])
    members = np.stack([recall.members for recall, _ in terms], axis=1)
    patients = members.sum(axis=2)
    present = np.maximum((patients > 0).sum(axis=0), 1)
    weights = np.array([weight for _, weight in terms]) / present
    sizes = patients + 4 * ADDED_PATIENTS_PER_CELL
    recalls = ((members * correct).sum(axis=2) + 2 * ADDED_PATIENTS_PER_CELL) / sizes
    shares = np.where(patients > 0, weights / sizes, 0.0)
    residuals = members * (correct - recalls[:, :, None]) * shares[:, :, None]
    return [_Class(*parts) for parts in zip(patients, recalls, shares, residuals, strict=True)]


def _degrees_of_freedom(classes: Sequence[_Class]) -> Floats:
    """Compute the degrees of freedom of one mean recall by Welch and Satterthwaite; shape (teams, teams)."""
    shape = (classes[0].patients.size, classes[0].patients.size)
    total, spread = np.zeros(shape), np.zeros(shape)
    for patient_class in classes:
        variance = patient_class.variance()
        fewest = np.minimum(patient_class.patients[:, None], patient_class.patients)
        most = np.maximum(patient_class.patients[:, None], patient_class.patients)
        freedom_of_class = np.where(fewest > 0, fewest, most) - 1
        of_single_patient = np.where(variance > 0, np.inf, 0.0)
        spread += np.divide(variance**2, freedom_of_class, out=of_single_patient, where=freedom_of_class > 0)
        total += variance
    freedom: Floats = np.full(shape, np.inf)
    return np.divide(total**2, spread, out=freedom, where=spread > 0)


def _sum_squared_distances(rows: Floats) -> Floats:
    """Return the squared Euclidean distance between each pair of rows; exactly 0 between equal rows."""
    return np.stack([((rows - row) ** 2).sum(axis=1) for row in rows])
