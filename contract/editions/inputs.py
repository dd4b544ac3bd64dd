"""Sockets of an edition's algorithms, and the inputs whose names mean the same in every edition."""

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
    """Modality of an input, and its file below a patient's folder of a release; None if it has no such file."""

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


def _check_relative_path(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("a relative path without ..")
    return text


RelativePath = Annotated[Text, AfterValidator(_check_relative_path)]


def _check_release_file(text: str) -> str:
    if "{id}" not in text or not text.endswith(".nii.gz") or set("{}") & set(text.replace("{id}", "")):
        raise ValueError("a path such as preRT/{id}_T2.nii.gz")
    return text


ReleaseFile = Annotated[RelativePath, AfterValidator(_check_release_file)]


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
        """A number for the platform's documents, computed from the slug."""
        return zlib.crc32(self.slug.encode())

    @property
    def is_image(self) -> bool:
        """Whether the socket is a folder with one image instead of a JSON file."""
        return self.kind in _IMAGE_KINDS

    @property
    def super_kind(self) -> str:
        """The platform's coarser kind."""
        return "Image" if self.is_image else "Value"

    def path_under(self, root: Path) -> Path:
        """Return the path of the socket's image folder or JSON file below `root`."""
        return root / self.relative_path


class Input(Socket):
    """An input socket of an edition.

    Attributes:
        modality: What the image shows; required for an input whose name is not in `INPUT_NAMES`.
        visit: Examination of an MR or its mask: "earlier", or "later" for the current examination.
        registered: Whether an image or mask of the earlier visit is registered to the later scan.
        release: The image's file below a patient's folder of a release, with `{id}` for the patient's ID.
    """

    modality: Modality | None = None
    visit: Visit = "later"
    registered: bool = False
    release: ReleaseFile | None = None

    def with_defaults(self, name: str) -> Input:
        """Return the input called `name`, with the default modality and file of that name.

        Raises:
            ValueError: The modality is missing, contradicts the name or is not possible. The exception's text states
                the expectation.
        """
        known = _KNOWN.get(name)
        modality = self.modality
        if known is None:
            release: str | None = f"{{id}}__{name}.nii.gz"
            if modality is None:
                raise ValueError(f"MR or mask as the modality of {name}, or a name among {', '.join(INPUT_NAMES)}")
            if modality not in (MR, "mask"):
                raise ValueError(f"inputs among {', '.join(INPUT_NAMES)}, or of the modality MR or mask, not {name}")
        else:
            modality, release = known
            if self.modality not in (None, modality):
                raise ValueError(f"{modality} as the modality of {name}")
        if self.is_image != (name != EHR):
            raise ValueError(f"{'a JSON value' if name == EHR else 'Image'} as the kind of {name}")
        return self.model_copy(update={"modality": modality, "release": self.release or release})
