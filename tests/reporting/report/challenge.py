"""Build a challenge of any size as plain data: three tasks, teams whose DSC, risks and classes get worse by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evaluation.results.board import Leaderboard
from evaluation.results.documents import FIGURES
from evaluation.results.task import TaskResults
from reporting.analyses.pipeline import analyse_task
from reporting.analyses.tasks import compare_tasks
from reporting.page.html import assign_colours
from reporting.report.cases import CasePicture
from reporting.report.page import BETWEEN_TASKS, PageContent
from tests.evaluation.builders import make_board, make_metrics, make_results
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

# The numbers of a case and of a team, from 0, that misses both structures of it.
LOST = (7, 1)
METRICS = {
    SEGMENTATION.name: {"gtvp_dsc_mean": "GTVp mean DSC", "gtvn_dsc_agg": "GTVn aggregated DSC"},
    RFS.name: {"c_index": "C-index"},
    HPV.name: {"balanced_accuracy": "Balanced accuracy"},
}


def name_teams(count: int) -> list[str]:
    return [f"Team {place:02d} of the University Hospital" for place in range(1, count + 1)]


def name_cases(count: int) -> list[str]:
    return [f"{('CHUM', 'CHUP', 'MDA')[number % 3]}-{number:03d}" for number in range(1, count + 1)]


def build_content(
    teams: Sequence[str], case_names: Sequence[str], pictures: Sequence[CasePicture] = (), title: str = "Challenge"
) -> PageContent:
    results = [_build_results(task, teams, case_names) for task in (SEGMENTATION, RFS, HPV)]
    analyses = {task.key: analyse_task(task) for task in results}
    analyses[BETWEEN_TASKS] = compare_tasks(results)
    return PageContent(title, "", results, analyses, pictures, assign_colours(teams), with_cases=True)


def _build_results(task: Any, teams: Sequence[str], case_names: Sequence[str]) -> TaskResults:
    rng = np.random.default_rng(1)
    metrics = METRICS[task.name]
    halves = {"aggregates": {name: {"value": 0.5} for name in metrics}}
    centres = {
        centre: {"cases": 10, "names": [case for case in case_names if case.startswith(centre)], **halves}
        for centre in ("CHUM", "CHUP", "MDA")
    }
    figures = [(0.9 - place / 100, 0.86 - place / 100, 0.92 - place / 100) for place in range(len(teams))]
    of_teams = {
        team: make_metrics(
            dict.fromkeys(metrics, figures[place]),
            _make_rows(task, case_names, place, rng),
            cases={"used": len(case_names), "in_ground_truth": len(case_names), "missing": [], "failed": []},
            provenance={"version": "1", "bootstraps": 9, "seed": 1},
            centres=centres,
        )
        for place, team in enumerate(teams)
    }
    return make_results(of_teams, task, leaderboard=build_board(metrics, teams, figures))


def lose_nodes(page: PageContent) -> PageContent:
    """Take the GTVn out of the first case's reference: the second team marks one, the third has an unusable mask."""
    parts = [
        {"gtvn_dsc": None, "gtvn_predicted_voxels": 0},
        {"gtvn_dsc": 0.0, "gtvn_predicted_voxels": 5},
        {"gtvn_dsc": 0.0, "gtvn_predicted_voxels": 0, "error": "not a readable image"},
    ]
    for number, team in enumerate(page.results[0].teams.values()):
        part = parts[number] if number < len(parts) else parts[0]
        team.results[0].update({"gtvn_reference_voxels": 0, "gtvn_reference_mm3": 0.0, **part})
    return replace(page, results=[replace(task) for task in page.results])  # drops the cached flat rows


