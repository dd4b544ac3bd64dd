"""`scripts/bench --peers`: the evaluation against SimpleITK, lifelines, panoptica and surface-distance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import SimpleITK as sitk

from benchmarks.cases import limits
from benchmarks.cases.evaluation import mask_rules, score_pair
from benchmarks.harness.bounds import TIME_RATIO, Bound
from benchmarks.harness.measurement import ONCE, PROCESS, Measurement, Work
from benchmarks.harness.suite import run_suite, suite_parser
from benchmarks.harness.timing import Command, Timing, run_command, time_calls
from benchmarks.peers import masks
from contract.errors import HecktorError
from contract.files import read_json
from evaluation.metrics.concordance import PairCounter
from evaluation.metrics.lesions import compare_lesions
from evaluation.metrics.surface import compare_surfaces

SLICES: Final = (50, 150, 450)
PATIENTS: Final = 10_000
BOOTSTRAPS: Final = 1_000
LABELS: Final = (("gtvp", 1), ("gtvn", 2))
CUBES: Final = {"gtvp_hd95_mm": 1.0, "gtvp_surface_dsc": 1.0, "gtvn_hd95_mm": 3.0}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; a bound that does not hold is reported and does not change the exit status."""
    parser = suite_parser("scripts/bench --peers", "Measure the evaluation against its peers.")
    parser.add_argument("--python", type=Path, help="interpreter that has panoptica and surface-distance")
    options = parser.parse_args(argv)
    run_suite("peers", measurements(options.python), options)
    return 0


def measurements(python: Path | None) -> Iterator[Measurement]:
    """Each peer, then ours with the bound on its ratio; the packages in `python` only where it is given."""
    for slices in SLICES:
        quick = slices == SLICES[0]
        group = f"row of {slices} slices"
        yield Measurement(group, "SimpleITK read", partial(_read, slices), quick=quick)
        yield Measurement(group, "SimpleITK filters", partial(_filters, slices), quick=quick)
        for peer, ratio in (("SimpleITK read", 1.5), ("SimpleITK filters", 1 / 8)):
            name, against = f"row against {peer}", (f"{group}/{peer}",)
            yield Measurement(group, name, partial(_row, slices), against, _at_most(ratio), quick=quick)
    if python is not None:
        yield Measurement("lesions", "panoptica", partial(_panoptica, python))
        yield Measurement("lesions", "lesions", _lesions, ("lesions/panoptica",), _at_most(1 / 4))
        yield Measurement("surfaces", "surface-distance", partial(_surface_distance, python))
        yield Measurement("surfaces", "surfaces", _surfaces, ("surfaces/surface-distance",), _at_most(1 / 2))
    group = f"C-index of {PATIENTS:,} patients"
    yield Measurement(group, "lifelines", _lifelines)
    yield Measurement(group, "lifelines, bootstraps", _lifelines_bootstraps, quick=False)
    yield Measurement(group, "C-index", _c_index, (f"{group}/lifelines",), _at_most(1))
    against = (f"{group}/lifelines, bootstraps",)
    yield Measurement(group, "bootstraps", _bootstraps, against, _at_most(1 / 20), repeats=ONCE, quick=False)


def _at_most(ratio: float) -> tuple[Bound, ...]:
    return (Bound(TIME_RATIO, "at most", ratio),)


def _read(slices: int, scratch: Path) -> Work:
    reference, folder = masks.write_pair(scratch, slices)
    return limits.read_with_simpleitk([reference, *folder.iterdir()])


def _row(slices: int, scratch: Path) -> Work:
    return partial(score_pair, *masks.write_pair(scratch, slices))


def _filters(slices: int, scratch: Path) -> Work:
    """Overlap and shape filters on each label, and components of the nodes, without matching them: a lower bound."""
    reference_path, folder = masks.write_pair(scratch, slices)
    paths = (reference_path, next(folder.iterdir()))

    def filters() -> None:
        reference, predicted = (sitk.ReadImage(str(path)) for path in paths)
        overlap, shape = sitk.LabelOverlapMeasuresImageFilter(), sitk.LabelShapeStatisticsImageFilter()
        overlap.Execute(reference, predicted)
        for _, label in LABELS:
            overlap.GetDiceCoefficient(label)
        for image in (reference, predicted):
            shape.Execute(image)
            for label in shape.GetLabels():
                shape.GetPhysicalSize(label)
            shape.Execute(sitk.ConnectedComponent(sitk.Equal(image, 2), True))

    return filters


