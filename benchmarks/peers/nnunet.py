"""`scripts/bench --nnunet`: whole patients by the algorithm and by `nnUNetv2_predict`, with the same weights."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from algorithm.network.package import DEFAULT_PACKAGE, ModelPackage, load_package
from algorithm.region.localise import Region, localise
from baseline.package.assemble import PackageRequest, package_training
from benchmarks.cases.algorithm import algorithm_command
from benchmarks.cases.data import SIZES, BenchData, bench_data, describe, facts, make_patient
from benchmarks.cases.patient import patient_case
from benchmarks.harness.bounds import MEMORY_RATIO, PEAK_GB, TIME_RATIO, Bound
from benchmarks.harness.measurement import ONCE, PROCESS, Measurement, Work
from benchmarks.harness.suite import run_suite, suite_parser
from benchmarks.harness.timing import Command
from benchmarks.peers import results as nnunet
from benchmarks.peers.results import PeerResults
from contract import platform
from contract.editions import load_edition

CASE: Final = "patient"
# nnU-Net's worker processes: its default, one each before and after the network, none.
PROCESSES: Final = {"head_and_neck": (3, 1, 0), "whole_body": (1,)}
MEMORY_LIMIT_MIB: Final = 20 * 1024
BOUNDS: Final = {
    "head_and_neck": (
        Bound(TIME_RATIO, "at most", 1.0),
        Bound(MEMORY_RATIO, "at most", 0.5),
        Bound(PEAK_GB, "at most", 3.0),
    ),
    "whole_body": (Bound(TIME_RATIO, "at most", 1 / 3), Bound(MEMORY_RATIO, "at most", 0.5)),
}

# nnU-Net's own package: the same lesions in the region.
IN_REGION: Final = "nnU-Net in the region"
PACKAGED_BOUNDS: Final = tuple(Bound(f"Dice {label} with {IN_REGION}", "at least", 0.99) for label in ("GTVp", "GTVn"))
# Without the instructions that multiply bfloat16, the algorithm computes in float32 as nnU-Net does on a CPU.
FLOAT32: Final = {"ONEDNN_MAX_CPU_ISA": "AVX2"}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; a bound that does not hold is reported and does not change the exit status."""
    parser = suite_parser("scripts/bench --nnunet", "Measure the algorithm against nnU-Net.")
    parser.add_argument("--model", type=Path, default=DEFAULT_PACKAGE, help="model package (default: the shipped one)")
    options = parser.parse_args(argv)
    package, data = load_package(options.model), bench_data(options)
    for size in SIZES:
        make_patient(size, data)
    folder = data.root / "nnunet"
    shutil.rmtree(folder, ignore_errors=True)
    results = nnunet.results_folder(package, folder / "results")
    inputs = facts(data, package)
    run_suite("nnunet", measurements(package, data, results), options, inputs, describe(inputs))
    return 0


def measurements(package: ModelPackage, data: BenchData, results: PeerResults) -> Iterator[Measurement]:
    """Every way of sharing out nnU-Net's work, then ours against the best of them, then ours as nnU-Net computes.

    The last one takes nnU-Net's results as `hecktor package` converts them, in float32, so that the masks compare.
    """
    converted = package_training(PackageRequest((results.folder,), None, results.root.parent / "package")).path
    for size in SIZES:
        folder = results.root.parent / size
        nnunet.nnunet_input(data.input_dir(size), folder / "input", CASE)
        names = {count: f"nnU-Net, {count} and {count} processes" for count in PROCESSES[size]}
        for count, name in names.items():
            work = partial(_nnunet, results, folder, data.reference(size), count)
            yield Measurement(size, name, work, repeats=ONCE, quick=count == 1)
        ours = partial(_ours, package.root, data.input_dir(size), folder, data.reference(size))
        against = tuple(f"{size}/{name}" for name in names.values())
        yield Measurement(size, "hecktor", ours, against, BOUNDS[size], PROCESS)
        work = partial(_ours, converted, data.input_dir(size), folder, data.reference(size), environment=FLOAT32)
        yield Measurement(size, "hecktor, nnU-Net's package", work, against, PACKAGED_BOUNDS, ONCE)


def predict_command(results: PeerResults, input_dir: Path, output_dir: Path, processes: int) -> list[str]:
    """`nnUNetv2_predict` on a CPU with all folds, the package's mirror axes and steps of half a patch."""
    command = [str(Path(sys.executable).with_name("nnUNetv2_predict")), "-i", str(input_dir), "-o", str(output_dir)]
    command += ["-d", nnunet.DATASET, "-p", results.plans_name, "-tr", nnunet.TRAINER, "-c", results.configuration]
    command += ["-f", *map(str, range(results.folds))]
    command += ["-step_size", "0.5", "-device", "cpu", "-npp", str(processes), "-nps", str(processes)]
    return [*command, "--disable_progress_bar"]


def _nnunet(results: PeerResults, folder: Path, reference: Path, processes: int, _: Path) -> Work:
    environment = {"nnUNet_results": str(results.root)}
    environment |= dict.fromkeys(("nnUNet_raw", "nnUNet_preprocessed"), str(folder))
    command = predict_command(results, folder / "input", folder / "output", processes)
    figures = partial(_agreement, _nnunet_mask(folder), {"reference": (reference, None)})
    return Command(tuple(command), environment, MEMORY_LIMIT_MIB, figures)


def _ours(
    model: Path,
    input_dir: Path,
    folder: Path,
    reference: Path,
    scratch: Path,
    environment: Mapping[str, str] | None = None,
) -> Work:
    command = algorithm_command("segmentation", model, input_dir, scratch, "--device", "cpu")
    mask = load_edition().algorithm("segmentation").answers[0].socket.path_under(scratch) / platform.MASK_FILE_NAME
    region = localise(patient_case(input_dir))
    others = {"nnU-Net": (_nnunet_mask(folder), None), IN_REGION: (_nnunet_mask(folder), region)}
    others |= {"reference": (reference, None)}
    return Command(command, environment or {}, figures=partial(_agreement, mask, others))


def _nnunet_mask(folder: Path) -> Path:
    return folder / "output" / f"{CASE}{nnunet.FILE_ENDING}"


def _agreement(mask: Path, others: Mapping[str, tuple[Path, Region | None]]) -> dict[str, float]:
    """Dice of each lesion label with the other masks that exist, each in its region, or everywhere for None."""
    return {
        f"Dice {label} with {name}": value
        for name, (path, region) in others.items()
        if path.is_file()
        for label, value in nnunet.dice(mask, path, region).items()
        if value is not None
    }
