"""Each patient is segmented by all passes of its own fold."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.deadline import Deadline
from algorithm.heads.measure import list_image_features
from algorithm.heads.structure import measure_uptake
from algorithm.masks.segmentation import Segmentation, softmax
from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.passes import Passes
from algorithm.network.preprocessing import normalise
from algorithm.network.tiles import NetworkImage, Pass
from baseline.network.out_of_fold import OutOfFoldRun, segment_out_of_fold
from baseline.release.cases import ReleaseCase, image_path, label_path
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask, write_volume
from contract.io.files import read_json, write_json
from contract.patient import Patient

GRID = Geometry((14, 13, 12), (9.0, 9.0, 9.0), (-58.0, -54.0, -50.0))
CT = Geometry((20, 18, 16), (6.0, 6.5, 6.0), (-57.0, -55.0, -45.0))
FOLD_OF = {"CHUM-001": 0, "HMR-002": 1}
LESIONS = ("gtvp", "gtvn")


@pytest.fixture
def cohort(tmp_path: Path) -> tuple[list[ReleaseCase], WorkFolders]:
    """Write two prepared patients of noise; only the first has a reference mask."""
    work, cases = WorkFolders(tmp_path), []
    rng = np.random.default_rng(3)
    for name in FOLD_OF:
        ct = tmp_path / f"{name}__CT.nii.gz"
        write_volume(ct, Volume(np.zeros(CT.array_shape, np.int16), CT))
        mask = tmp_path / f"{name}.nii.gz" if name == "CHUM-001" else None
        case = ReleaseCase(name, name.split("-")[0], ct, ct, mask, Patient())
        for number, spread in enumerate((400, 3)):
            image = rng.normal(0, spread, GRID.array_shape).astype(np.float32)
            write_volume(image_path(work.raw, case, number), Volume(image, GRID))
        if mask is not None:
            reference = rng.integers(0, 3, GRID.array_shape).astype(np.uint8)
            write_mask(label_path(work.raw, case), reference, GRID)
            write_mask(mask, np.zeros(CT.array_shape, np.uint8), CT)
        cases.append(case)
    write_json(work.prepare_json, {"options": {"release": "r", "spacing_mm": list(GRID.spacing_mm)}, "data": "images"})
    return cases, work


def measure(cohort: tuple[list[ReleaseCase], WorkFolders], package: Path | None) -> dict[str, dict[str, Any]]:
    def find_package() -> Path:
        assert package is not None, "expected nothing to be left to do"
        return package

    run = OutOfFoldRun(find_package, FOLD_OF, "networks", "cpu")
    return {name: dict(row) for name, row in segment_out_of_fold(cohort[1], cohort[0], run).items()}


def compute_logits(
    number: int, case: ReleaseCase, work: WorkFolders, package: Path, mirrored: tuple[int, ...] = ()
) -> np.ndarray:
    """Compute the logits of a single pass of one of the package's networks."""
    ct, pet = (read_volume(image_path(work.raw, case, channel), "float32") for channel in (0, 1))
    networks = Networks(load_package(package))
    data = normalise((ct.array, pet.array), networks.package)
    image, device = NetworkImage.from_channels(data), torch.device("cpu")
    return Passes(image, (Pass(number, mirrored),), networks, Deadline(600), device).make_all().logits


def segment_by_own_fold(case: ReleaseCase, work: WorkFolders, package: Path) -> Segmentation:
    """Segment a case by the mean logits of its own fold, as it is and mirrored along x."""
    ct, pet = (read_volume(image_path(work.raw, case, number), "float32") for number in (0, 1))
    both = [compute_logits(FOLD_OF[case.patient_id], case, work, package, axes) for axes in ((), (2,))]
    return Segmentation(sum(both) / np.float32(2), ct.array, pet.array, GRID)


