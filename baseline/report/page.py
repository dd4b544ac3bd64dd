"""Parts of the report page, and its sections on training, masks, worst cases and postprocessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from baseline.heads.fitting import GIVEN_MASKS, read_heads
from baseline.network.jobs import list_package_jobs
from baseline.network.plans import PRESETS, NetworkPlan, read_plan
from baseline.package.existing import load_existing_networks
from baseline.postprocessing.record import PostprocessingRecord
from baseline.postprocessing.rules import MIN_GAIN_DEVIATIONS
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


def format_grid(parts: Sequence[str]) -> str:
    """Format tables and figures below each other."""
    content = "\n".join(parts)
    return f'<div class="figures">\n{content}\n</div>'


def format_listing(title: str, table: str, about: str = "") -> str:
    """Format a table with a heading, and a paragraph between them."""
    return f'<section class="listing"><h3>{escape(title)}</h3>{render_paragraph(about, "about")}{table}</section>'


def make_centre_row(centre: str, cells: Sequence[Content]) -> Row:
    """Make a table's row about one centre; a click on the name selects the centre."""
    return Row([Cell(render_choice("centre", centre)), *cells], {"centre": centre})


def format_signed(value: float | None) -> Cell:
    """Format a number with its sign."""
    return Cell("-") if value is None else Cell(f"{value:+z.3f}", value)


def format_worst_cases(cases: Sequence[WorstCase], addresses: Mapping[str, str]) -> str:
    """Format the cards of the worst cases; the addresses of the pictures are relative to the page."""
    pictures = [CasePicture(case, address) for case, address in addresses.items()]
    about = describe_pictures(pictures, {NETWORK: COLOUR})
    return about + "".join(_format_card(case, addresses[case.case]) for case in cases)


def _format_card(case: WorstCase, address: str) -> str:
    name = escape(case.case)
    alt = f"CT and PET of {name} in three planes with contours"
    image = f'<img loading="lazy" width="1080" height="360" alt="{alt}" src="{quote(address)}">'
    return (
        f'<details class="card" id="case-{name}" data-case="{name}" open>'
        f"<summary><b>{name}</b> <span>{escape(case.facts)}</span></summary><div>{image}</div></details>\n"
    )


_POSTPROCESSING: Final = (
    "Rules on 26-connected lesions on the network's grid, fitted one after the other. Masks, features and all figures "
    "of this page use the limits that were found without the patient's fold; the package uses those found on all "
    "patients. The gains are of limits found without the patient's fold or centre, with intervals from the paired "
    "bootstrap; a rule is accepted only if both gains reach 0.001 of the weights of masks and "
    f"{MIN_GAIN_DEVIATIONS:g} of their standard deviations."
)


def format_segmentation(report: Mapping[str, Any], titles: Mapping[str, str], without_mask: int) -> str:
    """Format the ranked metrics of the out-of-fold masks, over all patients and by centre."""
    patients = report["cases"]["used"]
    about = (
        f"{patients} patients, each segmented by a network that never saw them and scored on the CT's own grid against "
        f"the reference by the evaluation package (edition {report['provenance']['edition']})."
    )
    if without_mask:
        about += f" {without_mask} patients without a reference are not scored."
    aggregates = [report["aggregates"][name] for name in titles]
    estimates = [Estimate(entry["value"], entry.get("ci95_low"), entry.get("ci95_high")) for entry in aggregates]
    by_centre = [
        make_centre_row(centre, [group["cases"], *(group["aggregates"][name]["value"] for name in titles)])
        for centre, group in report["centres"].items()
    ]
    rows = [Row(["everyone", patients, *estimates]), *by_centre]
    caption = "Metrics of all patients with 95% intervals, and of each centre"
    return render_paragraph(about) + render_table(caption, ["Centre", "Patients", *titles.values()], rows)


def format_postprocessing(record: PostprocessingRecord) -> str:
    """Format the content of `postprocessing.json` as HTML."""
    if record.why_not:
        return render_paragraph(f"No postprocessing rules: {record.why_not}.")
    rules = [f"{PostprocessingRules.describe_rule(rule)} {value}" for rule, value in record.rules.as_json().items()]
    rows = []
    for split, figures in record.cross_fitted.items():
        for name, effect in figures.items():
            gain = effect.difference
            estimate = Estimate(gain.value, gain.ci95_low, gain.ci95_high)
            title = record.titles.get(name, name)
            rows.append(Row([f"{split} left out", title, effect.unfiltered, effect.filtered, estimate]))
    refused = [f"{PostprocessingRules.describe_rule(rule)}: {why}" for rule, why in record.list_refused()]
    titles = ["Limits found with", "Metric", "Unfiltered", "Filtered", "Difference"]
    caption = "Metrics on the network's grid, with 95% intervals of the difference"
    not_accepted = f" Not accepted: {'; '.join(refused)}." if refused else ""
    about = render_paragraph(f"Rules of the package: {', '.join(rules)}. {_POSTPROCESSING}{not_accepted}")
    return about + render_table(caption, titles, rows, header_column=1)


