"""`hecktor study failures`: whether the expected DSC of each mask predicts which masks failed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError, PredictionError
from contract.io.files import list_folder, read_json
from contract.options import add_edition_option, number_within
from contract.platform import is_system_name
from evaluation.inputs.plain_files import read_fraction_table
from evaluation.inputs.submission import SubmittedAnswer
from evaluation.inputs.tables import ID_COLUMN, read_table_with
from evaluation.metrics.classification import auc_metric
from evaluation.metrics.confidence import aurc_metric, confidence_metrics, risk_coverage
from evaluation.metrics.masks import LABELS
from evaluation.metrics.overlap import Booleans, Floats, Overlap, mean_metric, score_overlap
from evaluation.options import add_bootstrap_options
from evaluation.results.task import TaskResults
from evaluation.results.teams import load_teams
from evaluation.rows.table import RowTable
from evaluation.statistics.bootstrap import Estimate, Estimates, estimate_unranked
from reporting.studies.outputs import StudyResult, format_interval, make_json_figures

COLUMNS: Final = {label: f"{label}_expected_dsc" for label in LABELS}
DEFAULT_FAILED_BELOW: Final = 0.5
_UNMATCHED_REASONS: Final = {
    "unknown": "not a case of the metrics.json",
    "duplicate": "appears twice, so neither row counts",
    "missing": "no row in the table, no record",
}


@dataclass(frozen=True)
class ExpectedDsc:
    """Expected DSC of each case by label, and the names that do not match the cases of the metrics.json.

    Attributes:
        answers: The expected DSC of each case by label, only for labels with a column in the table.
        unknown: Names that match no case.
        duplicate: Cases with two rows, neither of which counts.
        missing: Cases without a row or record.
    """

    answers: Mapping[str, Sequence[SubmittedAnswer]]
    unknown: list[str]
    duplicate: list[str]
    missing: list[str]


@dataclass(frozen=True)
class LabelConfidence:
    """Expected and true DSC of one label.

    Attributes:
        expected: Expected DSC of the cases with both values, shape (cases,).
        true_dsc: True DSC of the same cases, in the same order.
        failed_below: A mask failed if its true DSC is lower.
        without_expected: Cases without an expected DSC, and the reason.
        without_dsc: Names of the cases without a true DSC.
        failed_without_expected: Number of failed cases without an expected DSC.
    """

    expected: Floats
    true_dsc: Floats
    failed_below: float
    without_expected: tuple[Mapping[str, str], ...]
    without_dsc: tuple[str, ...]
    failed_without_expected: int

    @property
    def failed(self) -> Booleans:
        """True where the mask of a case failed, shape (cases,)."""
        return np.asarray(self.true_dsc < self.failed_below, dtype=np.bool_)

    def estimate(self, bootstraps: int, seed: int) -> Estimates:
        """Estimate every metric with its interval; metrics that are always defined share their draws of cases."""
        risk = 1 - self.true_dsc
        metrics = {
            **confidence_metrics(self.expected, self.true_dsc),
            "oracle_aurc": aurc_metric(self.true_dsc, risk),
            "random_aurc": mean_metric(risk),
            "failed_auc": auc_metric(~self.failed, self.expected),
        }
        if not risk.size:
            return Estimates(dict.fromkeys(metrics, Estimate(None, None, None)), 0)
        return estimate_unranked(metrics, risk.size, bootstraps, seed)


def run_failures(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Compare expected and true DSC of each label."""
    results = load_teams({options.metrics.resolve().parent.name: options.metrics}, edition=options.edition)
    ((team, metrics),) = results.teams.items()
    cases, table = find_mask_rows(results)
    expected = read_expected_dsc(options.expected, cases)
    confidence = {
        label: pair_dsc(label, table, answers, options.failed_below) for label, answers in expected.answers.items()
    }
    if not any(label_confidence.expected.size for label_confidence in confidence.values()):
        raise HecktorError(options.expected.name, "no case has a true and an expected DSC", "at least one")
    content: dict[str, Any] = {
        "team": team,
        "edition": metrics.provenance.edition,
        "cases": len(cases),
        "not_counted": sorted(set(cases) - set(table.cases)),
        "unknown": expected.unknown,
        "duplicate": expected.duplicate,
        "missing": expected.missing,
        "failed_below": options.failed_below,
        "bootstraps": options.bootstraps,
        "seed": options.seed,
        "labels": {
            label: _dump_confidence(label_confidence, options.bootstraps, options.seed)
            for label, label_confidence in confidence.items()
        },
    }
    for kind, reason in _UNMATCHED_REASONS.items():
        for case in content[kind]:
            sys.stderr.write(f"warning: {case}: {reason}\n")
    lines = [
        line
        for label, label_confidence in confidence.items()
        for line in build_risk_coverage_curve(label, label_confidence)
    ]
    return StudyResult(content, lines, _summarise_labels(content["labels"]))