def build_board(
    metrics: dict[str, str], teams: Sequence[str], figures: Sequence[tuple[float, float, float]]
) -> Leaderboard:
    """Build a leaderboard whose neighbours differ by 0.01 +- 0.015 in every metric, which is not significant."""

    def make_difference(mean: float) -> dict[str, float]:
        p, p_holm = (0.001, 0.004) if mean > 0.015 else (0.4, 0.9)
        ends = {"ci95_low": mean - 0.015, "ci95_high": mean + 0.015}
        return {"difference": mean, "sd": 0.01, **ends, "p": p, "p_holm": p_holm}

    pairs = [
        {"team": team, "than": than, **make_difference((other_place - place) / 100)}
        for place, team in enumerate(teams)
        for other_place, than in enumerate(teams)
        if team != than
    ]
    standing = {
        "teams": {
            team: {
                "times_at_rank": {str(place + 1): 80, str(max(1, place)): 20},
                "mean": place + 1,
                "ci95_low": max(1, place),
                "ci95_high": place + 1,
            }
            for place, team in enumerate(teams)
        },
        "kendall_tau": {"mean": 0.9, "ci95_low": 0.8, "ci95_high": 1.0, "replicates": 100},
    }
    entries = [
        {
            "team": team,
            "metrics": {name: dict(zip(FIGURES, figures[place], strict=True)) for name in metrics},
            "rankings": {"flat_borda": {"rank": place + 1}},
        }
        for place, team in enumerate(teams)
    ]
    stability = {
        "bootstraps": 100,
        "rankings": {"nested_borda": standing, "flat_borda": standing},
        "metrics": dict.fromkeys(metrics, standing),
    }
    comparisons = {name: {"test": "bootstrap_difference", "pairs": pairs} for name in metrics}
    return make_board(metrics, entries, official="nested_borda", stability=stability, comparisons=comparisons)


def _make_rows(task: Any, case_names: Sequence[str], place: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    make = {SEGMENTATION.name: _make_mask_row, RFS.name: _make_risk_row, HPV.name: _make_class_row}[task.name]
    rows = []
    for number, case in enumerate(case_names):
        row = {"case": case, "error": None, "failed": False}
        rows.append(row | make(number, place, float(rng.random())))
    return rows


def _make_mask_row(number: int, place: int, noise: float) -> dict[str, Any]:
    dsc = round(max(0.0, 0.9 - place / 100 - 0.3 * noise), 4)
    if (number, place) == LOST:
        dsc = 0.0
    row: dict[str, Any] = {"voxel_volume_mm3": 1.0}
    for label in ("gtvp", "gtvn"):
        reference = 1000 + 100 * number
        row |= {
            f"{label}_dsc": dsc,
            f"{label}_precision": dsc,
            f"{label}_recall": dsc,
            f"{label}_intersection_voxels": int(dsc * reference),
            f"{label}_intersection_mm3": dsc * reference,
            f"{label}_reference_voxels": reference,
            f"{label}_reference_mm3": float(reference),
            f"{label}_predicted_voxels": reference,
            f"{label}_predicted_mm3": float(reference),
            f"{label}_false_positive_voxels": 0 if dsc else reference,
            f"{label}_false_negative_voxels": 0 if dsc else reference,
        }
    iou = dsc / (2 - dsc)
    lesions = {
        "gtvn_lesions_reference_voxels": [500, 500],
        "gtvn_lesions_predicted_voxels": [500, 500, 100],
        "gtvn_lesions_dsc": [dsc, dsc],
        "gtvn_lesions_pairs": [{"reference": place, "predicted": place, "iou": iou} for place in (0, 1) if iou > 0],
    }
    return row | {"gtvn_lesions_tp": 2, "gtvn_lesions_fp": 1, "gtvn_lesions_fn": number % 2, **lesions}


def _make_risk_row(number: int, place: int, noise: float) -> dict[str, Any]:
    return {"risk": number + place * noise, "rfs_days": 3000.0 - 7 * number, "relapse": number % 3 == 0}


def _make_class_row(number: int, place: int, noise: float) -> dict[str, Any]:
    positive = number % 2 == 0
    predicted = positive if noise > 0.1 + place / 100 else not positive
    probability = round(0.5 + (0.4 if predicted else -0.4) * noise, 3)
    return {"predicted_hpv_positive": predicted, "predicted_probability": probability, "hpv_positive": positive}
