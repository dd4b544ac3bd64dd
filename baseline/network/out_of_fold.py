"""Out-of-fold masks: each training patient is segmented by networks that never saw the patient, and measured."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from algorithm.case.inputs import Notices
from algorithm.case.read import Case
from algorithm.deadline import Deadline
from algorithm.heads.documents import Features
from algorithm.heads.measure import features_version, image_features
from algorithm.masks.segmentation import Segmentation, softmax
from algorithm.network.devices import as_inference, device_named
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.preprocessing import make_scan_channels, normalise
from algorithm.network.tiles import NetworkImage, Pass, list_passes
from algorithm.region.grids import resample_mask
from algorithm.region.localise import Region
from baseline.cache import Sources, compute_keys, load_cached, map_items, store_cached
from baseline.preparation import read_min_lesion_sizes
from baseline.release.cases import ReleaseCase, image_path, image_paths
from baseline.release.data_set import read_dose, read_prepared_ct_and_pet, read_training_case
from baseline.work import WorkFolders
from contract.code import Code
from contract.errors import HecktorError
from contract.images.volumes import Volume, read_header, read_volume, write_mask
from contract.io.files import atomic_path
from contract.packages import MinLesionSizes

_Float = npt.NDArray[np.float32]
_Scans = Callable[[], tuple[Case, Region]]

# Increment when the same networks and images give other masks.
MEASURE_VERSION: Final = 3


@dataclass(frozen=True)
class OutOfFoldRun:
    """Inputs of a measurement.

    Attributes:
        package: Function that writes or finds the package of the networks; called only if a patient must be segmented.
        fold_of: Fold that held each patient out; None if no network of the package has seen a patient.
        made_from: Digest of the networks.
        device: Device of the networks.
        code: Custom code of the networks; None for the code of the image.
    """

    package: Callable[[], Path]
    fold_of: Mapping[str, int] | None
    made_from: str
    device: str
    code: Code | None = None

    def fold(self, patient_id: str) -> int | None:
        """Return the fold that held a patient out; None for all networks."""
        return None if self.fold_of is None else self.fold_of[patient_id]


def segment_out_of_fold(
    work: WorkFolders, cases: Sequence[ReleaseCase], run: OutOfFoldRun, jobs: int = 1
) -> dict[str, Features]:
    """Segment each patient by the networks that never saw the patient, and measure the lesions.

    The networks of the fold that held the patient out make one pass without mirroring and one pass along each mirror
    axis. If no network has seen a patient, all networks make all passes of inference. The mask is made from the mean of
    the passes and measured on the network's grid. Masks are unfiltered: `hecktor train postprocess` reads masks and
    probabilities. Stored masks of the same networks and images are reused; if their features have another version, they
    are measured again in `jobs` processes.

    Returns:
        Image features by patient ID.

    Raises:
        HecktorError: A pass failed.
    """
    keys = compute_keys(
        work,
        {case.patient_id: _sources(case, work, f"{run.made_from} {run.fold(case.patient_id)}") for case in cases},
    )
    smallest = read_min_lesion_sizes(work)
    version = features_version(smallest)
    # The keys depend on networks and images only, so that a mask with features of another version is not made again.
    stored = {name: load_cached(work.features(name), key) for name, key in keys.items() if is_segmented(work, name)}
    rows: dict[str, Features] = {
        name: record["features"]
        for name, record in stored.items()
        if record is not None and record["version"] == version
    }
    waiting = [case for case in cases if stored.get(case.patient_id) is None]
    again = [case for case in cases if stored.get(case.patient_id) is not None and case.patient_id not in rows]
    for name, row in map_items(functools.partial(_measure_again, work=work), again, jobs, "measure stored masks"):
        rows[name] = row
        store_cached(work.features(name), keys[name], {"version": version, "features": row})
    if waiting:
        networks, device = Networks(load_package(run.package(), run.code)), device_named(run.device)
        for case in tqdm(waiting, desc="measure out-of-fold", unit="patient"):
            name = case.patient_id
            with as_inference(device):
                segmentation = _segment(case, run.fold(name), networks, work, device)
            grid = read_header(case.ct).geometry
            write_mask(work.raw_mask(name), segmentation.mask_on(grid), grid)
            write_probabilities(work.probabilities(name), softmax(segmentation.logits), segmentation.mask())
            rows[name] = measure_segmentation(case, segmentation, smallest)
            store_cached(work.features(name), keys[name], {"version": version, "features": rows[name]})
    return {case.patient_id: rows[case.patient_id] for case in cases}


def is_segmented(work: WorkFolders, name: str) -> bool:
    """Return whether a patient has an unfiltered mask and probabilities."""
    return work.raw_mask(name).is_file() and work.probabilities(name).is_file()


def write_probabilities(path: Path, probabilities: _Float, mask: npt.NDArray[np.uint8]) -> None:
    """Write the foreground of probabilities (label, z, y, x), as uint8 with 255 for 1, and the mask."""
    foreground = np.rint(probabilities[1:] * np.float32(255)).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, gtvp=foreground[0], gtvn=foreground[1], mask=mask)


def _measure_again(case: ReleaseCase, work: WorkFolders) -> tuple[str, Features]:
    """Measure the features of the stored mask."""
    with np.load(work.probabilities(case.patient_id)) as stored:
        mask = stored["mask"]
    grid = read_header(image_path(work.raw, case, 0)).geometry
    return case.patient_id, measure_mask(case, work, Volume(mask, grid))


def _sources(case: ReleaseCase, work: WorkFolders, made_from: str) -> Sources:
    files = (*image_paths(work.raw, case), case.ct, case.dose)
    return files, {"version": MEASURE_VERSION, "networks": made_from}


def _segment(
    case: ReleaseCase, fold: int | None, networks: Networks, work: WorkFolders, device: torch.device
) -> Segmentation:
    """Segment a patient by the mean of the fold's passes, or without a fold by all networks as in inference."""
    ct, usable_pet = read_prepared_ct_and_pet(work.raw, case)
    images = tuple(read_volume(path, "float32").array for path in image_paths(work.raw, case))
    scans = functools.cache(lambda: read_training_case(case, Notices()))  # read only by packages that need them
    data = normalise(images, networks.package, _scan(scans, networks.package))
    passes = list_passes(networks.package) if fold is None else _list_passes(fold, networks)
    progress = Passes(NetworkImage.from_channels(data), passes, networks, Deadline(None), device).make_all()
    if progress.done < len(passes):  # inference may answer with fewer passes, but heads need masks of all passes
        problem = f"{progress.done} of {len(passes)} passes, the lines above say why"
        raise HecktorError(case.patient_id, problem, "all; the same command goes on with this patient")
    networks_text = "all networks" if fold is None else f"fold {fold}"
    return Segmentation(
        progress.logits, ct.array, usable_pet, ct.geometry, progress.done, progress.planned, networks_text
    )