def find_mask_rows(results: TaskResults) -> tuple[tuple[str, ...], RowTable]:
    """Return the cases of one team's metrics.json of masks, sorted, and the rows that count by its rules.

    Raises:
        HecktorError: The file has no masks or no rows.
    """
    (team,) = results.teams
    mask = results.task.mask_spec
    if mask is None or team not in results.answers:
        raise HecktorError(team, "no rows of masks", "a metrics.json of masks written without --no-rows")
    return tuple(sorted(results.scored_cases)), results.answers[team][mask.name].counted


def read_expected_dsc(path: Path, cases: Sequence[str]) -> ExpectedDsc:
    """Read the expected DSC of each case. An unusable value only leaves its own case without an expected DSC.

    Args:
        path: A table, a `rehearsal.json`, or a folder with a record of the run for each case.
        cases: The cases of the metrics.json.

    Raises:
        PredictionError: The table or a record cannot be used.
    """
    if path.is_dir():
        return _match_records(_read_run_records(path), cases)
    if path.suffix.lower() == ".json":
        return _match_records(_read_rehearsal(path), cases)
    return _read_expected_table(path, cases)


def _read_expected_table(path: Path, cases: Sequence[str]) -> ExpectedDsc:
    table = read_table_with(path, dict.fromkeys(COLUMNS.values(), ()), PredictionError)
    columns = {label: column for label, column in COLUMNS.items() if column in table.header}
    if ID_COLUMN not in table.header or not columns:
        expected = f"{ID_COLUMN} and {' or '.join(COLUMNS.values())}"
        raise PredictionError(table.name, f"columns {', '.join(table.header)[:200]}; expected {expected}")
    submissions = {label: read_fraction_table(path, column, cases) for label, column in columns.items()}
    # All columns have the same patients.
    submission = next(iter(submissions.values()))
    missing = sorted(set(cases) - {row[ID_COLUMN].strip() for row in table.rows})
    answers = {label: submission.answers for label, submission in submissions.items()}
    return ExpectedDsc(answers, list(submission.unknown), list(submission.duplicate), missing)


def _match_records(records: Mapping[str, Mapping[str, float | None]], cases: Sequence[str]) -> ExpectedDsc:
    """Return the expected DSC by label from the expected DSC by case and label."""
    answers: dict[str, list[SubmittedAnswer]] = {label: [] for label in COLUMNS}
    for label, label_answers in answers.items():
        for case in cases:
            value = records.get(case, {}).get(label)
            if value is not None:
                label_answers.append(SubmittedAnswer(case, None, value=value))
            else:
                problem = f"no expected DSC of {label}" if case in records else "no record"
                label_answers.append(SubmittedAnswer(case, None, problem))
    unknown = sorted(records.keys() - set(cases))
    missing = sorted(set(cases) - records.keys())
    return ExpectedDsc(answers, unknown, [], missing)


def _read_run_records(folder: Path) -> dict[str, dict[str, float | None]]:
    """Read the expected DSC of each case by label from `CASE.json` as `hecktor predict --record` writes it."""
    records = {}
    for path in list_folder(folder, "*.json"):
        if not is_system_name(path.name):
            record = read_json(path, error=PredictionError)
            records[path.stem] = _parse_record(record, path.name, "a record of `hecktor predict --record`")
    return records


def _read_rehearsal(path: Path) -> dict[str, dict[str, float | None]]:
    """Read the expected DSC of each case by label from `rehearsal.json`; cases without a run record are left out."""
    content = read_json(path, error=PredictionError)
    expected = "a rehearsal.json of `hecktor rehearse`"
    entries = content.get("cases") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("case"), str) and "record" in entry for entry in entries
    ):
        raise PredictionError(path.name, "no cases with their records", expected)
    records = {entry["case"]: entry["record"] for entry in entries if entry["record"] is not None}
    if any(isinstance(record, dict) and "expected_dsc" not in record for record in records.values()):
        raise PredictionError(
            path.name, "no expected_dsc in its records", "a rehearsal of this version; rehearse again"
        )
    return {case: _parse_record(record, f"{path.name}: {case}", expected) for case, record in records.items()}


