"""Bring deep features that different folds' networks measured to the channels of fold 0's.

Channel 17 of one fold has nothing to do with channel 17 of another. But both networks were shown the patients that
neither holds out, and what they say of those tells how one's channels answer to the other's: an orthogonal map between
the standardised channels (orthogonal Procrustes: Schoenemann 1966), held to the directions that vary most in common.
No outcome goes in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.encoder import FOLD
from algorithm.heads.features.deep import named
from algorithm.heads.measure import Features
from contract.errors import HecktorError

# With fewer patients that two networks were shown, what they have in common is chance.
LEAST_SHARED: Final = 20
# Directions that two networks are taken to share; the rest of a patient's channels is their mean.
MOST_DIRECTIONS: Final = 16

_Floats = npt.NDArray[np.float64]
# Of each patient each fold's channels; None where the patient has no lesion.
Measured = Mapping[str, Sequence[Sequence[float]] | None]


@dataclass(frozen=True)
class Alignment:
    """From one network's channels to another's: `turned` is applied to standardised channels (channels, channels)."""

    mean: _Floats
    sd: _Floats
    turned: _Floats
    to_mean: _Floats
    to_sd: _Floats

    @classmethod
    def between(cls, source: _Floats, target: _Floats) -> Alignment:
        """Learnt from what both networks say of the same patients, shape (patients, channels)."""
        mean, sd, scaled = _standardised(source)
        to_mean, to_sd, to_scaled = _standardised(target)
        left, _, right = np.linalg.svd(scaled.T @ to_scaled)
        directions = min(MOST_DIRECTIONS, *scaled.shape)
        return cls(mean, sd, left[:, :directions] @ right[:directions], to_mean, to_sd)

    def __call__(self, channels: _Floats) -> _Floats:
        """Other patients' channels, brought to the target's; shape (channels,) or (patients, channels)."""
        return np.asarray(self.to_mean + self.to_sd * (((channels - self.mean) / self.sd) @ self.turned))


def check_folds(fold_of: Mapping[str, int]) -> None:
    """Refuse what can never be aligned, before anything is measured.

    Raises:
        HecktorError: two folds, whose networks were shown no patient in common, or too few patients.
    """
    folds = sorted(set(fold_of.values()))
    if len(folds) < 3:
        raise HecktorError(
            "--encoder-features",
            f"found {len(folds)} folds",
            "at least 3: two networks must have seen patients in common",
        )
    for fold in folds[1:]:
        _check_shared(sum(other not in (FOLD, fold) for other in fold_of.values()), fold)


def aligned(measured: Measured, fold_of: Mapping[str, int]) -> dict[str, Features]:
    """Each patient's channels by the patient's own held-out fold, as fold 0's network would name them.

    The map for a fold is learnt from the patients whom neither it nor fold 0 holds out, so never from a patient whom
    it is applied to. A patient without a lesion has no deep features.

    Raises:
        HecktorError: too few patients with a lesion for one of the maps.
    """
    found: dict[str, Features] = {patient: {} for patient in measured}
    lesions = {patient: np.asarray(folds, dtype=np.float64) for patient, folds in measured.items() if folds is not None}
    for fold in sorted({fold_of[patient] for patient in lesions}):
        align = None if fold == FOLD else _alignment(lesions, fold_of, fold)
        for patient, channels in lesions.items():
            if fold_of[patient] == fold:
                found[patient] = named(channels[fold] if align is None else align(channels[fold]))
    return found


def _alignment(lesions: Mapping[str, _Floats], fold_of: Mapping[str, int], fold: int) -> Alignment:
    shared = np.array([channels for patient, channels in lesions.items() if fold_of[patient] not in (FOLD, fold)])
    _check_shared(len(shared), fold)
    return Alignment.between(shared[:, fold], shared[:, FOLD])


def _check_shared(patients: int, fold: int) -> None:
    if patients < LEAST_SHARED:
        raise HecktorError(
            "--encoder-features",
            f"folds {FOLD} and {fold} were shown {patients} patients with a lesion in common",
            f"at least {LEAST_SHARED}",
        )


def _standardised(channels: _Floats) -> tuple[_Floats, _Floats, _Floats]:
    """Mean, spread and standardised values of each channel; one that never varies says nothing."""
    mean, sd = channels.mean(0), channels.std(0)
    sd = np.where(sd < 1e-9, np.inf, sd)
    return mean, sd, (channels - mean) / sd
