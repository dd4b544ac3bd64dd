"""`hecktor schema`: the JSON schemas of the documents that this project reads and writes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from contract.files import write_json

# File name of a document -> the module and the class, or classes, of which it is one.
DOCUMENTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "edition": ("contract.editions.edition", ("Edition",)),
    "profile": ("evaluation.editions.document", ("ProfileDocument",)),
    "metrics": ("evaluation.results.documents", ("MetricsDocument",)),
    "leaderboard": ("evaluation.results.board", ("LeaderboardDocument",)),
    "manifest": ("contract.packages", ("Manifest",)),
    "head": (
        "algorithm.heads.documents",
        ("LinearHead", "EnsembleHead", "OwnHead", "ClassHead", "ClassEnsembleHead", "OwnClassHead"),
    ),
    "cross_validation": ("baseline.heads.record", ("CrossValidation",)),
    "own_features": ("baseline.heads.own_features", ("OwnFeatureTable",)),
    "fold_features": ("baseline.outcome.folds", ("FoldFeatures",)),
    "outcome_plan": ("algorithm.outcome.plan", ("OutcomePlan",)),
    "plan": ("baseline.network.plans", ("StoredPlan",)),
    "prepare": ("baseline.release.record", ("Preparation",)),
    "splits": ("baseline.release.splits", ("Splits",)),
    "postprocessing": ("baseline.postprocessing.record", ("PostprocessingRecord",)),
    "rehearsal": ("rehearsal.pipeline", ("RehearsalRecord",)),
    "submission": ("rehearsal.submission.record", ("SubmissionDocument",)),
    "phase": ("hecktor.phase.settings", ("PhaseSettings",)),
    "description": ("baseline.package.description", ("Description",)),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the schema of every document."""
    parser = argparse.ArgumentParser(prog="hecktor schema", description="Write the JSON schemas of all documents.")
    default = Path(__file__).with_name("schemas")
    parser.add_argument("--output", type=Path, default=default, help="folder (default: that of the package)")
    options = parser.parse_args(argv)
    for name in DOCUMENTS:
        write_json(options.output / f"{name}.schema.json", schema(name))
    sys.stdout.write(f"{len(DOCUMENTS)} schemas in {options.output}\n")
    return 0


def schema(name: str) -> dict[str, Any]:
    """The JSON schema of the document called `name` in `DOCUMENTS`."""
    from contract.documents import json_schema

    module, classes = DOCUMENTS[name]
    return json_schema(*(getattr(import_module(module), one) for one in classes))
