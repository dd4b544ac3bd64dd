"""`examples/deep_outcome`: losses by hand and by an enumeration, fits of each kind, and from masks to an answer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from algorithm import Predictor
from algorithm.network.package import load_package
from baseline.own_features import PatientCubes
from baseline.package.existing import use_networks
from baseline.work import WorkFolders
from contract.code import Code
from contract.io.files import read_json
from tests.baseline.conftest import session_work, work_and_masks
from tests.conftest import CaseFolder
from tests.examples.readme import EXAMPLES, read_commands, run

__all__ = ["session_work", "work_and_masks"]
FOLDER = EXAMPLES / "deep_outcome"


def find_code(name: str) -> Any:
    return Code.from_folders([FOLDER]).find(f"deep_outcome:{name}", "features")


@pytest.fixture
def small_network(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the module's names, which the test may change: two channels, one epoch, cubes of 16 voxels of 8 mm."""
    features = find_code("Features")
    names: dict[str, Any] = features.fit.__globals__
    for name, value in (("WIDTH", 2), ("EPOCHS", 1), ("BATCH", 4), ("LOSS", "cox"), ("JOINT", True)):
        monkeypatch.setitem(names, name, value)
    monkeypatch.setattr(features, "cube", (16, 8.0))
    monkeypatch.setattr(features, "margin", 1)
    return names


def test_cox_loss_of_three_patients() -> None:
    """Events are on days 1 and 2, the censoring on day 3, hazard ratios are 2, 1 and 4.

    At event 1 all are at risk: 2 of 7; at event 2 the last two: 1 of 5. The loss is the mean of log 3.5 and log 5.
    Without an event it is 0.
    """
    scores, days = torch.tensor([math.log(2), 0.0, math.log(4)]), torch.tensor([1.0, 2.0, 3.0])
    value = find_code("cox_loss")(scores, days, torch.tensor([True, True, False]))
    assert float(value) == pytest.approx((math.log(3.5) + math.log(5)) / 2)
    assert float(find_code("cox_loss")(scores, days, torch.zeros(3, dtype=torch.bool))) == 0


def test_cox_loss_of_tied_events() -> None:
    """Two events on one day and a censored patient on the same day, hazard ratios 1, 3 and 4.

    By Breslow both events have all three at risk: shares 1/8 and 3/8.
    """
    scores = torch.tensor([0.0, math.log(3), math.log(4)])
    value = find_code("cox_loss")(scores, torch.full((3,), 5.0), torch.tensor([True, True, False]))
    assert float(value) == pytest.approx((math.log(8) + math.log(8 / 3)) / 2)


def test_class_loss_is_balanced() -> None:
    """Three positives with logit log 3 (probability 3/4) and a negative with logit 0 (probability 1/2).

    Weights: 1 / (2 x 3/4) for a positive and 1 / (2 x 1/4) for the negative, so that both classes weigh 2. The loss is
    the mean of log(4/3) and log 2.
    """
    logits, positive = torch.tensor([math.log(3)] * 3 + [0.0]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    value = find_code("class_loss")(logits, positive, 0.75)
    assert float(value) == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)


@pytest.mark.parametrize("seed", range(5))
def test_mtlr_loss_is_an_enumeration_of_all_sequences(seed: int) -> None:
    """Sequences say for each end whether the event was before; once it was, it stays so. Their weight is the product of
    exp(output) over the ends where it was. The likelihood of a patient is the share of the sequences that fit.
    """
    rng = np.random.default_rng(seed)
    ends, outputs = np.array([3.0, 5.0, 8.0]), rng.normal(size=(12, 3))
    days, events = rng.integers(1, 11, 12).astype(float), rng.random(12) < 0.5
    logs = []
    for row, day, event in zip(outputs, days, events, strict=True):
        fits, total = 0.0, 0.0
        for first in range(4):  # the first end after the event
            weight = math.exp(sum(row[first:]))
            total += weight
            lower, upper = [0.0, *ends, math.inf][first : first + 2]
            fits += weight if (lower < day <= upper if event else upper > day) else 0.0
        logs.append(math.log(fits / total))
    outputs_tensor, days_tensor, ends_tensor = (torch.from_numpy(array).float() for array in (outputs, days, ends))
    value = find_code("mtlr_loss")(outputs_tensor, days_tensor, torch.tensor(events), ends_tensor)
    assert float(value) == pytest.approx(-np.mean(logs), rel=1e-5)