def _parse_record(record: Any, name: str, expected: str) -> dict[str, float | None]:
    """Return the expected DSC by label of one record; raise `PredictionError` for a value outside 0 to 1."""
    values = record.get("expected_dsc") if isinstance(record, dict) else None
    if not isinstance(values, dict) or not all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)
        for value in values.values()
    ):
        raise PredictionError(name, "no expected_dsc from 0 to 1", expected)
    return {label.lower(): None if value is None else float(value) for label, value in values.items()}


def pair_dsc(label: str, table: RowTable, answers: Sequence[SubmittedAnswer], failed_below: float) -> LabelConfidence:
    """Pair one label's expected DSC with the true one.

    Args:
        label: Key of `LABELS`.
        table: Rows of the cases that count.
        answers: Expected DSC of these cases, and possibly of further cases.
        failed_below: A mask failed if its true DSC is lower.
    """
    answer_by_case = {answer.case: answer for answer in answers}
    pairs: list[tuple[float, float]] = []
    without_expected = []
    without_dsc = []
    failed_without_expected = 0
    counts = (table.columns[f"{label}.{name}_voxels"] for name in ("intersection", "reference", "predicted"))
    for case, error, *voxels in zip(table.cases, table.errors, *counts, strict=True):
        dsc = score_overlap(Overlap(*voxels), failed=error is not None, rule="skip").dsc
        answer = answer_by_case[case]
        if dsc is None:
            without_dsc.append(case)
        elif isinstance(answer.value, float):
            pairs.append((answer.value, dsc))
        if answer.value is None:
            without_expected.append({"case": case, "why": answer.problem or ""})
            if dsc is not None and dsc < failed_below:
                failed_without_expected += 1
    expected, true_dsc = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return LabelConfidence(
        expected, true_dsc, failed_below, tuple(without_expected), tuple(without_dsc), failed_without_expected
    )


def build_risk_coverage_curve(label: str, confidence: LabelConfidence) -> list[dict[str, Any]]:
    """Return the risk-coverage curve: one line for each number of retained cases."""
    risk = 1 - confidence.true_dsc
    risks = risk_coverage(confidence.expected, risk)
    oracle_risks = risk_coverage(confidence.true_dsc, risk)
    return [
        {
            "label": label,
            "kept": number,
            "coverage": number / risk.size,
            "risk": float(risks[number - 1]),
            "oracle_risk": float(oracle_risks[number - 1]),
            "random_risk": float(risk.mean()),
        }
        for number in range(1, risk.size + 1)
    ]


def _dump_confidence(confidence: LabelConfidence, bootstraps: int, seed: int) -> dict[str, Any]:
    """Return the results of one label for the JSON file."""
    estimates = confidence.estimate(bootstraps, seed)
    return {
        "cases": int(confidence.true_dsc.size),
        "failed": int(confidence.failed.sum()),
        "failed_without_expected": confidence.failed_without_expected,
        "without_expected": list(confidence.without_expected),
        "without_dsc": list(confidence.without_dsc),
        "redraws": estimates.redraws,
        "aggregates": make_json_figures(estimates.by_metric),
    }


def _summarise_labels(by_label: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for label, results in by_label.items():
        lines += [f"{label} {name:<20} {format_interval(figures)}\n" for name, figures in results["aggregates"].items()]
        lines.append(
            f"{label}: {results['cases']} cases, {results['failed']} failed; "
            f"{len(results['without_expected'])} without an expected DSC, of which "
            f"{results['failed_without_expected']} failed\n"
        )
    return "".join(lines)


def add_failures_options(parser: argparse.ArgumentParser) -> None:
    """Add the masks' metrics, the expected DSC and the bootstrap."""
    add = parser.add_argument
    add("metrics", type=Path, help="metrics.json of the team's masks")
    columns = f"CSV with {ID_COLUMN} and {' or '.join(COLUMNS.values())}, or a folder of records CASE.json"
    add("--expected", type=Path, required=True, help=columns)
    below = "the DSC below which a mask failed (default: %(default)s)"
    add("--failed-below", type=number_within(0, 1), default=DEFAULT_FAILED_BELOW, help=below)
    add_edition_option(parser, "the edition of the results")
    add_bootstrap_options(parser)
