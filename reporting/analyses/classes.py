"""Compare predicted classes with the reference: confusion matrices and calibration."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from contract.editions.answers import ClassValue
from evaluation.metrics.classification import calibration_table, confusion_matrix, encode_classes
from reporting.analyses.analysis import NOT_IN_OVERVIEWS, Analysis
from reporting.analyses.tables import AnswerRows, describe_absent_teams, round_figure

_NO_PREDICTION: Final = "no prediction"


def analyse_calibration(table: AnswerRows) -> list[Analysis]:
    """Compare the fraction of positives with the predicted probability in five bins, for an answer with two classes."""
    if not table.answer.is_binary:
        return []
    rows: list[dict[str, Any]] = []
    for team, team_rows in zip(table.names, table.rows, strict=True):
        known = [row for row in team_rows if row is not None and row.get("predicted_probability") is not None]
        positive = np.array([row[table.answer.row_key] == table.answer.classes[1] for row in known], dtype=np.bool_)
        probability = np.array([row["predicted_probability"] for row in known], dtype=np.float64)
        for part in calibration_table(positive, probability):
            means = {key: round_figure(part[key]) for key in ("probability_mean", "positive_share")}
            rows.append({"team": team, "patients": part["cases"], **means})
    analysis = Analysis(
        name=table.make_name("calibration"),
        title=table.make_title("Calibration"),
        caption=(
            "Fraction of positive patients against the mean predicted probability of the positive class, in five equal "
            "bins of the probability; the diagonal is perfect."
        ),
        columns={
            "team": "Team",
            "patients": "Patients",
            "probability_mean": "Mean predicted probability",
            "positive_share": "Fraction of positives",
        },
        rows=rows,
        chart={
            "kind": "points",
            "x": "probability_mean",
            "y": "positive_share",
            "series": "team",
            "diagonal": True,
            "domain": [0, 1],
        },
        notes=describe_absent_teams("Without probabilities", table.names, {str(row["team"]) for row in rows}),
        source=NOT_IN_OVERVIEWS,
        of_patients=True,
    )
    return [analysis] if rows else []


def analyse_confusion(table: AnswerRows) -> list[Analysis]:
    """Count each team's predicted classes for each class of the reference, for two and more classes."""
    classes = table.answer.classes
    names = [format_class(value) for value in classes]
    rows: list[dict[str, Any]] = []
    for team, team_rows in zip(table.names, table.rows, strict=True):
        known = [row for row in team_rows if row is not None]
        actual = encode_classes([row[table.answer.row_key] for row in known], classes)
        predicted = encode_classes([row[f"predicted_{table.answer.row_key}"] for row in known], classes)
        for name, counts in zip(names, confusion_matrix(actual, predicted, len(classes)).tolist(), strict=True):
            for predicted_name, patients in zip([*names, _NO_PREDICTION], counts, strict=True):
                fraction = round_figure(patients / sum(counts)) if any(counts) else None
                cell = {"actual": name, "predicted": predicted_name, "patients": patients, "fraction": fraction}
                rows.append({"team": team, **cell})
    if all(row["patients"] == 0 for row in rows if row["predicted"] == _NO_PREDICTION):
        rows = [row for row in rows if row["predicted"] != _NO_PREDICTION]
    analysis = Analysis(
        name=table.make_name("confusion"),
        title=table.make_title("Confusion matrices"),
        caption=(
            "Number of patients by class in the reference (rows) and predicted class (columns), coloured by the "
            "fraction of the row."
        ),
        columns={
            "team": "Team",
            "actual": "Class in the reference",
            "predicted": "Predicted class",
            "patients": "Patients",
            "fraction": "Fraction of the class",
        },
        rows=rows,
        chart={
            "kind": "matrix",
            "x": "predicted",
            "y": "actual",
            "value": "fraction",
            "text": "patients",
            "facet": "team",
            "scale": "sequential",
        },
        source="HECKTOR 2025 overview, Task 3: balanced accuracy and its errors",
        # If a team predicts a class once, the class of this patient can be read from the column.
        of_patients=True,
    )
    return [analysis] if rows else []


def format_class(value: ClassValue) -> str:
    """Return the name of a class: positive or negative for a boolean, otherwise the class itself."""
    return {True: "positive", False: "negative"}[value] if isinstance(value, bool) else str(value)
