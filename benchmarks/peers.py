"""`scripts/bench --peers`: compare the evaluation with SimpleITK, lifelines, panoptica and surface-distance."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from benchmarks.suite import Benchmark, Call, parse_suite_options, read_images, run_suite
from contract.editions import DEFAULT_EDITION
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from contract.io.files import parse_json
from contract.platform import MASK_FILE_NAME
from evaluation.editions.profile import load_profile
from evaluation.inputs.submission import SubmittedAnswer
from evaluation.metrics.concordance import PairCounter
from evaluation.metrics.lesions import compare_lesions
from evaluation.metrics.rules import MaskRules
from evaluation.metrics.surface import compare_surfaces
from evaluation.rows.comparison import MaskPair, compare_pair

SPACING_MM: Final = (1.0, 1.0, 2.0)
IN_PLANE: Final = 512
SLICES: Final = 150
QUICK_SLICES: Final = 26
PATIENTS: Final = 10_000
BOOTSTRAPS: Final = 1_000
LABELS: Final = (("gtvp", 1), ("gtvn", 2))
PYTHON: Final = Path(".venv-peers/bin/python")
LESIONS: Final = "lesions.npz"
REFERENCE: Final = Path("reference.mha")
PREDICTION: Final = Path("prediction") / MASK_FILE_NAME
CUBES: Final = {"gtvp_hd95_mm": 1.0, "gtvp_surface_dsc": 1.0, "gtvn_hd95_mm": 3.0}


def main(argv: Sequence[str]) -> int:
    """Measure and report; a ratio above its aim is reported, but does not change the exit status."""
    runner, options = parse_suite_options(("-m", "benchmarks", "--peers"), argv)
    if not options.worker:
        check_values(PYTHON, options.folder, QUICK_SLICES if options.quick else SLICES)
    run_suite(runner, "peers", list(make_benchmarks(PYTHON, options.folder)))
    return 0


def make_benchmarks(python: Path, folder: Path) -> Iterator[Benchmark]:
    """Yield each peer, and after it this project's code with the aim of its ratio, on the masks of `check_values`."""
    yield Benchmark("SimpleITK read", partial(read_images, (folder / REFERENCE, folder / PREDICTION)))
    yield Benchmark("SimpleITK filters", partial(_prepare_filters, folder))
    for peer, max_ratio in (("SimpleITK read", 1.5), ("SimpleITK filters", 1 / 8)):
        yield Benchmark(f"row, against {peer}", partial(_prepare_row, folder), peer, max_ratio)
    surfaces = ("surface-distance", compute_distances, 1 / 2)
    for package, call, max_ratio in (("panoptica", count_lesions, 1 / 4), surfaces):
        yield Benchmark(package, partial(_prepare_peer_call, package, python, folder), other_process=True)
        yield Benchmark(f"ours, against {package}", partial(_prepare_lesion_call, call, folder), package, max_ratio)
    yield Benchmark("C-index: lifelines", _prepare_lifelines)
    yield Benchmark("C-index: ours", _prepare_c_index, "C-index: lifelines", 1)
    # All bootstraps are compared with one call of lifelines, since its calls differ only by the sample.
    yield Benchmark(
        f"C-index: ours, {BOOTSTRAPS} bootstraps", _prepare_bootstraps, "C-index: lifelines", BOOTSTRAPS / 20
    )


