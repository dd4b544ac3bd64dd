"""Measurement of out-of-fold masks: features of the lesions for the heads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from algorithm.heads.documents import Features
from algorithm.heads.measure import features_version
from algorithm.network.package import ModelPackage
from baseline.cache import compute_key, load_cached, store_cached
from baseline.export import export_networks
from baseline.network.jobs import list_final_checkpoints
from baseline.network.planning import compute_plan_key
from baseline.network.plans import read_plan
from baseline.package.existing import check_spacing, describe_networks, load_existing_networks
from baseline.preparation import read_preparation
from baseline.release.cases import read_cases
from baseline.release.splits import read_splits
from baseline.work import WorkFolders
from contract.code import Code

if TYPE_CHECKING:  # imports torch, which only the measurement needs
    from baseline.network.out_of_fold import OutOfFoldRun


def measure_out_of_fold(
    work: WorkFolders, device: str = "auto", jobs: int = 1, code: Code | None = None
) -> dict[str, Features]:
    """Segment each patient with the networks that never saw the patient, and measure the lesions.

    Masks and features are also written below `out_of_fold/unfiltered`. `postprocess_masks` and
    `select_features_for_heads` return the features of the later steps.

    Returns:
        Features by patient ID, before postprocessing.

    Raises:
        HecktorError: A network is not trained, or the networks of a package expect another spacing.
    """
    from baseline.network.out_of_fold import MEASURE_VERSION, is_segmented, segment_out_of_fold

    cases, existing = read_cases(work), load_existing_networks(work)
    run = _make_fold_run(work, device) if existing is None else _make_package_run(work, existing, device, code)
    patients = [case.patient_id for case in cases]
    prepared = read_preparation(work)
    versions = {"version": MEASURE_VERSION, "features": features_version(prepared.smallest_lesions)}
    made_from = {"networks": run.made_from, "patients": patients, "images": prepared.data, **versions}
    key = compute_key(work, [case.dose for case in cases], made_from)
    features: dict[str, Features] | None = load_cached(work.unfiltered_features_json, key)
    complete = all(is_segmented(work, name) for name in patients)
    if features is None or not complete:
        measured = segment_out_of_fold(work, cases, run, jobs)
        if features is None:
            store_cached(work.unfiltered_features_json, key, measured)
        features = measured
    return features


def postprocess_masks(work: WorkFolders, measured: Mapping[str, Features], jobs: int = 1) -> dict[str, Features]:
    """Fit rules on lesions and apply them to the out-of-fold masks; return the features of the new masks."""
    from baseline.postprocessing.step import postprocess

    return postprocess(work, measured, jobs)


def select_features_for_heads(
    work: WorkFolders, measured: Mapping[str, Features], jobs: int = 1
) -> dict[str, Features]:
    """Return the features for the heads: after postprocessing if this step was run, otherwise as measured."""
    from baseline.postprocessing.step import copy_unfiltered, postprocess

    if work.postprocessing_json.is_file():
        return postprocess(work, measured, jobs)
    return copy_unfiltered(work, measured)


def _make_fold_run(work: WorkFolders, device: str) -> OutOfFoldRun:
    """Make the run that segments each patient by the trained networks of the fold that held it out."""
    from baseline.network.out_of_fold import OutOfFoldRun

    finals = list_final_checkpoints(work)
    checkpoints = tuple(itertools.chain.from_iterable(finals.values()))
    # The average matters only where several networks held the patient out.
    average = {"average": "probabilities"} if len(finals) > 1 else {}
    networks = compute_key(work, checkpoints, {"plan": compute_plan_key(work, read_plan(work)), **average})
    fold_of = {patient: number for number, fold in enumerate(read_splits(work).folds) for patient in fold}
    return OutOfFoldRun(lambda: export_networks(work), fold_of, networks, device)


def _make_package_run(work: WorkFolders, package: ModelPackage, device: str, code: Code | None) -> OutOfFoldRun:
    """Make the run that segments every patient by all networks of a package."""
    from baseline.network.out_of_fold import OutOfFoldRun

    check_spacing(package, read_preparation(work).spacing_mm)
    if code:
        code.use(package.manifest.code)
    return OutOfFoldRun(lambda: package.root, None, describe_networks(package)["sha256"], device, code)
