"""Run studies in the process of a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reporting.studies.cli import main


def run_study(name: str, folder: Path, *arguments: object) -> dict[str, Any]:
    """Run a study that writes its files into `folder`, and return its JSON."""
    assert main([name, *map(str, arguments), "--output", str(folder)]) == 0
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
