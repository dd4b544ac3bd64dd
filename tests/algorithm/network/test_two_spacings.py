"""A package of two spacings: its answer has the fine grid, and a coarse member is an ordinary member in all else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet
from monai.networks.nets.segresnet import SegResNet
from torch import nn

from algorithm.case.read import Case
from algorithm.deadline import Deadline
from algorithm.network import passes as passes_module
from algorithm.network import windows
from algorithm.network.devices import Backend
from algorithm.network.images import ReadyImage, network_image, normalise, other_images, resampled_logits
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Ensemble, Passes, Progress, plan_passes, segment
from algorithm.network.windows import Box, Pass
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient
from tests.algorithm.network.test_members import Tiles

CPU = torch.device("cpu")
U_NET, SEGRESNET = 0, 1  # folds 0 and 2 are the U-Net's at 9 mm, 1 and 3 SegResNet's at 18 mm
FINE = Geometry((24, 24, 24), (9.0, 9.0, 9.0), (0.0, 0.0, 0.0))
COARSE = Geometry((12, 12, 12), (18.0, 18.0, 18.0), (4.5, 4.5, 4.5))
OURS = {
    key: value
    for kind in ("data", "probabilities")
    for key, value in ((f"resampling_fn_{kind}", "resample_torch_fornnunet"), (f"resampling_fn_{kind}_kwargs", {}))
}


@pytest.fixture
def root(pair_package: Path, tmp_path: Path, sign_package: Callable[..., None]) -> Path:
    """The U-Net and SegResNet of `pair_package`, the latter at 18 mm and with another intensity of the CT."""
    root = Path(shutil.copytree(pair_package, tmp_path / "package"))
    plans = json.loads((root / "plans.json").read_text())
    intensities = json.loads(json.dumps(plans["foreground_intensity_properties_per_channel"]))
    intensities["0"]["std"] = 200.0
    more = {"spacing": [18.0] * 3, "foreground_intensity_properties_per_channel": intensities}
    plans["configurations"]["segresnet"] |= more
    for configuration in plans["configurations"].values():
        configuration.update(OURS)
    (root / "plans.json").write_text(json.dumps(plans))
    sign_package(root, configuration="3d_fullres", fold_configurations=["3d_fullres", "segresnet"] * 2)
    return root


@pytest.fixture
def package(root: Path) -> ModelPackage:
    return load_package(root)


class Ct:
    """Networks whose logit of GTVp is their image's first channel, times a factor for each network."""

    def __init__(self, factors: dict[type, float], gtvn: float = -50.0) -> None:
        self.factors, self.gtvn = factors, gtvn

    def __call__(self, network: nn.Module, part: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
        gtvp = part[0, 0] * self.factors[type(network)]
        return torch.stack([torch.zeros_like(gtvp), gtvp, torch.full_like(gtvp, self.gtvn)])


class CoarseImage(ReadyImage):
    """An image on `COARSE`, whose logits are resampled to `FINE`; `options` replace methods."""

    def __init__(self, data: np.ndarray, of_probabilities: bool = False, **options: Callable[..., Any]) -> None:
        super().__init__(data)
        self.of_probabilities = of_probabilities
        vars(self).update(options)

    def to_answer(self, logits: np.ndarray) -> np.ndarray:
        return resampled_logits(logits, COARSE, FINE, self.of_probabilities)


def sides(gtvp: float) -> np.ndarray:
    """An image of 12^3 voxels: `gtvp` in the six left slices of x, its negative in the six right ones."""
    data = np.full((2, 12, 12, 12), gtvp, np.float32)
    data[..., 6:] = -gtvp
    return data


@pytest.mark.parametrize("average", ["logits", "probabilities"])
@pytest.mark.parametrize(("fine", "gtvp_until"), [(1.0, 12), (5.0, 13)])
def test_the_mean_by_hand(
    package: ModelPackage, monkeypatch: pytest.MonkeyPatch, average: str, fine: float, gtvp_until: int
) -> None:
    """The coarse network says 8 up to its voxel 5 along x and -8 from 6 on, the fine one the same everywhere.

    Fine voxel i lies at i / 2 - 1/4 in coarse voxels: 11 at 5.25, so 3/4 of 8 and 1/4 of -8, which is 4; 12 is -4.
    The mean with 1 has its border between 11 and 12, where the coarse network's is. With 5 it lies between 12 (mean
    0.5) and 13 (-1.5). Probabilities of GTVp behave alike: sigmoid(8) = 0.9997, so voxel 11 has 0.7498 and voxel 12
    0.2502; with sigmoid(1) = 0.731 the means are 0.740 and 0.491, with sigmoid(5) = 0.993 0.622 at 12 and 0.497 at 13.
    """
    monkeypatch.setattr(windows, "_tile_logits", Ct({PlainConvUNet: 1.0, SegResNet: 1.0}))
    package = replace(package, manifest=package.manifest.model_copy(update={"average": average}))
    observed: dict[Pass, np.ndarray] = {}
    found = Passes(
        ReadyImage(np.full((2, 24, 24, 24), fine, np.float32)),
        [Pass(SEGRESNET), Pass(U_NET)],
        Networks(package),
        Deadline(600),
        CPU,
        on_pass=observed.__setitem__,
        others={"segresnet": CoarseImage(sides(8.0), average == "probabilities")},
    ).run()
    assert found.done == 2
    assert (found.logits.argmax(0) == 1).sum((0, 1)).tolist() == [24 * 24] * gtvp_until + [0] * (24 - gtvp_until)
    of_coarse = observed[Pass(SEGRESNET)][:, 0, 0]
    assert of_coarse.shape == (3, 24)
    if average == "logits":
        np.testing.assert_allclose(of_coarse[1, 10:14], [8, 4, -4, -8], atol=1e-4)
        np.testing.assert_allclose(found.logits[1, 0, 0, 10:14], np.add([8, 4, -4, -8], fine) / 2, atol=1e-4)
    else:
        high, low = 1 / (1 + np.exp(-8)), 1 / (1 + np.exp(8))
        expected = [high, 0.75 * high + 0.25 * low, 0.25 * high + 0.75 * low, low]
        np.testing.assert_allclose(np.exp(of_coarse[1, 10:14]), expected, atol=1e-5)
        mean = (np.array(expected) + 1 / (1 + np.exp(-fine))) / 2
        np.testing.assert_allclose(np.exp(found.logits[1, 0, 0, 10:14]), mean, atol=1e-5)


def ramp_case() -> Case:
    """A CT at 6 mm that rises by 16 HU a voxel along x and z and is never 0; uptake in the middle."""
    grid = Geometry((48, 40, 44), (6.0, 6.0, 6.0), (0.0, 0.0, 0.0))
    z, _, x = np.meshgrid(*map(np.arange, grid.array_shape), indexing="ij")
    hu = (16 * (x + z) - 717).astype(np.int16)
    suv = np.ones(grid.array_shape, np.float32)
    suv[20:24, 18:22, 22:26] = 12.0
    return Case(Volume(hu, grid), Volume(suv, grid), Patient({}))


@pytest.mark.parametrize("resampling", ["grid", "nnunet"])
def test_members_that_agree_answer_as_one_alone(
    package: ModelPackage, monkeypatch: pytest.MonkeyPatch, resampling: str
) -> None:
    """Both networks see one plane of a CT that is linear in space. Linear interpolation keeps it, so the masks agree.

    The coarse network's CT is divided by 200 and not by 400: its own normalisation doubles it, its factor halves it.
    """
    factors = {PlainConvUNet: 1.0, SegResNet: 0.5}
    monkeypatch.setattr(windows, "_tile_logits", Ct(factors))
    package = replace(package, manifest=package.manifest.model_copy(update={"resampling": resampling}))
    case, region = ramp_case(), Region((40.0, 40.0, 40.0), (220.0, 190.0, 215.0), "test")

    def mask(*passes: Pass) -> np.ndarray:
        *_, found = segment(case, region, Ensemble(Networks(package), CPU, passes), Deadline(600))
        assert found.passes_done == len(passes)
        assert found.grid.array_spacing_mm == pytest.approx((9.0, 9.0, 9.0), rel=0.02)
        # without the border, where the outermost coarse voxels are not interpolated
        return found.mask_on(case.ct.geometry)[10:32, 10:28, 10:33]

    alone = mask(Pass(U_NET))
    assert np.unique(alone).tolist() == [0, 1]
    np.testing.assert_array_equal(mask(Pass(SEGRESNET), Pass(U_NET)), alone)
    np.testing.assert_array_equal(mask(Pass(SEGRESNET)), alone)


def test_the_coarse_image_is_that_of_a_package_of_its_own(package: ModelPackage) -> None:
    """Grid and values are those of a package of the coarse member alone; the answer's are not changed by it."""
    case, region = ramp_case(), Region((40.0, 40.0, 40.0), (220.0, 190.0, 215.0), "test")
    coarse, plans = package.on_grid_of("segresnet"), dict(package.plans)
    plans["foreground_intensity_properties_per_channel"] = coarse.intensities
    alone = network_image(case, region, replace(coarse, plans=plans), pytest.fail)
    both = network_image(case, region, package, pytest.fail)
    others = other_images(case, region, package, both.grid, pytest.fail)
    assert list(others) == ["segresnet"]
    assert others["segresnet"].shape == alone.grid.array_shape
    np.testing.assert_array_equal(others["segresnet"].data, alone.data)
    np.testing.assert_array_equal(both.data, normalise(both.scans, package))
    assert np.abs(alone.data[0]).max() > 1.5 * np.abs(both.data[0]).max()


def test_the_algorithm_runs_both(root: Path, predict: Any, case_folder: Any) -> None:
    """Four folds and one mirror axis: eight passes."""
    case_folder.write()
    answer = predict("segmentation", model=root)
    assert answer.status == 0
    assert any("8 of 8 passes" in line for line in answer.lines)


# Time, devices and memory


@pytest.fixture
def timed(package: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Progress]:
    """Run over 24^3 voxels, 2 x 2 x 2 tiles of the U-Net's 16^3; 12^3 of SegResNet, one tile of 24 x 16 x 20."""

    def run(
        tiles: Tiles,
        limit_s: float,
        passes: Sequence[Pass] = plan_passes(4, ()),
        of_answer: Callable[[], Box | None] = lambda: None,
        **image: Any,
    ) -> Progress:
        monkeypatch.setattr(windows, "_tile_logits", tiles)
        fine, coarse = ReadyImage(np.zeros((2, 24, 24, 24), np.float32)), CoarseImage(sides(8.0), **image)
        monkeypatch.setattr(fine, "focus", of_answer)
        budget, others = Deadline(limit_s, tiles.clock), {"segresnet": coarse}
        return Passes(fine, passes, Networks(package), budget, CPU, others=others).run()

    return run


@pytest.mark.parametrize(("limit_s", "begun"), [(40.7, False), (40.8, True)])
def test_the_coarse_image_is_made_only_for_a_pass_that_fits(
    timed: Callable[..., Progress], limit_s: float, begun: bool
) -> None:
    """The U-Net's pass of 8 x 4096 voxels takes 24 s, so SegResNet's of 7680 is reckoned at 24 x 0.234 = 5.6 s.

    1.2 times that, 6.75 s, must fit what the first pass leaves of all but 10 s: 6.7 s of 40.7, and 6.8 of 40.8.
    """
    tiles, made = Tiles({PlainConvUNet: 3.0, SegResNet: 0.0}), []

    def channels() -> np.ndarray:
        made.append(True)
        return sides(8.0)

    timed(tiles, limit_s, [Pass(U_NET), Pass(SEGRESNET)], channels=channels)
    assert made == [True] * begun
    assert tiles.of(SegResNet) == begun


def test_making_the_image_is_no_part_of_the_cost_of_a_pass(timed: Callable[..., Progress]) -> None:
    """U-Net 8 s, SegResNet's image 20 s and pass 1 s, U-Net 8 s: 37 s. Of 49 s, 39 are usable, 2 are left.

    SegResNet's second pass is reckoned at 1.2 s, and fits; with the image it would be 25 s.
    """
    tiles = Tiles({PlainConvUNet: 1.0, SegResNet: 1.0})

    def channels() -> np.ndarray:
        tiles.now += 20.0
        return sides(8.0)

    found = timed(tiles, 49.0, channels=channels)
    assert (found.done, tiles.now) == (4, 38.0)


def test_a_coarse_image_too_large_for_memory_is_left_out(timed: Callable[..., Progress]) -> None:
    def channels() -> np.ndarray:
        raise MemoryError

    tiles = Tiles({PlainConvUNet: 1.0, SegResNet: 1.0})
    assert timed(tiles, 600.0, channels=channels).done == 2
    assert tiles.of(SegResNet) == 0


def test_a_smaller_plan_takes_each_images_own_box(timed: Callable[..., Progress]) -> None:
    """126 s of 140 are usable. After two of the U-Net's 8 tiles of 20 s six do not fit, one in its box does.

    SegResNet's only tile is then reckoned at 20 x 7680 / 4096 = 37.5 s, and 1.2 times that fits the 66 s that are left.
    The boxes are fine voxels 8 to 23 and coarse voxels 4 to 7, in both of which the logits are (0, 5, 1), and (20,
    -20, -20) around them. Fine voxel 8 lies a quarter of a voxel outside the coarse one 4: GTVp has 5 x 3/4 - 20 / 4 =
    -1.25 there, the background 5, and the means with the U-Net's 5 and 0 are 1.9 and 2.5. So the lesion begins at 9,
    and by symmetry it ends at 14.
    """
    fine, coarse = (slice(8, 24),) * 3, (slice(4, 8),) * 3
    tiles = Tiles({PlainConvUNet: 20.0, SegResNet: 1.0})
    found = timed(tiles, 140.0, [Pass(U_NET), Pass(SEGRESNET)], lambda: fine, focus=lambda: coarse)
    assert found.plan == "the PET-avid part, tiles 0.5 of a patch apart"
    assert (found.done, tiles.of(PlainConvUNet), tiles.of(SegResNet)) == (2, 2 + 1, 1)
    assert np.argwhere(found.logits.argmax(0)[12, 12] == 1).ravel().tolist() == list(range(9, 15))
    assert np.unique(found.logits.argmax(0)).tolist() == [0, 1]


def test_each_network_has_the_devices_that_its_own_image_needs(
    timed: Callable[..., Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two channels, three labels and the weights of the tiles, 4 bytes each, for 24^3 and 12^3 voxels."""
    sizes: list[int] = []

    def backends(_device: Any, size: int, _half: bool) -> tuple[Backend, ...]:
        sizes.append(size)
        return (Backend(CPU, CPU),)

    monkeypatch.setattr(passes_module, "backends", backends)
    assert timed(Tiles({PlainConvUNet: 1.0, SegResNet: 1.0}), 600.0).done == 4
    assert sorted(sizes) == [4 * 6 * 12**3, 4 * 6 * 24**3]
