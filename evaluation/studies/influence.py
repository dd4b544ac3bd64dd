"""`hecktor study influence`: the DSC of the primary tumour against its volume and SUVmax."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from contract.errors import HecktorError
from contract.options import name_path
from evaluation.metrics.bins import VOLUME_BINS, equal_bins, spearman
from evaluation.report.drawing import COLOURS, new_figure, plot_style
from evaluation.results.metrics_json import TeamMetrics
from evaluation.results.teams import load_teams
from evaluation.studies.outputs import StudyResult, by_name
from evaluation.studies.scans import Burden, add_cohort, measure_burdens

DESCRIPTION: Final = "DSC of the primary tumour against its volume and SUVmax."
FACTORS: Final = {"gtvp_volume_ml": "GTVp volume (ml)", "gtvp_suv_max": "GTVp SUVmax"}

Line = Mapping[str, Any]


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Correlate the DSC with each factor."""
    teams = load_teams(by_name(options.teams, "team", 1), edition=options.edition).teams
    lines = joined(teams, {burden.case: burden for burden in measure_burdens(options)})
    factors = {name: correlated(lines, name) for name in FACTORS}
    content = {"cases": len({line["case"] for line in lines}), "factors": factors}
    summary = "".join(
        f"{name:<16} Spearman {_correlation_text(figures['spearman'])} over {figures['points']} masks\n"
        for name, figures in factors.items()
    )
    return StudyResult(content, lines, summary, _picture(lines, factors))


def joined(teams: Sequence[TeamMetrics], burdens: Mapping[str, Burden]) -> list[dict[str, Any]]:
    """One line for each team and case that has a DSC and a GTVp in the reference.

    Raises HecktorError for a metrics.json without rows of masks, or with a case that the cohort lacks.
    """
    lines = []
    for team in teams:
        if not team.rows or any("gtvp_dsc" not in row for row in team.rows):
            raise HecktorError(f"{team.team}", "no rows of masks", "a metrics.json of task 1 without --public")
        absent = sorted({str(row["case"]) for row in team.rows} - set(burdens))
        if absent:
            raise HecktorError(f"{team.team}", f"case {absent[0]} is not in the cohort", "its scans there")
        for row in team.rows:
            burden = burdens[str(row["case"])]
            if row["gtvp_dsc"] is not None and burden.gtvp_volume_ml > 0:
                factors = {name: getattr(burden, name) for name in FACTORS}
                lines.append({"team": team.team, "case": burden.case, "gtvp_dsc": row["gtvp_dsc"], **factors})
    if not lines:
        raise HecktorError("no team has a DSC of a case with a GTVp, expected at least one")
    return lines


def correlated(lines: Sequence[Line], factor: str) -> dict[str, Any]:
    """Spearman's correlation over all masks of all teams, and for each team alone with its five bins.

    The bins of a factor are formed as in `analyses.gtvp_dsc_by_volume`; a team with fewer cases than bins has none. A
    correlation is None if one side is constant.
    Source: the HECKTOR 2021 overview.
    """
    teams = {}
    for team in dict.fromkeys(line["team"] for line in lines):
        values, dsc = _columns([line for line in lines if line["team"] == team], factor)
        parts = equal_bins(values, VOLUME_BINS) if values.size >= VOLUME_BINS else []
        bins = [
            {"cases": part.size, "low": values[part].min(), "high": values[part].max(), "dsc_mean": dsc[part].mean()}
            for part in parts
        ]
        teams[team] = {"cases": int(values.size), "spearman": spearman(values, dsc), "bins": bins}
    return {"points": len(lines), "spearman": spearman(*_columns(lines, factor)), "teams": teams}


def _columns(lines: Sequence[Line], factor: str) -> tuple[Any, Any]:
    return np.array([line[factor] for line in lines]), np.array([line["gtvp_dsc"] for line in lines])


@plot_style
def _picture(lines: Sequence[Line], factors: Mapping[str, Any]) -> Figure:
    """For each factor every mask's DSC, and each team's mean in the five bins."""
    figure, panels = new_figure(2 * len(FACTORS), height=3.0, width=13.0)
    for place, (factor, title) in enumerate(FACTORS.items()):
        scatter, bars = panels[2 * place], panels[2 * place + 1]
        for number, (team, figures) in enumerate(factors[factor]["teams"].items()):
            colour = COLOURS[number % len(COLOURS)]
            values, dsc = _columns([line for line in lines if line["team"] == team], factor)
            scatter.plot(values, dsc, "o", color=colour, markersize=3, alpha=0.6)
            means = [one["dsc_mean"] for one in figures["bins"]]
            bars.plot(range(1, len(means) + 1), means, "o-", color=colour, linewidth=1.4, markersize=4, label=team)
        scatter.set_title(
            f"Spearman {_correlation_text(factors[factor]['spearman'])}", loc="left", fontsize=9, fontweight="bold"
        )
        scatter.set(xlabel=title, ylabel="DSC", ylim=(-0.02, 1.02))
        bars.set(xlabel=f"bins of rising {title}", ylabel="mean DSC", ylim=(-0.02, 1.02))
        bars.set_xticks(range(1, VOLUME_BINS + 1))
    panels[1].legend(fontsize=7, frameon=False)
    return figure


def _correlation_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the teams and the cohort."""
    parser.add_argument("teams", type=name_path, nargs="+", metavar="TEAM=FILE", help="a team's metrics.json of task 1")
    parser.add_argument("--edition", help="profile.json of an edition that is not in the package")
    add_cohort(parser)
