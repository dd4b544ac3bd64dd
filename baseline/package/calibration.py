"""Maps from the expected DSC of the networks to the DSC of out-of-fold masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from baseline.cache import map_items
from baseline.release.cases import ReleaseCase, label_path
from baseline.work import WorkFolders
from contract import labels
from contract.images.volumes import read_volume
from contract.packages import DscCalibration
from contract.processes import count_usable_cpus

# Patients with a mask of a label and a reference below which its expected DSC stays as it is.
MIN_PATIENTS: Final = 30
# Processes take longer to start than fewer patients to read.
_MIN_FOR_PROCESSES: Final = 40
_FULL: Final = np.float32(255)
_Pairs = dict[str, tuple[float, float]]


def fit_calibrations(work: WorkFolders) -> dict[str, DscCalibration]:
    """Fit the map of each label on the out-of-fold probabilities of all patients with a reference.

    Labels with few masks have no map; masks that were given have no probabilities.
    """
    from baseline.release.cases import read_cases

    scored = [case for case in read_cases(work) if case.mask is not None]
    stored = [case for case in scored if work.probabilities(case.patient_id).is_file()]
    if len(stored) < MIN_PATIENTS:
        return {}
    jobs = count_usable_cpus() if len(stored) >= _MIN_FOR_PROCESSES else 1
    found = list(map_items(partial(compare_expected, work=work), stored, jobs, "calibrate the expected DSC"))
    return {
        label: fit_calibration(pairs)
        for label in labels.LESIONS
        if len(pairs := [of_patient[label] for of_patient in found if label in of_patient]) >= MIN_PATIENTS
    }


def fit_calibration(pairs: Sequence[tuple[float, float]]) -> DscCalibration:
    """Fit the isotonic regression of true on expected DSC."""
    from sklearn.isotonic import IsotonicRegression

    expected, true_dsc = np.array(pairs, dtype=np.float64).T
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(expected, true_dsc)
    return DscCalibration(expected=tuple(fitted.X_thresholds_.tolist()), dsc=tuple(fitted.y_thresholds_.tolist()))


def compare_expected(case: ReleaseCase, work: WorkFolders) -> _Pairs:
    """Return expected and true DSC of each label in a patient's out-of-fold mask."""
    with np.load(work.probabilities(case.patient_id)) as content:
        gtvp, gtvn = content["gtvp"], content["gtvn"]
    reference = read_volume(label_path(work.raw, case), np.uint8).array
    return compare_probabilities(gtvp, gtvn, reference)


def compare_probabilities(
    gtvp: npt.NDArray[np.uint8], gtvn: npt.NDArray[np.uint8], reference: npt.NDArray[np.uint8]
) -> _Pairs:
    """Return expected and true DSC of each label of the argmax; probabilities are in steps of 1 / 255."""
    from algorithm.masks.segmentation import argmax, expected_dsc

    first, second = gtvp.astype(np.float32), gtvn.astype(np.float32)
    whole = np.stack([np.maximum(_FULL - first - second, 0), first, second])
    with np.errstate(divide="ignore"):
        logits = np.log(whole / _FULL)
    mask, pairs = argmax(logits), {}
    for number, label in ((number, labels.NAMES[number]) for number in labels.FOREGROUND):
        expected = expected_dsc(logits)[label]
        if expected is not None:
            inside, wanted = mask == number, reference == number
            common = 2 * np.count_nonzero(inside & wanted)
            pairs[label] = (expected, float(common / (np.count_nonzero(inside) + np.count_nonzero(wanted))))
    return pairs


def calibration_entry(work: WorkFolders) -> Mapping[str, Any]:
    """Return the manifest's entry with the maps; empty if there are none."""
    maps = fit_calibrations(work)
    return {"expected_dsc": {label: one.model_dump(mode="json") for label, one in maps.items()}} if maps else {}
