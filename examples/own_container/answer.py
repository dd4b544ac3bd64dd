"""An algorithm of HECKTOR 2025's tasks that shares nothing with this project: hot spots of the PET, and fixed rules.

It shows what the platform asks of a program: read `--input` (/input), write `--output` (/output). Its answers are poor.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import SimpleITK as sitk

TASKS = ("segmentation", "rfs", "hpv")
HOT_SUV = 4.0
# The brain is hotter than most tumours, so this much below the top of the PET is left out.
BRAIN_MM = 150.0
SMALLEST_ML = 0.5


def only_image(folder: Path) -> sitk.Image:
    """The image in the folder of a socket; the platform chooses the file's name."""
    (path,) = folder.glob("*.mha")
    return sitk.ReadImage(str(path))


def segment(ct: sitk.Image, pet: sitk.Image) -> tuple[sitk.Image, list[float]]:
    """GTVp (1) and GTVn (2) on the CT's grid: the largest hot spot and all others; and their volumes in ml."""
    hot = sitk.Cast(pet > HOT_SUV, sitk.sitkUInt8)
    top = max(0, hot.GetSize()[2] - round(BRAIN_MM / hot.GetSpacing()[2]))
    hot[:, :, top:] = 0
    voxel_ml = float(ct.GetSpacing()[0] * ct.GetSpacing()[1] * ct.GetSpacing()[2]) / 1000
    on_ct = sitk.Resample(hot, ct, sitk.Transform(), sitk.sitkNearestNeighbor, 0)
    spots = sitk.RelabelComponent(sitk.ConnectedComponent(on_ct), int(SMALLEST_ML / voxel_ml))
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
    images, output = arguments.input / "images", arguments.output
    ehr = json.loads((arguments.input / "ehr.json").read_text())  # any variable may be absent or null
    mask, volumes_ml = segment(only_image(images / "ct"), only_image(images / "pet"))
    if arguments.task == "segmentation":
        folder = output / "images" / "tumor-lymph-node-segmentation"
        folder.mkdir(parents=True, exist_ok=True)
        sitk.WriteImage(mask, str(folder / "output.mha"), useCompression=True)
    elif arguments.task == "rfs":
        risk = sum(volumes_ml) + 20 * (ehr.get("M-stage") == "M1")  # higher is an earlier recurrence
        (output / "rfs.json").write_text(json.dumps(float(risk)))
    else:
        positive = len(volumes_ml) > 1 and ehr.get("Tobacco Consumption") != 1
        (output / "hpv-status.json").write_text(json.dumps(positive))


if __name__ == "__main__":
    main()
