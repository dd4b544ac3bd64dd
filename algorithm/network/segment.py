"""Segmentation of a case by the networks of a package, with the passes that the time allows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

from algorithm.case.read import Case
from algorithm.deadline import Deadline
from algorithm.masks.postprocessing import postprocessed
from algorithm.masks.segmentation import Segmentation
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.images import network_image, other_images
from algorithm.network.passes import Ensemble, NoPassFitsError, Passes, PassObserver, Progress
from algorithm.region.localise import Region

LOGGER = logging.getLogger("hecktor")


def segment(
    case: Case,
    region: Region,
    ensemble: Ensemble,
    deadline: Deadline,
    on_first_pass: Callable[[Segmentation], None] = lambda _: None,
    on_pass: PassObserver = lambda *_: None,
    by_threshold: Callable[[], Segmentation] | None = None,
) -> Segmentation:
    """Run the ensemble's networks over `region`, with as many passes as the deadline allows.

    If not even the smallest plan fits, or networks of the PET alone have none, the PET threshold answers, and the log
    says so. `on_first_pass` is called with the result of the first pass if more are planned, `on_pass` as in `Passes`.
    `by_threshold` returns the segmentation by PET threshold, which is made here otherwise. Raises `StoppedError` if the
    deadline stops the first pass.
    """
    package = ensemble.networks.package
    lesions = by_threshold or cache(lambda: threshold_segmentation(case, region))
    passes = [one for one in ensemble.passes if case.pet is not None or not package.sees_pet_alone(one.fold)]
    if len(passes) < len(ensemble.passes):
        LOGGER.warning("*** WARNING *** PET: none that can be used, expected one for networks that see it alone")
    if not passes:
        LOGGER.warning("*** FALLBACK *** no network without a PET: the PET threshold answers")
        return lesions()
    image = network_image(case, region, package, lesions)
    (ct, scanned_pet), restoration = image.scans, image.restoration
    pet = scanned_pet if scanned_pet.any() else None

    def segmentation(progress: Progress) -> Segmentation:
        made = progress.done, progress.planned, progress.plan, progress.backend
        raw = Segmentation(progress.logits, ct, pet, image.answer_grid, *made, restoration)
        return postprocessed(raw, package.manifest.postprocessing)

    def on_progress(progress: Progress) -> None:
        if progress.done == 1 < progress.planned:
            on_first_pass(segmentation(progress))

    run = Passes(
        image,
        passes,
        ensemble.networks,
        deadline,
        ensemble.device,
        on_progress=on_progress,
        on_pass=on_pass,
        others=other_images(case, region, package, image.answer_grid, lesions),
    )
    try:
        return segmentation(run.run())
    except NoPassFitsError as reason:
        LOGGER.warning("*** FALLBACK *** no pass of the network (%s): the PET threshold answers", reason)
        return lesions()
