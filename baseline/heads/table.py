"""Heads fitted on a table: outcomes, centres and features are columns of a DataFrame, patients are its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from algorithm.heads.head_hook import HEAD
from baseline.heads.cohort import Floats, HeadCohort, Outcomes
from baseline.heads.cross_validation import compute_coefficients, compute_linear_share, cross_validate_targets
from baseline.heads.fitting import FittedHead, fit_target
from baseline.heads.models.classes import fit_logistic, fit_multinomial, predict_classes
from baseline.heads.models.custom import CustomHeads, with_custom_heads
from baseline.heads.models.forest import fit_class_forest, fit_risk_forest
from baseline.heads.models.risk import fit_cox, fit_shipped_cox, fit_signs
from baseline.heads.models.selection import (
    FOREST,
    MIN_SCARCE_FOR_ALL,
    MIN_SCARCE_FOR_FOREST,
    RIDGE,
    SIGNS,
    Family,
    FitSettings,
)
from baseline.heads.models.targets import BinaryTarget, ManyClassesTarget, RiskTarget, Target
from baseline.heads.models.terms import Transforms, use_unchanged
from baseline.heads.record import CrossValidation, summarise_heads
from contract.code import Code
from contract.editions import AnswerSpec
from contract.editions.answers import ClassSpec, RiskSpec
from contract.errors import HecktorError

_FRAME: Final = "table"
_MAX_CLASSES: Final = 20


@dataclass(frozen=True)
class FittedTable:
    """A head fitted on all rows of a table.

    Attributes:
        target: Answer that the head predicts.
        features: Columns that `predict` reads.
        fitted: Head with its models, settings and selection metric.
        cross_validation: Cross-validations, nested and by centre, as in `cross_validation.json` (docs/heads.md);
            patients are row labels.
        rows: Number of rows.
        scarce: Number of events, or of rows outside the most frequent class.
    """

    target: Target
    features: tuple[str, ...]
    fitted: FittedHead
    cross_validation: CrossValidation
    rows: int
    scarce: int

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Predict the rows of a table with the columns `features`; the median of the training replaces a missing value.

        Returns:
            For a survival: `risk`, the log partial hazard, higher for an earlier event; `mean_time`, the mean time
            without event within the longest follow-up of the training; `median_time`, NaN if it is later than the
            longest follow-up. For classes: `class`, and `probability` of the second of two classes.

        Raises:
            HecktorError: A column is absent, not numeric or infinite.
        """
        frame = _convert_column_names(frame, self.features)
        head, cohort = self.fitted.head, _make_cohort(frame, self.features)
        scores = head.scores(cohort)
        if head.classes:
            return self._make_class_table(frame, predict_classes(scores, cohort.possible))
        if head.calibration is not None and head.threshold is not None:
            probability = [head.calibration.probability(score) for score in scores]
            return self._make_class_table(frame, scores >= head.threshold).assign(probability=probability)
        if head.survival is None:
            raise AssertionError("the head of a survival has no baseline survival")
        means = [head.survival.restricted_mean(score) for score in scores]
        medians = [head.survival.median(score) for score in scores]
        columns = {"risk": scores, "mean_time": means, "median_time": np.array(medians, dtype=np.float64)}
        return pd.DataFrame(columns, index=frame.index)

    def _make_class_table(self, frame: pd.DataFrame, numbers: Sequence[int] | np.ndarray[Any, Any]) -> pd.DataFrame:
        classes = self.target.answer.classes
        return pd.DataFrame({"class": [classes[int(number)] for number in numbers]}, index=frame.index)

    def coefficients(self) -> pd.Series:
        """Return the weight of each feature per standard deviation, largest first; 0 for features without a weight.

        The weights are log hazard ratios or log odds ratios; for more than two classes they are the change from one
        class to the next. They are the contribution of the head's linear models; a forest has no weights.
        """
        weights = compute_coefficients(self.fitted.head)
        series = pd.Series({name: weights.get(name, 0.0) for name in self.features}, dtype=np.float64)
        return series.reindex(series.abs().sort_values(ascending=False, kind="stable").index)

    def summary(self) -> str:
        """Summarise the cohort, the metrics of each cross-validation and the coefficients in several lines of text."""
        name, head = self.target.name, self.fitted.head
        is_risk = self.target.answer.kind == "risk"
        counted = f"{self.scarce} {'events' if is_risk else self.target.scarce_outcome}"
        lines = [f"{self.rows} rows, {counted}, {len(self.features)} features"]
        lines.append(summarise_heads({name: self.fitted}, self.cross_validation, [self.target]))
        ratio = "change from class to class" if head.classes else "hazard ratio" if is_risk else "odds ratio"
        share = compute_linear_share(head)
        if share > 0:
            weights = self.coefficients() if head.classes else np.exp(self.coefficients())
            part = f" (linear part of the head, {share:.0%} of the weight)" if share < 1 else ""
            lines.append(f"{ratio} per SD{part}: {', '.join(f'{key} {value:z.2f}' for key, value in weights.items())}")
        else:
            lines.append(f"no {ratio} of a feature: the head has no linear part")
        if is_risk:
            lines.append("times do not transfer to other centres; the order of patients does")
        return "\n".join(lines)


