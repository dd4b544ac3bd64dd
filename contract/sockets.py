"""Sockets and paths of the platform; nothing else in the project spells a socket's folder.

Source: the HECKTOR 2025 phases on grand-challenge.org.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

INPUT_DIR: Final = Path("/input")
OUTPUT_DIR: Final = Path("/output")
MODEL_DIR: Final = Path("/opt/ml/model")
GROUND_TRUTH_DIR: Final = Path("/opt/ml/input/data/ground_truth")

INPUTS_JSON: Final = "inputs.json"
PREDICTIONS_JSON: Final = "predictions.json"
METRICS_JSON: Final = "metrics.json"

# What the platform hands on; .nii.gz is for local use and is never accepted from an algorithm.
PLATFORM_IMAGE_SUFFIXES: Final = (".mha", ".tif", ".tiff")
READABLE_IMAGE_SUFFIXES: Final = (*PLATFORM_IMAGE_SUFFIXES, ".nii.gz")
MAX_FILES_IN_IMAGE_FOLDER: Final = 1000


@dataclass(frozen=True)
class Socket:
    """One input or output of an algorithm.

    `relative_path` is the image's folder or the JSON file, below `/input` or `/output`.
    """

    slug: str
    title: str
    kind: str
    super_kind: str
    relative_path: str
    pk: int

    @property
    def is_image(self) -> bool:
        """Whether the socket is a folder holding exactly one image."""
        return self.super_kind == "Image"

    def path_under(self, root: Path) -> Path:
        """The socket's folder (image) or file (JSON) below `root`."""
        return root / self.relative_path


CT: Final = Socket("ct-image", "CT Image", "Image", "Image", "images/ct", 1)
PET: Final = Socket("pet-image", "PET Image", "Image", "Image", "images/pet", 2)
EHR: Final = Socket("ehr", "EHR", "Anything", "Value", "ehr.json", 3)
CT_PLANNING: Final = Socket("ct-planning", "Planning CT", "Image", "Image", "images/ct-planning", 4)
RT_DOSE: Final = Socket("rt-dose", "RT Dose", "Image", "Image", "images/rt-dose", 5)

MASK: Final = Socket(
    "tumor-lymph-node-segmentation",
    "Tumor and Lymph Node Segmentation",
    "Segmentation",
    "Image",
    "images/tumor-lymph-node-segmentation",
    6,
)
RFS_RISK: Final = Socket("rfs", "RFS", "Float", "Value", "rfs.json", 7)
HPV_STATUS: Final = Socket("hpv-status", "HPV Status", "Bool", "Value", "hpv-status.json", 8)

ALL_SOCKETS: Final = (CT, PET, EHR, CT_PLANNING, RT_DOSE, MASK, RFS_RISK, HPV_STATUS)
MASK_FILE_NAME: Final = "output.mha"
