"""Custom features that were fitted over folds: their mean in a case, and everything that omits them."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from algorithm.answers import NoFeatures, measure
from algorithm.case.read import Case
from algorithm.deadline import Deadline
from algorithm.heads.documents import Features
from algorithm.heads.feature_hook import FeatureHook, FeatureImages
from algorithm.masks.segmentation import CaseSegmentation, MaskSource, Segmentation
from algorithm.network.loaded_package import DEFAULT_PACKAGE, LoadedPackage
from algorithm.network.package import load_package
from algorithm.output import RunContext
from algorithm.request import METHODS, PredictRequest
from contract.code import Code
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.packages import MANIFEST
from contract.patient import Patient
from tests.algorithm.combined.four_answers import (
    SURVIVAL,
    answer_rfs_by,
    predict_case,
    read_values,
    write_code,
    write_heads,
)
from tests.algorithm.edition import COMBINED, EDITION_2026
from tests.conftest import CaseFolder, head_json
from tests.faults.fake_card import fake_card

NAME = "my_code:risk"
CODE = """
import torch

class Features:
    names = {"risk": "SD"}
    cube = (16, 8.0)

    @classmethod
    def fit(cls, folder, device, cubes, clinical, outcomes, seed):
        raise NotImplementedError

    def __init__(self, folder, device):
        self.value, self.device = float((folder / "value.txt").read_text()), device

    def measure(self, cube, clinical):
        assert cube.shape == (4, 16, 16, 16)
        return {"risk": torch.tensor(self.value).to(self.device).item()}
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write_code(tmp_path, CODE)


@pytest.fixture
def fitted_package(package: Path, code: Path) -> Path:
    """Sign a package with two folds that answer 0.5 and 1.5; the head of RFS has the weight 0.25 on their mean and the
    intercept 0.5.
    """
    for fold, value in enumerate((0.5, 1.5)):
        folder = package / "features" / "my_code" / f"fold_{fold}"
        folder.mkdir(parents=True)
        (folder / "value.txt").write_text(str(value))
    write_heads(package, rfs=answer_rfs_by(**head_json((NAME, 0.25))), code=code)
    return package


@pytest.fixture
def hook(fitted_package: Path, code: Path) -> FeatureHook:
    (hook,) = load_package(fitted_package, Code.from_folders([code])).features
    return hook


def make_segmentation(tumour: bool = True, pet: bool = True) -> Segmentation:
    grid = Geometry((24, 24, 24), (4.0, 4.0, 4.0), (0.0, 0.0, 0.0))
    mask = np.zeros(grid.array_shape, dtype=np.uint8)
    mask[10:14, 10:14, 10:14] = tumour
    image = np.zeros(grid.array_shape, dtype=np.float32)
    return Segmentation.from_mask(mask, image, image + 1 if pet else None, grid)


def make_run(package: Path, *code: Path) -> RunContext:
    request = PredictRequest(EDITION_2026, COMBINED, METHODS["baseline"], package, None, "cpu", 600)
    return RunContext(request, LoadedPackage(package, "cpu", code))


def measure_features(
    run: RunContext, case: Segmentation, by: MaskSource = MaskSource.NETWORK, *, with_user_code: bool = True
) -> Features:
    scan = Case(Volume(case.ct, case.grid), None, Patient())
    patient = measure(run, CaseSegmentation(scan, by, case), with_user_code=with_user_code)
    assert not isinstance(patient, NoFeatures)
    return patient.features


def measure_by_hook(hook: FeatureHook, case: Segmentation, deadline: Deadline) -> Features:
    return hook.measure_features(FeatureImages(case.mask(), case.ct, case.pet, case.grid, None, {}), deadline)


def test_a_case_gets_the_mean_of_the_folds(case: CaseFolder, fitted_package: Path, code: Path) -> None:
    """The folds answer 0.5 and 1.5, so the feature is 1 and the score 0.5 + 0.25 = 0.75."""
    record = predict_case(case, fitted_package, code).record
    assert read_values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.75))
    assert record.fallbacks == ()
    assert record.seconds["features of my_code"] > 0


