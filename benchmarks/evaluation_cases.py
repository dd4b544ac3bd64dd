"""One evaluation case, and the evaluation of a cohort."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import limits
from benchmarks.cases import PROCESS, Command, Measurement, Setting, Work
from benchmarks.data import SIZES
from contract.tasks import SEGMENTATION
from evaluation.editions.profile import DEFAULT_EDITION, load_edition
from evaluation.inputs.submission import Answer, read_submission
from evaluation.pipeline import DEFAULT_BOOTSTRAPS, DEFAULT_SEED
from evaluation.rows.mask import MaskPair, score_masks
from evaluation.rows.scorers import SCORERS
from evaluation.statistics.bootstrap import estimate

COHORT = "evaluation of a cohort"
START = f"{COHORT}/import alone"
READ = f"{COHORT}/SimpleITK read alone"


def measurements() -> Iterator[Measurement]:
    """One case at each size, then the cohort."""
    for size in SIZES:
        group = f"evaluation of one {size} case"
        yield Measurement(group, "SimpleITK read alone", "ReadImage of both masks", partial(_read_pair, size=size))
        yield Measurement(
            group,
            "row",
            "both masks read, checked, compared",
            partial(_row, size=size),
            f"{group}/SimpleITK read alone",
        )
    yield Measurement(COHORT, "SimpleITK read alone", "ReadImage of all masks, one process", _read_all, None, PROCESS)
    yield Measurement(COHORT, "import alone", "a process that imports the evaluation", _start, None, PROCESS)
    yield Measurement(
        COHORT,
        "process: segmentation, no bootstraps",
        "python -m evaluation --task segmentation --bootstraps 0",
        partial(_process, task="segmentation", extra=("--bootstraps", "0")),
        READ,
        PROCESS,
    )
    yield Measurement(
        COHORT,
        "process: segmentation",
        "python -m evaluation --task segmentation",
        partial(_process, task="segmentation", extra=()),
        READ,
        PROCESS,
    )
    yield Measurement(
        COHORT,
        "bootstraps of segmentation",
        f"{DEFAULT_BOOTSTRAPS} replicates of every metric, rows given",
        _bootstraps,
        READ,
    )
    for task in ("rfs", "hpv"):
        yield Measurement(
            COHORT,
            f"process: {task}",
            f"python -m evaluation --task {task}",
            partial(_process, task=task, extra=()),
            START,
            PROCESS,
        )


def _profile() -> Any:
    return load_edition(DEFAULT_EDITION).profile(SEGMENTATION)


def _read_pair(setting: Setting, size: str) -> Work:
    return limits.read_with_simpleitk([setting.data.reference(size), setting.data.prediction(size)])


def _row(setting: Setting, size: str) -> Work:
    answer = Answer(setting.data.patient(size), _only_in_folder(setting, size))
    return partial(score_masks, MaskPair(setting.data.reference(size), answer, _profile().rules))


def _only_in_folder(setting: Setting, size: str) -> Any:
    """A folder that holds this prediction alone, as the output socket does."""
    from contract.platform import MASK_FILE_NAME
    from rehearsal.phantoms.layouts import link_or_copy

    target = setting.scratch / "one_case" / MASK_FILE_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    link_or_copy(setting.data.prediction(size), target)
    return target.parent


def _read_all(setting: Setting) -> Work:
    return limits.read_with_simpleitk(sorted(setting.data.evaluation.rglob("*.mha")))


def _start(setting: Setting) -> Work:
    del setting
    return Command((sys.executable, "-c", "import evaluation.cli"))


def _process(setting: Setting, task: str, extra: tuple[str, ...]) -> Work:
    return setting.evaluation(task, *extra)


def _bootstraps(setting: Setting) -> Work:
    profile, folder = _profile(), setting.data.evaluation
    scorer = SCORERS[profile.kind]
    reference = scorer.read_reference(folder / "ground_truth")
    submission = read_submission(
        folder / "input", SEGMENTATION.output, reference.targets.keys(), reference.without_target
    )
    rows = scorer.score(reference, submission, profile.rules, SEGMENTATION.output, 1)
    metrics = scorer.measure(rows, profile.rules).metrics
    return lambda: estimate(metrics, len(rows), DEFAULT_BOOTSTRAPS, np.random.default_rng(DEFAULT_SEED))