def test_event_free_days_of_equal_intervals() -> None:
    """Up to day 10, up to 30 and later have a third each: the survival falls to 2/3 and 1/3, and the area below it is
    10 x 5/6 + 20 x 1/2. A certain event before day 10 leaves 10 / 2.
    """
    days = find_code("event_free_days")(torch.tensor([[0.0, 0.0], [40.0, 0.0]]), torch.tensor([10.0, 30.0]))
    assert days.tolist() == pytest.approx([10 * 5 / 6 + 10, 5.0])


def test_interval_ends_are_quantiles_of_event_times() -> None:
    """Between two events, on days 100 and 400, the ends are at a third and two thirds: 200 and 300."""
    assert find_code("compute_interval_ends")([100.0, 400.0]) == pytest.approx([200.0, 300.0])
    with pytest.raises(ValueError, match="no training patient with an event after day 0"):
        find_code("compute_interval_ends")([0.0])


def test_missing_clinical_values_take_the_training_median() -> None:
    """With 60, missing, 70 and 50 the median is 60: the values 60, 60, 70, 50 give the mean 60 and the standard
    deviation.
    """
    network = find_code("Network")(1, (), 2, joint=True).eval()
    network.learn_scale("clinical", torch.tensor([[60.0], [math.nan], [70.0], [50.0]]))
    assert float(network.get_buffer("clinical_mean")) == 60
    assert float(network.get_buffer("clinical_sd")) == pytest.approx(math.sqrt(50))
    stages = network.encode(torch.rand(2, 4, 32, 32, 32))
    same = [stage[:1].expand(2, -1, -1, -1, -1) for stage in stages]
    with_missing, with_median = network.predict(same, torch.tensor([[math.nan], [60.0]]))
    torch.testing.assert_close(with_missing, with_median)


@pytest.mark.parametrize("loss", ["cox", "mtlr"])
@pytest.mark.parametrize("joint", [True, False])
def test_a_fit_writes_what_it_measures_with(
    small_network: dict[str, Any], tmp_path: Path, loss: str, joint: bool
) -> None:
    """Answers to the training patients have mean 0 and SD 1; after a joint training they come only from CT and PET.
    Some outcomes are missing.
    """
    small_network["LOSS"], small_network["JOINT"] = loss, joint
    cubes = np.random.default_rng(0).random((6, 4, 18, 18, 18)).astype(np.float16)
    ids = list("abcdef")
    clinical = pd.DataFrame({"age_years": [60.0, np.nan, 70.0, 50.0, 65.0, 55.0]}, ids)
    days, events = [100.0, 400.0, 500.0, 50.0, np.nan, 300.0], [1.0, 1.0, 0.0, 0.0, np.nan, 1.0]
    outcomes = pd.DataFrame({"rfs_days": days, "rfs_event": events, "hpv": [0.0, 1.0, np.nan, 0.0, 1.0, 1.0]}, ids)
    features = small_network["Features"]
    features.fit(tmp_path, "cpu", PatientCubes(cubes, np.arange(6)), clinical, outcomes, 0)
    fitted = features(tmp_path, "cpu")
    inner = cubes[:, :, 1:17, 1:17, 1:17].astype(np.float32)
    rows = [
        fitted.measure(cube, {"age_years": age}) for cube, age in zip(inner, [60.0, None, 70, 50, 65, 55], strict=True)
    ]
    for name in features.names:
        values = np.array([row[name] for row in rows])
        assert (values.mean(), values.std()) == (pytest.approx(0, abs=1e-3), pytest.approx(1, abs=1e-2))
    other_mask = inner[0].copy()
    other_mask[2:] = 1 - other_mask[2:]
    assert (fitted.measure(other_mask, {"age_years": 60.0}) == rows[0]) == joint


