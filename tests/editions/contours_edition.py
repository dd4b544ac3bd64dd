"""An edition whose risk has contours as an input, as in task 3 of HECKTOR 2021."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.io.files import read_json

EDITIONS = Path(__file__).parents[2] / "contract" / "editions"
SOCKET = {
    "slug": "expert-contours",
    "title": "Expert contours",
    "kind": "Segmentation",
    "path": "images/expert-contours",
}


def make_contours_edition() -> dict[str, Any]:
    """Return the tasks 1 and 2 of HECKTOR 2025, where the risk needs contours, with the rules of HECKTOR 2021."""
    content, rules = (read_json(EDITIONS / f"hecktor{year}.json") for year in (2025, 2021))
    segmentation, risk, _ = content["algorithms"]
    del content["new_test_centres"]
    return content | {
        "name": "hecktor2021_contours",
        "title": "HECKTOR 2021 with contours",
        "inputs": content["inputs"] | {"contours": SOCKET},
        "algorithms": [segmentation, risk | {"inputs": [*risk["inputs"], "contours"]}],
        "task_aliases": rules["task_aliases"],
        "scoring": rules["scoring"],
    }