@pytest.mark.parametrize("average", ["logits", "probabilities"])
@pytest.mark.parametrize(("offset", "expected"), [(-0.5, 1), (0.5, 0)])
def test_the_mask_is_the_mean_of_the_mirrored_passes(
    cohort: tuple[list[ReleaseCase], WorkFolders],
    tiny_package: Path,
    tmp_path: Path,
    sign_package: object,
    monkeypatch: pytest.MonkeyPatch,
    average: str,
    offset: float,
    expected: int,
) -> None:
    """GTVp rises along x: with t = x - (n - 1) / 2 the network's logit of GTVp is t - offset, of background 0, of GTVn
    -50.

    As it is the network marks the half t > offset, mirrored the other half, t < -offset. The mean of both logits is
    -offset at every voxel. The sign of p(t) + p(-t) - 1 for the logistic p of t - offset is the same: it is 0 without
    an offset. With the offset -0.5 all voxels are GTVp, with 0.5 no voxel is.
    """

    def rise_along_x(part: torch.Tensor) -> torch.Tensor:
        t = torch.arange(part.shape[-1]) - (part.shape[-1] - 1) / 2
        gtvp = (t - offset).expand(part.shape[2:])
        return torch.stack([torch.zeros_like(gtvp), gtvp, torch.full_like(gtvp, -50)])[None]

    package = tmp_path / "package"
    shutil.copytree(tiny_package, package)
    sign_package(package, average=average)  # type: ignore[operator]
    monkeypatch.setattr(Networks, "get", lambda *_: rise_along_x)
    measure(cohort, package)
    for name in FOLD_OF:
        with np.load(cohort[1].probabilities(name)) as stored:
            assert np.unique(stored["mask"]).tolist() == [expected]


