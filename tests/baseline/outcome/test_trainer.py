"""Training of one outcome network on random cubes, also with intervals of time and jointly with a segmentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from algorithm.outcome.network import OutcomeFeatures, OutcomeNetwork
from algorithm.outcome.plan import OutcomePlan, OutcomeTask, plan_of
from baseline.heads.cubes import CubesOf
from baseline.network.plans import OutcomePreset
from baseline.outcome.cohort import with_intervals
from baseline.outcome.decoder import SegmentationDecoder, encoder_stages
from baseline.outcome.losses import mask_loss
from baseline.outcome.trainer import OutcomeFit
from contract.errors import HecktorError

PLAN = OutcomePlan(voxels=16, spacing_mm=8.0, width=2, clinical=("age",), tasks=(OutcomeTask(answer="hpv"),))
PRESET = OutcomePreset(voxels=16, spacing_mm=8.0, width=2, epochs=1, batch_size=4)


def test_a_fit_writes_what_the_hook_measures_with(tmp_path: Path) -> None:
    """Four patients, half of them positive; their answers are standardised: mean 0, SD 1."""
    cubes = np.random.default_rng(0).random((4, 4, 18, 18, 18)).astype(np.float16)
    ids = ["a", "b", "c", "d"]
    clinical = pd.DataFrame({"age": [60.0, np.nan, 70.0, 50.0]}, ids)
    outcomes = pd.DataFrame({"hpv": [0.0, 1.0, 0.0, 1.0], "rfs_days": 1.0, "rfs_event": np.nan}, ids)
    line = OutcomeFit(PLAN, PRESET, 1)(tmp_path, "cpu", CubesOf(cubes, np.arange(4)), clinical, outcomes, 0)
    assert line.startswith("loss ")
    hook = OutcomeFeatures(tmp_path, "cpu")
    assert hook.cube == (16, 8.0)
    inner = cubes[:, :, 1:17, 1:17, 1:17].astype(np.float32)
    rows = [hook.measure(cube, {"age": age}) for cube, age in zip(inner, (60.0, None, 70.0, 50.0), strict=True)]
    values = np.array([row["outcome_hpv"] for row in rows])
    assert values.mean() == pytest.approx(0, abs=1e-4)
    assert values.std() == pytest.approx(1, abs=1e-3)


def test_a_joint_fit_with_intervals_of_time(tmp_path: Path) -> None:
    """Two events, on days 100 and 400: the ends of the intervals are a third and two thirds of the way, 200 and 300.

    The last two channels are the reference masks, which one patient lacks. Only the risk branch is written: its plan and
    weights load without a decoder, and the answer depends on CT and PET alone.
    """
    rng = np.random.default_rng(0)
    cubes = rng.random((5, 6, 18, 18, 18)).astype(np.float16)
    cubes[4, 4:] = np.nan
    ids = list("abcde")
    clinical = pd.DataFrame({"age": [60.0, np.nan, 70.0, 50.0, 65.0]}, ids)
    outcomes = pd.DataFrame({"rfs_days": [100.0, 400.0, 500.0, 50.0, np.nan], "rfs_event": [1, 1, 0, 0, np.nan]}, ids)
    plan = PLAN.model_copy(update={"tasks": (OutcomeTask(answer="rfs"),), "joint": True})
    OutcomeFit(plan, PRESET, 1, "mtlr")(tmp_path, "cpu", CubesOf(cubes, np.arange(5)), clinical, outcomes, 0)
    assert plan_of(tmp_path).tasks == (OutcomeTask(answer="rfs", ends_days=(200.0, 300.0)),)
    hook = OutcomeFeatures(tmp_path, "cpu")
    inner = cubes[:, :4, 1:17, 1:17, 1:17].astype(np.float32)
    values = np.array(
        [hook.measure(one, {"age": a})["outcome_rfs"] for one, a in zip(inner, clinical["age"], strict=True)]
    )
    assert np.isfinite(values).all()
    assert values.std() == pytest.approx(1, abs=1e-2)
    other_mask = inner[0].copy()
    other_mask[2:] = 1 - other_mask[2:]
    assert hook.measure(other_mask, {"age": 60.0})["outcome_rfs"] == values[0]


def test_intervals_need_events() -> None:
    outcomes = pd.DataFrame({"rfs_days": [0.0, 5.0], "rfs_event": [1.0, 0.0]}, ["a", "b"])
    plan = PLAN.model_copy(update={"tasks": (OutcomeTask(answer="rfs"),)})
    with pytest.raises(HecktorError, match=r"^outcome network: rfs: no training patient with an event after day 0"):
        with_intervals(plan, outcomes)


def test_the_segmentation_trains_the_encoder_and_not_the_answers() -> None:
    """The stages end with what the network itself pools; the masks have the cube's size."""
    torch.manual_seed(0)
    plan = PLAN.model_copy(update={"joint": True})
    network, decoder = OutcomeNetwork(plan).eval(), SegmentationDecoder(plan.width).eval()
    images = torch.rand(2, 2, 20, 20, 20)
    stages = encoder_stages(network.image, images)
    torch.testing.assert_close(stages[-1].mean((2, 3, 4)), network.image(images))
    logits = decoder(stages, 20)
    assert logits.shape == (2, 2, 20, 20, 20)
    mask_loss(logits, torch.ones_like(logits)).backward()
    gradient = network.image.conv1.weight.grad
    assert gradient is not None
    assert float(gradient.abs().max()) > 0
    assert network.last.weight.grad is None
