"""Command line of training: `hecktor train`, `python -m baseline`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from baseline.nnunet import Plan
from baseline.pipeline import Settings, read_settings, train_all, train_fold_of
from contract.files import read_json


def main(argv: Sequence[str] | None = None) -> int:
    """Run `all` (from a cohort to a package) or one `fold` of a training that is under way."""
    arguments = _parser().parse_args(argv)
    if arguments.step == "fold":
        train_fold_of(read_settings(arguments.work), arguments.fold)
        return 0
    plan = replace(
        Plan(),
        epochs=arguments.epochs,
        iterations=arguments.iterations,
        memory_gb=arguments.memory_gb,
        base_features=arguments.base_features,
        most_features=arguments.most_features,
    )
    settings = Settings(
        cohort=str(arguments.cohort.resolve()),
        work=str(arguments.work.resolve()),
        folds=arguments.folds,
        seed=arguments.seed,
        device=arguments.device,
        jobs=arguments.jobs,
        plan=plan,
    )
    package = train_all(settings, arguments.output, _description(arguments.description))
    print(f"model package in {package}")
    return 0


def _description(path: Path | None) -> dict[str, object]:
    if path is None:
        return {"name": "hecktor-baseline", "purpose": "research; not a medical device"}
    content: dict[str, object] = read_json(path)
    return content


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor train", description="Make a model package from a cohort.")
    steps = parser.add_subparsers(dest="step", required=True)
    every = steps.add_parser("all", help="prepare, plan, train all folds, fit the heads, export")
    every.add_argument("--cohort", type=Path, required=True, help="cohort in the release's layout")
    every.add_argument("--work", type=Path, required=True, help="working directory; a begun training is taken up")
    every.add_argument("--output", type=Path, required=True, help="folder of the model package")
    every.add_argument("--description", type=Path, help="JSON with name, purpose, licence... for the manifest")
    every.add_argument("--folds", type=int, default=2)
    every.add_argument("--epochs", type=int, default=Plan.epochs)
    every.add_argument("--iterations", type=int, default=Plan.iterations, help="training steps an epoch")
    every.add_argument("--memory-gb", type=float, default=Plan.memory_gb, help="nnU-Net planner's memory target")
    every.add_argument("--base-features", type=int, default=Plan.base_features)
    every.add_argument("--most-features", type=int, default=Plan.most_features)
    every.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    every.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    every.add_argument("--seed", type=int, default=0)
    fold = steps.add_parser("fold", help="train one fold of a training that `all` has prepared")
    fold.add_argument("--work", type=Path, required=True)
    fold.add_argument("--fold", type=int, required=True)
    return parser
