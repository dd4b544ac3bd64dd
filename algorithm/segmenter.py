"""Segment one case, from coarse to final: by the PET threshold, the first pass of the networks, and all passes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from algorithm.case.read import Case
from algorithm.deadline import NoPassFitsError
from algorithm.masks.postprocessing import apply_postprocessing
from algorithm.masks.segmentation import (
    CaseSegmentation,
    MaskSource,
    Segmentation,
    find_fallback,
    segment_by_contours,
    segment_by_threshold,
)
from algorithm.output import RunContext
from algorithm.region.localise import Region
from contract.errors import Finding

if TYPE_CHECKING:  # torch is imported only if a network runs
    from algorithm.network.passes import Passes
    from algorithm.network.preprocessing import CaseImage
    from algorithm.network.tiles import Progress

LOGGER = logging.getLogger("hecktor")
PHYSIOLOGIC_UPTAKE: Final = "the empty mask is kept, because necks have physiologic uptake: check the PET"


# The name of a step in the log, and the function that makes its segmentation.
Step = tuple[str, Callable[[], CaseSegmentation | None]]


class Segmenter:
    """Makes the segmentations of one case, from coarse to final.

    The region is None for a method that segments nothing.
    """

    def __init__(self, run: RunContext, case: Case, region: Region | None) -> None:
        self._run, self._case, self._region = run, case, region
        self._threshold: Segmentation | None = None
        self._by_networks: Segmentation | None = None
        self._image: CaseImage | None = None
        self._passes: Passes | None = None
        self._latest: CaseSegmentation | None = None

    def list_steps(self) -> list[Step]:
        """List the steps of this case, from coarse to final."""
        uses_networks = self._run.request.method.segmenter == "network"
        if self._region is None:
            return [("clinical variables", self.segment_nothing)]
        if uses_networks and self._case.contours is not None and not self._region.is_empty:
            return [(MaskSource.CONTOURS, self.segment_by_contours)]
        steps: list[Step] = [(find_fallback(self._case), self.segment_by_threshold)]
        if uses_networks and not self._region.is_empty:
            steps += [("first pass", self.make_first_pass), ("last pass", self.make_all_passes)]
        return steps

    def get_latest(self) -> CaseSegmentation | None:
        """Return the segmentation of the latest step that succeeded; None before the first one."""
        return self._latest

    def segment_nothing(self) -> CaseSegmentation:
        """Return the case without a segmentation."""
        return self._keep(None, MaskSource.NOTHING)

    def segment_by_threshold(self) -> CaseSegmentation:
        """Segment by the PET threshold; for MR use the mask of the earlier visit, or an empty mask."""
        region = self._searched_region
        with self._run.stages("threshold"):
            self._threshold = segment_by_threshold(self._case, region)
        source = MaskSource.NOTHING if region.is_empty else find_fallback(self._case)
        return self._keep(self._threshold, source)

    def segment_by_contours(self) -> CaseSegmentation | None:
        """Use the contours that come with the case; return None if there are none."""
        if self._case.contours is None:
            return None
        with self._run.stages("contours"):
            spacing_mm = self._run.loaded.package.spacing_mm
            segmentation = segment_by_contours(self._case, self._case.contours, self._searched_region, spacing_mm)
        return self._keep(segmentation, MaskSource.CONTOURS)

    def make_first_pass(self) -> CaseSegmentation | None:
        """Load the networks and make one pass over the region.

        If there is too little time or memory for a pass, the fallback answers, which is logged, and None is returned.

        Raises:
            ModelPackageError: The package cannot be used.
            NoPassFitsError: There is too little time or memory for a pass, and there is no fallback.
            StoppedError: The time is up.
        """
        run = self._run
        run.deadline.check()
        with self._hold_networks():
            with run.stages("load"):
                run.loaded.load()
                for finding in run.loaded.findings:
                    run.notices.note(finding)
            try:
                with run.stages("segment"):
                    image = self._make_image()
                    passes = self._prepare_passes(image)
                    progress = passes.make_first()
            except NoPassFitsError as reason:
                if self._threshold is None:
                    raise
                fallback = find_fallback(self._case)
                LOGGER.warning("*** FALLBACK *** no pass of the network (%s): the %s answers", reason, fallback)
                return None
            self._by_networks = self._convert(progress, image)
        self._image, self._passes = image, passes
        return self._keep(self._by_networks, MaskSource.NETWORK)

    def make_all_passes(self) -> CaseSegmentation | None:
        """Make the remaining passes that fit the time; return None if no further pass was made.

        A notice is given if the networks find nothing where the PET threshold finds uptake.
        """
        if self._passes is None or self._image is None or self._by_networks is None:
            return None
        with self._hold_networks(), self._run.stages("segment"):
            progress = self._passes.make_all()
        has_improved = progress.done > self._by_networks.passes_done
        if has_improved:
            self._by_networks = self._convert(progress, self._image)
        if self._case.pet is not None and self._threshold is not None:
            self._note_uptake(self._threshold, self._by_networks)
        return self._keep(self._by_networks, MaskSource.NETWORK) if has_improved else None

    @contextmanager
    def _hold_networks(self) -> Iterator[None]:
        """Reserve the loaded networks for this case, under the settings of inference.

        An earlier case that ended early may still compute its last tile; wait for it.
        """
        run, package = self._run, self._run.loaded
        with package.in_use, ExitStack() as settings:
            with run.stages("load"):
                from algorithm.network.devices import (
                    use_inference_settings,  # imports torch, which only a network needs
                )

                settings.enter_context(use_inference_settings(package.device, limited=run.request.limits_gpu_memory))
            yield

    def _make_image(self) -> CaseImage:
        """Return the case as the networks get it."""
        from algorithm.network.preprocessing import make_case_image

        return make_case_image(self._case, self._searched_region, self._run.loaded.package)

    def _prepare_passes(self, image: CaseImage) -> Passes:
        """Return the passes over an image; raise `NoPassFitsError` if no network can segment the case."""
        from algorithm.network.passes import Passes, choose_passes
        from algorithm.network.tiles import NetworkImage

        run, loaded = self._run, self._run.loaded
        has_pet, max_passes = self._case.pet is not None, run.request.max_passes
        chosen = choose_passes(loaded.package, has_pet=has_pet, max_passes=max_passes, notices=run.notices)
        channels = NetworkImage(image.grid.array_shape, image.channels)
        return Passes(channels, chosen, loaded.networks, run.deadline, loaded.device, run.notices)

    def _convert(self, progress: Progress, image: CaseImage) -> Segmentation:
        """Make the segmentation from the passes so far, postprocessed by the package's rules if it has any."""
        ct, *registered = image.scans
        segmentation = Segmentation(
            logits=progress.logits,
            ct=ct,
            pet=registered[0] if self._case.pet is not None and registered[0].any() else None,
            grid=image.grid,
            passes_done=progress.done,
            passes_planned=progress.planned,
            device=progress.backend,
            restore=image.restore,
        )
        rules = self._run.loaded.package.manifest.postprocessing
        if rules is not None:
            segmentation = apply_postprocessing(segmentation, rules)
        return segmentation

    def _keep(self, segmentation: Segmentation | None, source: MaskSource) -> CaseSegmentation:
        """Return the case with this segmentation, and remember it as the latest one."""
        self._latest = CaseSegmentation(self._case, source, segmentation, self._region)
        return self._latest

    @property
    def _searched_region(self) -> Region:
        if self._region is None:
            raise ValueError("a method that segments nothing has no region")
        return self._region

    def _note_uptake(self, threshold: Segmentation, by_network: Segmentation) -> None:
        """Give a notice if the networks find nothing where the PET threshold finds uptake."""
        hot = threshold.mask() > 0
        if by_network.mask().any() or not hot.any():
            return
        volume_ml = np.count_nonzero(hot) * threshold.grid.voxel_volume_mm3 / 1000
        suv_max = 0.0 if threshold.pet is None else float(threshold.pet[hot].max())
        actual = f"empty, though the PET shows {volume_ml:.1f} ml of uptake up to SUV {suv_max:.1f}"
        self._run.notices.note(Finding("mask", actual, "a lesion", PHYSIOLOGIC_UPTAKE))