def check_values(python: Path, folder: Path, slices: int) -> None:
    """Write the masks to measure, with lesions on `slices` slices, and compare the peers' values with this project's.

    Raises:
        HecktorError: Panoptica counts other lesions, or a distance on cubes differs from the derived value.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pair = make_lesions(slices)
    cubes = make_cubes()
    pair.save(folder / LESIONS)
    cubes.save(folder / "cubes.npz")
    grid = Geometry((IN_PLANE, IN_PLANE, slices), SPACING_MM, (0.0, 0.0, 0.0))
    write_mask(folder / REFERENCE, pair.reference, grid)
    write_mask(folder / PREDICTION, pair.predicted, grid)
    counts = count_lesions(pair)
    ours = {"tp": counts.true_positives, "fp": counts.false_positives, "fn": counts.false_negatives}
    with Peer("panoptica", python, folder / LESIONS) as panoptica:
        values = panoptica.values()
    if values != ours:
        raise HecktorError(f"panoptica: found {values}, expected our counts {ours}")
    with Peer("surface-distance", python, folder / "cubes.npz") as surface_distance:
        our_distances = compute_distances(cubes)
        peer_distances = surface_distance.values()
    for key, expected in CUBES.items():
        if not our_distances[key] == peer_distances[key] == expected:
            actual = f"{our_distances[key]} and {peer_distances[key]} (surface-distance)"
            raise HecktorError(f"cubes, {key}: found {actual}, expected {expected}")


@dataclass(frozen=True)
class LabelPair:
    """Two label arrays (z, y, x) and their spacing in the same order."""

    reference: npt.NDArray[np.uint8]
    predicted: npt.NDArray[np.uint8]
    spacing_zyx_mm: tuple[float, float, float]

    def save(self, path: Path) -> None:
        """Write the arrays for another environment."""
        np.savez(path, reference=self.reference, predicted=self.predicted, spacing_mm=self.spacing_zyx_mm)

    @classmethod
    def load(cls, path: Path) -> LabelPair:
        """Read the arrays that `save` wrote."""
        masks = np.load(path)
        z, y, x = masks["spacing_mm"].tolist()
        return cls(masks["reference"], masks["predicted"], (z, y, x))


def make_lesions(slices: int) -> LabelPair:
    """Make one primary tumour and six nodes; the prediction is shifted by 2 and 3 voxels."""
    z, y, x = np.ogrid[:slices, :IN_PLANE, :IN_PLANE]
    mask = np.zeros((slices, IN_PLANE, IN_PLANE), dtype=np.uint8)

    def draw_ball(label: int, centre: tuple[float, float, float], radius_mm: float) -> None:
        squares = ((z - centre[0]) * SPACING_MM[2]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2
        mask[squares < radius_mm**2] = label

    draw_ball(1, (slices / 2, 250, 260), 20)
    for number in range(6):
        draw_ball(2, (slices / 2 - 4 + 2 * number, 200 + 30 * (number % 3), 170 + 180 * (number % 2)), 6 + number)
    return LabelPair(mask, np.roll(mask, (2, 3), axis=(1, 2)), (SPACING_MM[2], SPACING_MM[1], SPACING_MM[0]))


def make_cubes() -> LabelPair:
    """Make shapes whose distances do not depend on the division of a surface into elements.

    Voxels have 1 mm. GTVp is a cube of 100 mm inside a cube of 102 mm. At least 95% of each surface has a distance of
    1 mm, and no corner is further than sqrt(3) mm: HD95 is 1 mm, surface DSC at 2 mm is 1. GTVn is a cube of 60 mm that
    is shifted by 3 mm along x. Two of its six faces are 3 mm away and no point is further: HD95 is 3 mm.
    """
    reference, predicted = (np.zeros((110, 110, 220), dtype=np.uint8) for _ in range(2))
    reference[5:105, 5:105, 5:105] = 1
    predicted[4:106, 4:106, 4:106] = 1
    reference[20:80, 20:80, 120:180] = 2
    predicted[20:80, 20:80, 123:183] = 2
    return LabelPair(reference, predicted, (1.0, 1.0, 1.0))


class Peer:
    """Another package in a process with its own environment, which loads the masks and answers each request."""

    def __init__(self, package: str, python: Path, source: Path) -> None:
        script = Path(__file__).with_name("other_packages.py")
        self._package = package
        self._process = subprocess.Popen(
            (str(python), str(script), package, str(source)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def values(self) -> dict[str, float]:
        """Request the values once.

        Raises:
            HecktorError: The process ended without an answer.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        line = ""
        if stdin is not None and stdout is not None:
            with suppress(BrokenPipeError):
                stdin.write("\n")
                stdin.flush()
            line = stdout.readline()
        if not line:
            raise HecktorError(f"{self._package}: exit status {self._process.wait()}, expected values")
        values: dict[str, float] = parse_json(line, self._package)
        return values


