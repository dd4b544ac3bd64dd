"""Training reports in a browser: sentences, loss, a risk, a status, a stage, masks, a worst case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from baseline.heads.models.targets import make_targets
from baseline.report.held_out import WorstCase
from baseline.report.models import estimate_target
from baseline.report.report import format_segmentation, format_training, format_worst_cases
from baseline.report.targets import format_target
from contract.editions import load_edition
from reporting.page.document import HtmlPage, Section, render_page
from reporting.page.html import render_list
from tests.baseline.prepared import HPV, RFS, head_record
from tests.baseline.report.records import (
    PATIENTS,
    PERFECT,
    list_charts,
    make_hpv_record,
    make_rfs_record,
    make_stage_record,
    parse_record,
)
from tests.browser.conftest import find_accessibility_problems
from tests.browser.report_page import DRAWN
from tests.conftest import head_json

# Chromium's width of A4 in CSS pixels, less two margins of 14 mm.
PAPER_PX = 688


def make_segmentation() -> str:
    values = {"gtvp_dsc_mean": {"value": 0.7, "ci95_low": 0.6, "ci95_high": 0.8}}
    centres = {name: {"cases": 20, "aggregates": {"gtvp_dsc_mean": {"value": 0.7}}} for name in ("CHUM", "CHUP")}
    report = {"cases": {"used": 40}, "provenance": {"edition": "hecktor2025"}, "aggregates": values, "centres": centres}
    return format_segmentation(report, {"gtvp_dsc_mean": "GTVp mean DSC"}, 0)


def make_heads() -> list[Section]:
    weights = [(f"gtvn_lesion_feature_{n}", 0.5 - n / 10) for n in range(12)]
    shipped = head_record(head_json(*weights))
    stage = make_targets(load_edition("hecktor2026"))[0]
    records = (
        (RFS, make_rfs_record(PERFECT, np.zeros(PATIENTS)), shipped),
        (HPV, make_hpv_record(), None),
        (stage, make_stage_record(), None),
    )
    return [
        Section(
            target.name,
            target.title,
            format_target(estimate_target(target, parse_record(record), 20, 0), head, 20, 0)[0],
        )
        for target, record, head in records
    ]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report with a picture in another folder."""
    folder = tmp_path_factory.mktemp("training-report")
    (folder / "index_files").mkdir()
    pytest.importorskip("PIL.Image").new("RGB", (30, 10)).save(folder / "index_files" / "P0.jpg")
    worst = format_worst_cases([WorstCase("P0", "GTVp 1.0 ml", b"")], {"P0": "index_files/P0.jpg"})
    log = {name: [1.0, 0.5, 0.2] for name in ("train_losses", "val_losses")}
    sections = [
        Section("summary", "Summary", render_list(["At a new centre expect a C-index of 0.5."], "words")),
        Section("training", "Training", format_training({"Epochs": "3 of 50 steps"}, {"unet": [log, log]})),
        *make_heads(),
        Section("segmentation", "Segmentation", make_segmentation()),
        Section("worst", "Worst cases", worst),
    ]
    html = render_page(HtmlPage("Training report", "60 patients", sections, "Seed 0"))
    (folder / "index.html").write_text(html, encoding="utf-8")
    return folder / "index.html"


def open_report(page: Page, report: Path) -> Page:
    page.goto(report.as_uri())
    page.wait_for_function(DRAWN)
    return page


def test_all_charts_are_drawn(page: Page, report: Path) -> None:
    """Drawn are the loss and one chart each of risk, status and stage. No visible text mentions teams."""
    open_report(page, report)
    assert len(list_charts(report.read_text(encoding="utf-8"))) == 4
    expect(page.locator("section.chart .drawing > [role=img][aria-label]")).to_have_count(4)
    assert "team" not in page.locator("body").inner_text().lower()


def test_the_picture_of_a_selected_patient_is_loaded(page: Page, report: Path) -> None:
    page.goto(f"{report.as_uri()}#case=P0")
    expect(page.locator("#selection")).to_contain_text("case P0")
    page.locator("#selection a", has_text="Show P0").click()
    expect(page.locator('[id="case-P0"] img')).to_have_js_property("naturalWidth", 30)


@pytest.mark.parametrize(("scheme", "only"), [("light", ""), ("dark", "color-contrast")])
def test_the_page_is_accessible(browser: Browser, report: Path, scheme: Any, only: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page = open_report(context.new_page(), report)
    page.locator("section.chart summary").first.click()
    problems = find_accessibility_problems(page, only)
    context.close()
    assert problems == []


def test_the_page_fits_a_telephone_and_paper(page: Page, report: Path) -> None:
    page.set_viewport_size({"width": 360, "height": 900})
    open_report(page, report)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER_PX, "height": 900})
    widths = page.locator("table").evaluate_all("all => all.map((node) => node.getBoundingClientRect().right)")
    assert len(widths) == 9
    assert max(widths) <= PAPER_PX
