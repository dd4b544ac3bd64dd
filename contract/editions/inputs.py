"""Sockets of an edition's algorithms, and the inputs that have a name of their own."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field

from contract.documents import Document, Text

Modality = Literal["CT", "PET", "MR", "dose", "mask", "clinical"]
Visit = Literal["earlier", "later"]
CT, PET, EHR, CT_PLANNING, RT_DOSE, CONTOURS = "ct", "pet", "ehr", "ct_planning", "rt_dose", "contours"
MR: Final = "MR"
REFERENCE_FILE: Final = "{id}.nii.gz"
# Input channels of the networks of an edition of CT and PET.
CT_AND_PET: Final = ("CT", "PET")
_IMAGE_KINDS: Final = ("Image", "Segmentation")


class _KnownInput(NamedTuple):
    """Modality of an input by its name, and its file below a patient's folder of a release."""

    modality: Modality
    release: str | None


_KNOWN: Final[Mapping[str, _KnownInput]] = {
    CT: _KnownInput("CT", "{id}__CT.nii.gz"),
    PET: _KnownInput("PET", "{id}__PT.nii.gz"),
    EHR: _KnownInput("clinical", None),
    CT_PLANNING: _KnownInput("CT", "{id}__CTPlanning.nii.gz"),
    RT_DOSE: _KnownInput("dose", "{id}__RTDOSE.nii.gz"),
    CONTOURS: _KnownInput("mask", REFERENCE_FILE),
}
INPUT_NAMES: Final = tuple(_KNOWN)
RELEASE_FILES: Final = {name: known.release for name, known in _KNOWN.items() if known.release is not None}


def _below_its_folder(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("a relative path without ..")
    return text


RelativePath = Annotated[Text, AfterValidator(_below_its_folder)]


def _nifti_of_patient(text: str) -> str:
    if "{id}" not in text or not text.endswith(".nii.gz") or set("{}") & set(text.replace("{id}", "")):
        raise ValueError("a path such as preRT/{id}_T2.nii.gz")
    return text


ReleaseFile = Annotated[RelativePath, AfterValidator(_nifti_of_patient)]


class Socket(Document):
    """An input or output of an algorithm.

    `relative_path` (`path` in the declaration) is the image folder or the JSON file below `/input` or `/output`.
    """

    slug: Text
    title: Text
    kind: Text
    relative_path: RelativePath = Field(alias="path")

    @property
    def pk(self) -> int:
        """A number for the platform's documents, from the slug."""
        return zlib.crc32(self.slug.encode())

    @property
    def is_image(self) -> bool:
        """True for a folder with one image, False for a JSON file."""
        return self.kind in _IMAGE_KINDS

    @property
    def super_kind(self) -> str:
        """The platform's coarser kind."""
        return "Image" if self.is_image else "Value"

    def path_under(self, root: Path) -> Path:
        """The socket's folder (image) or file (JSON) below `root`."""
        return root / self.relative_path


class Input(Socket):
    """An input socket of an edition.

    Attributes:
        modality: what the image shows; stated for names other than those of `INPUT_NAMES`.
        visit: of an MR or its mask, the examination: "earlier", or "later" for the current one.
        registered: True for an image or mask of the earlier visit on the later scan's patient position.
        release: the image's file below a patient's folder of a release, with `{id}` for the patient's ID.
    """

    modality: Modality | None = None
    visit: Visit = "later"
    registered: bool = False
    release: ReleaseFile | None = None

    def with_defaults(self, name: str) -> Input:
        """The input with what its name implies. Raises ValueError for a name without a modality, or another one."""
        known = _KNOWN.get(name)
        modality = self.modality or (known and known.modality)
        if modality is None or (known is not None and modality != known.modality):
            raise ValueError(f"{known.modality if known else 'MR or mask'} as the modality of {name}")
        if known is None and modality not in (MR, "mask"):
            raise ValueError(f"inputs among {', '.join(INPUT_NAMES)}, or of the modality MR or mask, not {name}")
        if self.is_image != (name != EHR):
            raise ValueError(f"{'a JSON value' if name == EHR else 'Image'} as the kind of {name}")
        implied = known.release if known else f"{{id}}__{name}.nii.gz"
        return self.model_copy(update={"modality": modality, "release": self.release or implied})