# Log of nnU-Net: the values of all epochs by name.
Log = Mapping[str, Sequence[float]]
# Maximum number of points of a curve; each point is the mean of the epochs since the previous point.
_MAX_POINTS: Final = 100
# Up to this number of epochs each epoch has a dot, because a single epoch has no line.
_MAX_DOTS: Final = 30
_ENDS: Final = "epoch_end_timestamps"
_LOSSES: Final = {"train_losses": "training", "val_losses": "validation"}


def read_training_logs(work: WorkFolders) -> dict[str, list[Log]]:
    """Read the logs of the networks of each fold, by backbone; empty if networks or masks come from elsewhere."""
    from baseline.network.checkpoint import read_checkpoint  # imports torch

    logs: dict[str, list[Log]] = {}
    for job in list_package_jobs(work) if _has_trained(work) else ():
        final = work.final(job.fold, job.backbone)
        log = read_checkpoint(final).log if final.is_file() else {}
        if all(log.get(key) for key in (*_LOSSES, _ENDS)):
            logs.setdefault(job.backbone, []).append(log)
    return logs


def _has_trained(work: WorkFolders) -> bool:
    """Return whether networks of the plan made the masks of this report."""
    return not (GIVEN_MASKS in _read_mask_sources(work) or work.networks.is_dir()) and work.plan_json.is_file()


def _read_mask_sources(work: WorkFolders) -> set[str]:
    return {head.masks for head in read_heads(work).values()}


def collect_facts(work: WorkFolders, logs: Mapping[str, Sequence[Log]]) -> dict[str, str]:
    """Collect facts of the training by title; facts of networks and masks from elsewhere are left out."""
    splits, plan = read_splits(work), read_plan(work) if _has_trained(work) else None
    if (package := load_existing_networks(work)) is not None:
        networks = f"from the package {package.manifest.name}"
    elif plan is not None:
        networks = f"{', '.join(plan.backbones)}; one for each of {len(splits.folds)} folds"
    else:
        networks = "none: the masks were given"
    spacing_mm = read_preparation(work).spacing_mm if plan is None else plan.spacing_mm
    ends = [float(log[_ENDS][-1]) for fold_logs in logs.values() for log in fold_logs]
    facts = {
        "Plan": "" if plan is None else describe_preset(plan),
        "Spacing": " x ".join(f"{step:g}" for step in spacing_mm) + " mm",
        "Networks": networks,
        "Epochs": "" if plan is None else f"{plan.epochs} of {plan.iterations} steps",
        "Seed": str(splits.seed),
        "Trained until": datetime.fromtimestamp(max(ends), UTC).date().isoformat() if ends else "",
    }
    return {title: text for title, text in facts.items() if text}


def describe_preset(plan: NetworkPlan) -> str:
    """Describe the preset of a plan, and the options that differ from the preset."""
    options, preset = plan.identity(), PRESETS[plan.preset].identity()
    changed = [name.replace("_", " ") for name, value in preset.items() if options[name] != value]
    return f"preset {plan.preset}" + (f", changed: {', '.join(changed)}" if changed else "")


def format_training(facts: Mapping[str, str], logs: Mapping[str, Sequence[Log]]) -> str:
    """Format the facts as a list, and the picture of the loss if there are logs."""
    items = "".join(f"<div><dt>{escape(title)}</dt><dd>{escape(text)}</dd></div>" for title, text in facts.items())
    curves = format_grid([render_figure(analyse_losses(logs), "loss")]) if logs else ""
    return f'<dl class="facts">{items}</dl>{curves}'


def analyse_losses(logs: Mapping[str, Sequence[Log]]) -> Analysis:
    """Analyse the mean loss over the folds of each network by epoch, and its range; no rows without logs."""
    curves = {
        (network, title): _make_curve([log[key] for log in fold_logs])
        for network, fold_logs in logs.items()
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
            "step": epochs > _MAX_DOTS,
        },
    )


def _make_curve(losses: Sequence[Sequence[float]]) -> list[dict[str, float]]:
    """Make the points of a curve; epochs that not all folds have are left out."""
    epochs = min(map(len, losses))
    values = np.array([fold_losses[:epochs] for fold_losses in losses], dtype=np.float64)
    points = []
    for part in np.array_split(np.arange(epochs), min(_MAX_POINTS, epochs) or 1):
        if part.size:
            means = values[:, part].mean(axis=1)
            figures = {"mean": means.mean(), "lowest": means.min(), "highest": means.max()}
            points.append({"epoch": int(part[-1]) + 1, **{key: float(value) for key, value in figures.items()}})
    return points