def fit_table(  # noqa: PLR0913 - keyword options of a public function
    frame: pd.DataFrame,
    *,
    time: str | None = None,
    event: str | None = None,
    target: str | None = None,
    centre: str | None = None,
    features: Sequence[str] | None = None,
    seed: int = 0,
    jobs: int = 1,
    code: Sequence[Path] = (),
) -> FittedTable:
    """Fit a head as for a package (docs/heads.md) and cross-validate the whole selection, nested and by centre.

    Args:
        frame: Table with one row for each patient.
        time: Column of the follow-up in any unit, for a survival.
        event: Column of the events: 1 or True for an event, 0 or False for censoring.
        target: Column of a class (bool, whole numbers or text), in place of `time` and `event`.
        centre: Column of the centres, which folds leave out as a whole; None for one centre.
        features: Numeric columns, NaN for a missing value; by default all other columns. Their values are not
            transformed.
        seed: Seed of folds and bootstrap samples.
        jobs: Number of processes of the cross-validation.
        code: Folders of custom code, whose heads compete with the built-in heads (docs/own-model.md).

    Raises:
        HecktorError: A column is absent or unusable; the message names the first bad row.
        MetricError: There are too few events or too few patients of the rarer class.
    """
    head_target, cohort = make_table_cohort(
        frame, time=time, event=event, target=target, centre=centre, features=features
    )
    custom_code = Code.from_folders(code)
    custom = CustomHeads(custom_code, custom_code.find_classes(HEAD))
    head_target = with_custom_heads(head_target, custom)
    custom_code.check_used()
    fitted = fit_target(head_target, cohort, np.random.default_rng(seed))
    document = cross_validate_targets([(head_target, cohort)], seed, {}, jobs)
    used = tuple(map(str, cohort.features.columns))
    return FittedTable(head_target, used, fitted, document, len(frame), head_target.count_scarce(cohort))


def make_table_cohort(
    frame: pd.DataFrame,
    *,
    time: str | None = None,
    event: str | None = None,
    target: str | None = None,
    centre: str | None = None,
    features: Sequence[str] | None = None,
) -> tuple[Target, HeadCohort]:
    """Make target and cohort of a table; `fit_table` documents the arguments and errors."""
    time, event, target, centre = (None if name is None else str(name) for name in (time, event, target, centre))
    features = None if features is None else [str(name) for name in features]
    outcome = [name for name in (time, event, target) if name is not None]
    if (time is None) != (event is None) or (time is None) == (target is None):
        options = ", ".join(name for name, value in (("time", time), ("event", event), ("target", target)) if value)
        raise HecktorError("fit_table", f"found {options or 'no outcome'}", "time and event, or target")
    read = None if features is None else [*outcome, *features, *([] if centre is None else [centre])]
    frame = _convert_column_names(frame, read)
    used = tuple(name for name in frame.columns if name not in {*outcome, centre}) if features is None else features
    if frame.empty or not used:
        problem = "found no row" if frame.empty else "found no column of a feature"
        raise HecktorError(_FRAME, problem, "a row for each patient, and at least one feature")
    if time is not None and event is not None:
        outcomes = _read_survival(frame, time, event)
        answer: AnswerSpec = RiskSpec(
            **_make_declaration("risk"), direction="time", columns={"time": time, "event": event}
        )
    else:
        classes, outcomes = _read_classes(frame, str(target))
        answer = ClassSpec(**_make_declaration("class"), classes=classes, columns={"class": str(target)})
    centres = None if centre is None else tuple(map(str, _read_column(frame, centre, "a centre in each row")))
    return _make_target(answer, use_unchanged(used)), _make_cohort(frame, used, centres, outcomes)


def _convert_column_names(frame: pd.DataFrame, used: Sequence[str] | None) -> pd.DataFrame:
    """Convert the names of columns to text; raise `HecktorError` if two columns then have the same name.

    Only columns among `used` are checked, or all columns if `used` is None.
    """
    frame = frame.rename(columns=str)
    for name in frame.columns[frame.columns.duplicated()]:
        if used is None or name in used:
            raise HecktorError(f"column {name!r}", "found twice", "each column once; 1 and '1' are the same name")
    return frame


