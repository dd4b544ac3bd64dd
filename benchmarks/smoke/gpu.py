"""`scripts/gpu-smoke`: full-size networks within the tasks' limits and epochs of each full preset on a CUDA card."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.data import SIZES, BenchData, make_patient
from benchmarks.smoke.packages import PLAN_NAMES, write_random_package
from benchmarks.smoke.runs import (
    CARD_GIB,
    HALF,
    MARGIN_S,
    PASSES,
    T4_PASSES,
    TASKS,
    run_patient,
    time_convolution,
    time_tile,
)
from benchmarks.smoke.training import FITS, FULL_PRESETS, PUBLISHED_GB, WAYS, time_training
from benchmarks.suite import markdown
from contract.documents import installed_version
from contract.files import write_json

NO_CARD: Final = 3
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Limit:
    """A limit on a figure of a run; NaN and absent figures never keep it."""

    figure: str
    least: float = -float("inf")
    most: float = float("inf")

    def text(self, figures: Figures) -> str:
        """The limit, the figure, and whether it holds."""
        value = figures.get(self.figure)
        if value is None:
            return f"{self.figure}: not measured"
        bound = f"at least {self.least:g}" if self.least > -float("inf") else f"at most {self.most:g}"
        verdict = "holds" if self.least <= value <= self.most else "**does not hold**"
        return f"{self.figure} {value:.3g}, {bound}: {verdict}"


RUN_LIMITS: Final = (Limit(PASSES, least=1), Limit(MARGIN_S, least=0), Limit(T4_PASSES, least=1))
# A T4 has 16 GiB; the process limits itself to 14.
CARD_LIMIT: Final = Limit(CARD_GIB, most=14.0)
# Above it, torch computes half-precision convolutions without cuDNN (requirements/torch-cuda.txt).
HALF_LIMIT: Final = Limit(HALF, most=1.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Make phantoms and packages, run every task, report; returns 3 without a CUDA card.

    Raises:
        HecktorError: a run failed.
    """
    options = _parser().parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.stdout.write("gpu-smoke: no CUDA card found, nothing was run (without one: --device cpu --quick)\n")
        return NO_CARD
    card = torch.cuda.get_device_name() if options.device == "cuda" else None
    rows: list[dict[str, Any]] = []
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.output, prefix=".scratch-") as scratch:
        for name, figures, limits in _runs(options, Path(scratch)):
            lines = [limit.text(figures) for limit in limits]
            sys.stderr.write("\n".join([name, *(f"  {line}" for line in lines)]) + "\n")
            rows.append({"name": name, "figures": dict(figures), "limits": lines})
    target = options.output / ("gpu-smoke-quick.json" if options.quick else "gpu-smoke.json")
    versions = {name: installed_version(name) for name in ("torch", "nnunetv2", "hecktor")}
    write_json(target, {"card": card, "versions": versions, "quick": options.quick, "runs": rows})
    cells = [(row["name"], key, f"{value:.4g}") for row in rows for key, value in row["figures"].items()]
    broken = [f"{row['name']}: {line}" for row in rows for line in row["limits"] if not line.endswith(": holds")]
    lines = [*markdown([("run", "figure", "value"), *cells]), "", *(broken or ["All limits hold."])]
    sys.stdout.write("\n".join([card or "CPU", *lines, f"written to {target}"]) + "\n")
    return 0


def _runs(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Figures, Sequence[Limit]]]:
    """Name, figures and limits of each run: tiles, patients, trainings."""
    data = BenchData(options.output / "data" / ("quick" if options.quick else "full"), options.quick)
    on_card = (CARD_LIMIT,) if options.device == "cuda" else ()
    yield "one 3D convolution", time_convolution(options.device, quick=not on_card), (HALF_LIMIT,) if on_card else ()
    for size in options.sizes:
        make_patient(size, data)
    for plan in options.plans:
        editions = dict.fromkeys(TASKS[task][0] for task in options.tasks)
        packages = {
            edition: write_random_package(folder / plan / edition, plan, edition, quick=options.quick)
            for edition in editions
        }
        if packages:
            yield f"{plan}: one tile", time_tile(next(iter(packages.values())), options.device), ()
        for size in options.sizes:
            for task in options.tasks:
                name, package = f"{plan}: {size.replace('_', ' ')}, {task}", packages[TASKS[task][0]]
                figures = run_patient(task, options.device, package, data.input_dir(size), folder / name)
                yield name, figures, (*RUN_LIMITS, *on_card)
    for preset in options.presets:
        memory = (Limit(CARD_GIB, most=PUBLISHED_GB[preset]),) if on_card else ()
        for way in (None, *(WAYS if on_card and preset == FULL_PRESETS[0] else ())):
            name = f"training {preset}{f', {way}' if way else ''}"
            figures = time_training(preset, way, options.device, options.quick, folder / name)
            yield name, figures, (Limit(FITS, least=1), *memory)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/gpu-smoke", description="Run full-size plans on a CUDA card.")
    parser.add_argument("--quick", action="store_true", help="tiny networks, to see that they run, and one convolution")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder for phantoms and JSON (%(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--plans", nargs="+", choices=PLAN_NAMES, default=PLAN_NAMES)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--tasks", nargs="*", choices=tuple(TASKS), default=tuple(TASKS))
    parser.add_argument("--presets", nargs="*", choices=FULL_PRESETS, default=FULL_PRESETS, help="presets to train")
    return parser
