"""Match lesions with panoptica and compare surfaces with surface-distance; only numpy and the package are needed.

python benchmarks/other_packages.py panoptica|surface-distance masks.npz
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def prepare_panoptica(masks: Any) -> Callable[[], dict[str, float]]:
    """Prepare the matching of connected components of label 2 at an IoU of 0.3."""
    from panoptica import (
        ConnectedComponentsInstanceApproximator,
        InputType,
        Metric,
        NaiveThresholdMatching,
        Panoptica_Evaluator,
    )

    evaluator = Panoptica_Evaluator(
        expected_input=InputType.SEMANTIC,
        instance_approximator=ConnectedComponentsInstanceApproximator(),
        instance_matcher=NaiveThresholdMatching(matching_threshold=0.3),
        instance_metrics=[Metric.IOU],
        global_metrics=[],
        verbose=False,
    )
    reference, predicted = ((masks[name] == 2).astype(np.uint8) for name in ("reference", "predicted"))

    def compute() -> dict[str, float]:
        result = next(iter(evaluator.evaluate(predicted, reference, verbose=False).values()))
        return {"tp": int(result.tp), "fp": int(result.fp), "fn": int(result.fn)}

    return compute


def prepare_surface_distance(masks: Any) -> Callable[[], dict[str, float]]:
    """Prepare HD95 and surface DSC at 2 mm of both labels, with surfaces weighted by their area."""
    import surface_distance as sd

    spacing = tuple(float(step) for step in masks["spacing_mm"])

    def compute() -> dict[str, float]:
        values = {}
        for name, label in (("gtvp", 1), ("gtvn", 2)):
            distances = sd.compute_surface_distances(masks["reference"] == label, masks["predicted"] == label, spacing)
            values[f"{name}_hd95_mm"] = float(sd.compute_robust_hausdorff(distances, 95))
            values[f"{name}_surface_dsc"] = float(sd.compute_surface_dice_at_tolerance(distances, 2.0))
        return values

    return compute


def main(argv: list[str]) -> int:
    """Load the masks; for each line on stdin, compute the values with one package and print them as a line of JSON.

    Only these values are printed to stdout. All other output goes to stderr, because a package may also print:
    panoptica prints a banner at its first call.
    """
    package, source = argv
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    prepare = {"panoptica": prepare_panoptica, "surface-distance": prepare_surface_distance}[package]
    compute = prepare(dict(np.load(source)))
    for _ in sys.stdin:
        answers.write(json.dumps(compute()) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
