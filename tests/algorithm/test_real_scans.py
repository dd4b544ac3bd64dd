"""The shipped package segments a real PET/CT, which shows a limb and so no landmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithm import Predictor
from contract.images.volumes import read_header


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("patient", ["STS_001", "STS_035"])
def test_a_real_limb_is_segmented_in_an_unsure_region(sts_scans: Path, patient: str) -> None:
    """The network answers, without a fallback, on the grid of the CT."""
    ct, pet = (sts_scans / patient / f"{name}_image.nii.gz" for name in ("CT", "PET"))
    prediction = Predictor(device="cpu", passes=1).predict_files(ct, pet)
    assert (prediction.record.passes_done, list(prediction.record.fallbacks)) == (1, [])
    assert "the region is unsure" in [notice.action for notice in prediction.record.notices]
    assert prediction.mask is not None
    assert prediction.mask.shape == read_header(ct).geometry.array_shape
    assert set(np.unique(prediction.mask)) <= {0, 1, 2}
