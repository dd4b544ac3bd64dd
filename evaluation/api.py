"""The Python API: score two masks, evaluate a submission, rank teams. Errors have the messages of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.editions import DEFAULT_EDITION
from contract.errors import GroundTruthError, HecktorError, PredictionError
from evaluation.editions.profile import load_profile
from evaluation.inputs.masks import PredictedMask, read_labels, read_prediction
from evaluation.metrics.lesions import LesionCounts
from evaluation.metrics.overlap import MM3_PER_ML
from evaluation.metrics.rules import MaskRules
from evaluation.options import EvaluationRequest
from evaluation.pipeline import evaluate_submission
from evaluation.ranking import DEFAULT_RANKINGS
from evaluation.ranking.out_of_competition import OutOfCompetitionSource
from evaluation.ranking.pipeline import RankingRequest, rank_results
from evaluation.results.board import Leaderboard
from evaluation.results.documents import MetricsJson
from evaluation.rows.comparison import compare_masks
from evaluation.rows.mask import LabelRow
from evaluation.statistics import DEFAULT_BOOTSTRAPS, DEFAULT_SEED
from evaluation.teams import evaluate_team_folder

Result = Path | str | Mapping[str, Any] | MetricsJson


def evaluate(  # noqa: PLR0913 - keyword options of a public function
    ground_truth: Path | str,
    *,
    task: str | None = None,
    predictions: Path | str | None = None,
    submission: Path | str | None = None,
    edition: str = DEFAULT_EDITION,
    output: Path | str | None = None,
    options: Mapping[str, Any] | None = None,
    bounding_boxes: Path | str | None = None,
    seed: int = DEFAULT_SEED,
    bootstraps: int = DEFAULT_BOOTSTRAPS,
    workers: int = 1,
    rows: bool = True,
) -> MetricsJson:
    """Evaluate the answers to all cases of the ground truth, as `hecktor evaluate` does.

    An unusable prediction is not an error: the edition's rule for missing cases applies to it.

    Args:
        ground_truth: Folder of reference masks and CSV tables, or one CSV file.
        task: Name or number; None for the only task of the edition.
        predictions: Folder of masks, CSV table of risks or classes, or a folder with both for several answers.
        submission: Folder in the platform's layout, with `predictions.json`, instead of `predictions`.
        edition: Name of an edition, or path of its file.
        output: Folder for metrics.json; None writes no file.
        options: Changes of the edition's rules, such as `{"missing": "skip"}`.
        bounding_boxes: CSV file of boxes in mm; masks are compared only inside the boxes.
        seed: Seed of the bootstrap.
        bootstraps: Number of bootstrap samples; 0 gives no intervals.
        workers: Number of processes that score cases.
        rows: False leaves out rows, names of cases and centres; the aggregates stay the same.

    Returns:
        The content of metrics.json.

    Raises:
        HecktorError: The ground truth or the submission cannot be used.
    """
    if (predictions is None) == (submission is None):
        raise HecktorError("evaluate", "found both or neither of predictions and submission", "one of them")
    return evaluate_submission(
        EvaluationRequest(
            ground_truth=Path(ground_truth),
            submission=Path(submission or "."),
            output_dir=None if output is None else Path(output),
            task=task,
            edition=edition,
            predictions=None if predictions is None else Path(predictions),
            bounding_boxes=None if bounding_boxes is None else Path(bounding_boxes),
            options=options or {},
            seed=seed,
            bootstraps=bootstraps,
            workers=workers,
            rows=rows,
        )
    )


def evaluate_teams(  # noqa: PLR0913 - keyword options of a public function
    ground_truth: Path | str,
    teams: Path | str,
    *,
    task: str | None = None,
    edition: str = DEFAULT_EDITION,
    output: Path | str | None = None,
    options: Mapping[str, Any] | None = None,
    bounding_boxes: Path | str | None = None,
    seed: int = DEFAULT_SEED,
    bootstraps: int = DEFAULT_BOOTSTRAPS,
    workers: int = 1,
    rows: bool = True,
) -> dict[str, MetricsJson]:
    """Evaluate each team's folder, table or zip file in the folder `teams`, as `hecktor evaluate --teams` does.

    Each reference is read only once for all teams whose predictions are not a zip file. If there is an `output`, each
    result is written to `output/TEAM/metrics.json`. `evaluate` describes the other arguments.

    Returns:
        The content of metrics.json by team.

    Raises:
        HecktorError: The ground truth cannot be used, or a team could not be scored. It is raised after all other
            teams have been scored.
    """
    request = EvaluationRequest(
        ground_truth=Path(ground_truth),
        submission=Path(),
        output_dir=None if output is None else Path(output),
        task=task,
        edition=edition,
        bounding_boxes=None if bounding_boxes is None else Path(bounding_boxes),
        options=options or {},
        seed=seed,
        bootstraps=bootstraps,
        workers=workers,
        rows=rows,
    )
    result = evaluate_team_folder(request, load_profile(edition).find_task(task), Path(teams))
    result.check()
    return dict(result.reports)


def rank(  # noqa: PLR0913 - keyword options of a public function
    results: Mapping[str, Result] | Path | str,
    *,
    task: str | None = None,
    edition: str | None = None,
    official: str | None = None,
    ties: str | None = None,
    bootstraps: int = DEFAULT_RANKINGS,
    seed: int | None = None,
    without_rows: bool = False,
    out_of_competition: Mapping[str, Result | tuple[Result, str]] | None = None,
    mean: bool = False,
    methods: Path | str | None = None,
    without_cases: Sequence[str] = (),
) -> Leaderboard:
    """Rank teams from their evaluations, as `hecktor rank` does.

    Args:
        results: For each team, the path or content of a metrics.json, or the result of `evaluate`; or the path of a CSV
            table of printed values, as `hecktor rank --table` reads it.
        task: Name or number; None takes the task of the first team's evaluation.
        edition: Path of the custom edition if the results do not contain it; for a table also the name of an edition.
        official: Name of another ranking of the edition, which becomes the official ranking.
        ties: "min", "average", "max" or "dense"; None takes the edition's rule.
        bootstraps: Number of bootstrap rankings.
        seed: Seed of the bootstrap; None takes the seed of the first team's evaluation.
        without_rows: Also rank results without rows (`rows=False`), whose values cannot be checked.
        out_of_competition: Entries that are shown without a rank, by name: a result as above or the observers.json of
            `study observers`, or a pair of such a result and the reason.
        mean: Also show the mean of all ranked teams as a row without a rank.
        methods: CSV file with a column `team` and descriptors of the team's method.
        without_cases: Cases to leave out of all figures.

    Returns:
        The content of leaderboard.json.

    Raises:
        HecktorError: There are no results, impossible results, or results that cannot be compared; the message names
            the difference.
    """
    teams = results if isinstance(results, Mapping) else {}
    table = None if isinstance(results, Mapping) else Path(results)
    return rank_results(
        RankingRequest(
            teams=[(team, _get_source(result)) for team, result in teams.items()],
            table=table,
            out_of_competition=[_make_extra_entry(name, entry) for name, entry in (out_of_competition or {}).items()],
            task=task,
            edition=edition,
            official=official,
            ties=ties,
            bootstraps=bootstraps,
            seed=seed,
            without_rows=without_rows,
            mean=mean,
            methods=None if methods is None else Path(methods),
            without_cases=without_cases,
        )
    )


def _make_extra_entry(name: str, entry: Result | tuple[Result, str]) -> OutOfCompetitionSource:
    result, reason = entry if isinstance(entry, tuple) else (entry, "")
    return OutOfCompetitionSource(name, _get_source(result), reason)


def _get_source(result: Result) -> Path | Mapping[str, Any] | MetricsJson:
    return Path(result) if isinstance(result, str) else result


Mask = npt.NDArray[Any] | Path | str


@dataclass(frozen=True)
class LabelScores:
    """Comparison of one label in one case.

    `dsc`, `precision`, `recall` and `surface_dsc` are fractions, distances in mm, volumes in ml. If only one mask is
    empty, the distances are infinite. If both are empty, the distances and `surface_dsc` are None, and the edition's
    rule for empty masks gives the other fractions: None in 2025, 1 in 2026.
    """

    dsc: float | None
    precision: float | None
    recall: float | None
    hd95_mm: float | None
    asd_mm: float | None
    surface_dsc: float | None
    reference_ml: float
    predicted_ml: float


@dataclass(frozen=True)
class MaskScores:
    """Comparison of two masks: each label, and the detected, false-positive and missed lesions of GTVn.

    There is a warning if the prediction was resampled to the reference's grid, as in the editions 2020 to 2022.
    """

    gtvp: LabelScores
    gtvn: LabelScores
    gtvn_lesions: LesionCounts
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain data."""
        return asdict(self)


