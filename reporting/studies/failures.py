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
from evaluation.inputs.plain_files import read_share_table
from evaluation.inputs.submission import SubmittedAnswer
from evaluation.inputs.tables import ID_COLUMN, read_table_with
from evaluation.metrics.classification import auc_metric
from evaluation.metrics.confidence import aurc_metric, confidence_metrics, risk_coverage
from evaluation.metrics.masks import LABELS
from evaluation.metrics.overlap import Booleans, Floats, mean_metric, score_overlap
from evaluation.options import add_bootstrap_options
from evaluation.results.task import TaskResults
from evaluation.results.teams import load_teams
from evaluation.rows.mask import MaskRow
from evaluation.statistics.bootstrap import Estimate, Estimates, estimate_unranked
from reporting.studies.outputs import StudyResult, interval_text, plain_figures

COLUMNS: Final = {label: f"{label}_expected_dsc" for label in LABELS}
DEFAULT_FAILED_BELOW: Final = 0.5
_UNMATCHED: Final = {
    "unknown": "not a case of the metrics.json",
    "duplicate": "appears twice, neither line counts",
    "missing": "no line in the table, no record",
}


@dataclass(frozen=True)
class LabelConfidence:
    """Expected and true DSC of one label: the cases with both, in one order, and the names of the others.

    `unwarned` counts the failed cases without an expected DSC.
    """

    expected: Floats
    true_dsc: Floats
    failed_below: float
    without_expected: tuple[Mapping[str, str], ...]
    without_dsc: tuple[str, ...]
    unwarned: int

    @property
    def failed(self) -> Booleans:
        """True where the mask of a case failed, shape (cases,)."""
        return np.asarray(self.true_dsc < self.failed_below, dtype=np.bool_)

    def estimates(self, bootstraps: int, seed: int) -> Estimates:
        """Every metric with its interval; metrics that are always defined share their draws of cases."""
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


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Compare expected and true DSC of each label."""
    loaded = load_teams({options.metrics.resolve().parent.name: options.metrics}, edition=options.edition)
    ((team, metrics),), (cases, rows) = loaded.teams.items(), rows_of_masks(loaded)
    answers, about = read_expected(options.expected, cases)
    confidence = {label: compare(label, rows, given, options.failed_below) for label, given in answers.items()}
    if not any(one.expected.size for one in confidence.values()):
        raise HecktorError(options.expected.name, "no case has a true and an expected DSC", "at least one")
    content: dict[str, Any] = {
        "team": team,
        "edition": metrics.provenance.edition,
        "cases": len(cases),
        "not_counted": sorted(set(cases) - {row.case for row in rows}),
        **about,
        "failed_below": options.failed_below,
        "bootstraps": options.bootstraps,
        "seed": options.seed,
        "labels": {name: _as_json(one, options.bootstraps, options.seed) for name, one in confidence.items()},
    }
    for kind, reason in _UNMATCHED.items():
        for case in content[kind]:
            sys.stderr.write(f"warning: {case}: {reason}\n")
    lines = [line for label, one in confidence.items() for line in curve(label, one)]
    return StudyResult(content, lines, _summary(content["labels"]))


def rows_of_masks(loaded: TaskResults) -> tuple[tuple[str, ...], tuple[MaskRow, ...]]:
    """The cases of one team's metrics.json of masks, sorted, and the rows that count by its rules.

    Raises HecktorError without masks or rows.
    """
    (team,), mask = loaded.teams, loaded.task.mask_spec
    if mask is None or team not in loaded.answers:
        raise HecktorError(team, "no rows of masks", "a metrics.json of masks written without --no-rows")
    rows = loaded.answers[team][mask.name].counted
    return tuple(sorted(loaded.scored_cases)), tuple(row for row in rows if isinstance(row, MaskRow))


def read_expected(
    path: Path, cases: Sequence[str]
) -> tuple[dict[str, Sequence[SubmittedAnswer]], dict[str, list[str]]]:
    """The expected DSC of each case, for each label with a column in the table; and the names that do not match.

    These are `unknown` (no case of that name), `duplicate` (two lines: neither counts) and `missing` (no line). In
    place of a table `path` may be a `rehearsal.json`, or a folder with a record of the run for each case. Raises
    PredictionError if the table or a record cannot be used; a fault of one line becomes the problem of its case.
    """
    if path.is_dir() or path.suffix.lower() == ".json":
        return _of_records(path, cases)
    table = read_table_with(path, dict.fromkeys(COLUMNS.values(), ()), PredictionError)
    columns = {label: column for label, column in COLUMNS.items() if column in table.header}
    if ID_COLUMN not in table.header or not columns:
        wanted = f"{ID_COLUMN} and {' or '.join(COLUMNS.values())}"
        raise PredictionError(table.name, f"columns {', '.join(table.header)[:200]}; expected {wanted}")
    read = {label: read_share_table(path, column, cases) for label, column in columns.items()}
    one = next(iter(read.values()))
    missing = sorted(set(cases) - {row[ID_COLUMN].strip() for row in table.rows})
    about = {"unknown": list(one.unknown), "duplicate": list(one.duplicate), "missing": missing}
    return {label: submission.answers for label, submission in read.items()}, about


def _of_records(path: Path, cases: Sequence[str]) -> tuple[dict[str, Sequence[SubmittedAnswer]], dict[str, list[str]]]:
    """Read what `read_expected` returns from a `rehearsal.json`, or from a folder of run records `CASE.json`."""
    found = _read_rehearsal(path) if path.is_file() else _read_run_records(path)

    def answer(case: str, label: str) -> SubmittedAnswer:
        value = found.get(case, {}).get(label)
        why = f"no expected DSC of {label}" if case in found else "no record"
        return SubmittedAnswer(case, None, why) if value is None else SubmittedAnswer(case, None, value=value)

    answers: dict[str, Sequence[SubmittedAnswer]] = {
        label: [answer(case, label) for case in cases] for label in COLUMNS
    }
    unknown, missing = sorted(found.keys() - set(cases)), sorted(set(cases) - found.keys())
    return answers, {"unknown": unknown, "duplicate": [], "missing": missing}


def _read_run_records(folder: Path) -> dict[str, dict[str, float | None]]:
    """Read the expected DSC of each case by label from `CASE.json` as `hecktor predict --record` writes it."""
    found = {}
    for path in [path for path in list_folder(folder, "*.json") if not is_system_name(path.name)]:
        content = read_json(path, error=PredictionError)
        found[path.stem] = _expected_of(content, path.name, "a record of `hecktor predict --record`")
    return found


def _read_rehearsal(path: Path) -> dict[str, dict[str, float | None]]:
    """Read the expected DSC of each case by label from `rehearsal.json`; cases without a run record are left out."""
    content, wanted = read_json(path, error=PredictionError), "a rehearsal.json of `hecktor rehearse`"
    entries = content.get("cases") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("case"), str) and "record" in entry for entry in entries
    ):
        raise PredictionError(path.name, "no cases with their records", wanted)
    recorded = {entry["case"]: entry["record"] for entry in entries if entry["record"] is not None}
    if any(isinstance(record, dict) and "expected_dsc" not in record for record in recorded.values()):
        raise PredictionError(
            path.name, "no expected_dsc in its records", "a rehearsal of this version; rehearse again"
        )
    return {case: _expected_of(record, f"{path.name}: {case}", wanted) for case, record in recorded.items()}


def _expected_of(record: Any, name: str, wanted: str) -> dict[str, float | None]:
    """Return the expected DSC by label of one record; raise `PredictionError` for anything else than 0 to 1."""
    given = record.get("expected_dsc") if isinstance(record, dict) else None
    if not isinstance(given, dict) or not all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)
        for value in given.values()
    ):
        raise PredictionError(name, "no expected_dsc from 0 to 1", wanted)
    return {label.lower(): None if value is None else float(value) for label, value in given.items()}


def compare(
    label: str, rows: Sequence[MaskRow], answers: Sequence[SubmittedAnswer], failed_below: float
) -> LabelConfidence:
    """Pair one label's expected DSCs with the true ones.

    `rows` are of the cases that count; `answers` have the expected DSC of these cases and others. A mask failed if
    its true DSC is below `failed_below`.
    """
    answer_of = {answer.case: answer for answer in answers}
    true_dsc = {
        row.case: score_overlap(row.label(label).overlap, failed=row.error is not None, rule="skip").dsc for row in rows
    }
    given = {case: answer_of[case].value for case in true_dsc}
    both = [
        (value, dsc) for case, dsc in true_dsc.items() if dsc is not None and isinstance(value := given[case], float)
    ]
    expected, true = np.array(both, dtype=np.float64).reshape(-1, 2).T
    lacking = [case for case in true_dsc if given[case] is None]
    without_expected = tuple({"case": case, "why": answer_of[case].problem or ""} for case in lacking)
    without_dsc = tuple(case for case, dsc in true_dsc.items() if dsc is None)
    unwarned = sum(dsc is not None and dsc < failed_below for dsc in map(true_dsc.get, lacking))
    return LabelConfidence(expected, true, failed_below, without_expected, without_dsc, unwarned)


def curve(label: str, confidence: LabelConfidence) -> list[dict[str, Any]]:
    """The risk-coverage curve: one line for each number of retained cases."""
    risk = 1 - confidence.true_dsc
    own, best = risk_coverage(confidence.expected, risk), risk_coverage(confidence.true_dsc, risk)
    columns = ("label", "kept", "coverage", "risk", "oracle_risk", "random_risk")
    rows = (
        (label, number, number / risk.size, float(own[number - 1]), float(best[number - 1]), float(risk.mean()))
        for number in range(1, risk.size + 1)
    )
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _as_json(confidence: LabelConfidence, bootstraps: int, seed: int) -> dict[str, Any]:
    estimates = confidence.estimates(bootstraps, seed)
    return {
        "cases": int(confidence.true_dsc.size),
        "failed": int(confidence.failed.sum()),
        "failed_without_expected": confidence.unwarned,
        "without_expected": list(confidence.without_expected),
        "without_dsc": list(confidence.without_dsc),
        "redraws": estimates.redraws,
        "aggregates": plain_figures(estimates.by_metric),
    }


def _summary(by_label: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for label, results in by_label.items():
        lines += [f"{label} {name:<20} {interval_text(figures)}\n" for name, figures in results["aggregates"].items()]
        lines.append(
            f"{label}: {results['cases']} cases, {results['failed']} failed; without an expected DSC "
            f"{len(results['without_expected'])}, of which failed {results['failed_without_expected']}\n"
        )
    return "".join(lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the masks' metrics, the expected DSC and the bootstrap."""
    add = parser.add_argument
    add("metrics", type=Path, help="metrics.json of the team's masks")
    columns = f"CSV with {ID_COLUMN} and {' or '.join(COLUMNS.values())}, or a folder of records CASE.json"
    add("--expected", type=Path, required=True, help=columns)
    below = "the DSC below which a mask failed (default: %(default)s)"
    add("--failed-below", type=number_within(0, 1), default=DEFAULT_FAILED_BELOW, help=below)
    add_edition_option(parser, "that of the results")
    add_bootstrap_options(parser)
