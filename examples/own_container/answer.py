"""An algorithm for the tasks of HECKTOR 2025 that shares no code with this project.

It shows what the platform expects of a program: read the case from `--input` (/input) and write the answers to
`--output` (/output). It thresholds the PET and applies fixed rules, so its answers are poor.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import SimpleITK as sitk

TASKS = ("segmentation", "rfs", "hpv")
HOT_SUV = 4.0
# The brain takes up more FDG than most tumours, so the uppermost part of the PET with this height is ignored.
BRAIN_HEIGHT_MM = 150.0
MIN_LESION_ML = 0.5


def read_image(folder: Path) -> sitk.Image:
    """Read the only image in a folder; the platform chooses the file name."""
    (path,) = folder.glob("*.mha")
    return sitk.ReadImage(str(path))


def segment(ct: sitk.Image, pet: sitk.Image) -> tuple[sitk.Image, list[float]]:
    """Segment the hot spots of the PET.

    Returns:
        A mask on the CT's grid, in which the largest hot spot is GTVp (1) and the others are GTVn (2), and the volumes
        of the hot spots in ml, the largest first. The mask and the list may be empty.
    """
    hot = sitk.Cast(pet > HOT_SUV, sitk.sitkUInt8)
    top = max(0, hot.GetSize()[2] - round(BRAIN_HEIGHT_MM / hot.GetSpacing()[2]))
    hot[:, :, top:] = 0
    voxel_ml = float(ct.GetSpacing()[0] * ct.GetSpacing()[1] * ct.GetSpacing()[2]) / 1000
    on_ct = sitk.Resample(hot, ct, sitk.Transform(), sitk.sitkNearestNeighbor, 0)
    spots = sitk.RelabelComponent(sitk.ConnectedComponent(on_ct), int(MIN_LESION_ML / voxel_ml))
    mask = sitk.Cast(spots == 1, sitk.sitkUInt8) + 2 * sitk.Cast(spots > 1, sitk.sitkUInt8)
    statistics = sitk.LabelShapeStatisticsImageFilter()
    statistics.Execute(spots)
    volumes_ml = [statistics.GetNumberOfPixels(label) * voxel_ml for label in statistics.GetLabels()]
    return mask, volumes_ml


def main() -> None:
    """Answer one case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=TASKS, default=os.environ.get("TASK"), required="TASK" not in os.environ)
    parser.add_argument("--input", type=Path, default=Path("/input"))
    parser.add_argument("--output", type=Path, default=Path("/output"))
    arguments = parser.parse_args()
    images: Path = arguments.input / "images"
    output: Path = arguments.output
    # Any clinical variable may be absent or null.
    ehr = json.loads((arguments.input / "ehr.json").read_text())
    mask, volumes_ml = segment(read_image(images / "ct"), read_image(images / "pet"))
    if arguments.task == "segmentation":
        folder = output / "images" / "tumor-lymph-node-segmentation"
        folder.mkdir(parents=True, exist_ok=True)
        sitk.WriteImage(mask, str(folder / "output.mha"), useCompression=True)
    elif arguments.task == "rfs":
        # A higher number means an earlier recurrence.
        risk = sum(volumes_ml) + 20 * (ehr.get("M-stage") == "M1")
        (output / "rfs.json").write_text(json.dumps(float(risk)))
    else:
        positive = len(volumes_ml) > 1 and ehr.get("Tobacco Consumption") != 1
        (output / "hpv-status.json").write_text(json.dumps(positive))


if __name__ == "__main__":
    main()