def _scan(scans: _Scans, package: ModelPackage) -> tuple[_Float, ...] | None:
    """Read the whole scan, for networks that were trained on images with the scale of whole scans."""
    return make_scan_channels(scans()[0], package) if package.manifest.normalised_over == "scan" else None


def _list_passes(fold: int, networks: Networks) -> list[Pass]:
    """List one pass of each network of the fold without mirroring, then one pass along each mirror axis."""
    numbers = networks.package.numbers_of(fold)
    axes = [(), *((axis,) for axis in networks.package.manifest.mirror_axes)]
    return [Pass(number, mirrored) for mirrored in axes for number in numbers]


def measure_mask(case: ReleaseCase, work: WorkFolders, mask: Volume) -> Features:
    """Measure the image features of a mask on the grid of the prepared images."""
    ct, usable_pet = read_prepared_ct_and_pet(work.raw, case)
    on_grid = mask.array if mask.geometry == ct.geometry else resample_mask(mask, ct.geometry)
    segmentation = Segmentation.from_mask(on_grid, ct.array, usable_pet, ct.geometry)
    return measure_segmentation(case, segmentation, read_min_lesion_sizes(work))


def measure_segmentation(case: ReleaseCase, segmentation: Segmentation, smallest: MinLesionSizes) -> Features:
    """Measure image features on the segmentation's grid, with the planned dose if it is usable; empty for MR."""
    if case.is_mr:
        return {}
    images = segmentation.ct, segmentation.pet, segmentation.grid, read_dose(case)
    return image_features(segmentation.mask(), *images, smallest)
