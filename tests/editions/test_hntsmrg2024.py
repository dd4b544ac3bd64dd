"""HNTS-MRG 2024 on phantoms of two visits: the earlier mask as answer, and refused tasks and images.

A training, its package in an image and their scores: `tests/containers/test_hntsmrg2024.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from algorithm.cli import main as predict
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import find_single_image, read_volume, write_mask
from contract.io.files import read_json
from evaluation import evaluate
from tests.visits import EDITION, make_visits


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one patient in the platform's layout."""
    return make_visits(tmp_path_factory.mktemp("visits"))


def test_the_null_algorithm_answers_with_the_registered_mask(cohort: Path, tmp_path: Path) -> None:
    case, record = cohort / "MDA-001" / "input", tmp_path / "record.json"
    call = ["--input", str(case), "--edition", EDITION, "--task", "mid-rt", "--record", str(record)]
    assert predict([*call, "--output", str(tmp_path / "out"), "--method", "earlier-mask"]) == 0
    answer = read_volume(find_single_image(tmp_path / "out" / "images" / "mri-head-neck-segmentation"))
    earlier = read_volume(find_single_image(case / "images" / "registered-pre-rt-head-neck-segmentation"))
    np.testing.assert_array_equal(answer.array, earlier.array)
    content = read_json(record)
    assert (content["segmented_by"], content["region"]["found_by"]) == ("earlier mask", "the whole scan")
    assert list(content["images"]) == ["MR"]

    masks = tmp_path / "masks"
    masks.mkdir()
    write_mask(masks / "MDA-001.mha", answer.array, answer.geometry)
    truth = cohort / "ground_truth_mid-rt"
    result = evaluate(truth, predictions=masks, edition=EDITION, task="mid-rt", bootstraps=0)
    reference = read_volume(truth / "MDA-001.mha").array
    both, sizes = ((reference == 1) & (earlier.array == 1)).sum(), (reference == 1).sum() + (earlier.array == 1).sum()
    assert result.aggregates["gtvp_dsc_agg"].value == pytest.approx(2 * both / sizes)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("mid-rt", ["--method", "threshold"], "method 'threshold': cannot answer task mid-rt"),
        ("pre-rt", ["--method", "earlier-mask"], "method 'earlier-mask': cannot answer task pre-rt"),
        ("pre-rt", [], "none shipped for hntsmrg2024"),
    ],
)
def test_tasks_without_a_method_are_refused(
    cohort: Path, tmp_path: Path, task: str, options: list[str], message: str
) -> None:
    call = ["--input", str(cohort / "MDA-001" / "input"), "--output", str(tmp_path), "--edition", EDITION]
    with pytest.raises(HecktorError, match=message):
        predict(["--task", task, *call, *options])


def test_a_registered_image_elsewhere_is_named(cohort: Path, tmp_path: Path) -> None:
    """Registered masks must overlap the MR; this one lies a metre away."""
    shutil.copytree(cohort / "MDA-001" / "input", tmp_path / "input")
    path = find_single_image(tmp_path / "input" / "images" / "registered-pre-rt-head-neck-segmentation")
    mask = read_volume(path)
    x, y, z = mask.geometry.origin_mm
    write_mask(path, mask.array, Geometry(mask.geometry.size, mask.geometry.spacing_mm, (x + 1000, y, z)))
    call = ["--input", str(tmp_path / "input"), "--output", str(tmp_path / "out"), "--edition", EDITION]
    with pytest.raises(HecktorError, match=r"does not overlap"):
        predict(["--task", "mid-rt", *call, "--method", "earlier-mask"])
