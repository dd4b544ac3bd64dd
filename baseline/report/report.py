"""The training report: `report/index.html`, its pictures and `report/report.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from baseline.cache import compute_key
from baseline.fit import check_heads
from baseline.heads.fitting import read_heads
from baseline.heads.models.targets import make_targets
from baseline.heads.record import load_cross_validation, read_cross_validation
from baseline.postprocessing.record import load_current_record
from baseline.postprocessing.rules import list_mask_metric_titles
from baseline.preparation import read_preparation, read_training_edition
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.splits import read_splits
from baseline.report.masks import WorstCase, analyse_recall, describe_failed_masks, draw_worst_cases, score_masks
from baseline.report.models import describe_benefit_of_images, describe_targets_at_new_centres, estimate_target
from baseline.report.page import (
    collect_facts,
    format_grid,
    format_postprocessing,
    format_segmentation,
    format_training,
    format_worst_cases,
    read_training_logs,
)
from baseline.report.targets import format_target
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.io.files import atomic_folder, read_json, write_bytes, write_json, write_text
from evaluation.statistics import DEFAULT_BOOTSTRAPS
from reporting.page.charts import render_figure
from reporting.page.document import HtmlPage, Section, render_page
from reporting.page.html import render_list, render_paragraph

# Increment when the page or report.json change for the same inputs.
FORMAT_VERSION: Final = 15
_WORST: Final = "Patients with the lowest mean DSC of GTVp and GTVn."
_PICTURES: Final = "index_files"


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
        raise HecktorError(f"out_of_fold/masks/{absent[0]}", "not found", "`hecktor train heads` before")
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
