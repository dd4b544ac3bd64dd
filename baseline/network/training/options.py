"""Options of `hecktor train plan` that change how the networks are trained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from baseline.network.plans import PET_NORMALISATIONS, RECIPES, NetworkPlan
from contract.errors import HecktorError
from contract.options import number_within, positive_number

# The value of LesionTracer in autoPET III.
_MISALIGN: Final = 0.1
_SWITCH: Final = {"on": True, "off": False}


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of augmentation, loss, starting weights and organs; None leaves the preset's value."""
    add, probability = parser.add_argument, number_within(0, 1)
    add(
        "--misalign",
        type=probability,
        nargs="?",
        const=_MISALIGN,
        metavar="P",
        help="turn and shift the PET against the CT, each with this probability (default without P: %(const)s)",
    )
    add(
        "--misalign-by",
        type=number_within(0, 90),
        nargs=2,
        metavar=("DEGREES", "VOXELS"),
        help="largest rotation about each axis in degrees, and largest shift in plane in whole voxels (default: 5 2)",
    )
    add("--pet-dropout", type=probability, metavar="P", help="probability that a training patch has no PET")
    add(
        "--pet-normalisation",
        choices=PET_NORMALISATIONS,
        help="scale the PET by each image's mean and spread, or by fixed values of the data set (default: image)",
    )
    add("--batch-dice", type=_switch, metavar="on|off", help="compute Dice over the batch, or for each patch")
    add(
        "--no-dice-smoothing",
        dest="dice_smoothing",
        action="store_const",
        const=False,
        help="compute Dice without its smoothing constant",
    )
    add("--segresnet-recipe", choices=RECIPES, help="train SegResNet as MONAI does, or as the U-Net")
    add("--segresnet-memory-gb", type=positive_number(), help="memory target of SegResNet's patch in GB")
    add("--starting-weights", type=_path, metavar="PATH", help="start from a checkpoint of nnU-Net or a model package")
    add("--organs", type=_path, metavar="DIR", help="organ masks as further labels: ID/ORGAN.nii.gz or ID.nii.gz")


def check_misalign_by(plan: NetworkPlan) -> None:
    """Check the limits that `--misalign-by` gave to the plan.

    Raises:
        HecktorError: the plan misaligns nothing, or the shift is no whole number of voxels, as shifts are.
    """
    voxels = plan.misalign_by[1]
    if not plan.misalign:
        raise HecktorError("--misalign-by", "found without --misalign", "both")
    if not float(voxels).is_integer():
        raise HecktorError("--misalign-by", f"found a shift of {voxels:g} voxels", "a whole number")


def _switch(text: str) -> bool:
    if text not in _SWITCH:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected on or off")
    return _SWITCH[text]


def _path(text: str) -> str:
    return str(Path(text).resolve())
