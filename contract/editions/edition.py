"""One edition of the challenge, and how it is loaded from its JSON file."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from contract.documents import Document, Name, Text, UniqueTexts, parse_document, unique
from contract.editions.clinical import ClinicalVariable, normalised_key
from contract.editions.declaration import CT, EHR, INPUT_NAMES, PET, Algorithm, Socket
from contract.errors import HecktorError
from contract.files import parse_json, read_json

DEFAULT_EDITION: Final = "hecktor2025"


class Edition(Document):
    """One year of the challenge.

    `evaluation_profile` is the name or path of the evaluation profile. `source` is the name or path that loads the
    edition again, for a command that calls another one. `suv_factor` has the spellings of the key in `ehr.json` that
    holds the factor from Bq/ml to SUV; it is no clinical variable.
    """

    format: Annotated[int, Field(ge=1, le=1)]
    name: Name
    title: Text
    evaluation_profile: Text
    inputs: dict[str, Socket]
    clinical: Annotated[tuple[ClinicalVariable, ...], Field(min_length=1)]
    suv_factor: UniqueTexts = ()
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    _source: str = PrivateAttr("")

    @field_validator("inputs")
    @classmethod
    def _check_inputs(cls, inputs: dict[str, Socket]) -> dict[str, Socket]:
        absent = [name for name in (CT, PET, EHR) if name not in inputs]
        if absent:
            raise ValueError(f"{', '.join(absent)} among the inputs")
        if unknown := [name for name in inputs if name not in INPUT_NAMES]:
            raise ValueError(f"inputs among {', '.join(INPUT_NAMES)}, not {', '.join(unknown)}")
        for name, socket in inputs.items():
            if socket.is_image != (name != EHR):
                raise ValueError(f"{'a JSON value' if name == EHR else 'Image'} as the kind of {name}")
        unique(socket.slug for socket in inputs.values())
        unique(socket.relative_path for socket in inputs.values())
        return inputs

    @field_validator("clinical")
    @classmethod
    def _check_clinical(cls, clinical: tuple[ClinicalVariable, ...]) -> tuple[ClinicalVariable, ...]:
        unique(variable.name for variable in clinical)
        unique(variable.feature for variable in clinical)
        unique(_keys(clinical))
        return clinical

    @field_validator("suv_factor")
    @classmethod
    def _check_keys(cls, suv_factor: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        unique([*_keys(info.data.get("clinical", ())), *{normalised_key(text) for text in suv_factor}])
        return suv_factor

    @field_validator("algorithms")
    @classmethod
    def _number_algorithms(cls, algorithms: tuple[Algorithm, ...], info: ValidationInfo) -> tuple[Algorithm, ...]:
        unique(algorithm.name for algorithm in algorithms)
        sockets = info.data.get("inputs")
        if sockets is None:
            return algorithms
        return tuple(algorithm.with_inputs(number, sockets) for number, algorithm in enumerate(algorithms, start=1))

    def loaded_from(self, source: str, folder: Path | None) -> Edition:
        """The edition as read from `source`; a relative path of a profile file is resolved against `folder`."""
        profile = self.evaluation_profile
        if folder is not None and profile.endswith(".json"):
            profile = str(folder / profile)
        copy = self.model_copy(update={"evaluation_profile": profile})
        copy._source = source
        return copy

    @property
    def source(self) -> str:
        return self._source

    def algorithm(self, name: str | None = None) -> Algorithm:
        """The algorithm of that name or number; None selects the only one.

        Raises:
            HecktorError: no algorithm has that name, or several algorithms and no name.
        """
        if name is None and len(self.algorithms) == 1:
            return self.algorithms[0]
        wanted = "" if name is None else name.strip().lower()
        for algorithm in self.algorithms:
            if wanted in algorithm.aliases:
                return algorithm
        choices = ", ".join(alias for algorithm in self.algorithms for alias in algorithm.aliases)
        shown = "no task" if name is None else f"task {name!r}"
        raise HecktorError(f"edition {self.name}", f"found {shown}", f"one of {choices}")


def known_editions() -> tuple[str, ...]:
    """Names of the editions that come with the package."""
    names = (entry.name for entry in files("contract.editions").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


@cache
def load_edition(name_or_path: str = DEFAULT_EDITION) -> Edition:
    """Load an edition by its name, or a declaration file (`.json`) by its path.

    A relative path of an evaluation profile is resolved against the folder of the declaration file.

    Raises:
        HecktorError: no such edition or file, or a declaration that breaks the schema; the message names the place.
    """
    if name_or_path in known_editions():
        source = f"{name_or_path}.json"
        text = files("contract.editions").joinpath(source).read_text(encoding="utf-8")
        return _edition(parse_json(text, source, error=HecktorError), source).loaded_from(name_or_path, None)
    path = Path(name_or_path)
    if path.suffix != ".json":
        choices = ", ".join(known_editions())
        raise HecktorError("edition", f"found {name_or_path!r}", f"one of {choices} or a declaration.json")
    edition = _edition(read_json(path, error=HecktorError), path.name)
    return edition.loaded_from(str(path.resolve()), path.resolve().parent)


def _edition(content: object, where: str) -> Edition:
    if isinstance(content, dict) and "tasks" in content:
        raise HecktorError(where, "found an evaluation profile", "the declaration of an edition, with its algorithms")
    return parse_document(content, Edition, where, error=HecktorError)


def _keys(clinical: Iterable[ClinicalVariable]) -> list[str]:
    """The keys of all variables in the form in which they are compared, each spelling of a variable once."""
    return [key for variable in clinical for key in {normalised_key(text) for text in variable.spellings}]
