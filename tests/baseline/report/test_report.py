"""The first section of the report, cards of the worst cases, and the section on the masks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from baseline.network.plans import NetworkPlan
from baseline.report.held_out import WorstCase
from baseline.report.report import (
    analyse_losses,
    collect_facts,
    format_segmentation,
    format_training,
    format_worst_cases,
    read_training_logs,
)
from baseline.work import WorkFolders
from contract.io.files import write_json
from tests.baseline.prepared import head_record, make_planned_work
from tests.baseline.report.records import list_charts
from tests.conftest import head_json


def test_pictures_are_files_that_load_when_seen() -> None:
    html = format_worst_cases([WorstCase("CHUM 1", "a < b", b"")], {"CHUM 1": "index_files/CHUM 1.jpg"})
    assert 'loading="lazy"' in html
    assert 'src="index_files/CHUM%201.jpg"' in html
    assert 'alt="CT and PET of CHUM 1 in three planes with contours"' in html
    assert "a &lt; b" in html
    assert "out-of-fold" in html


def test_segmentation_by_centre() -> None:
    aggregates = {"gtvp_dsc_mean": {"value": 0.7, "ci95_low": 0.6, "ci95_high": 0.8}}
    report = {
        "cases": {"used": 12}, "provenance": {"edition": "hecktor2025"}, "aggregates": aggregates,
        "centres": {"CHUM": {"cases": 5, "aggregates": {"gtvp_dsc_mean": {"value": None}}}},
    }  # fmt: skip
    content = format_segmentation(report, {"gtvp_dsc_mean": "GTVp mean DSC"}, without_mask=3)
    assert '0.700</span> <span class="interval">0.600 to 0.800' in content
    assert (
        '<span class="choice" data-key="centre" data-value="CHUM">CHUM</span></th><td data-sort="5">5</td><td>-</td>'
        in content
    )
    assert "3 patients without a reference" in content
    assert "CT's own grid" in content.replace("&#x27;", "'")


PLAN = NetworkPlan(epochs=2, mirror_axes=())
# Noon of 3 March 2026.
NOON = datetime(2026, 3, 3, 12, tzinfo=UTC).timestamp()


def make_log(training: list[float], validation: list[float]) -> dict[str, list[Any]]:
    """Return a log as nnU-Net stores it, with NumPy numbers."""
    ends = [NOON - 60 * n for n in range(len(training))][::-1]
    losses = {"train_losses": [np.float32(value) for value in training], "val_losses": validation}
    return {**losses, "epoch_start_timestamps": [end - 50 for end in ends], "epoch_end_timestamps": ends}


def make_head_json(masks: str) -> dict[str, Any]:
    """Return a head of `heads.json` that was fitted on the masks."""
    return head_record(head_json(("age_years", 0.1)), masks=masks).model_dump(mode="json")


@pytest.fixture
def work(tmp_path: Path) -> WorkFolders:
    """Write two folds of a network with two epochs: the training losses are 1 and 0 in the first fold, 3 and 1 in the second."""
    planned = make_planned_work(tmp_path, plan=PLAN)
    for fold, training in enumerate(([1.0, 0.0], [3.0, 1.0])):
        planned.final(fold).parent.mkdir(parents=True)
        content = {"network_weights": {"a": torch.ones(2)}, "logging": make_log(training, [2.0, 2.0])}
        torch.save(content, planned.final(fold))
    write_json(planned.heads_json, {"rfs": make_head_json("out-of-fold masks")})
    return planned


def test_the_facts_of_a_training(work: WorkFolders) -> None:
    facts = collect_facts(work, read_training_logs(work))
    assert facts == {
        "Plan": "preset short, changed: epochs, mirror axes",
        "Spacing": "3 x 3 x 3 mm",
        "Networks": "unet; one for each of 2 folds",
        "Epochs": "2 of 50 steps",
        "Seed": "0",
        "Trained until": "2026-03-03",
    }
    assert "<dt>Trained until</dt><dd>2026-03-03</dd>" in format_training(facts, {})
    assert "<dd>a &lt; b</dd>" in format_training({"Networks": "a < b"}, {})
    assert list_charts(format_training(facts, read_training_logs(work))) == ["loss"]


def test_the_loss_is_the_mean_of_the_folds(work: WorkFolders) -> None:
    """Epoch 1 has the mean of 1 and 3, epoch 2 the mean of 0 and 1. The validation loss is always 2."""
    curves = analyse_losses(read_training_logs(work))
    rows = curves.rows
    assert not curves.chart["step"]  # each epoch has a dot
    assert [(row["loss"], row["epoch"], row["mean"], row["lowest"], row["highest"]) for row in rows] == [
        ("training", 1, 2.0, 1.0, 3.0),
        ("training", 2, 0.5, 0.0, 1.0),
        ("validation", 1, 2.0, 2.0, 2.0),
        ("validation", 2, 2.0, 2.0, 2.0),
    ]
    assert {row["network"] for row in rows} == {"unet"}


def test_a_long_curve_has_a_hundred_points() -> None:
    """Losses of ten epochs are averaged: 0 to 9 give 4.5. The second fold's additional epoch does not count."""
    of_folds = [
        make_log(values, values) for values in ([float(n) for n in range(1000)], [float(n) for n in range(1001)])
    ]
    curves = analyse_losses({"unet": of_folds})
    rows = [row for row in curves.rows if row["loss"] == "training"]
    assert curves.chart["step"]
    assert (len(rows), rows[0]["epoch"], rows[0]["mean"], rows[-1]["epoch"]) == (100, 10, 4.5, 1000)


@pytest.mark.parametrize("source", ["networks", "masks"])
def test_existing_networks_and_masks_have_no_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Only the spacing of the prepared images is known. A plan next to existing masks did not produce them."""
    work = make_planned_work(tmp_path, plan=PLAN if source == "masks" else None)
    write_json(work.heads_json, {"rfs": make_head_json("given masks" if source == "masks" else "out-of-fold masks")})
    networks = "none: the masks come from the user"
    if source == "networks":
        work.networks.mkdir()
        package = SimpleNamespace(manifest=SimpleNamespace(name="theirs"))
        monkeypatch.setattr("baseline.report.report.load_existing_networks", lambda _: package)
        networks = "from the package theirs"
    assert read_training_logs(work) == {}
    assert collect_facts(work, {}) == {"Spacing": "2 x 2 x 4 mm", "Networks": networks, "Seed": "0"}
    assert list_charts(format_training(collect_facts(work, {}), {})) == []


def test_a_training_without_a_log_has_its_facts(work: WorkFolders) -> None:
    """Some trainers store no log."""
    for fold in range(2):
        torch.save({"network_weights": {"a": torch.ones(2)}, "logging": {}}, work.final(fold))
    assert read_training_logs(work) == {}
    assert "Trained until" not in collect_facts(work, {})
