"""Planning with one job: in this process alone, with the results of nnU-Net's pools."""

from __future__ import annotations

from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.network.in_process import without_pools
from baseline.network.nnunet import set_environment
from baseline.work import WorkFolders
from contract.files import read_json
from tests.baseline.network.conftest import PATIENTS, plan_noise, write_raw

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def names(work: WorkFolders) -> list[str]:
    return sorted(path.relative_to(work.root).as_posix() for path in work.root.rglob("*"))


def images(work: WorkFolders) -> list[Any]:
    """The preprocessed channels and labels of both patients."""
    from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2

    set_environment(work, augmentation_workers=1)
    data = nnUNetDatasetBlosc2(str(work.preprocessed / "hecktorPlans_3d_fullres"))
    return [np.asarray(array) for patient in PATIENTS for array in data.load_case(patient)[:2]]


def test_one_job_starts_no_process(planned: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned again, the noise has the same fingerprint, plans and images."""

    def no_start(_: BaseProcess) -> None:
        raise AssertionError("a process")

    monkeypatch.setattr(BaseProcess, "start", no_start)
    work = WorkFolders(tmp_path)
    write_raw(work)
    plan_noise(work, jobs=1)
    check_same(work, planned)


@pytest.mark.slow
def test_pools_give_the_same(planned: WorkFolders, tmp_path: Path) -> None:
    work = WorkFolders(tmp_path)
    write_raw(work)
    plan_noise(work, jobs=2)
    check_same(work, planned)


def check_same(work: WorkFolders, other: WorkFolders) -> None:
    for name in ("dataset_fingerprint.json", "hecktorPlans.json"):
        assert read_json(work.preprocessed / name) == read_json(other.preprocessed / name)
    assert names(work) == [name for name in names(other) if "results/" not in name]
    for one, two in zip(images(work), images(other), strict=True):
        np.testing.assert_array_equal(one, two)


def test_an_error_is_raised_at_once_and_the_pools_are_back() -> None:
    from nnunetv2.preprocessing.preprocessors import default_preprocessor as module
    from nnunetv2.utilities import utils

    before = module.multiprocessing, utils.Pool
    with (
        pytest.raises(ZeroDivisionError),
        without_pools(1),
        module.multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        pool.starmap_async(divmod, [(1, 0)])
    assert (module.multiprocessing, utils.Pool) == before
    with without_pools(2):
        assert module.multiprocessing is before[0]
