"""What other packages make of the same arrays, timed in their own environment; needs numpy and the peer alone.

python benchmarks/peer_worker.py panoptica|surface-distance masks.npz result.json
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REPEATS = 5


def panoptica(masks: Any) -> tuple[Callable[[], Any], Callable[[Any], dict[str, float]]]:
    """Connected components of label 2 matched at an IoU of 0.3."""
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
    return (
        lambda: next(iter(evaluator.evaluate(predicted, reference, verbose=False).values())),
        lambda found: {"tp": int(found.tp), "fp": int(found.fp), "fn": int(found.fn)},
    )


def surface_distance(masks: Any) -> tuple[Callable[[], Any], Callable[[Any], dict[str, float]]]:
    """HD95, mean distance and surface DSC at 2 mm of both labels; surfaces there are weighted by their area."""
    import surface_distance as sd

    spacing = tuple(float(step) for step in masks["spacing_mm"])

    def work() -> dict[str, float]:
        found = {}
        for name, label in (("gtvp", 1), ("gtvn", 2)):
            distances = sd.compute_surface_distances(masks["reference"] == label, masks["predicted"] == label, spacing)
            found[f"{name}_hd95_mm"] = float(sd.compute_robust_hausdorff(distances, 95))
            found[f"{name}_asd_mm"] = float(np.mean(sd.compute_average_surface_distance(distances)))
            found[f"{name}_surface_dsc"] = float(sd.compute_surface_dice_at_tolerance(distances, 2.0))
        return found

    return work, lambda found: found


def main(argv: list[str]) -> int:
    """Time one peer and write seconds and values."""
    peer, source, target = argv
    masks = dict(np.load(source))
    work, values = {"panoptica": panoptica, "surface-distance": surface_distance}[peer](masks)
    found, seconds = work(), []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    Path(target).write_text(json.dumps({"seconds": sorted(seconds)[len(seconds) // 2], "values": values(found)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
