"""The head of the training report: plan, networks, epochs, seed and date, and the mean loss of the networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

import numpy as np

from baseline.heads.fitting import GIVEN, read_heads
from baseline.network.jobs import package_jobs
from baseline.network.plans import PRESETS, NetworkPlan, read_plan
from baseline.package.existing import existing_networks
from baseline.preparation import read_preparation
from baseline.release.splits import read_splits
from baseline.report import page
from baseline.work import WorkFolders
from evaluation.analyses.analysis import Analysis
from evaluation.page.charts import figure

# A log of nnU-Net: a value of each epoch by name.
Log = Mapping[str, Sequence[float]]
# The curve has at most as many points; each is the mean of the epochs since the one before.
_POINTS: Final = 100
# Up to as many epochs each has a dot, without which a single one could not be seen.
_MOST_DOTS: Final = 30
_ENDS: Final = "epoch_end_timestamps"
_LOSSES: Final = {"train_losses": "training", "val_losses": "validation"}


def training_logs(work: WorkFolders) -> dict[str, list[Log]]:
    """The logs of the networks of each fold, by backbone; empty for networks or masks that were given."""
    from baseline.network.checkpoint import read_checkpoint  # imports torch

    logs: dict[str, list[Log]] = {}
    for job in package_jobs(work) if _has_trained(work) else ():
        final = work.final(job.fold, job.backbone)
        log = read_checkpoint(final).log if final.is_file() else {}
        if all(log.get(key) for key in (*_LOSSES, _ENDS)):
            logs.setdefault(job.backbone, []).append(log)
    return logs


def _has_trained(work: WorkFolders) -> bool:
    """Whether networks of the plan made the masks of this report."""
    return not (GIVEN in _masks(work) or work.networks.is_dir()) and work.plan_json.is_file()


def _masks(work: WorkFolders) -> set[str]:
    return {head.masks for head in read_heads(work).values()}


def facts(work: WorkFolders, logs: Mapping[str, Sequence[Log]]) -> dict[str, str]:
    """What was trained, by title; of given networks and masks only what the working directory knows."""
    splits, plan = read_splits(work), read_plan(work) if _has_trained(work) else None
    if (package := existing_networks(work)) is not None:
        networks = f"those of the package {package.manifest.name}"
    elif plan is not None:
        networks = f"{', '.join(plan.backbones)}; one for each of {len(splits.folds)} folds"
    else:
        networks = "none: the masks were given"
    spacing_mm = read_preparation(work).spacing_mm if plan is None else plan.spacing_mm
    ends = [float(log[_ENDS][-1]) for of_folds in logs.values() for log in of_folds]
    found = {
        "Plan": "" if plan is None else preset_in_words(plan),
        "Spacing": " x ".join(f"{step:g}" for step in spacing_mm) + " mm",
        "Networks": networks,
        "Epochs": "" if plan is None else f"{plan.epochs} of {plan.iterations} steps",
        "Seed": str(splits.seed),
        "Trained until": datetime.fromtimestamp(max(ends), UTC).date().isoformat() if ends else "",
    }
    return {title: text for title, text in found.items() if text}


def preset_in_words(plan: NetworkPlan) -> str:
    """The preset of a plan, with the options that differ from it."""
    options, of_preset = plan.identity(), PRESETS[plan.preset].identity()
    changed = [name.replace("_", " ") for name, value in of_preset.items() if options[name] != value]
    return f"preset {plan.preset}" + (f", changed: {', '.join(changed)}" if changed else "")


def training_section(found: Mapping[str, str], logs: Mapping[str, Sequence[Log]]) -> str:
    """The facts as a list, and the picture of the loss where there are logs."""
    items = "".join(f"<div><dt>{escape(title)}</dt><dd>{escape(text)}</dd></div>" for title, text in found.items())
    return f'<dl class="facts">{items}</dl>' + (page.grid([figure(loss_curves(logs), "loss")]) if logs else "")


def loss_curves(logs: Mapping[str, Sequence[Log]]) -> Analysis:
    """Mean loss over the folds of each network by epoch, with the range over the folds; no rows without logs."""
    curves = {
        (network, title): _curve([log[key] for log in of_folds])
        for network, of_folds in logs.items()
        for key, title in _LOSSES.items()
    }
    rows = [
        {"network": network, "loss": title, **point} for (network, title), points in curves.items() for point in points
    ]
    epochs = max((point["epoch"] for points in curves.values() for point in points), default=0)
    return Analysis(
        name="loss",
        title="Loss",
        caption="Mean loss of the networks of all folds by epoch, and the range over the folds.",
        columns={
            "network": "Network",
            "loss": "Loss",
            "epoch": "Epoch",
            "mean": "Mean loss",
            "lowest": "Lowest fold",
            "highest": "Highest fold",
        },
        rows=rows,
        chart={
            "kind": "lines",
            "x": "epoch",
            "y": "mean",
            "low": "lowest",
            "high": "highest",
            "series": "loss",
            "facet": "network",
            "step": epochs > _MOST_DOTS,
        },
    )


def _curve(losses: Sequence[Sequence[float]]) -> list[dict[str, float]]:
    """Points of a curve; epochs that not all folds have are left out."""
    epochs = min(map(len, losses))
    values = np.array([one[:epochs] for one in losses], dtype=np.float64)
    points = []
    for part in np.array_split(np.arange(epochs), min(_POINTS, epochs) or 1):
        if part.size:
            means = values[:, part].mean(axis=1)
            figures = {"mean": means.mean(), "lowest": means.min(), "highest": means.max()}
            points.append({"epoch": int(part[-1]) + 1, **{key: float(value) for key, value in figures.items()}})
    return points