def _prepare_peer_call(package: str, python: Path, folder: Path) -> Call:
    return Peer(package, python, folder / LESIONS).values


def _prepare_row(folder: Path) -> Call:
    """Prepare the evaluation's row of one pair of masks."""
    submitted = SubmittedAnswer("case", folder / PREDICTION.parent)
    return partial(compare_pair, MaskPair(folder / REFERENCE, submitted, load_mask_rules()))


def load_mask_rules() -> MaskRules:
    """Load the default edition's rules for masks."""
    (rules,) = (answer.rules for answer in load_profile(DEFAULT_EDITION).find_task("segmentation").answers.values())
    if not isinstance(rules, MaskRules):
        raise TypeError("expected rules of a mask for segmentation")
    return rules


def _prepare_filters(folder: Path) -> Call:
    """Prepare overlap and shape filters on each label, and components of the nodes.

    The components are not matched, so the time is a lower bound.
    """

    def run_filters() -> None:
        reference, predicted = (sitk.ReadImage(str(folder / name)) for name in (REFERENCE, PREDICTION))
        overlap = sitk.LabelOverlapMeasuresImageFilter()
        shape = sitk.LabelShapeStatisticsImageFilter()
        overlap.Execute(reference, predicted)
        for _, label in LABELS:
            overlap.GetDiceCoefficient(label)
        for image in (reference, predicted):
            shape.Execute(image)
            for label in shape.GetLabels():
                shape.GetPhysicalSize(label)
            shape.Execute(sitk.ConnectedComponent(sitk.Equal(image, 2), True))

    return run_filters


def count_lesions(pair: LabelPair) -> Any:
    """Count true positives, false positives and false negatives among the nodes."""
    return compare_lesions(pair.reference == 2, pair.predicted == 2, load_mask_rules()).counts


def _prepare_lesion_call(measure: Callable[[LabelPair], object], folder: Path) -> Call:
    return partial(measure, LabelPair.load(folder / LESIONS))


def compute_distances(pair: LabelPair) -> dict[str, float]:
    """Compute HD95 and surface DSC of both labels."""
    values: dict[str, float] = {}
    for name, label in LABELS:
        row = compare_surfaces(pair.reference == label, pair.predicted == label, pair.spacing_zyx_mm, load_mask_rules())
        figures = {"hd95_mm": row.values["hd95_mm"], "surface_dsc": row.values["surface_dsc"]}
        values |= {f"{name}_{key}": value for key, value in figures.items() if value is not None}
    return values


def _draw_patients() -> tuple[Any, Any, Any]:
    """Draw times, events and risks of random patients."""
    rng = np.random.default_rng(0)
    times = rng.integers(1, 3000, PATIENTS).astype(float)
    events = rng.random(PATIENTS) < 0.4
    return times, events, rng.normal(size=PATIENTS)


def _prepare_lifelines() -> Call:
    from lifelines.utils import concordance_index

    times, events, risks = _draw_patients()
    return lambda: concordance_index(times, -risks, events)


def _prepare_c_index() -> Call:
    times, events, risks = _draw_patients()
    return lambda: PairCounter(times, events, risks).count(np.ones((1, PATIENTS)))


def _prepare_bootstraps() -> Call:
    counter = PairCounter(*_draw_patients())
    weights = np.random.default_rng(1).multinomial(PATIENTS, np.full(PATIENTS, 1 / PATIENTS), BOOTSTRAPS)
    return partial(counter.count, weights.astype(float))
