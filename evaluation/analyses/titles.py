"""Titles of metrics, ranked or not, for tables and charts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contract.editions import Answer
from evaluation.analyses.sources import TaskResults
from evaluation.editions.rules import MANY_CLASSES_METRICS, METRICS_OF_KIND, RECALL_PREFIX, SURFACE_METRICS

_TITLES: Final = {
    "gtvp_dsc_mean": "GTVp mean DSC",
    "gtvn_dsc_mean": "GTVn mean DSC",
    "gtvp_dsc_agg": "GTVp aggregated DSC",
    "gtvn_dsc_agg": "GTVn aggregated DSC",
    "dsc_agg_mean": "Mean of aggregated DSC",
    "gtvn_f1_agg": "GTVn aggregated F1",
    "gtvn_precision_agg": "GTVn aggregated precision",
    "gtvn_recall_agg": "GTVn aggregated recall",
    "gtvp_precision_mean": "GTVp mean precision",
    "gtvp_recall_mean": "GTVp mean recall",
    "gtvp_f1": "GTVp F1",
    "gtvp_hd95_median_mm": "GTVp median HD95 (mm)",
    "gtvn_hd95_median_mm": "GTVn median HD95 (mm)",
    "gtvp_asd_median_mm": "GTVp median surface distance (mm)",
    "gtvn_asd_median_mm": "GTVn median surface distance (mm)",
    "gtvp_surface_dsc_mean": "GTVp mean surface DSC",
    "gtvn_surface_dsc_mean": "GTVn mean surface DSC",
    "c_index": "C-index",
    "uno_c": "Uno's C-index",
    "auc_1y": "AUC after 1 year",
    "auc_2y": "AUC after 2 years",
    "auc_3y": "AUC after 3 years",
    "balanced_accuracy": "Balanced accuracy",
    "accuracy": "Accuracy",
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "auc": "AUC",
    "brier": "Brier score",
    "calibration_error": "Calibration error",
    "calibration_in_the_large": "Calibration in the large",
}
_WORDS: Final = {"borda": "Borda", "dsc agg": "aggregated DSC", "dsc": "DSC", "hd95": "HD95"}


def metric_titles(results: TaskResults) -> dict[str, str]:
    """The title of every metric of any team, the ranked ones first and under the leaderboard's titles."""
    ranked = {str(name): str(title) for name, title in results.board["metrics"].items()}
    names = dict.fromkeys(name for team in results.teams for name in team.estimates)
    return ranked | {name: title_of(name, results) for name in names if name not in ranked}


def title_of(name: str, results: TaskResults) -> str:
    """The title of a metric that does not rank; its name if it is unknown."""
    answer = answer_of(name, results)
    if answer is None:
        return name
    prefix = results.prefixes.get(answer.name, "")
    measure = name.removeprefix(prefix)
    heading = f"{answer_title(answer)}: " if prefix else ""
    return f"{heading}{_TITLES.get(measure, f'Recall of {measure.removeprefix(RECALL_PREFIX)}')}"


def scheme_title(name: str, board: Mapping[str, Any]) -> str:
    """The title of a ranking: that of the metric it sorts by, else its name in words."""
    words = name.replace("_", " ")
    for short, title in _WORDS.items():
        words = words.replace(short, title)
    return str(board["metrics"].get(name, words))


def answer_title(answer: Answer) -> str:
    """The answer within a heading, such as `T stage`: masks are those of the segmentation."""
    if answer.kind == "mask":
        return "Segmentation"
    first, *others = answer.socket.title.split()
    return " ".join([first, *(word.lower() if word.istitle() and len(word) > 1 else word for word in others)])


def answer_of(name: str, results: TaskResults) -> Answer | None:
    """The answer that a metric is measured for; None for a weighted sum over answers and for an unknown metric."""
    for answer in results.task.answers:
        prefix = results.prefixes.get(answer.name, "")
        if name.startswith(prefix) and _is_measured(name.removeprefix(prefix), answer):
            return answer
    return None


def _is_measured(measure: str, answer: Answer) -> bool:
    if answer.kind == "class" and not answer.is_binary:
        return measure in MANY_CLASSES_METRICS or measure.startswith(RECALL_PREFIX)
    surfaces = [name for names in SURFACE_METRICS.values() for name in names] if answer.kind == "mask" else []
    return measure in METRICS_OF_KIND[answer.kind] or measure in surfaces