def test_a_lost_card_leaves_the_features_to_the_cpu(
    fitted_package: Path, code: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(fitted_package, code)
    with fake_card() as card:
        run.loaded.__dict__["device"] = torch.device("cuda", 0)
        card.lost = True
        assert measure_features(run, make_segmentation())[NAME] == 1.0
    assert "features of my_code: cuda:0 failed (CUDA error: unspecified launch failure" in caplog.text


def make_clock(*seconds: float) -> Callable[[], float]:
    """Make a clock that shows these times in turn, then the last one."""
    times: Iterator[float] = iter(seconds)
    last = seconds[-1]
    return lambda: next(times, last)


def test_folds_without_time_are_left_out_of_the_mean(hook: FeatureHook, caplog: pytest.LogCaptureFixture) -> None:
    """Ten of 100 s are reserve. Fold 0 runs from 50 to 75 s; 15 s do not suffice for another 25 s."""
    assert measure_by_hook(hook, make_segmentation(), Deadline(100, make_clock(0.0, 50.0, 50.0, 75.0))) == {NAME: 0.5}
    assert "features of my_code: no time for 1 folds" in caplog.text


def make_stopped_deadline() -> Deadline:
    deadline = Deadline(600)
    deadline.stop()
    return deadline


@pytest.mark.parametrize(
    ("case", "deadline", "line"),
    [
        (make_segmentation(tumour=False), lambda: Deadline(600), "no tumour"),
        (make_segmentation(pet=False), lambda: Deadline(600), "no PET"),
        (make_segmentation(), lambda: Deadline(100, make_clock(0.0, 91.0)), "no time"),  # the reserve has begun
        (make_segmentation(), make_stopped_deadline, "no time"),
    ],
    ids=["no tumour", "no PET", "reserve", "must end"],
)
def test_features_are_left_out(
    hook: FeatureHook, case: Segmentation, deadline: Callable[[], Deadline], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hecktor")
    assert all(value is None for value in measure_by_hook(hook, case, deadline()).values())
    assert f"features of my_code: left out, {line}" in caplog.text


def test_a_threshold_mask_is_measured_without_the_package(tmp_path: Path) -> None:
    """64 voxels have 0.064 ml each. The package may take too long to load, or only its manifest may be usable."""
    shutil.copyfile(DEFAULT_PACKAGE / MANIFEST, tmp_path / MANIFEST)
    features = measure_features(make_run(tmp_path), make_segmentation(), MaskSource.PET_THRESHOLD, with_user_code=False)
    assert features["gtvp_volume_ml"] == pytest.approx(4.096)


def test_without_a_segmentation_a_head_that_sees_images_gets_nan(fitted_package: Path, code: Path) -> None:
    """Training does the same for a patient without a PET or a tumour."""
    case = Case(Volume(make_segmentation().ct, make_segmentation().grid), None, Patient())
    patient = measure(make_run(fitted_package, code), CaseSegmentation(case, MaskSource.NOTHING))
    assert not isinstance(patient, NoFeatures)
    cubes = patient.cubes
    assert cubes is not None
    np.testing.assert_array_equal(cubes(3, 2.0), np.full((1, 4, 3, 3, 3), np.nan))


@pytest.mark.parametrize("by", [MaskSource.CONTOURS, MaskSource.PET_THRESHOLD])
def test_contours_are_measured_by_fitted_hooks_but_no_mask_of_the_pet_threshold(
    fitted_package: Path, code: Path, by: MaskSource
) -> None:
    features = measure_features(make_run(fitted_package, code), make_segmentation(), by)
    assert features.get(NAME) == (1.0 if by is MaskSource.CONTOURS else None)


def test_a_file_that_is_not_listed_is_refused(fitted_package: Path, code: Path) -> None:
    (fitted_package / "features" / "my_code" / "more.txt").write_text("")
    with pytest.raises(ModelPackageError, match=r"^manifest\.json: does not list features/my_code/more\.txt"):
        load_package(fitted_package, Code.from_folders([code]))
