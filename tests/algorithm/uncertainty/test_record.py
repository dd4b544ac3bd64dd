"""Uncertainty by hand on four voxels, then end to end beside unchanged answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import conclude, pipeline
from algorithm.deadline import Deadline, Termination
from algorithm.heads.methods import METHODS
from algorithm.masks.confidence import expected_dsc, lesions_of
from algorithm.masks.segmentation import Segmentation
from algorithm.network.passes import NoPassFitsError, Passes
from algorithm.network.resident import Resident
from algorithm.network.windows import Pass
from algorithm.pipeline import predict
from algorithm.prediction import PredictRequest
from algorithm.region.grids import restore_bytes
from algorithm.uncertainty.disagreement import Disagreement
from algorithm.uncertainty.record import (
    describe,
    prepare_folder,
)
from contract.editions import Algorithm
from contract.errors import OutputError
from contract.files import read_json
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume
from tests.algorithm.edition import EDITION, HPV, RFS, SEGMENTATION
from tests.algorithm.uncertainty.two_passes import FIRST, SECOND

MASK = f"{SEGMENTATION.answers[0].socket.relative_path}/output.mha"
GRID = Geometry((2, 2, 1), (2.0, 3.0, 4.0), (10.0, 20.0, 30.0))


def both_passes() -> tuple[Segmentation, Disagreement]:
    """The two passes of four voxels, whose averaged logits leave the second voxel to the background."""
    disagreement = Disagreement()
    disagreement.add(Pass(0), FIRST)
    disagreement.add(Pass(1), SECOND)
    empty = np.zeros(GRID.array_shape, np.float32)
    return Segmentation((FIRST + SECOND) / 2, empty, None, GRID, 2, 4, "by hand"), disagreement


def test_four_voxels_by_hand() -> None:
    """GTVp's probabilities are 1/2, 3/8, 3/4, 1/8 and its mask the first and third voxel, each 0.024 ml.

    Expected DSC: 2 (1/2 + 3/4) / (2 + 7/4) = 2/3. Expected volume: 7/4 voxels. The lesion lies at x 10 and between
    y 20 and 23; both passes have all of it. GTVn is in no mask, but 3/4 of a voxel of it is expected.
    """
    record = describe(*both_passes())
    assert record["passes"]["done"] == 2
    assert record["passes"]["planned"] == 4
    assert record["why_not"] is None
    primary, nodes = record["labels"]["GTVp"], record["labels"]["GTVn"]
    expected = {"volume_ml": 0.048, "expected_volume_ml": 0.042, "expected_dsc": 2 / 3, "pairwise_dsc": 0.8}
    assert primary == pytest.approx(expected, rel=1e-5)
    assert nodes == {
        "volume_ml": 0.0,
        "expected_volume_ml": pytest.approx(0.018),
        "expected_dsc": None,
        "pairwise_dsc": None,
    }
    (lesion,) = record["lesions"]
    assert lesion.pop("label") == "GTVp"
    assert lesion.pop("centroid_mm") == [10.0, 21.5, 30.0]
    assert lesion == pytest.approx({"volume_ml": 0.048, "mean_probability": 0.625, "found_by": 1, "mean_overlap": 1})


def test_a_lesion_in_only_some_passes() -> None:
    """The mask of the second pass is three voxels, all of one lesion: the first pass has two of them."""
    segmentation, disagreement = both_passes()
    second = Segmentation(SECOND, segmentation.ct, None, GRID, 2, 2, "by hand")
    (lesion,) = describe(second, disagreement)["lesions"]
    assert lesion["found_by"] == 1
    assert lesion["mean_overlap"] == pytest.approx((2 / 3 + 1) / 2)
    assert lesion["mean_probability"] == pytest.approx((1 / 2 + 3 / 8 + 3 / 4) / 3)


def test_expected_dsc_against_all_truths() -> None:
    """Eight independent voxels, all 256 truths: the true expectation of the DSC is within 0.03 of the ratio."""
    p = np.array([0.95, 0.9, 0.8, 0.7, 0.6, 0.3, 0.2, 0.05])
    mask = p > 0.5
    truths = (np.arange(256)[:, None] >> np.arange(8)) & 1
    weight = np.where(truths == 1, p, 1 - p).prod(1)
    dsc = 2 * truths[:, mask].sum(1) / (truths.sum(1) + mask.sum())
    assert expected_dsc(mask, p.astype(np.float32)) == pytest.approx(float(weight @ dsc), abs=0.03)


def test_lesions_touch_by_corners() -> None:
    """Two voxels that touch by a corner are one lesion, a third one apart is another; the largest comes first."""
    mask = np.zeros((4, 4, 4), np.uint8)
    mask[3, 3, 3] = mask[0, 0, 0] = mask[1, 1, 1] = 2
    assert [found.tolist() for found in lesions_of(mask, 2)] == [[0, 21], [63]]
    assert lesions_of(mask, 1) == []


def test_a_map_on_the_cts_grid_is_in_hundredths_of_a_bit() -> None:
    """1.5 and 0.25 bits at x = 10 and 12; 10.5 lies a quarter of the way, 11.5 three quarters, 13.5 beyond."""
    values = np.array([[[1.5, 0.25]]], np.float32)
    ct = Geometry((5, 1, 1), (1.0, 3.0, 4.0), (9.5, 20.0, 30.0))
    found = restore_bytes(values, Geometry((2, 1, 1), (2.0, 3.0, 4.0), (10.0, 20.0, 30.0)), ct, 100)
    assert found.dtype == np.uint8
    assert found.ravel().tolist() == [150, 119, 56, 25, 0]
    far = Geometry((2, 1, 1), (1.0, 3.0, 4.0), (900.0, 20.0, 30.0))
    assert not restore_bytes(values, GRID, far, 100).any()


# End to end


@pytest.mark.parametrize("task", ["segmentation", "rfs", "hpv"])
def test_the_answer_is_the_same_with_and_without_uncertainty(
    predict: Any, case_folder: Any, tmp_path: Path, task: str
) -> None:
    """Two folds and one mirror axis are four passes; the output folder holds the socket and nothing else."""
    case_folder.write()
    plain = predict(task)
    before = {name: (tmp_path / "output" / name).read_bytes() for name in plain.files}
    folder = tmp_path / "beside"
    asked = predict(task, "--uncertainty", str(folder), "--time-limit", "300")
    assert asked.status == 0
    assert {name: (tmp_path / "output" / name).read_bytes() for name in asked.files} == before
    assert sorted(path.name for path in folder.iterdir()) == [
        "disagreement.mha",
        "uncertainty.json",
        "uncertainty.mha",
    ]
    record = read_json(folder / "uncertainty.json")
    assert [(row["fold"], row["mirrored"]) for row in record["passes"]["made"]] == [
        (0, []),
        (1, []),
        (0, [2]),
        (1, [2]),
    ]
    for name in ("uncertainty.mha", "disagreement.mha"):
        shown = read_volume(folder / name)
        assert shown.geometry.differences(case_folder.ct.geometry) == []
        assert shown.array.dtype == np.uint8
        assert 0 < shown.array.max() <= 159
    for label in ("GTVp", "GTVn"):
        row = record["labels"][label]
        assert row["expected_dsc"] is None or 0 <= row["expected_dsc"] <= 1
    assert any(row["expected_dsc"] is not None for row in record["labels"].values())


def test_with_one_pass_nothing_is_compared(predict: Any, case_folder: Any, tmp_path: Path) -> None:
    """No map of disagreement; what an earlier run left is gone."""
    case_folder.write()
    folder = tmp_path / "beside"
    assert predict("rfs", "--uncertainty", str(folder)).status == 0
    assert predict("rfs", "--uncertainty", str(folder), "--passes", "1").status == 0
    assert sorted(path.name for path in folder.iterdir()) == ["uncertainty.json", "uncertainty.mha"]
    record = read_json(folder / "uncertainty.json")
    assert all(row["pairwise_dsc"] is None for row in record["labels"].values())
    assert all(row["found_by"] is None and row["mean_probability"] is not None for row in record["lesions"])


@pytest.mark.parametrize("place", ["output", "output/images", "input", "output/../input/images"])
def test_socket_folders_are_refused(predict: Any, case_folder: Any, tmp_path: Path, place: str) -> None:
    case_folder.write()
    before = sorted(tmp_path.rglob("*"))
    refused = predict("segmentation", "--uncertainty", str(tmp_path / place))
    assert refused.status == 1
    assert "which may hold the platform's sockets only, expected a path outside" in refused.lines[-1]
    assert sorted(tmp_path.rglob("*")) == before


def test_the_platforms_folder_and_links_into_sockets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "output")
    for folder in (tmp_path / "link" / "more", Path("/output/more")):
        with pytest.raises(OutputError, match="expected a path outside"):
            prepare_folder(folder, [tmp_path / "input"], tmp_path / "output")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file cannot be used"):
        prepare_folder(tmp_path / "file", [tmp_path / "input"], tmp_path / "output")


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("segmentation", ("--serve",), "found with --serve, expected one of them"),
        ("segmentation", ("--method", "threshold"), "method 'threshold' makes no passes, expected 'baseline'"),
        ("rfs", ("--method", "clinical"), "method 'clinical' makes no passes, expected 'baseline'"),
    ],
)
def test_the_uncertainty_is_refused_without_passes_or_with_a_server(
    predict: Any, case_folder: Any, tmp_path: Path, task: str, options: tuple[str, ...], message: str
) -> None:
    case_folder.write()
    refused = predict(task, "--uncertainty", str(tmp_path / "beside"), *options)
    assert refused.status == 1
    assert message in refused.lines[-1]
    assert refused.files == []


# Early ends and faults


@pytest.fixture
def request_for(case_folder: Any, tmp_path: Path) -> Callable[..., PredictRequest]:
    case_folder.write()

    def make(task: Algorithm = SEGMENTATION, time_limit_s: float = 600.0) -> PredictRequest:
        return PredictRequest(
            EDITION,
            task,
            METHODS["baseline"],
            case_folder.input,
            case_folder.output,
            "cpu",
            time_limit_s,
            uncertainty_dir=tmp_path / "beside",
        )

    return make


@pytest.fixture
def resident(tiny_package: Path) -> Resident:
    return Resident(tiny_package, "cpu")


def answered(request: PredictRequest, resident: Resident, termination: Termination | None = None) -> dict[str, Any]:
    """The uncertainty beside an answer, which must be there."""
    predict(request, resident, termination)
    assert request.algorithm.answers[0].socket.path_under(request.output_dir).exists()
    assert request.uncertainty_dir is not None
    found: dict[str, Any] = read_json(request.uncertainty_dir / "uncertainty.json")
    return found


def test_the_threshold_has_no_uncertainty(
    request_for: Callable[..., PredictRequest], resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(self: Passes) -> None:
        raise NoPassFitsError("no time")

    monkeypatch.setattr(Passes, "run", nothing)
    record = answered(request_for(HPV), resident)
    assert record["why_not"] == "no pass of the network was made"
    assert record["segmented_by"] == "PET threshold"
    assert record["passes"] == {"done": 0, "planned": 0, "made": []}
    assert any(row["volume_ml"] > 0 for row in record["labels"].values())
    assert {row["expected_dsc"] for row in record["labels"].values()} == {None}
    assert {row["mean_probability"] for row in record["lesions"]} == {None}


def test_an_early_end_describes_the_completed_passes(
    request_for: Callable[..., PredictRequest], resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is asked for in the second pass, which is not made: one pass of four counts."""
    termination, real = Termination(), Passes._whole_pass

    def second_hangs(self: Passes, step: Any) -> Any:
        if step != self.passes[0]:
            termination.request()
            while not self.deadline.stopped():
                time.sleep(0.01)
        return real(self, step)

    monkeypatch.setattr(Passes, "_whole_pass", second_hangs)
    request = request_for(RFS)
    record = answered(request, resident, termination)
    assert (record["passes"]["done"], record["passes"]["planned"]) == (1, 4)


def test_only_the_record_is_written_when_time_is_up(
    request_for: Callable[..., PredictRequest],
    resident: Resident,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    request, real = request_for(RFS), pipeline.write_uncertainty

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(Deadline, "overdue", lambda _: True)
        real(*arguments)

    monkeypatch.setattr(pipeline, "write_uncertainty", late)
    record = answered(request, resident)
    assert record["labels"]["GTVp"]["volume_ml"] is not None
    assert request.uncertainty_dir is not None
    assert [path.name for path in request.uncertainty_dir.iterdir()] == ["uncertainty.json"]
    assert "no time for the maps" in caplog.text


def test_an_uncertainty_that_cannot_be_written_leaves_the_answer(
    request_for: Callable[..., PredictRequest],
    resident: Resident,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> None:
        raise OutputError("uncertainty.json: no space left")

    monkeypatch.setattr(conclude, "write_json", refuse)
    request = request_for()
    predict(request, resident)
    assert (request.output_dir / MASK).is_file()
    assert "the uncertainty is incomplete: uncertainty.json: no space left" in caplog.text
