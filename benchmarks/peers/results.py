"""Convert a model package into nnU-Net's training results, and a patient into its input images."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import SimpleITK as sitk
import torch

from algorithm.network.networks import build_network, load_weights
from algorithm.network.package import ModelPackage
from algorithm.region.localise import Region
from contract import labels
from contract.editions import load_edition
from contract.files import write_json
from contract.images.volumes import find_single_image, read_volume

DATASET: Final = "Dataset001_Peer"
TRAINER: Final = "nnUNetTrainer"
FILE_ENDING: Final = ".mha"
# Keys of the plans that nnU-Net needs and a package leaves out.
_ABSENT: Final[dict[str, Any]] = {
    "dataset_name": DATASET,
    "image_reader_writer": "SimpleITKIO",
    "transpose_forward": [0, 1, 2],
    "transpose_backward": [0, 1, 2],
}


@dataclass(frozen=True)
class PeerResults:
    """A folder of nnU-Net's training results; `root` is the value of `nnUNet_results`."""

    root: Path
    plans_name: str
    configuration: str
    folds: int

    @property
    def folder(self) -> Path:
        """The folder of plans, data set and one folder a fold."""
        return self.root / DATASET / f"{TRAINER}__{self.plans_name}__{self.configuration}"


def results_folder(package: ModelPackage, root: Path) -> PeerResults:
    """Write the package's plans and weights as nnU-Net's trainer writes them.

    Raises:
        ModelPackageError: the weights do not fit the plans.
    """
    plans = {**_ABSENT, **package.plans}
    configuration = package.manifest.configuration
    results = PeerResults(root, str(plans["plans_name"]), configuration, len(package.fold_files))
    write_json(results.folder / "plans.json", plans)
    dataset = {
        "channel_names": {str(number): name for number, name in enumerate(package.manifest.channels)},
        "labels": {name: value for value, name in labels.NAMES.items()},
        "numTraining": 0,
        "file_ending": FILE_ENDING,
    }
    write_json(results.folder / "dataset.json", dataset)
    network = build_network(package)
    for number, weights in enumerate(package.fold_files):
        load_weights(network, weights)
        checkpoint = {
            "network_weights": network.state_dict(),
            "init_args": {"plans": plans, "configuration": configuration, "fold": number},
            "trainer_name": TRAINER,
            "inference_allowed_mirroring_axes": tuple(package.manifest.mirror_axes) or None,
        }
        path = results.folder / f"fold_{number}" / "checkpoint_final.pth"
        path.parent.mkdir()
        torch.save(checkpoint, path)
    return results


def nnunet_input(input_dir: Path, folder: Path, case: str) -> None:
    """Write a patient for nnU-Net, which needs all channels on one grid.

    The CT is copied. The PET is interpolated linearly on the CT's grid, zero outside its own, and written
    uncompressed, which is faster to read.
    """
    folder.mkdir(parents=True)
    inputs = load_edition().inputs
    ct_path, pet_path = (find_single_image(inputs[name].path_under(input_dir)) for name in ("ct", "pet"))
    shutil.copyfile(ct_path, folder / f"{case}_0000{FILE_ENDING}")
    ct, pet = sitk.ReadImage(str(ct_path)), sitk.ReadImage(str(pet_path))
    on_ct = sitk.Resample(pet, ct, sitk.Transform(), sitk.sitkLinear, 0.0, sitk.sitkFloat32)
    sitk.WriteImage(on_ct, str(folder / f"{case}_0001{FILE_ENDING}"))


def dice(first: Path, second: Path, region: Region | None = None) -> dict[str, float | None]:
    """Dice of each lesion label between two masks on one grid; None where both are empty.

    With a region only voxels with their centres inside it count, not those on its faces, which it cuts in half.
    """
    one, other = read_volume(first), read_volume(second).array
    voxels = np.argwhere((one.array > 0) | (other > 0))
    if region is not None:
        matrix = one.geometry.index_to_physical_matrix()
        points = voxels[:, ::-1] @ matrix[:3, :3].T + matrix[:3, 3]
        voxels = voxels[((points > region.lower_mm) & (points < region.upper_mm)).all(axis=1)]
    marked = one.array[tuple(voxels.T)], other[tuple(voxels.T)]
    scores: dict[str, float | None] = {}
    for label in labels.FOREGROUND:
        a, b = (values == label for values in marked)
        size = np.count_nonzero(a) + np.count_nonzero(b)
        scores[labels.NAMES[label]] = 2 * float(np.count_nonzero(a & b)) / float(size) if size else None
    return scores
