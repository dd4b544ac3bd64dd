"""A whole patient by the algorithm and by `nnUNetv2_predict`, with the same weights and settings."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from algorithm.network.package import ModelPackage
from benchmarks.bounds import Bound, gigabytes
from benchmarks.data import SIZES, Data
from benchmarks.nnunet_results import DATASET, FILE_ENDING, TRAINER, Results, dice, nnunet_input, results_folder
from benchmarks.timing import Repeats, Timing, run_command, time_command, tree_memory_once_mib
from contract import platform, sockets
from contract.errors import HecktorError

CASE: Final = "patient"
# How nnU-Net may share out the work: its default, one process each for what comes before and after, none at all.
WAYS: Final = {"3 and 3 processes (its default)": 3, "1 and 1 process": 1, "no processes": 0}
MOST_MEMORY_MIB: Final = 20 * 1024
TIMES_FASTER: Final = {"head_and_neck": 1.0, "whole_body": 3.0}
MEMORY_SHARE: Final = 0.5
MOST_GB: Final = 3.0


@dataclass(frozen=True)
class PeerRun:
    """One run of nnU-Net; where it was killed for its memory, seconds and MiB are less than it wanted."""

    way: str
    seconds: float
    peak_memory_mib: float
    killed: bool

    @property
    def note(self) -> str:
        """What must be known of the figures."""
        return f"nnU-Net killed above {MOST_MEMORY_MIB} MiB" if self.killed else f"nnU-Net with {self.way}"


@dataclass(frozen=True)
class WholePatient:
    """Both on one patient: ours over its repeats, nnU-Net once a way, and Dice by label of each pair of masks."""

    size: str
    ours: Timing
    peers: tuple[PeerRun, ...]
    dice: Mapping[str, Mapping[str, float | None]]

    @property
    def fastest(self) -> PeerRun:
        """nnU-Net's quickest way."""
        return min(self.peers, key=lambda run: run.seconds)

    @property
    def leanest(self) -> PeerRun:
        """The way in which nnU-Net needs the least memory."""
        return min(self.peers, key=lambda run: run.peak_memory_mib)

    def bounds(self) -> Iterator[Bound]:
        """Speed and memory, each against nnU-Net at its best."""
        where = self.size.replace("_", " ")
        faster = self.fastest.seconds / self.ours.median_s
        memory = self.ours.peak_memory_mib / self.leanest.peak_memory_mib
        note = f"{self.ours.median_s:.1f} s, other {self.fastest.seconds:.1f} s; {self.fastest.note}"
        yield Bound(f"{where}: times as fast", faster, TIMES_FASTER[self.size], "at least", "", note)
        note = f"{self.ours.peak_memory_mib:.0f} MiB, other {self.leanest.peak_memory_mib:.0f} MiB; {self.leanest.note}"
        yield Bound(f"{where}: share of its peak memory", memory, MEMORY_SHARE, "at most", "", note)
        if self.size == "head_and_neck":
            yield Bound(f"{where}: peak memory", gigabytes(self.ours.peak_memory_mib), MOST_GB, "at most", "GB")

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {
            "size": self.size,
            "ours": self.ours.as_json(),
            "nnunet": [asdict(run) for run in self.peers],
            "dice": self.dice,
        }


def measure_whole_patients(package: ModelPackage, data: Data, repeats: Repeats) -> Iterator[WholePatient]:
    """Head and neck with every way of sharing out nnU-Net's work, whole body with the quickest of them.

    Raises:
        HecktorError: a process failed for another reason than its memory.
    """
    with tempfile.TemporaryDirectory(dir=data.root, prefix=".scratch-") as scratch:
        results = results_folder(package, Path(scratch) / "results")
        ways = list(WAYS)
        for size in SIZES:
            found = _measure(size, package, results, data, repeats, ways)
            yield found
            ways = [found.fastest.way]


def _measure(
    size: str, package: ModelPackage, results: Results, data: Data, repeats: Repeats, ways: list[str]
) -> WholePatient:
    folder = results.root.parent / size
    nnunet_input(data.input_dir(size), folder / "nnunet_input", CASE)
    command = [sys.executable, "-m", "algorithm", "--task", "segmentation", "--device", "cpu"]
    command += ["--model", str(package.root), "--input", str(data.input_dir(size)), "--output", str(folder / "ours")]
    ours = time_command(command, repeats)
    peers = tuple(_peer(way, results, folder) for way in ways)
    mask = sockets.MASK.path_under(folder / "ours") / platform.MASK_FILE_NAME
    masks = {"ours": mask, "nnU-Net": folder / "nnunet" / f"{CASE}{FILE_ENDING}", "reference": data.reference(size)}
    return WholePatient(size, ours, peers, dict(_agreement({k: path for k, path in masks.items() if path.is_file()})))


def predict_command(results: Results, input_dir: Path, output_dir: Path, processes: int) -> list[str]:
    """`nnUNetv2_predict` on a CPU with all folds and the package's mirrors, half a patch a step."""
    command = [str(Path(sys.executable).with_name("nnUNetv2_predict")), "-i", str(input_dir), "-o", str(output_dir)]
    command += ["-d", DATASET, "-p", results.plans_name, "-tr", TRAINER, "-c", results.configuration, "-f"]
    command += [str(fold) for fold in range(results.folds)]
    command += ["-step_size", "0.5", "-device", "cpu", "-npp", str(processes), "-nps", str(processes)]
    return [*command, "--disable_progress_bar"]


def _peer(way: str, results: Results, folder: Path) -> PeerRun:
    environment = {**os.environ, "nnUNet_results": str(results.root)}
    for name in ("nnUNet_raw", "nnUNet_preprocessed"):
        environment[name] = str(folder)
    command = predict_command(results, folder / "nnunet_input", folder / "nnunet", WAYS[way])
    done = run_command(
        command, most_memory_mib=MOST_MEMORY_MIB, environment=environment, memory_mib=tree_memory_once_mib
    )
    if done.status and not done.killed:
        raise HecktorError(f"nnUNetv2_predict with {way}: status {done.status}, it said: {done.said[-2000:]}")
    return PeerRun(way, done.seconds, done.peak_memory_mib, done.killed)


def _agreement(masks: Mapping[str, Path]) -> Iterator[tuple[str, dict[str, float | None]]]:
    for first, second in (("ours", "nnU-Net"), ("ours", "reference"), ("nnU-Net", "reference")):
        if first in masks and second in masks:
            yield f"{first} and {second}", dice(masks[first], masks[second])
