"""Segment each training patient with networks that never saw it, and measure the lesions."""

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
from baseline.cache import Sources, cache, keys_of, load_cached, map_items
from baseline.preparation import smallest_lesions_of
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
        package: writes or finds the package of the networks; called only if a patient has to be segmented.
        fold_of: the fold that held each patient out; None if no network of the package has seen any of them.
        made_from: digest of the networks.
        device: device of the networks.
        code: where an entrant's own networks are found; None for the code of the image.
    """

    package: Callable[[], Path]
    fold_of: Mapping[str, int] | None
    made_from: str
    device: str
    code: Code | None = None

    def fold(self, patient_id: str) -> int | None:
        """The fold that held a patient out, None for all networks."""
        return None if self.fold_of is None else self.fold_of[patient_id]


def segment_out_of_fold(
    work: WorkFolders, cases: Sequence[ReleaseCase], run: OutOfFoldRun, jobs: int = 1
) -> dict[str, Features]:
    """Image features by patient ID, from prepared images and the networks that never saw the patient.

    These are the networks of the fold that held the patient out, each as it is and mirrored along each axis. If no
    network has seen a patient, all of them make all passes of inference. The mean of the passes is the mask, measured
    on the network's grid. Masks are unfiltered: `hecktor train postprocess` reads them and the probabilities. Stored
    masks of the same networks and images are reused; if their features are of another version, they are measured again
    in `jobs` processes.

    Raises:
        HecktorError: a pass failed.
    """
    keys = keys_of(
        work,
        {case.patient_id: _sources(case, work, f"{run.made_from} {run.fold(case.patient_id)}") for case in cases},
    )
    smallest = smallest_lesions_of(work)
    version = features_version(smallest)
    # By the networks and images of the mask, so that a mask of earlier features is not made again.
    stored = {name: load_cached(work.features(name), key) for name, key in keys.items() if is_segmented(work, name)}
    rows: dict[str, Features] = {
        name: one["features"] for name, one in stored.items() if one is not None and one["version"] == version
    }
    waiting = [case for case in cases if stored.get(case.patient_id) is None]
    again = [case for case in cases if stored.get(case.patient_id) is not None and case.patient_id not in rows]
    for name, row in map_items(functools.partial(_measure_again, work=work), again, jobs, "measure stored masks"):
        rows[name] = row
        cache(work.features(name), keys[name], {"version": version, "features": row})
    if waiting:
        networks, device = Networks(load_package(run.package(), run.code)), device_named(run.device)
        for case in tqdm(waiting, desc="measure out-of-fold", unit="patient"):
            name = case.patient_id
            with as_inference(device):
                segmentation = _segment(case, run.fold(name), networks, work, device)
            grid = read_header(case.ct).geometry
            write_mask(work.raw_mask(name), segmentation.mask_on(grid), grid)
            write_probabilities(work.probabilities(name), softmax(segmentation.logits), segmentation.mask())
            rows[name] = features_of(case, segmentation, smallest)
            cache(work.features(name), keys[name], {"version": version, "features": rows[name]})
    return {case.patient_id: rows[case.patient_id] for case in cases}


def is_segmented(work: WorkFolders, name: str) -> bool:
    """True if a patient has an unfiltered mask and probabilities."""
    return work.raw_mask(name).is_file() and work.probabilities(name).is_file()


def write_probabilities(path: Path, probabilities: _Float, mask: npt.NDArray[np.uint8]) -> None:
    """Write the foreground of probabilities (label, z, y, x) as uint8 of 255, and the mask on the same grid."""
    whole = np.rint(probabilities[1:] * np.float32(255)).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, gtvp=whole[0], gtvn=whole[1], mask=mask)


def _measure_again(case: ReleaseCase, work: WorkFolders) -> tuple[str, Features]:
    """Features of the stored mask."""
    with np.load(work.probabilities(case.patient_id)) as stored:
        mask = stored["mask"]
    grid = read_header(image_path(work.raw, case, 0)).geometry
    return case.patient_id, features_of_mask(case, work, Volume(mask, grid))


def _sources(case: ReleaseCase, work: WorkFolders, made_from: str) -> Sources:
    files = (*image_paths(work.raw, case), case.ct, case.dose)
    return files, {"version": MEASURE_VERSION, "networks": made_from}


def _segment(
    case: ReleaseCase, fold: int | None, networks: Networks, work: WorkFolders, device: torch.device
) -> Segmentation:
    """The mean of the fold's passes, or of all networks' without a fold, as in inference."""
    ct, usable_pet = read_prepared_ct_and_pet(work.raw, case)
    images = tuple(read_volume(path, "float32").array for path in image_paths(work.raw, case))
    scans = functools.cache(lambda: read_training_case(case, Notices()))  # read only by packages that need them
    data = normalise(images, networks.package, _scan(scans, networks.package))
    passes = list_passes(networks.package) if fold is None else _passes(fold, networks)
    progress = Passes(NetworkImage.from_channels(data), passes, networks, Deadline(None), device).make_all()
    if progress.done < len(passes):  # an answer to a patient may be the best so far, a mask for the heads may not
        found = f"{progress.done} of {len(passes)} passes, the lines above say why"
        raise HecktorError(case.patient_id, found, "all; the same command goes on with this patient")
    how = progress.done, progress.planned, "all networks" if fold is None else f"fold {fold}"
    return Segmentation(progress.logits, ct.array, usable_pet, ct.geometry, *how)


def _scan(scans: _Scans, package: ModelPackage) -> tuple[_Float, ...] | None:
    """The whole scan, for networks that were trained on images with the scale of whole scans."""
    return make_scan_channels(scans()[0], package) if package.manifest.normalised_over == "scan" else None


def _passes(fold: int, networks: Networks) -> list[Pass]:
    """One pass of each network of the fold without mirroring, then one along each mirror axis."""
    numbers = networks.package.numbers_of(fold)
    axes = [(), *((axis,) for axis in networks.package.manifest.mirror_axes)]
    return [Pass(number, mirrored) for mirrored in axes for number in numbers]


def features_of_mask(case: ReleaseCase, work: WorkFolders, mask: Volume) -> Features:
    """Image features of a mask on the grid of the prepared images."""
    ct, usable_pet = read_prepared_ct_and_pet(work.raw, case)
    on_grid = mask.array if mask.geometry == ct.geometry else resample_mask(mask, ct.geometry)
    segmentation = Segmentation.from_mask(on_grid, ct.array, usable_pet, ct.geometry)
    return features_of(case, segmentation, smallest_lesions_of(work))


def features_of(case: ReleaseCase, segmentation: Segmentation, smallest: MinLesionSizes) -> Features:
    """Image features on the segmentation's grid, with the planned dose if the release has a usable one; none of MR."""
    if case.is_mr:
        return {}
    images = segmentation.ct, segmentation.pet, segmentation.grid, read_dose(case)
    return image_features(segmentation.mask(), *images, smallest)