def test_the_segmentation_trains_the_encoder_and_not_the_answers() -> None:
    """Joint training reaches the first convolution through the decoder, whose masks have the cube's size."""
    network = find_code("Network")(1, (), 2, joint=True)
    logits = network.segment(network.encode(torch.rand(2, 4, 20, 20, 20)), 20)
    assert logits.shape == (2, 2, 20, 20, 20)
    logits.square().mean().backward()
    assert float(network.encoder.conv1.weight.grad.abs().max()) > 0
    assert network.last.weight.grad is None


def test_the_network_learns_a_tumour_that_tells_the_outcome(small_network: dict[str, Any], tmp_path: Path) -> None:
    """Half of 24 patients, with HPV and early events, have uptake; after thirty epochs both answers tell them apart."""
    small_network["EPOCHS"], small_network["BATCH"] = 30, 12
    marked = np.arange(24) % 2 == 0
    cubes = np.random.default_rng(1).normal(0, 0.1, (24, 4, 18, 18, 18)).astype(np.float16)
    cubes[marked, 1, 5:13, 5:13, 5:13] += 2
    cubes[:, 2] = 0
    cubes[:, 2, 5:13, 5:13, 5:13] = 1
    ids = [str(number) for number in range(24)]
    clinical = pd.DataFrame({"age_years": 60.0}, ids)
    days = np.where(marked, 100.0, 1000.0) + np.arange(24)
    outcomes = pd.DataFrame({"rfs_days": days, "rfs_event": 1.0, "hpv": marked.astype(float)}, ids)
    features = small_network["Features"]
    features.fit(tmp_path, "cpu", PatientCubes(cubes, np.arange(24)), clinical, outcomes, 0)
    fitted = features(tmp_path, "cpu")
    inner = cubes[:, :, 1:17, 1:17, 1:17].astype(np.float32)
    rows = pd.DataFrame([fitted.measure(cube, {"age_years": 60.0}) for cube in inner])
    assert rows[marked].min().min() > rows[~marked].max().max()


@pytest.mark.slow
def test_the_commands_of_the_readme(
    small_network: dict[str, Any],
    work_and_masks: tuple[WorkFolders, Path],
    tiny_package: Path,
    tmp_path: Path,
    case_folder: CaseFolder,
) -> None:
    """Fit heads on the answers of both folds' networks, and a package that measures them in a case."""
    work, masks = work_and_masks
    heads, _, export, _ = read_commands("deep_outcome")
    run([*heads, "--masks", str(masks), "--jobs", "1", "--device", "cpu"], tmp_path, WORK=str(work.root))
    rows = read_json(work.root / "features" / "deep_outcome" / "features.json")["features"]
    assert {name for row in rows.values() for name in row} == {"deep_outcome:rfs", "deep_outcome:hpv"}
    records = read_json(work.heads_json)
    assert "Cox, few features, custom features" in records["rfs"]["tried"]
    assert "logistic, few features, custom features" in records["hpv"]["tried"]
    assert read_json(work.cross_validation_json)["rfs"]["left_out_features"] == ["deep_outcome:rfs", "deep_outcome:hpv"]
    use_networks(work, tiny_package, (9.0, 9.0, 9.0))
    package = tmp_path / "package"
    run(export, tmp_path, WORK=str(work.root), PACKAGE=str(package))
    (hook,) = load_package(package, Code.from_folders([FOLDER])).features
    assert [fold.name for fold in hook.folds] == ["fold_0", "fold_1"]
    record = Predictor(package, task="2", device="cpu", code=[FOLDER]).predict(case_folder.write().input).record
    assert "features of deep_outcome" in record.seconds
