"""What grows with the number of slices: the reading, never the network."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from algorithm.network.package import ModelPackage
from benchmarks import limits
from benchmarks.bounds import Bound, gigabytes
from benchmarks.long_scans import make_long_scans
from benchmarks.timing import Repeats, time_calls
from benchmarks.watched import run_watched
from contract.images.volumes import read_header

# Of two scans' seconds in the network, or nanoseconds of reading a voxel, one may be so much larger.
FLAT: Final = 1.25
READ_TO_READ_ALONE: Final = 1.5
MOST_GB: Final = 6.0


@dataclass(frozen=True)
class Growth:
    """Medians of one scan, all passes: seconds in the network and reading, SimpleITK's own reading, peak memory."""

    ct_slices: int
    pet_slices: int
    voxels: int
    forwards: int
    network_s: float
    read_s: float
    read_alone_s: float
    total_s: float
    peak_memory_mib: float

    @property
    def read_ns_a_voxel(self) -> float:
        """Nanoseconds of reading a voxel of CT or PET."""
        return self.read_s / self.voxels * 1e9

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {**asdict(self), "read_ns_a_voxel": self.read_ns_a_voxel}

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        return (
            f"{self.ct_slices}, {self.pet_slices}",
            f"{self.forwards}",
            f"{self.network_s:.2f} s",
            f"{self.read_s:.2f} s",
            f"{self.read_ns_a_voxel:.1f} ns",
            f"{self.read_alone_s:.2f} s",
            f"{self.total_s:.2f} s",
            f"{self.peak_memory_mib:.0f}",
        )


HEADER: Final = (
    "slices of CT, PET",
    "tiles",
    "network",
    "read",
    "read, a voxel",
    "SimpleITK read",
    "answer",
    "peak MiB",
)


def measure_growth(package: ModelPackage, whole_body_input: Path, root: Path, repeats: int) -> Iterator[Growth]:
    """Each scan in a process of its own that answers `repeats` times.

    Raises:
        HecktorError: a process failed.
    """
    for scan, input_dir in make_long_scans(whole_body_input, root):
        with tempfile.TemporaryDirectory() as output:
            run = run_watched(input_dir, Path(output), model=package.root, answers=repeats)
        paths = limits.scans(input_dir)
        alone = time_calls(limits.read_with_simpleitk(paths), Repeats(least=repeats))
        yield Growth(
            ct_slices=scan.ct_slices,
            pet_slices=scan.pet_slices,
            voxels=sum(int(np.prod(read_header(path).geometry.size)) for path in paths),
            forwards=run.answers[0].forwards,
            network_s=float(np.median([answer.forward_s for answer in run.answers])),
            read_s=float(np.median([answer.stages["read"] for answer in run.answers])),
            read_alone_s=alone.median_s,
            total_s=float(np.median([answer.seconds for answer in run.answers])),
            peak_memory_mib=run.peak_memory_mib,
        )


def growth_bounds(rows: Sequence[Growth]) -> Iterator[Bound]:
    """Flat in the network, linear and small in reading, and memory at the most slices."""
    first, last = rows[0], rows[-1]
    name = f"{last.ct_slices} slices to {first.ct_slices}"
    yield Bound(f"{name}: seconds in the network", last.network_s / first.network_s, FLAT, "at most")
    yield Bound(f"{name}: reading, a voxel", last.read_ns_a_voxel / first.read_ns_a_voxel, FLAT, "at most")
    name = f"{last.ct_slices} slices"
    yield Bound(f"{name}: reading to SimpleITK's", last.read_s / last.read_alone_s, READ_TO_READ_ALONE, "at most")
    yield Bound(f"{name}: peak memory", gigabytes(last.peak_memory_mib), MOST_GB, "at most", "GB")
