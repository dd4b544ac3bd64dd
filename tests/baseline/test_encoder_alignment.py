"""Channels of different folds are brought together, by patients that both networks saw and never by the patient."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from algorithm.heads.features.deep import named

from algorithm.encoder import patch_of, pooled_features
from algorithm.heads.measure import Features
from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.segment import normalise
from baseline import encoder_alignment, pipeline
from baseline.encoder_alignment import LEAST_SHARED, Alignment, aligned, check_folds
from baseline.encoder_measuring import measure_deep
from baseline.network.nnunet import Folders
from baseline.network.out_of_fold_files import OutOfFold
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import image_path
from baseline.release.splits import kept_splits
from baseline.work import Work
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask, write_volume
from contract.patient import Patient

FOLDS, CHANNELS = 5, 40


def test_channels_in_another_order_are_put_back() -> None:
    """Network 1's channels are network 0's in the order 2, 0, 1, the first with its sign turned, on other scales: with
    independent channels the orthogonal map is that very permutation, and every value comes back."""
    rng = np.random.default_rng(0)
    target = rng.normal([5.0, -2.0, 0.0], [1.0, 3.0, 0.5], (30, 3))
    source = np.stack([-7 * target[:, 2] + 1, 0.1 * target[:, 0], target[:, 1] - 4], 1)
    align = Alignment.between(source, target)
    assert align(source) == pytest.approx(target, abs=0.35)
    exact = np.linalg.qr(rng.normal(size=(30, 4)))[0]
    exact -= exact.mean(0)
    exact = np.linalg.qr(exact)[0]  # centred and orthogonal: nothing is left to chance
    order = exact[:, [2, 0, 3, 1]] * [-3, 1, 2, 0.5] + [0, 1, 2, 3]
    assert Alignment.between(order, exact)(order) == pytest.approx(exact)


def test_a_channel_that_never_varies_says_nothing() -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(size=(30, 2))
    source = np.column_stack([target[:, 0], np.full(30, 7.0)])
    found = Alignment.between(source, target)(source + np.array([0, 1000]))
    assert np.isfinite(found).all()
    assert abs(np.corrcoef(found[:, 0], target[:, 0])[0, 1]) > 0.99


def patients(count: int = 200, seed: int = 0) -> tuple[dict[str, int], dict[str, list[list[float]]], np.ndarray]:
    """Five networks that each mix the same three traits of a patient into forty channels of their own.

    Returns each patient's fold, channels by fold, and what network 0 makes of them without its noise.
    """
    rng = np.random.default_rng(seed)
    traits = rng.normal(size=(count, 3)) * [3, 2, 1.5]
    mixing, offset = rng.normal(size=(FOLDS, 3, CHANNELS)), rng.normal(size=(FOLDS, 1, CHANNELS)) * 5
    clean = traits @ mixing + offset
    noisy = clean + rng.normal(size=clean.shape)
    names = [f"A-{number:03d}" for number in range(count)]
    fold_of = {name: number % FOLDS for number, name in enumerate(names)}
    return fold_of, {name: noisy[:, number].tolist() for number, name in enumerate(names)}, clean[0]


def test_every_fold_comes_to_speak_of_the_same_channels() -> None:
    """As they are, the channels of patients of other folds have nothing to do with network 0's; aligned, they agree
    with it nearly as well as fold 0's own patients do."""
    fold_of, measured, clean = patients()
    found = aligned(measured, fold_of)
    names = list(measured)
    values = np.array([list(found[name].values()) for name in names], dtype=float)
    others = np.array([fold_of[name] != 0 for name in names])
    raw = np.array([measured[name][fold_of[name]] for name in names])

    def agreement(channels: np.ndarray) -> float:
        found = [np.corrcoef(a, b)[0, 1] for a, b in zip(channels[others].T, clean[others].T, strict=True)]
        return float(np.mean(found))

    assert abs(agreement(raw)) < 0.3
    assert agreement(values) > 0.9
    assert values[~others] == pytest.approx(raw[~others])  # network 0 speaks for itself


def test_no_patient_shapes_the_map_that_is_applied_to_it() -> None:
    """Whatever the networks say of a patient of fold 2, its features follow from its own network alone, and through a
    map that other patients of folds 1, 3 and 4 made."""
    fold_of, measured, _ = patients()
    before = aligned(measured, fold_of)
    changed = dict(measured)
    changed["A-002"] = [[1e3] * CHANNELS if fold != 2 else measured["A-002"][2] for fold in range(FOLDS)]
    after = aligned(changed, fold_of)
    assert after["A-002"] == before["A-002"]
    assert after["A-000"] == before["A-000"]
    assert after["A-001"] != before["A-001"]  # its map was learnt from A-002, among others