def score_masks(
    reference: Mask,
    prediction: Mask,
    spacing_mm: tuple[float, float, float] | None = None,
    *,
    edition: str = DEFAULT_EDITION,
) -> MaskScores:
    """Compare a predicted mask with its reference.

    Args:
        reference: Labels 0 background, 1 GTVp, 2 GTVn: an array with axes (z, y, x), or the path of an image.
        prediction: Labels of the prediction: an array of the reference's shape if the reference is an array, otherwise
            a path.
        spacing_mm: Voxel spacing (x, y, z) in mm of arrays; the spacing of files comes from their headers.
        edition: Edition whose rules match lesions and measure surfaces.

    Returns:
        The scores of both labels, and the counts of GTVn lesions.

    Raises:
        GroundTruthError: The reference cannot be used.
        PredictionError: The prediction cannot be used, or has another grid.
        HecktorError: An array has no spacing, one mask is an array and the other one a path, or the edition is unknown.
    """
    rules = load_profile(edition).mask_rules.model_copy(update={"surfaces": "both"})
    pair = _read_masks(reference, prediction, spacing_mm, rules)
    x, y, z = pair.spacing_mm
    row = compare_masks("masks", pair.reference, pair.prediction.array, (z, y, x), rules)
    resampled = pair.prediction.resampled
    return MaskScores(
        _make_label_scores(row.gtvp, row.voxel_volume_mm3),
        _make_label_scores(row.gtvn, row.voxel_volume_mm3),
        LesionCounts(row.nodes.tp, row.nodes.fp, row.nodes.fn),
        () if resampled is None else (str(resampled.make_finding(Path(str(prediction)).name)),),
    )