def test_a_mask_of_fewer_passes_is_an_error(
    cohort: tuple[list[ReleaseCase], WorkFolders], tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the mirrored pass of the first patient fails, inference would use only the first pass, but training writes
    nothing.
    """
    whole = Passes._make_pass

    def fail_if_mirrored(self: Passes, step: Pass, member: Any) -> Any:
        if step.axes:
            raise ZeroDivisionError
        return whole(self, step, member)

    monkeypatch.setattr(Passes, "_make_pass", fail_if_mirrored)
    with pytest.raises(HecktorError, match="CHUM-001: 1 of 2 passes"):
        measure(cohort, tiny_package)
    assert not list(cohort[1].root.rglob("*.npz"))
    monkeypatch.setattr(Passes, "_make_pass", whole)
    assert set(measure(cohort, tiny_package)) == set(FOLD_OF)


def test_the_mask_comes_from_the_patients_own_fold(
    cohort: tuple[list[ReleaseCase], WorkFolders], tiny_package: Path, tmp_path: Path
) -> None:
    work = cohort[1]
    measure(cohort, tiny_package)
    for case in cohort[0]:
        segmentation = segment_by_own_fold(case, cohort[1], tiny_package)
        np.testing.assert_array_equal(read_volume(work.raw_mask(case.patient_id)).array, segmentation.mask_on(CT))


@pytest.mark.parametrize("average", ["logits", "probabilities"])
def test_several_backbones_are_averaged_as_in_inference(
    cohort: tuple[list[ReleaseCase], WorkFolders],
    pair_package: Path,
    tmp_path: Path,
    sign_package: object,
    average: str,
) -> None:
    """Networks 0 and 1 held out the first patient and run as they are and mirrored along x. On noise both averages give
    different masks.
    """
    (case, _), work = cohort
    passes = [compute_logits(number, case, work, pair_package, axes) for axes in ((), (2,)) for number in (0, 1)]
    means = {"logits": sum(passes) / 4, "probabilities": np.log(sum(map(softmax, passes)) / 4)}
    masks = {name: Segmentation(mean, mean[0], mean[0], GRID).mask_on(CT) for name, mean in means.items()}
    assert (masks["logits"] != masks["probabilities"]).any()
    package = tmp_path / "package"
    shutil.copytree(pair_package, package)
    configurations = load_package(pair_package).manifest.fold_configurations
    sign_package(package, average=average, fold_configurations=configurations)  # type: ignore[operator]
    measure(cohort, package)
    np.testing.assert_array_equal(read_volume(work.raw_mask(case.patient_id)).array, masks[average])


def test_networks_that_saw_no_patient_make_all_passes_of_inference(
    cohort: tuple[list[ReleaseCase], WorkFolders], tiny_package: Path
) -> None:
    """Two networks run as they are and mirrored along x, and the mask comes from their mean logits."""
    cases, work = cohort
    segment_out_of_fold(work, cases, OutOfFoldRun(lambda: tiny_package, None, "networks", "cpu"))
    for case in cases:
        passes = [compute_logits(number, case, work, tiny_package, axes) for number in (0, 1) for axes in ((), (2,))]
        mean = sum(passes) / 4
        expected = Segmentation(mean, mean[0], mean[0], GRID).mask_on(CT)
        np.testing.assert_array_equal(read_volume(work.raw_mask(case.patient_id)).array, expected)
        assert (expected != segment_by_own_fold(case, work, tiny_package).mask_on(CT)).any()


def test_networks_with_the_scale_of_whole_scans_see_the_whole_scan(
    cohort: tuple[list[ReleaseCase], WorkFolders],
    tiny_package: Path,
    tmp_path: Path,
    sign_package: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PET is scaled by the mean and deviation of the release's image rather than of the prepared region."""
    package, scans = tmp_path / "package", []
    shutil.copytree(tiny_package, package)
    sign_package(package, normalised_over="scan")  # type: ignore[operator]

    def normalise_and_record(channels: object, package: object, scan: object = None) -> np.ndarray:
        scans.append(scan)
        return normalise(channels, package, scan)  # type: ignore[arg-type]

    monkeypatch.setattr("baseline.network.out_of_fold.normalise", normalise_and_record)
    whole = np.full((2, 3, 4), 7, np.float32)
    monkeypatch.setattr("baseline.network.out_of_fold.read_training_case", lambda *_: ("scan", None))
    monkeypatch.setattr("baseline.network.out_of_fold.make_scan_channels", lambda case, _: (whole, whole))
    segment_out_of_fold(cohort[1], cohort[0], OutOfFoldRun(lambda: package, None, "networks", "cpu"))
    assert scans == [(whole, whole)] * 2
    scans.clear()
    segment_out_of_fold(cohort[1], cohort[0], OutOfFoldRun(lambda: tiny_package, None, "other networks", "cpu"))
    assert scans == [None] * 2


def test_a_new_feature_is_measured_on_stored_masks_without_networks(
    cohort: tuple[list[ReleaseCase], WorkFolders], tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding a feature that equals the mean SUV of GTVp adds its values to every patient and leaves the masks
    unchanged.
    """
    work = cohort[1]
    rows = measure(cohort, tiny_package)
    masks = [work.raw_mask(name).stat().st_mtime_ns for name in FOLD_OF]

    def add_novelty(structure: object, pet: object) -> dict[str, float | None]:
        values = measure_uptake(structure, pet)  # type: ignore[arg-type]
        return {**values, "novelty": values["suv_mean"]}

    monkeypatch.setattr("algorithm.heads.measure.measure_uptake", add_novelty)
    list_image_features.cache_clear()
    try:
        again = measure(cohort, None)
        assert measure(cohort, None) == again
    finally:
        list_image_features.cache_clear()
    assert [work.raw_mask(name).stat().st_mtime_ns for name in FOLD_OF] == masks
    first = again["CHUM-001"]
    assert first == rows["CHUM-001"] | {f"{name}_novelty": rows["CHUM-001"][f"{name}_suv_mean"] for name in LESIONS}
    assert read_json(work.features("CHUM-001"))["result"]["features"] == first
