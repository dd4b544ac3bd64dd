"""One patient through each stage of the algorithm, and through the whole process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from algorithm.budget import Budget
from algorithm.case.notices import Notices
from algorithm.case.read import Case, read_case
from algorithm.heads.hpv import hpv_positive
from algorithm.heads.measure import clinical_features, image_features
from algorithm.heads.rfs import rfs_risk
from algorithm.masks.segmentation import Segmentation
from algorithm.network.package import load_package
from algorithm.region import grids
from algorithm.region.localise import localise
from benchmarks import limits
from benchmarks.cases import LONG, PROCESS, Command, Measurement, Setting, Work
from benchmarks.data import SIZES
from contract import platform
from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume, write_mask

IMPORT_TORCH = "start-up/import torch alone"
ONE_PASS = ("--passes", "1")
READY = """
import sys
from pathlib import Path
from algorithm.network import segment
from algorithm.network.resident import Resident
Resident(Path(sys.argv[1]), "cpu").load()
"""


def measurements() -> Iterator[Measurement]:
    """Start-up, then everything at each size."""
    yield Measurement("start-up", "import torch alone", "a process that imports torch", _import_torch, None, PROCESS)
    yield Measurement(
        "start-up",
        "import to ready",
        "a process up to the first fold's network, checksums verified",
        _import_to_ready,
        IMPORT_TORCH,
        PROCESS,
    )
    for size in SIZES:
        yield from _limits(size)
        yield from _stages(size)
        yield from _processes(size)


def _limits(size: str) -> Iterator[Measurement]:
    def add(name: str, what: str, prepare: Callable[..., Work], against: str | None = None) -> Measurement:
        return Measurement(size, name, what, partial(prepare, size=size), against, in_quick=_quick(size, name))

    yield add("inflate alone", "zlib on the pixels of CT and PET", _inflate)
    yield add("SimpleITK read alone", "ReadImage of CT and PET", _read_alone, f"{size}/inflate alone")
    yield add("copy of the CT", "each CT voxel read and written once", _copy)
    yield add("SimpleITK linear alone", "CT and PET on the network's grid", _linear_alone)
    yield add("deflate alone", "zlib on the mask's voxels", _deflate)
    yield add("forward alone", "the network on as many tiles as a pass has", _forward_alone)


def _stages(size: str) -> Iterator[Measurement]:
    def add(name: str, what: str, prepare: Callable[..., Work], against: str) -> Measurement:
        return Measurement(
            size, name, what, partial(prepare, size=size), f"{size}/{against}", in_quick=_quick(size, name)
        )

    yield add("read", "CT, PET and EHR, checked and cleaned", _read, "SimpleITK read alone")
    yield add("localise", "the head and neck region", _localise, "copy of the CT")
    yield add("resample", "to the network's grid, normalised", _resample, "SimpleITK linear alone")
    yield add("load model", "checksums, network, one fold's weights", _load_model, "forward alone")
    yield add("one pass", "one fold, no mirror, weights included", _one_pass, "forward alone")
    yield add("restore", "logits to the mask on the CT's grid", _restore, "copy of the CT")
    yield add("measure", "features of mask, CT and PET", _measure, "forward alone")
    yield add("heads", "risk and HPV status from features", _heads, "forward alone")
    yield add("write", "the mask, compressed", _write, "deflate alone")


def _processes(size: str) -> Iterator[Measurement]:
    against = f"{size}/forward alone"
    for task in ("segmentation", "rfs"):
        yield Measurement(
            size,
            f"process: {task}, one pass",
            f"python -m algorithm --task {task} --passes 1",
            partial(_process, task=task, size=size, extra=ONE_PASS),
            against,
            PROCESS,
            in_quick=size == SIZES[0],
        )
    yield Measurement(
        size,
        "process: segmentation, default limit",
        "python -m algorithm --task segmentation",
        partial(_process, task="segmentation", size=size, extra=()),
        against,
        LONG,
        in_quick=False,
    )


def _quick(size: str, name: str) -> bool:
    """Quick runs the network at one size only: importing torch again and again is most of its time."""
    return size == SIZES[0] or name not in {"forward alone", "load model", "one pass"}


def _import_torch(setting: Setting) -> Work:
    del setting
    return Command((sys.executable, "-c", "import torch"))


def _import_to_ready(setting: Setting) -> Work:
    return Command((sys.executable, "-c", READY, str(setting.model_dir)))


def _process(setting: Setting, task: str, size: str, extra: tuple[str, ...]) -> Work:
    return setting.algorithm(task, size, *extra)


def _inflate(setting: Setting, size: str) -> Work:
    return limits.inflate(limits.scans(setting.data.input_dir(size)))


def _read_alone(setting: Setting, size: str) -> Work:
    return limits.read_with_simpleitk(limits.scans(setting.data.input_dir(size)))


def _copy(setting: Setting, size: str) -> Work:
    return limits.copy_in_memory(limits.scans(setting.data.input_dir(size))[0])


def _deflate(setting: Setting, size: str) -> Work:
    return limits.deflate(setting.data.reference(size))


def _linear_alone(setting: Setting, size: str) -> Work:
    case, grid = _case_and_grid(setting, size)
    return limits.linear_with_simpleitk([case.ct] + ([case.pet] if case.pet else []), grid)


def _forward_alone(setting: Setting, size: str) -> Work:
    import torch
    from nnunetv2.inference.sliding_window_prediction import compute_steps_for_sliding_window

    from algorithm.network import devices, networks, windows

    package, grid = load_package(setting.model_dir), _case_and_grid(setting, size)[1]
    patch = tuple(int(n) for n in package.configuration["patch_size"])
    padded = tuple(max(have, want) for have, want in zip(grid.array_shape, patch, strict=True))
    steps = compute_steps_for_sliding_window(padded, patch, windows.TILE_STEP)
    network = networks.Networks(package).of(0, devices.device_named("cpu"))
    tile = torch.randn((1, len(package.manifest["channels"]), *patch), generator=torch.Generator().manual_seed(0))

    @torch.inference_mode()
    def forward() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=devices.cpu_has_bfloat16()):
            for _ in range(len(steps[0]) * len(steps[1]) * len(steps[2])):
                network(tile)

    return forward


def _read(setting: Setting, size: str) -> Work:
    return partial(read_case, setting.data.input_dir(size), Notices())


def _localise(setting: Setting, size: str) -> Work:
    return partial(localise, _case(setting, size))


def _resample(setting: Setting, size: str) -> Work:
    from algorithm.network import segment

    case, grid = _case_and_grid(setting, size)
    package = load_package(setting.model_dir)
    return lambda: segment.normalise(segment.network_channels(case, grid), package)


def _load_model(setting: Setting, size: str) -> Work:
    del size
    from algorithm.network.resident import Resident

    def load() -> None:
        Resident(setting.model_dir, "cpu").load()

    return load


def _one_pass(setting: Setting, size: str) -> Work:
    from algorithm.network import devices, networks, passes, segment, windows

    case, grid = _case_and_grid(setting, size)
    package, device = load_package(setting.model_dir), devices.device_named("cpu")
    data = segment.normalise(segment.network_channels(case, grid), package)
    ready = networks.Networks(package)
    return lambda: passes.Passes(data, (windows.Pass(0),), ready, Budget.start(600.0), device).run()


def _restore(setting: Setting, size: str) -> Work:
    segmentation, ct = _known_segmentation(setting, size)
    return partial(segmentation.mask_on, ct)


def _measure(setting: Setting, size: str) -> Work:
    found, _ = _known_segmentation(setting, size)
    mask = found.mask()
    return partial(image_features, mask, found.ct, found.pet, found.grid)


def _heads(setting: Setting, size: str) -> Work:
    found, _ = _known_segmentation(setting, size)
    features = image_features(found.mask(), found.ct, found.pet, found.grid)
    features |= clinical_features(_case(setting, size).patient, load_edition().clinical)
    package = load_package(setting.model_dir)
    rfs, hpv = package.head("rfs"), package.head("hpv")

    def answer() -> tuple[Any, Any]:
        return rfs_risk(rfs, features), hpv_positive(hpv, features)

    return answer


def _write(setting: Setting, size: str) -> Work:
    mask = read_volume(setting.data.reference(size))
    return partial(write_mask, setting.scratch / platform.MASK_FILE_NAME, mask.array, mask.geometry)


def _case(setting: Setting, size: str) -> Case:
    return read_case(setting.data.input_dir(size), Notices())


def _case_and_grid(setting: Setting, size: str) -> tuple[Case, Geometry]:
    """The patient and the network's grid over the region that the localiser finds."""
    case = _case(setting, size)
    region = localise(case)
    return case, grids.grid_over(region.lower_mm, region.upper_mm, load_package(setting.model_dir).spacing_mm)


def _known_segmentation(setting: Setting, size: str) -> tuple[Segmentation, Geometry]:
    """What a network that finds the reference would hand on, and the CT's grid."""
    case, grid = _case_and_grid(setting, size)
    mask = grids.resample_mask(read_volume(setting.data.reference(size)), grid)
    ct = grids.resample(case.ct, grid, -1024.0)
    pet = None if case.pet is None else grids.resample(case.pet, grid, 0.0)
    return Segmentation.from_mask(mask, ct, pet, grid), case.ct.geometry
