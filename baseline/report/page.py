"""Parts of the report page, and its sections but those of the heads: training, masks, worst cases, postprocessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from baseline.heads.fitting import GIVEN, read_heads
from baseline.network.jobs import package_jobs
from baseline.network.plans import PRESETS, NetworkPlan, read_plan
from baseline.package.existing import existing_networks
from baseline.postprocessing.record import PostprocessingRecord
from baseline.preparation import read_preparation
from baseline.release.splits import read_splits
from baseline.report.masks import COLOUR, NETWORK, WorstCase
from baseline.work import WorkFolders
from contract.packages import PostprocessingRules
from evaluation.statistics.bootstrap import Estimate
from reporting.analyses.analysis import Analysis
from reporting.page.charts import render_figure
from reporting.page.html import Cell, Row, render_choice, render_paragraph, render_table
from reporting.report.cases import CasePicture, describe_pictures

Content = Cell | str | float | Estimate | None


def grid(parts: Sequence[str]) -> str:
    """Tables and figures below each other."""
    content = "\n".join(parts)
    return f'<div class="figures">\n{content}\n</div>'


def listing(title: str, table: str, about: str = "") -> str:
    """A table with a heading, and a paragraph between them."""
    return f'<section class="listing"><h3>{escape(title)}</h3>{render_paragraph(about, "about")}{table}</section>'


def centre_row(centre: str, cells: Sequence[Content]) -> Row:
    """A table's row about one centre, whose name selects it."""
    return Row([Cell(render_choice("centre", centre)), *cells], {"centre": centre})


def signed(value: float | None) -> Cell:
    """A number with its sign."""
    return Cell("-") if value is None else Cell(f"{value:+z.3f}", value)


def worst_cases_html(cases: Sequence[WorstCase], addresses: Mapping[str, str]) -> str:
    """Cards of the worst cases with their pictures, whose addresses are relative to the page."""
    about = describe_pictures([CasePicture(*one) for one in addresses.items()], {NETWORK: COLOUR})
    return about + "".join(_card(case, addresses[case.case]) for case in cases)


def _card(case: WorstCase, address: str) -> str:
    name = escape(case.case)
    alt = f"CT and PET of {name} in three planes with contours"
    image = f'<img loading="lazy" width="1080" height="360" alt="{alt}" src="{quote(address)}">'
    return (
        f'<details class="card" id="case-{name}" data-case="{name}" open>'
        f"<summary><b>{name}</b> <span>{escape(case.facts)}</span></summary><div>{image}</div></details>\n"
    )


_POSTPROCESSING: Final = (
    "Minimum volumes of 26-connected lesions on the network's grid. Masks, features and all figures of this page use "
    "the volumes that were found without the patient's fold; the package uses those found on all patients. The gains "
    "are of volumes found without the patient's fold or centre, with intervals from the paired bootstrap; a volume is "
    "stored only if both gains are expected to reach 0.001 of the weights of masks."
)


def segmentation_section(report: Mapping[str, Any], titles: Mapping[str, str], without_mask: int) -> str:
    """The ranked metrics of the out-of-fold masks, over all patients and by centre."""
    scored = report["cases"]["used"]
    about = (
        f"{scored} patients, each segmented by a network that never saw them and scored on the CT's own grid against "
        f"the reference by the evaluation package (edition {report['provenance']['edition']})."
    )
    if without_mask:
        about += f" {without_mask} patients without a reference are not scored."
    everyone = (report["aggregates"][name] for name in titles)
    estimates = [Estimate(one["value"], one.get("ci95_low"), one.get("ci95_high")) for one in everyone]
    by_centre = [
        centre_row(centre, [group["cases"], *(group["aggregates"][name]["value"] for name in titles)])
        for centre, group in report["centres"].items()
    ]
    rows = [Row(["everyone", scored, *estimates]), *by_centre]
    caption = "Metrics of all patients with 95% intervals, and of each centre"
    return render_paragraph(about) + render_table(caption, ["Centre", "Patients", *titles.values()], rows)


def postprocessing_section(record: PostprocessingRecord) -> str:
    """The content of `postprocessing.json` as HTML."""
    if record.why_not:
        return render_paragraph(f"No postprocessing rules: {record.why_not}.")
    rules = [f"{PostprocessingRules.describe_rule(rule)} {value}" for rule, value in record.rules.as_json().items()]
    rows = []
    for split, figures in record.cross_fitted.items():
        for name, one in figures.items():
            gain = one.difference
            estimate = Estimate(gain.value, gain.ci95_low, gain.ci95_high)
            title = record.titles.get(name, name)
            rows.append(Row([f"{split} left out", title, one.unfiltered, one.filtered, estimate]))
    heads = ["Volumes found with", "Metric", "Unfiltered", "Filtered", "Difference"]
    caption = "Metrics on the network's grid, with 95% intervals of the difference"
    about = render_paragraph(f"Rules of the package: {', '.join(rules)}. {_POSTPROCESSING}")
    return about + render_table(caption, heads, rows, header_column=1)


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
    """True if networks of the plan made the masks of this report."""
    return not (GIVEN in _masks(work) or work.networks.is_dir()) and work.plan_json.is_file()


def _masks(work: WorkFolders) -> set[str]:
    return {head.masks for head in read_heads(work).values()}


def facts(work: WorkFolders, logs: Mapping[str, Sequence[Log]]) -> dict[str, str]:
    """The training in lines by title; of given networks and masks only what the working directory knows."""
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
    return f'<dl class="facts">{items}</dl>' + (grid([render_figure(loss_curves(logs), "loss")]) if logs else "")


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