def test_without_a_lesion_there_is_nothing_to_bring() -> None:
    fold_of, measured, _ = patients()
    found = aligned({**measured, "A-003": None}, fold_of)
    assert found["A-003"] == {}
    assert len(found["A-004"]) == CHANNELS


def test_what_cannot_be_aligned_is_refused() -> None:
    two = {f"A-{n}": n % 2 for n in range(100)}
    with pytest.raises(HecktorError, match=r"--encoder-features: found 2 folds, expected at least 3"):
        check_folds(two)
    few = {f"A-{n}": n % 3 for n in range(45)}
    message = rf"folds 0 and 1 were shown 15 patients with a lesion in common, expected at least {LEAST_SHARED}"
    with pytest.raises(HecktorError, match=message):
        check_folds(few)
    check_folds({f"A-{n}": n % 3 for n in range(60)})
    fold_of, measured, _ = patients(60)
    bare = {name: channels if fold_of[name] in (0, 1) else None for name, channels in measured.items()}
    with pytest.raises(HecktorError, match="folds 0 and 1 were shown 0 patients"):
        aligned(bare, fold_of)


GRID = Geometry((20, 20, 20), (9.0, 9.0, 9.0), (0.0, 0.0, 0.0))


def prepared(number: int, folders: Folders, kept: OutOfFold) -> ReleaseCase:
    """A patient as `prepare` and the measuring of the masks leave it; the first has no lesion."""
    rng = np.random.default_rng(number)
    image = Path("image.nii.gz")
    case = ReleaseCase(f"A-{number:03d}", "A", image, image, image, Patient(), None, None, None)
    for channel in range(2):
        path = image_path(folders.raw, case, channel)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_volume(path, Volume(rng.normal(size=GRID.array_shape).astype(np.float32), GRID))
    mask = np.zeros(GRID.array_shape, np.uint8)
    if number:
        mask[4:8, 10:12, 3 + number % 5 : 9] = 1 + number % 2
    write_mask(kept.mask(case.patient_id), mask, GRID)
    return case


def test_from_prepared_images_to_features(three_folds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real tiny network of three folds: fold 0's patients have its own channels as inference would measure them."""
    folders, kept = Folders(tmp_path / "nnunet"), OutOfFold(tmp_path / "out_of_fold")
    cases = [prepared(number, folders, kept) for number in range(13)]
    asked: list[Path] = []

    def package() -> Path:
        asked.append(three_folds)
        return three_folds

    found = measure_deep(cases, package, folders, kept, "networks", "cpu")
    assert list(found) == [case.patient_id for case in cases]
    assert found["A-000"] is None
    loaded = load_package(three_folds)
    networks = Networks(loaded)
    rng = np.random.default_rng(5)
    ct, pet = (rng.normal(size=GRID.array_shape).astype(np.float32) for _ in range(2))
    lesion = np.zeros(GRID.array_shape, bool)
    lesion[4:8, 10:12, 3:9] = True
    expected = [
        pooled_features(normalise((ct, pet), loaded), lesion, networks.of(fold, torch.device("cpu")), patch_of(loaded))
        for fold in range(3)
    ]
    channels = found["A-005"]
    assert channels is not None
    np.testing.assert_allclose(channels, np.array(expected), atol=1e-5)
    assert not np.allclose(channels[0], channels[1])
    assert measure_deep(cases, package, folders, kept, "networks", "cpu") == found
    assert len(asked) == 1  # all was kept
    monkeypatch.setattr(encoder_alignment, "LEAST_SHARED", 3)
    splits = kept_splits(tmp_path / "splits.json", cases, folds=3, seed=0)
    fold_of = {patient: number for number, fold in enumerate(splits.folds) for patient in fold}
    features = aligned(found, fold_of)
    by_fold_0 = next(name for name, fold in fold_of.items() if fold == 0 and name != "A-000")
    assert features[by_fold_0] == named((found[by_fold_0] or [])[0])
    assert all(len(features[case.patient_id]) == 8 for case in cases[1:])
    assert features["A-000"] == {}
    check_step(cases, features, three_folds, tmp_path, monkeypatch)


def check_step(
    cases: list[ReleaseCase], expected: Mapping[str, Features], package: Path, root: Path, patch: pytest.MonkeyPatch
) -> None:
    """The step `heads` comes to the same features by the splits that it finds."""
    patch.setattr(pipeline, "_bare_package", lambda _: package)
    patch.setattr(pipeline, "_networks_key", lambda _: "networks")
    assert pipeline.out_of_fold_encoder(Work(root), cases, "cpu") == expected
