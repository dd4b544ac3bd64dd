"""The training report: `report/index.html` with its sections, its pictures and `report/report.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from baseline.cache import compute_key
from baseline.fit import check_heads
from baseline.heads.fitting import GIVEN_MASKS, read_heads
from baseline.heads.models.targets import make_targets
from baseline.heads.record import load_cross_validation, read_cross_validation
from baseline.network.jobs import list_package_jobs
from baseline.network.plans import PRESETS, NetworkPlan, read_plan
from baseline.package.existing import load_existing_networks
from baseline.postprocessing.record import PostprocessingRecord, load_current_record
from baseline.postprocessing.rules import MIN_GAIN_DEVIATIONS, list_mask_metric_titles
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.splits import read_splits
from baseline.report.held_out import (
    COLOUR,
    NETWORK,
    WorstCase,
    analyse_recall,
    describe_failed_masks,
    draw_worst_cases,
    score_masks,
)
from baseline.report.models import describe_benefit_of_images, describe_targets_at_new_centres, estimate_target
from baseline.report.targets import format_grid, format_target, make_centre_row
from baseline.work import WorkFolders, read_preparation, read_training_edition
from contract.errors import HecktorError
from contract.io.files import atomic_folder, read_json, write_bytes, write_json, write_text
from contract.packages import PostprocessingRules
from evaluation.statistics import DEFAULT_BOOTSTRAPS
from evaluation.statistics.bootstrap import Estimate
from reporting.analyses.analysis import Analysis
from reporting.page.charts import render_figure
from reporting.page.document import HtmlPage, Section, render_page
from reporting.page.html import Row, render_list, render_paragraph, render_table
from reporting.report.cases import CasePicture, describe_pictures

# Increment when the page or report.json change for the same inputs.
FORMAT_VERSION: Final = 15
_WORST: Final = "Patients with the lowest mean DSC of GTVp and GTVn."
_PICTURES: Final = "index_files"
_POSTPROCESSING: Final = (
    "Rules on 26-connected lesions on the network's grid, fitted one after the other. Masks, features and all figures "
    "of this page use the limits that were found without the patient's fold; the package uses the limits found on all "
    "patients. The gains are for limits found without the patient's fold or centre, with intervals from the paired "
    "bootstrap; a rule is accepted only if both gains reach 0.001 of the weights of masks and "
    f"{MIN_GAIN_DEVIATIONS:g} of their standard deviations."
)
# Log of nnU-Net: the values of all epochs by name.
Log = Mapping[str, Sequence[float]]
# Maximum number of points of a curve; each point is the mean of the epochs since the previous point.
_MAX_POINTS: Final = 100
# Up to this number of epochs each epoch has a dot, because a single epoch has no line.
_MAX_DOTS: Final = 30
_ENDS: Final = "epoch_end_timestamps"
_LOSSES: Final = {"train_losses": "training", "val_losses": "validation"}


def make_report(work: WorkFolders, jobs: int) -> Path:
    """Write the page unless it is current; return its path.

    Raises:
        HecktorError: `hecktor train heads` has not been run, an out-of-fold mask is missing, or the heads are
            outdated.
    """
    scored = [case for case in read_cases(work) if case.mask is not None]
    target = work.report / "index.html"
    key = _compute_key(work, scored)
    check_heads(work)
    complete = target.is_file() and (work.report / _PICTURES).is_dir() and work.report_json.is_file()
    if complete and read_json(work.report_json).get("made_from") == key:
        return target
    html, figures = _make_page(work, scored, jobs)
    write_text(target, html)
    write_json(work.report_json, {"format_version": FORMAT_VERSION, "made_from": key, **figures})
    return target


def _compute_key(work: WorkFolders, scored: Sequence[ReleaseCase]) -> str:
    work.read(work.cross_validation_json)
    masks = [work.mask(case.patient_id) for case in scored]
    absent = [path.name for path in masks if not path.is_file()]
    if absent:
        raise HecktorError(f"out_of_fold/masks/{absent[0]}", "not found", "`hecktor train heads` first")
    sources = [*masks, *(case.mask for case in scored), work.cross_validation_json, work.heads_json]
    optional = work.with_reference_masks().cross_validation_json, work.postprocessing_json
    sources += [path if path.is_file() else None for path in optional]
    return compute_key(work, sources, {"version": FORMAT_VERSION})


def _make_page(work: WorkFolders, scored: Sequence[ReleaseCase], jobs: int) -> tuple[str, dict[str, Any]]:
    cases, splits, edition = read_cases(work), read_splits(work), read_training_edition(work)
    metrics, titles = score_masks(work, scored, edition, splits.seed, jobs), list_mask_metric_titles(edition)
    figures: dict[str, Any] = {"segmentation": {name: metrics["aggregates"][name] for name in titles}}
    centre_of = {case.patient_id: str(case.centre) for case in cases}
    records = read_cross_validation(work).targets
    targets = [
        estimate_target(target, records[target.name], DEFAULT_BOOTSTRAPS, splits.seed)
        for target in make_targets(edition)
    ]
    heads, on_references = read_heads(work), load_cross_validation(work.with_reference_masks())
    references = {} if on_references is None else on_references.targets
    sections = []
    for estimates in targets:
        name = estimates.target.name
        content, figures[name] = format_target(
            estimates, heads.get(name), DEFAULT_BOOTSTRAPS, splits.seed, references.get(name)
        )
        sections.append(Section(name, estimates.target.title, content))
    recall = analyse_recall(edition, metrics["results"])
    figures["recall_by_volume"] = [] if recall is None else recall.rows
    content = format_segmentation(metrics, titles, len(cases) - len(scored))
    content += "" if recall is None else format_grid([render_figure(recall, recall.name)])
    sections.append(Section("segmentation", "Segmentation", content))
    worst = draw_worst_cases(work, scored, metrics["results"])
    figures["worst_cases"] = [case.case for case in worst]
    pictures = render_paragraph(_WORST) + format_worst_cases(worst, _write_pictures(work, worst))
    sections.append(Section("worst", "Worst cases", pictures))
    if (rules := load_current_record(work)) is not None:
        sections.append(Section("postprocessing", "Postprocessing", format_postprocessing(rules)))
        figures["postprocessing"] = rules.model_dump(mode="json")["cross_fitted"]
    new_test_centres = None if edition.new_test_centres is None else edition.new_test_centres.count
    figures["new_centres"] = {
        estimates.target.name: vars(estimates.estimate_new_centres(new_test_centres)) for estimates in targets
    }
    figures["summary"] = [
        describe_targets_at_new_centres(targets, new_test_centres),
        describe_benefit_of_images(targets),
        describe_failed_masks(metrics["results"]),
    ]
    logs = read_training_logs(work)
    figures["training"] = collect_facts(work, logs)
    head = [
        Section("summary", "Summary", render_list(list(filter(None, figures["summary"])), "words")),
        Section("training", "Training", format_training(figures["training"], logs)),
    ]
    lead = f"{len(cases)} patients of {len(set(centre_of.values()))} centres, {len(splits.folds)} folds."
    versions = ", ".join(f"{name} {version}" for name, version in read_preparation(work).versions.items())
    footer = f"{versions}. Figures: report.json, cross_validation.json and task1/metrics.json."
    return render_page(HtmlPage("Training report", lead, [*head, *sections], footer)), figures


def _write_pictures(work: WorkFolders, cases: Sequence[WorstCase]) -> dict[str, str]:
    """Write `report/index_files/<case>.jpg`; return the address of each picture relative to the page."""
    with atomic_folder(work.report / _PICTURES) as partial:
        for case in cases:
            write_bytes(partial / f"{case.case}.jpg", case.jpeg)
    return {case.case: f"{_PICTURES}/{case.case}.jpg" for case in cases}


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
    masks_are_given = any(head.masks == GIVEN_MASKS for head in read_heads(work).values())
    return not (masks_are_given or work.networks.is_dir()) and work.plan_json.is_file()


def collect_facts(work: WorkFolders, logs: Mapping[str, Sequence[Log]]) -> dict[str, str]:
    """Collect facts of the training by title; facts of networks and masks from elsewhere are left out."""
    splits, plan = read_splits(work), read_plan(work) if _has_trained(work) else None
    if (package := load_existing_networks(work)) is not None:
        networks = f"from the package {package.manifest.name}"
    elif plan is not None:
        networks = f"{', '.join(plan.backbones)}; one for each of {len(splits.folds)} folds"
    else:
        networks = "none: the masks come from the user"
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