@dataclass(frozen=True)
class _LoadedPair:
    """A reference and a prediction on one grid, with the voxel spacing (x, y, z) in mm."""

    reference: npt.NDArray[Any]
    prediction: PredictedMask
    spacing_mm: tuple[float, float, float]


def _read_masks(
    reference: Mask, prediction: Mask, spacing_mm: tuple[float, float, float] | None, rules: MaskRules
) -> _LoadedPair:
    if isinstance(reference, Path | str) and isinstance(prediction, Path | str):
        if spacing_mm is not None:
            raise HecktorError("spacing_mm", "given with paths", "arrays; the spacing of files is in their headers")
        volume = read_labels(Path(reference), GroundTruthError)
        predicted = read_prediction(Path(prediction), volume.geometry, rules.geometry)
        return _LoadedPair(volume.array, predicted, volume.geometry.spacing_mm)
    if isinstance(reference, Path | str) or isinstance(prediction, Path | str):
        raise HecktorError("score_masks", "found an array and a path", "two arrays or two paths")
    if not _is_spacing(spacing_mm):
        raise HecktorError("spacing_mm", f"found {spacing_mm!r}", "three distances (x, y, z) in mm above 0")
    _check_array(reference, "reference", GroundTruthError)
    _check_array(prediction, "prediction", PredictionError)
    if reference.shape != prediction.shape:
        raise PredictionError("prediction", f"shape {prediction.shape}", f"{reference.shape} as the reference")
    return _LoadedPair(reference, PredictedMask(prediction), spacing_mm)


def _is_spacing(spacing_mm: object) -> TypeGuard[tuple[float, float, float]]:
    if not isinstance(spacing_mm, Sequence | np.ndarray) or len(spacing_mm) != 3:
        return False
    return all(isinstance(size, int | float | np.number) and 0 < size < np.inf for size in spacing_mm)


def _check_array(mask: object, name: str, error: type[HecktorError]) -> None:
    if not isinstance(mask, np.ndarray) or mask.ndim != 3 or mask.size == 0:
        raise error(name, f"found {getattr(mask, 'shape', type(mask).__name__)}", "an array with axes (z, y, x)")
    if not np.isin(mask, list(labels.NAMES)).all():
        raise error(name, "other labels", f"only {', '.join(map(str, labels.NAMES))}")


def _make_label_scores(row: LabelRow, voxel_mm3: float) -> LabelScores:
    if row.surface is None:
        raise ValueError("a row without surfaces")
    return LabelScores(
        row.dsc,
        row.precision,
        row.recall,
        row.surface.value("hd95_mm"),
        row.surface.value("asd_mm"),
        row.surface.value("surface_dsc"),
        row.reference_voxels * voxel_mm3 / MM3_PER_ML,
        row.predicted_voxels * voxel_mm3 / MM3_PER_ML,
    )
