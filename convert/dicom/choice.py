"""Choose one CT and one PET series of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.errors import Finding, InputError
from convert.dicom.series import ImageSeries, Study
from convert.dicom.slices import SlicePlane

# Rank by which a series is preferred, in this order.
_Criterion = tuple[str, Callable[[ImageSeries], float]]
_COMMON: Final[tuple[_Criterion, ...]] = (
    ("axial slices", lambda series: float(SlicePlane.of(series.headers[0]).is_axial)),
    ("not derived", lambda series: float(series.is_original)),
    ("most slices", lambda series: len(series.headers)),
)


@dataclass(frozen=True)
class ChosenSeries:
    """CT and PET of a case, the other CT series, and by UID the reason against each other series."""

    ct: ImageSeries
    pet: ImageSeries
    other_ct: tuple[ImageSeries, ...]
    ignored: Mapping[str, str]
    findings: tuple[Finding, ...]


def choose_series(study: Study, ct_wanted: str | None, pet_wanted: str | None) -> ChosenSeries:
    """Choose by the options `--ct-series` and `--pet-series` (UID or description), otherwise by rule.

    PET: corrected for attenuation, axial, not derived, most slices. CT: the PET's frame of reference,
    largest overlap with the PET, then the same.

    Raises:
        InputError: no CT or PET, several that the rule cannot tell apart, or CT and PET in different frames of
            reference without `--ct-series`.
    """
    pet, pet_reasons = _choose_pet(study, pet_wanted)
    ct, ct_reasons = _choose_ct(study, pet, ct_wanted)
    others = tuple(series for series in study.ct if series is not ct)
    findings = _check_frames(ct, pet, chosen_by_user=ct_wanted is not None)
    return ChosenSeries(ct, pet, others, {**pet_reasons, **ct_reasons}, findings)


def _choose_pet(study: Study, wanted: str | None) -> tuple[ImageSeries, dict[str, str]]:
    _require_any(study.pet, "PET", study)
    if wanted is not None:
        return _named(study.pet, wanted, "PET", "--pet-series")
    corrected = [series for series in study.pet if series.is_attenuation_corrected]
    reasons = {
        series.uid: f"PET {series}: no attenuation correction" for series in study.pet if series not in corrected
    }
    if not corrected:
        raise InputError("input folder", f"found only {'; '.join(reasons.values())}", "a PET with that correction")
    chosen, more = _best(corrected, _COMMON, "PET", "--pet-series")
    return chosen, reasons | more


def _choose_ct(study: Study, pet: ImageSeries, wanted: str | None) -> tuple[ImageSeries, dict[str, str]]:
    _require_any(study.ct, "CT", study)
    if wanted is not None:
        return _named(study.ct, wanted, "CT", "--ct-series")
    if len(study.ct) == 1:
        return study.ct[0], {}
    pet_box = _box_mm(pet)
    criteria = (
        ("frame of reference of the PET", lambda series: float(series.frame_of_reference == pet.frame_of_reference)),
        ("largest overlap with the PET", lambda series: round(_overlap(_box_mm(series), pet_box), 1)),
        *_COMMON,
    )
    return _best(study.ct, criteria, "CT", "--ct-series")


def _require_any(series: Sequence[ImageSeries], kind: str, study: Study) -> None:
    if not series:
        ignored = f" (ignored: {'; '.join(study.ignored)})" if study.ignored else ""
        raise InputError("input folder", f"found no {kind} series{ignored}", "a study with CT and PET")


def _named(series: Sequence[ImageSeries], wanted: str, kind: str, option: str) -> tuple[ImageSeries, dict[str, str]]:
    text = wanted.strip().lower()
    for matches in (
        [one for one in series if one.uid == wanted.strip()],
        [one for one in series if one.description.lower() == text],
        [one for one in series if text in one.description.lower()],
    ):
        if len(matches) == 1:
            others = {one.uid: f"{kind} {one}: not chosen by {option}" for one in series if one is not matches[0]}
            return matches[0], others
    listed = ", ".join(map(str, series))
    raise InputError(option, f"found {wanted!r}", f"the UID or description of one of {listed}")


def _best(
    series: Sequence[ImageSeries], criteria: Sequence[_Criterion], kind: str, option: str
) -> tuple[ImageSeries, dict[str, str]]:
    """The first in rank and, by UID of each other series, the criterion that decided against it."""
    ranks = [(tuple(measure(one) for _, measure in criteria), one) for one in series]
    ranks.sort(key=lambda entry: entry[0], reverse=True)
    (first, chosen), others = ranks[0], ranks[1:]
    tied = [one for rank, one in others if rank == first]
    if tied:
        listed = ", ".join(map(str, [chosen, *tied]))
        raise InputError(
            "input folder", f"found {len(tied) + 1} {kind} series alike: {listed}", f"one; choose by {option}"
        )
    reasons = {}
    for rank, other in others:
        reason = next(name for (name, _), a, b in zip(criteria, first, rank, strict=True) if a != b)
        reasons[other.uid] = f"{kind} {other}: {chosen.description!r} was chosen ({reason})"
    return chosen, reasons


def _box_mm(series: ImageSeries) -> npt.NDArray[np.float64]:
    """Lowest and highest corner of a series in patient space, shape (2, 3)."""
    corners = np.concatenate([SlicePlane.of(header).corners_mm() for header in series.headers])
    return np.array([corners.min(axis=0), corners.max(axis=0)])


def _overlap(box: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Fraction of the volume of `other` that lies in `box`."""
    common = np.minimum(box[1], other[1]) - np.maximum(box[0], other[0])
    return float(np.prod(np.clip(common, 0, None)) / np.prod(np.maximum(other[1] - other[0], 1e-6)))


def _check_frames(ct: ImageSeries, pet: ImageSeries, *, chosen_by_user: bool) -> tuple[Finding, ...]:
    if ct.frame_of_reference and ct.frame_of_reference == pet.frame_of_reference:
        return ()
    found = f"FrameOfReferenceUID (0020,0052) of CT {ct.description!r} and PET {pet.description!r} "
    expected = "the same, from one examination"
    if not ct.frame_of_reference or not pet.frame_of_reference:
        return (Finding("input folder", f"{found}is absent", expected, "taken as aligned"),)
    if chosen_by_user:
        return (Finding("input folder", f"{found}differ", expected, "taken as aligned because of --ct-series"),)
    raise InputError("input folder", f"{found}differ", f"{expected}; if they are aligned, choose the CT by --ct-series")
