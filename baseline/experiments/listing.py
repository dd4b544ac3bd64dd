"""The plans of a working directory as a table: folds, hours, out-of-fold figures, package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from baseline.heads.cross_validation import METRIC_TITLES
from baseline.heads.metrics import mask_metric_titles
from baseline.heads.models.targets import targets_of
from baseline.heads.record import stored_targets
from baseline.network.jobs import package_jobs, unfinished
from baseline.release.record import edition_of
from baseline.work import TRAINING_TIME, WorkFolders, planned
from contract.errors import HecktorError
from contract.files import read_json

_HOUR_S: Final = 3600.0


def listed(root: Path) -> list[dict[str, Any]]:
    """A row for each plan and ensemble of a working directory.

    `networks` is "done of planned", empty for networks that were trained elsewhere; `hours` is the time of all finished
    epochs. The out-of-fold figures are by title, None where a step has not been run. `package` is the name of the
    package that was written last, or empty.
    """
    plans = [
        one for one in planned(root) if any(path.exists() for path in (one.plan_json, one.networks, one.heads_json))
    ]
    if not plans:
        raise HecktorError(root.name, "no plan", "`hecktor train plan` before")
    return [
        {
            "plan": work.name,
            "networks": _networks(work),
            "hours": sum((_hours(member) for member in work.members), 0.0),
            **_figures(work),
            "package": read_json(work.exported_json)["package"] if work.exported_json.is_file() else "",
        }
        for work in plans
    ]


def as_table(plans: Sequence[Mapping[str, Any]]) -> str:
    """Plain text, one line for each plan; a hyphen stands for a missing figure."""
    rows = [list(plans[0]), *([_cell(name, value) for name, value in plan.items()] for plan in plans)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _cell(name: str, value: str | float | None) -> str:
    if isinstance(value, int | float):
        return f"{value:.1f}" if name == "hours" else f"{value:.3f}"
    return str(value or "-")


def _networks(work: WorkFolders) -> str:
    plans = [member for member in work.members if member.plan_json.is_file()]
    jobs = [(member, job) for member in plans for job in package_jobs(member)]
    waiting = sum(len(unfinished(member, [job])) for member, job in jobs)
    return f"{len(jobs) - waiting} of {len(jobs)}" if jobs else ""


def _hours(work: WorkFolders) -> float:
    return sum((float(read_json(path)["seconds"]) for path in work.results.rglob(TRAINING_TIME)), 0.0) / _HOUR_S


def _figures(work: WorkFolders) -> dict[str, float | None]:
    """Metrics of the masks from the report, and of the heads in nested cross-validation."""
    edition = edition_of(work)
    masks: Mapping[str, Any] = read_json(work.report_json)["segmentation"] if work.report_json.is_file() else {}
    figures = {title: masks.get(name, {}).get("value") for name, title in mask_metric_titles(edition).items()}
    heads = stored_targets(work)
    for target in targets_of(edition):
        figures[f"{_head_title(target.name)} {METRIC_TITLES[target.metric]}"] = (
            heads.get(target.name, {}).get("nested", {}).get(target.metric)
        )
    return figures


def _head_title(name: str) -> str:
    """`rfs` as RFS, `t_stage` as T stage."""
    first, *rest = name.split("_")
    return " ".join([first.upper(), *rest])
