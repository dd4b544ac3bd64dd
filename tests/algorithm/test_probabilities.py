"""Class probabilities beside an answer, on the network's grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.deadline import NoPassFitsError
from algorithm.network.passes import Passes
from algorithm.region.grids import restore_labels
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume
from contract.io.files import read_json

FILE = "probabilities.npz"


@pytest.mark.parametrize("task", ["segmentation", "rfs"])
def test_they_are_those_of_the_mask_and_change_no_answer(
    predict: Any, case_folder: Any, tmp_path: Path, task: str
) -> None:
    """They sum to 1 in half precision, give the written mask on the CT's grid, and the expected DSC of the record."""
    case_folder.write()
    plain, output, folder = predict(task), tmp_path / "output", tmp_path / "beside"
    before = {name: (output / name).read_bytes() for name in plain.files}
    asked = predict(task, "--probabilities", str(folder), "--record", str(tmp_path / "record.json"))
    assert {name: (output / name).read_bytes() for name in asked.files} == before
    with np.load(folder / FILE) as stored:
        p, names = stored["probabilities"], stored["labels"].tolist()
        grid = Geometry(
            p.shape[:0:-1], tuple(stored["spacing_mm"]), tuple(stored["origin_mm"]), tuple(stored["direction"].ravel())
        )
    assert (p.dtype, names) == (np.float16, ["background", "GTVp", "GTVn"])
    p = p.astype(np.float32)
    np.testing.assert_allclose(p.sum(0), 1, atol=2e-3)
    mask, expected = p.argmax(0), read_json(tmp_path / "record.json")["expected_dsc"]
    for label in (1, 2):
        own = mask == label
        assert expected[names[label]] == pytest.approx(2 * p[label][own].sum() / (own.sum() + p[label].sum()), rel=0.01)
    if task == "segmentation":
        written = read_volume(next(output.rglob("*.mha")))
        restored = restore_labels(np.log(np.maximum(p, 1e-7)), grid, written.geometry)
        assert (restored == written.array).mean() > 0.999


def test_without_a_pass_there_are_none(
    predict: Any, case_folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier case left is gone; the record has no expected DSC."""

    def nothing(self: Passes) -> None:
        raise NoPassFitsError("no time")

    case_folder.write()
    (tmp_path / FILE).write_bytes(b"of an earlier case")
    monkeypatch.setattr(Passes, "make_first", nothing)
    answer = predict("hpv", "--probabilities", str(tmp_path), "--record", str(tmp_path / "record.json"))
    assert answer.status == 0
    assert not (tmp_path / FILE).exists()
    assert any("no probabilities are written" in line for line in answer.lines)
    assert read_json(tmp_path / "record.json")["expected_dsc"] == {}


def test_a_folder_that_cannot_be_used_is_named_before_any_work(predict: Any, case_folder: Any, tmp_path: Path) -> None:
    case_folder.write()
    (tmp_path / "file").write_text("")
    answer = predict("rfs", "--probabilities", str(tmp_path / "file" / "below"), "--passes", "1")
    assert (answer.status, answer.files) == (1, [])
    assert "--probabilities: probabilities.npz cannot be replaced" in answer.lines[-1]


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("segmentation", ("--serve",), "found with --serve, expected one of them"),
        ("segmentation", ("--method", "threshold"), "method 'threshold' makes no passes, expected 'baseline'"),
        ("rfs", ("--method", "clinical"), "method 'clinical' makes no passes, expected 'baseline'"),
    ],
)
def test_they_are_refused_without_passes_or_with_a_server(
    predict: Any, case_folder: Any, tmp_path: Path, task: str, options: tuple[str, ...], message: str
) -> None:
    case_folder.write()
    refused = predict(task, "--probabilities", str(tmp_path / "beside"), *options)
    assert (refused.status, refused.files) == (1, [])
    assert message in refused.lines[-1]


@pytest.mark.parametrize("place", ["output", "output/images", "input", "output/../input/images"])
def test_socket_folders_are_refused(predict: Any, case_folder: Any, tmp_path: Path, place: str) -> None:
    case_folder.write()
    before = sorted(tmp_path.rglob("*"))
    refused = predict("segmentation", "--probabilities", str(tmp_path / place))
    assert refused.status == 1
    assert "which may hold the platform's sockets only, expected a path outside" in refused.lines[-1]
    assert sorted(tmp_path.rglob("*")) == before
