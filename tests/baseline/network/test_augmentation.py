"""PETs that are absent in training, or scaled by fixed values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms

from algorithm.network.images import normalise
from baseline.network.augmentation import AbsentPet, absent_pet, with_absent_pets
from baseline.work import WorkFolders
from contract.files import read_json
from contract.images.volumes import read_volume
from tests.baseline.network.conftest import UNET, MakeTrainer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
INTENSITIES = {
    "0": {"mean": 0.0, "std": 400.0, "percentile_00_5": -1000.0, "percentile_99_5": 1000.0},
    "1": {"mean": 4.0, "std": 2.0, "percentile_00_5": 0.5, "percentile_99_5": 20.0},
}


@pytest.mark.parametrize(("scheme", "value"), [("CTNormalization", -1.75), ("ZScoreNormalization", 0.0)])
def test_an_absent_pet_is_what_inference_makes_of_it(scheme: str, value: float) -> None:
    """SUV 0 is clipped to 0.5, and (0.5 - 4) / 2 = -1.75; a z-score of zeros is 0."""
    configuration = {"normalization_schemes": ["CTNormalization", scheme]}
    assert absent_pet(configuration, INTENSITIES) == value
    package: Any = SimpleNamespace(configuration=configuration, intensities=INTENSITIES, channel_sources=(0, 1))
    nothing = np.zeros((2, 2, 2), dtype=np.float32)
    assert (normalise((nothing, nothing), package)[1] == value).all()


def test_the_dropout_comes_last() -> None:
    """Nothing else can change the channel after it."""
    first = ComposeTransforms([])
    *before, last = with_absent_pets(ComposeTransforms([first]), 0.2, 0.0).transforms
    assert before == [first]
    assert last.apply_probability == 0.2
    assert isinstance(last.transform, AbsentPet)


def test_the_trainer_draws_patches_without_pet(make_trainer: MakeTrainer) -> None:
    for probability, absent in ((1.0, True), (0.0, False)):
        loader, _ = make_trainer(UNET.changed(pet_dropout=probability)).get_dataloaders()
        data = next(loader)["data"]
        assert bool((data[:, 1] == 0).all()) is absent
        assert not bool((data[:, 0] == 0).all())


def test_a_fixed_scale_of_the_pet_in_training_and_inference(planned: WorkFolders) -> None:
    """For a foreground of mean 0, spread 50 and percentiles of 500 on either side the PET is clipped to those and
    divided by 50, whatever else is in the image.
    """
    from nnunetv2.preprocessing.preprocessors.default_preprocessor import DefaultPreprocessor
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    plans = read_json(planned.plans)
    statistics = {"mean": 0.0, "std": 50.0, "percentile_00_5": -500.0, "percentile_99_5": 500.0}
    plans["foreground_intensity_properties_per_channel"] = {"0": statistics, "1": statistics}
    configuration = plans["configurations"]["3d_fullres"]
    configuration["normalization_schemes"] = ["CTNormalization", "CTNormalization"]  # as `fixed` plans
    images = [planned.raw / "imagesTr" / f"A-1_000{channel}.nii.gz" for channel in (0, 1)]
    manager = PlansManager(plans)
    own = manager.get_configuration("3d_fullres"), read_json(planned.raw / "dataset.json")
    data, *_ = DefaultPreprocessor(verbose=False).run_case([str(one) for one in images], None, manager, *own)
    ct, pet = (read_volume(one, "float32").array for one in images)
    np.testing.assert_allclose(data[1], pet.clip(-500, 500) / 50, atol=1e-5)
    package: Any = SimpleNamespace(
        configuration=configuration,
        intensities=plans["foreground_intensity_properties_per_channel"],
        channel_sources=(0, 1),
    )
    np.testing.assert_allclose(normalise((ct, pet), package), data, atol=1e-5)
