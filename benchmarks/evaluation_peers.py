"""`scripts/bench --peers`: the evaluation against what it replaces, as ratios in one run, with each ratio's bound."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from benchmarks.growth import measure_growth, steady_ms_a_case
from benchmarks.machine import machine_facts
from benchmarks.timing import Repeats, time_calls
from contract.errors import HecktorError, run_main
from contract.files import read_json, write_json
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from contract.tasks import SEGMENTATION
from evaluation.editions.profile import DEFAULT_EDITION, load_edition
from evaluation.editions.rules import SegmentationRules
from evaluation.inputs.submission import Answer
from evaluation.metrics.concordance import PairCounter
from evaluation.metrics.lesions import count_lesions
from evaluation.metrics.surface import compare_surfaces
from evaluation.rows.mask import MaskPair, score_masks

SPACING_MM = (1.0, 1.0, 2.0)
IN_PLANE = 512
SLICES = (50, 150, 450)
PATIENTS, BOOTSTRAPS = 10_000, 1_000
REPEATS = Repeats(least=5, least_s=0.5)


@dataclass(frozen=True)
class Comparison:
    """Seconds of ours and of the other; `bound` is how many times faster ours must be, `note` what else was seen."""

    name: str
    ours_s: float
    other_s: float
    bound: float
    note: str = ""

    @property
    def speedup(self) -> float:
        """How many times faster ours is."""
        return self.other_s / self.ours_s

    def as_text(self) -> str:
        """One line."""
        return (
            f"{self.name}: {self.ours_s:.4g} s, other {self.other_s:.4g} s, "
            f"{self.speedup:.2f} times as fast (at least {self.bound:.2f}) {self.note}"
        )

    def as_json(self) -> dict[str, Any]:
        """All figures, and whether the bound holds."""
        return {**self.__dict__, "speedup": self.speedup, "holds": self.speedup >= self.bound}


@dataclass(frozen=True)
class Masks:
    """Two masks in memory and the distances of their voxels, (z, y, x)."""

    reference: npt.NDArray[np.uint8]
    predicted: npt.NDArray[np.uint8]
    spacing_zyx_mm: tuple[float, float, float]


@dataclass(frozen=True)
class Pair:
    """Two masks on disk and in memory."""

    reference_path: Path
    answer: Answer
    prediction_path: Path
    masks: Masks


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print one line a comparison, write JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench --peers", description="The evaluation against its peers.")
    parser.add_argument("--output", type=Path, default=Path("out/bench"), help="peers.json goes here (%(default)s)")
    parser.add_argument(
        "--python", type=Path, help="the peers' interpreter; without it panoptica and surface-distance are left out"
    )
    options = parser.parse_args(argv)
    found, growth = [], []
    with tempfile.TemporaryDirectory() as folder:
        for comparison in _comparisons(Path(folder), options.python):
            found.append(comparison)
            _say(comparison.as_text())
        pair = _make_pair(Path(folder) / "growth", 150)
        for row in measure_growth(pair.reference_path, pair.prediction_path, Path(folder)):
            growth.append(row)
            _say(row.as_text())
    _say(f"(f) each further case: {steady_ms_a_case(growth):.1f} ms")
    report = {
        "machine": machine_facts(),
        "comparisons": [comparison.as_json() for comparison in found],
        "growth": [row.as_json() for row in growth],
    }
    write_json(options.output / "peers.json", report)
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _comparisons(folder: Path, peers: Path | None) -> Iterator[Comparison]:
    for slices in SLICES:
        pair = _make_pair(folder / str(slices), slices)
        row_s = _seconds(lambda pair=pair: _row(pair))  # type: ignore[misc]
        read_s = _seconds(lambda pair=pair: _read(pair))  # type: ignore[misc]
        yield Comparison(
            f"(a) row of {slices} slices against reading", row_s, read_s, 1 / 1.5, _per_voxel(row_s, slices)
        )
        filters_s = _seconds(lambda pair=pair: _filters(pair))  # type: ignore[misc]
        yield Comparison(f"(b) row of {slices} slices against filters", row_s, filters_s, 8)
    pair = _make_pair(folder / "peers", 150)
    if peers is not None:
        yield _lesions(pair.masks, folder, peers)
        yield _surfaces(pair.masks, folder, peers)
    yield from _c_index()


def _per_voxel(seconds: float, slices: int) -> str:
    return f"[{seconds / (slices * IN_PLANE**2) * 1e9:.2f} ns a voxel]"


def _make_pair(folder: Path, slices: int) -> Pair:
    """One primary tumour and six nodes, the prediction moved by 2 and 3 voxels."""
    z, y, x = np.ogrid[:slices, :IN_PLANE, :IN_PLANE]
    mask = np.zeros((slices, IN_PLANE, IN_PLANE), dtype=np.uint8)

    def ball(label: int, centre: tuple[float, float, float], radius_mm: float) -> None:
        squares = ((z - centre[0]) * SPACING_MM[2]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2
        mask[squares < radius_mm**2] = label

    ball(1, (slices / 2, 250, 260), 20)
    for number in range(6):
        ball(2, (slices / 2 - 4 + 2 * number, 200 + 30 * (number % 3), 170 + 180 * (number % 2)), 6 + number)
    moved = np.roll(mask, (2, 3), axis=(1, 2))
    x_mm, y_mm, z_mm = SPACING_MM
    grid = Geometry((IN_PLANE, IN_PLANE, slices), SPACING_MM, (0.0, 0.0, 0.0))
    reference, prediction = folder / "reference.mha", folder / "answer" / "prediction.mha"
    prediction.parent.mkdir(parents=True)
    write_mask(reference, mask, grid)
    write_mask(prediction, moved, grid)
    return Pair(reference, Answer("case", prediction.parent), prediction, Masks(mask, moved, (z_mm, y_mm, x_mm)))


def _rules() -> SegmentationRules:
    rules = load_edition(DEFAULT_EDITION).profile(SEGMENTATION).rules
    if not isinstance(rules, SegmentationRules):
        raise TypeError("the segmentation task has other rules")
    return rules


def _seconds(work: Callable[[], object]) -> float:
    return time_calls(work, REPEATS).median_s


def _row(pair: Pair) -> object:
    return score_masks(MaskPair(pair.reference_path, pair.answer, _rules()))


def _read(pair: Pair) -> object:
    return [sitk.ReadImage(str(path)) for path in (pair.reference_path, pair.prediction_path)]


def _filters(pair: Pair) -> object:
    """Overlap and shape filters on each label, and components of the nodes, without matching them: a lower bound."""
    reference, predicted = (sitk.ReadImage(str(path)) for path in (pair.reference_path, pair.prediction_path))
    overlap, shape = sitk.LabelOverlapMeasuresImageFilter(), sitk.LabelShapeStatisticsImageFilter()
    overlap.Execute(reference, predicted)
    found = [overlap.GetDiceCoefficient(label) for label in (1, 2)]
    for image in (reference, predicted):
        shape.Execute(image)
        found += [shape.GetPhysicalSize(label) for label in shape.GetLabels()]
        shape.Execute(sitk.ConnectedComponent(sitk.Equal(image, 2), True))
        found.append(shape.GetNumberOfLabels())
    return found


def _peer(peer: str, masks: Masks, folder: Path, python: Path) -> dict[str, Any]:
    source, target = folder / "masks.npz", folder / f"{peer}.json"
    np.savez(source, reference=masks.reference, predicted=masks.predicted, spacing_mm=masks.spacing_zyx_mm)
    command = [str(python), str(Path(__file__).with_name("peer_worker.py")), peer, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HecktorError(f"{peer}: its process ended with status {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, Any] = read_json(target)
    return found


def _lesions(masks: Masks, folder: Path, python: Path) -> Comparison:
    work = partial(count_lesions, masks.reference == 2, masks.predicted == 2, _rules())
    counts, other = work(), _peer("panoptica", masks, folder, python)
    mine = {"tp": counts.true_positives, "fp": counts.false_positives, "fn": counts.false_negatives}
    if mine != other["values"]:
        raise HecktorError(f"lesions: {mine}, but panoptica counts {other['values']}")
    return Comparison("(c) lesions against panoptica", _seconds(work), other["seconds"], 4, f"[{mine}]")


def _surfaces(masks: Masks, folder: Path, python: Path) -> Comparison:
    """Time both on the pair, after both have given the same values where a voxel and its area say the same."""
    agreed = _agreement(folder, python)
    other = _peer("surface-distance", masks, folder, python)
    ours = _our_surfaces(masks)
    note = ", ".join(f"{key} {ours[key]:.3f} by voxels {other['values'][key]:.3f} by area" for key in sorted(ours))
    seconds = _seconds(lambda: _our_surfaces(masks))
    return Comparison("(d) surfaces against surface-distance", seconds, other["seconds"], 2, f"[{agreed}; {note}]")


def _our_surfaces(masks: Masks) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, label in (("gtvp", 1), ("gtvn", 2)):
        row = compare_surfaces(masks.reference == label, masks.predicted == label, masks.spacing_zyx_mm, _rules())
        figures = {"hd95_mm": row.hd95_mm, "asd_mm": row.asd_mm, "surface_dsc": row.surface_dsc}
        found |= {f"{name}_{key}": value for key, value in figures.items() if value is not None}
    return found


def _agreement(folder: Path, python: Path) -> str:
    """Equal values on shapes whose distances do not depend on how a surface is cut into pieces.

    Voxels of 1 mm. GTVp: a cube of 100 mm inside one of 102 mm; at least 95% of each surface lies opposite the other,
    at 1 mm, and no corner is further than sqrt(3) mm: HD95 1, surface DSC at 2 mm 1. GTVn: a cube of 60 mm moved by
    3 mm along x; two of its six faces are 3 mm away and nothing is further: HD95 3.

    Raises:
        HecktorError: the values differ.
    """
    reference, predicted = (np.zeros((110, 110, 220), dtype=np.uint8) for _ in range(2))
    reference[5:105, 5:105, 5:105] = 1
    predicted[4:106, 4:106, 4:106] = 1
    reference[20:80, 20:80, 120:180] = 2
    predicted[20:80, 20:80, 123:183] = 2
    masks = Masks(reference, predicted, (1.0, 1.0, 1.0))
    ours, theirs = _our_surfaces(masks), _peer("surface-distance", masks, folder, python)["values"]
    for key, wanted in (("gtvp_hd95_mm", 1.0), ("gtvp_surface_dsc", 1.0), ("gtvn_hd95_mm", 3.0)):
        if not ours[key] == theirs[key] == wanted:
            raise HecktorError(f"cubes, {key}: {ours[key]}, surface-distance {theirs[key]}, expected {wanted}")
    return "equal on cubes"


def _c_index() -> Iterator[Comparison]:
    from lifelines.utils import concordance_index

    rng = np.random.default_rng(0)
    times, events = rng.integers(1, 3000, PATIENTS).astype(float), rng.random(PATIENTS) < 0.4
    risks = rng.normal(size=PATIENTS)
    other_s = _seconds(lambda: concordance_index(times, -risks, events))
    ours_s = _seconds(lambda: PairCounter(times, events, risks).count(np.ones((1, PATIENTS))))
    yield Comparison("(e) C-index of 10,000 against lifelines", ours_s, other_s, 1)
    weights = rng.multinomial(PATIENTS, np.full(PATIENTS, 1 / PATIENTS), BOOTSTRAPS).astype(float)
    counter = PairCounter(times, events, risks)
    all_s = time_calls(lambda: counter.count(weights), Repeats(least=1), warm_up=False).median_s
    # A thousand calls of lifelines take minutes and differ by nothing but the sample.
    yield Comparison("(e) 1,000 bootstraps against lifelines", all_s, other_s * BOOTSTRAPS, 20)


if __name__ == "__main__":
    sys.exit(run_main(main))
