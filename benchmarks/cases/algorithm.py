"""One patient through each stage of the algorithm and through the whole process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from algorithm.deadline import Deadline
from algorithm.heads.measure import image_features
from algorithm.masks.segmentation import Segmentation
from algorithm.network.package import load_package
from algorithm.region import grids
from algorithm.region.localise import localise
from benchmarks.cases import limits
from benchmarks.cases.data import SIZES, BenchData
from benchmarks.cases.patient import network_grid, patient_case, tiles_per_pass
from benchmarks.harness.measurement import ONCE, PROCESS, STAGE, Measurement, Work
from benchmarks.harness.timing import Command, Repeats
from contract import platform
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume, write_mask

READY: Final = """
import sys
from pathlib import Path
from algorithm.network import segment
from algorithm.network.resident import Resident
Resident(Path(sys.argv[1]), "cpu").load()
"""
PROCESSES: Final = ("segmentation", "rfs")
# Importing torch again and again would be most of a quick run.
NETWORK_STAGES: Final = ("forward alone", "load model", "one pass", *(f"process: {t}, one pass" for t in PROCESSES))
DEFAULT_LIMIT: Final = "process: segmentation, default limit"


def measurements(data: BenchData, model: Path) -> Iterator[Measurement]:
    """Start-up, then limits, stages and whole processes at each size; partners come first."""
    yield Measurement("start-up", "import torch alone", partial(_python, "import torch"), repeats=PROCESS)
    ready, against = partial(_python, READY, model), ("start-up/import torch alone",)
    yield Measurement("start-up", "import to ready", ready, against, repeats=PROCESS)
    for size in SIZES:
        yield from PatientStages(data, model, size).measurements()


def algorithm_command(task: str, model: Path, input_dir: Path, output_dir: Path, *extra: str) -> tuple[str, ...]:
    """The command line of the algorithm."""
    command = (sys.executable, "-m", "algorithm", "--task", task, "--model", str(model))
    return (*command, "--input", str(input_dir), "--output", str(output_dir), *extra)


@dataclass(frozen=True)
class PatientStages:
    """Everything that is measured on the patient of one size."""

    data: BenchData
    model: Path
    size: str

    def measurements(self) -> Iterator[Measurement]:
        """All of them in the order of the table."""
        yield self._row("inflate alone", self._inflate)
        yield self._row("SimpleITK read alone", self._read_alone, "inflate alone")
        yield self._row("copy of the CT", self._copy)
        yield self._row("SimpleITK linear alone", self._linear_alone)
        yield self._row("deflate alone", self._deflate)
        yield self._row("forward alone", self._forward_alone)
        yield self._row("read", self._read, "SimpleITK read alone")
        yield self._row("localise", self._localise, "copy of the CT")
        yield self._row("resample", self._resample, "SimpleITK linear alone")
        yield self._row("load model", self._load_model, "forward alone")
        yield self._row("one pass", self._one_pass, "forward alone")
        yield self._row("restore", self._restore, "copy of the CT")
        yield self._row("measure", self._measure, "copy of the CT")
        yield self._row("write", self._write, "deflate alone")
        for task in PROCESSES:
            work = partial(self._process, task, ("--passes", "1"))
            yield self._row(f"process: {task}, one pass", work, "forward alone", PROCESS)
        work = partial(self._process, "segmentation", ())
        yield self._row(DEFAULT_LIMIT, work, "forward alone", ONCE)

    def _row(
        self, name: str, prepare: Callable[[Path], Work], against: str = "", repeats: Repeats = STAGE
    ) -> Measurement:
        partners = (f"{self.size}/{against}",) if against else ()
        quick = name != DEFAULT_LIMIT and (self.size == SIZES[0] or name not in NETWORK_STAGES)
        return Measurement(self.size, name, prepare, partners, repeats=repeats, quick=quick)

    @property
    def _scans(self) -> list[Path]:
        return limits.scans(self.data.input_dir(self.size))

    def _inflate(self, _: Path) -> Work:
        return limits.inflate(self._scans)

    def _read_alone(self, _: Path) -> Work:
        return limits.read_with_simpleitk(self._scans)

    def _copy(self, _: Path) -> Work:
        return limits.copy_in_memory(self._scans[0])

    def _deflate(self, _: Path) -> Work:
        return limits.deflate(self.data.reference(self.size))

    def _linear_alone(self, _: Path) -> Work:
        case = patient_case(self.data.input_dir(self.size))
        grid = network_grid(case, load_package(self.model))
        return limits.linear_with_simpleitk([case.ct] + ([case.pet] if case.pet else []), grid)

    def _forward_alone(self, _: Path) -> Work:
        """The network on as many tiles of noise as a pass has."""
        import torch

        from algorithm.network import devices, networks

        package = load_package(self.model)
        tiles = tiles_per_pass(network_grid(patient_case(self.data.input_dir(self.size)), package), package)
        network = networks.Networks(package).of(0, devices.device_named("cpu"))
        shape = (1, len(package.manifest.channels), *(int(n) for n in package.configuration["patch_size"]))
        tile = torch.randn(shape, generator=torch.Generator().manual_seed(0))

        @torch.inference_mode()
        def forward() -> None:
            with torch.autocast("cpu", torch.bfloat16, enabled=devices.cpu_has_bfloat16()):
                for _ in range(tiles):
                    network(tile)

        return forward

    def _read(self, _: Path) -> Work:
        return partial(patient_case, self.data.input_dir(self.size))

    def _localise(self, _: Path) -> Work:
        return partial(localise, patient_case(self.data.input_dir(self.size)))

    def _resample(self, _: Path) -> Work:
        from algorithm.network import segment

        case, package = patient_case(self.data.input_dir(self.size)), load_package(self.model)
        grid = network_grid(case, package)
        return lambda: segment.normalise(segment.network_channels(case, grid), package)

    def _load_model(self, _: Path) -> Work:
        from algorithm.network.resident import Resident

        return lambda: Resident(self.model, "cpu").load()

    def _one_pass(self, _: Path) -> Work:
        from algorithm.network import devices, images, networks, passes, segment, windows

        case, package = patient_case(self.data.input_dir(self.size)), load_package(self.model)
        channels = segment.network_channels(case, network_grid(case, package))
        image, device = images.MemberImage.of(segment.normalise(channels, package)), devices.device_named("cpu")
        ready = networks.Networks(package)
        return lambda: passes.Passes(image, (windows.Pass(0),), ready, Deadline(600.0), device).run()

    def _restore(self, _: Path) -> Work:
        segmentation, ct = self.reference_segmentation()
        return partial(segmentation.mask_on, ct)

    def _measure(self, _: Path) -> Work:
        segmentation, _ct = self.reference_segmentation()
        return partial(image_features, segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid)

    def _write(self, scratch: Path) -> Work:
        mask = read_volume(self.data.reference(self.size))
        return partial(write_mask, scratch / platform.MASK_FILE_NAME, mask.array, mask.geometry)

    def _process(self, task: str, extra: tuple[str, ...], scratch: Path) -> Work:
        """The whole algorithm on this patient."""
        extra = ("--device", "cpu", *extra)
        return Command(algorithm_command(task, self.model, self.data.input_dir(self.size), scratch, *extra))

    def reference_segmentation(self) -> tuple[Segmentation, Geometry]:
        """The segmentation of a network that reproduces the reference, and the CT's grid."""
        case = patient_case(self.data.input_dir(self.size))
        grid = network_grid(case, load_package(self.model))
        mask = grids.resample_mask(read_volume(self.data.reference(self.size)), grid)
        ct = grids.resample(case.ct, grid, -1024.0)
        pet = None if case.pet is None else grids.resample(case.pet, grid, 0.0)
        return Segmentation.from_mask(mask, ct, pet, grid), case.ct.geometry


def _python(*arguments: str | Path) -> Work:
    """A Python process that runs some code; the last argument is the scratch folder, which it does not need."""
    return Command((sys.executable, "-c", *map(str, arguments[:-1])))