def _peer(package: str, pair: masks.LabelPair, folder: Path, python: Path) -> tuple[Timing, Mapping[str, float]]:
    """Timing and values of another package, measured by a process of its own environment."""
    source, target = folder / f"{package}.npz", folder / f"{package}.json"
    pair.save(source)
    script = Path(__file__).with_name("other_packages.py")
    run = run_command(Command((str(python), str(script), package, str(source), str(target))))
    if run.status:
        raise HecktorError(f"{package}: exit status {run.status}, expected 0: {run.output[-500:]}")
    content = read_json(target)
    return Timing(tuple(content["seconds"]), run.peak_memory_mib), content["values"]


def _panoptica(python: Path, scratch: Path) -> Work:
    """Raises `HecktorError` unless panoptica counts the same lesions as we do."""
    pair = masks.lesions(150)
    timing, values = _peer("panoptica", pair, scratch, python)
    counts = _count(pair)
    ours = {"tp": counts.true_positives, "fp": counts.false_positives, "fn": counts.false_negatives}
    if values != ours:
        raise HecktorError(f"panoptica: found {values}, expected our counts {ours}")
    return timing


def _count(pair: masks.LabelPair) -> Any:
    return compare_lesions(pair.reference == 2, pair.predicted == 2, mask_rules()).counts


def _lesions(_: Path) -> Work:
    return partial(_count, masks.lesions(150))


def _surface_distance(python: Path, scratch: Path) -> Work:
    """Raises `HecktorError` unless both give the derived distances on cubes."""
    cubes = masks.cubes()
    ours, theirs = _distances(cubes), _peer("surface-distance", cubes, scratch, python)[1]
    for key, expected in CUBES.items():
        if not ours[key] == theirs[key] == expected:
            raise HecktorError(
                f"cubes, {key}: found {ours[key]} and {theirs[key]} (surface-distance), expected {expected}"
            )
    return _peer("surface-distance", masks.lesions(150), scratch, python)[0]


def _surfaces(_: Path) -> Work:
    return partial(_distances, masks.lesions(150))


def _distances(pair: masks.LabelPair) -> dict[str, float]:
    distances: dict[str, float] = {}
    for name, label in LABELS:
        row = compare_surfaces(pair.reference == label, pair.predicted == label, pair.spacing_zyx_mm, mask_rules())
        figures = {"hd95_mm": row.values["hd95_mm"], "surface_dsc": row.values["surface_dsc"]}
        distances |= {f"{name}_{key}": value for key, value in figures.items() if value is not None}
    return distances


def _patients() -> tuple[Any, Any, Any]:
    """Times, events and risks of random patients."""
    rng = np.random.default_rng(0)
    times, events = rng.integers(1, 3000, PATIENTS).astype(float), rng.random(PATIENTS) < 0.4
    return times, events, rng.normal(size=PATIENTS)


def _lifelines(_: Path) -> Callable[[], object]:
    from lifelines.utils import concordance_index

    times, events, risks = _patients()
    return lambda: concordance_index(times, -risks, events)


def _lifelines_bootstraps(scratch: Path) -> Work:
    """One call times the number of bootstraps: a thousand calls take minutes and differ by the sample alone."""
    timing = time_calls(_lifelines(scratch), PROCESS)
    return Timing(tuple(BOOTSTRAPS * seconds for seconds in timing.seconds), timing.peak_memory_mib)


def _c_index(_: Path) -> Work:
    times, events, risks = _patients()
    return lambda: PairCounter(times, events, risks).count(np.ones((1, PATIENTS)))


def _bootstraps(_: Path) -> Work:
    counter = PairCounter(*_patients())
    weights = np.random.default_rng(1).multinomial(PATIENTS, np.full(PATIENTS, 1 / PATIENTS), BOOTSTRAPS)
    return partial(counter.count, weights.astype(float))