def _read_column(frame: pd.DataFrame, name: str, expected: str) -> pd.Series:
    """Return a column; raise `HecktorError` if the column or a value is missing."""
    if name not in frame.columns:
        raise HecktorError(_FRAME, f"found no column {name!r}", f"one of {', '.join(map(str, frame.columns[:20]))}")
    _check_rows(frame[name], frame[name].isna(), expected)
    return frame[name]


def _check_rows(column: pd.Series, bad: Any, expected: str) -> None:
    """Raise `HecktorError` with the first row for which `bad`, shape (rows,), is True."""
    places = np.flatnonzero(bad)
    if places.size:
        more = f" and {places.size - 1} more" if places.size > 1 else ""
        problem = f"found {column.iloc[places[0]]} in row {column.index[places[0]]}{more}"
        raise HecktorError(f"column {column.name!r}", problem, expected)


def _read_numbers(frame: pd.DataFrame, name: str, expected: str) -> Floats:
    """Read a numeric or boolean column as float, NaN where a value is missing."""
    if name not in frame.columns:
        _read_column(frame, name, expected)
    column = frame[name]
    if not pd.api.types.is_numeric_dtype(column):
        raise HecktorError(f"column {name!r}", f"found {column.dtype} such as {column.iloc[0]!r}", expected)
    values = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    _check_rows(column, np.isinf(values), expected)
    return values


def _make_cohort(
    frame: pd.DataFrame,
    features: Sequence[str],
    centres: tuple[str, ...] | None = None,
    outcomes: Outcomes | None = None,
) -> HeadCohort:
    expected = "finite numbers, NaN where missing; leave the column out, or code it as numbers"
    values = {name: _read_numbers(frame, name, expected) for name in features}
    count = len(frame)
    return HeadCohort(
        tuple(map(str, frame.index)),
        centres or ("",) * count,
        pd.DataFrame(values),
        outcomes or Outcomes(np.zeros(count, dtype=np.int64)),
    )


def _read_survival(frame: pd.DataFrame, time: str, event: str) -> Outcomes:
    expected = "a time of 0 or more, above 0 in some row"
    times = _read_numbers(frame, time, expected)
    _check_rows(frame[time], ~(times >= 0) | (not times.any()), expected)
    expected = "1 or True for an event, 0 or False for censoring"
    events = _read_numbers(frame, event, expected)
    _check_rows(frame[event], ~np.isin(events, (0, 1)), expected)
    return Outcomes(events.astype(np.int64), times)


def _read_classes(frame: pd.DataFrame, target: str) -> tuple[tuple[Any, ...], Outcomes]:
    """Read the classes in ascending order, and the class number of each row."""
    values = _read_column(frame, target, "a class in each row").tolist()
    classes = tuple(sorted(set(values), key=lambda value: (str(type(value)), value)))
    kinds = {type(value) for value in classes}
    if len(kinds) != 1 or not kinds <= {bool, int, str} or not 2 <= len(classes) <= _MAX_CLASSES:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        problem = f"found {len(classes)} different values of type {names}, such as {classes[0]!r}"
        raise HecktorError(f"column {target!r}", problem, f"2 to {_MAX_CLASSES} classes: bool, whole numbers or text")
    numbers = np.array([classes.index(value) for value in values], dtype=np.int64)
    return classes, Outcomes(numbers, classes=tuple(map(str, classes)))


def _make_declaration(kind: str) -> dict[str, Any]:
    """Make the fields that a declaration requires: name, kind, and an output socket, which is not used here."""
    return {"name": kind, "kind": kind, "slug": kind, "title": kind, "path": f"{kind}.json"}


def _make_target(answer: AnswerSpec, transforms: Transforms) -> Target:
    def make_forest(fit: FitSettings) -> Family:
        needs_slope = answer.kind == "risk"
        return Family("forest", fit, FOREST, transforms, min_scarce=MIN_SCARCE_FOR_FOREST, needs_slope=needs_slope)

    if answer.kind == "risk":
        cox = Family("Cox", fit_cox, RIDGE, transforms, fit_shipped=fit_shipped_cox)
        signs = Family("signs", fit_signs, SIGNS, transforms, min_scarce=MIN_SCARCE_FOR_ALL)
        return RiskTarget(answer, "risk", (cox, signs, make_forest(fit_risk_forest)), {}, (), with_dose=False)
    if answer.is_binary:
        families = (Family("logistic", fit_logistic, RIDGE, transforms), make_forest(fit_class_forest))
        return BinaryTarget(answer, "class", families, {}, (), with_dose=False)
    family = Family("multinomial", fit_multinomial, RIDGE, transforms)
    return ManyClassesTarget(answer, "class", (family,), {}, (), with_dose=False)
