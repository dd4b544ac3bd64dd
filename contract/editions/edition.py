"""One edition of the challenge: one JSON document, known by its name or given as a file.

Its section `scoring` is data here; `evaluation.editions` knows what it means.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator

from contract.documents import Document, Name, Text, UniqueTexts, Word, check_texts, check_unique, parse_document
from contract.editions.clinical import ClinicalVariable, normalise_key
from contract.editions.declaration import Algorithm
from contract.editions.inputs import CT, EHR, MR, PET, Input
from contract.errors import HecktorError
from contract.io.files import read_json, write_json

DEFAULT_EDITION: Final = "hecktor2025"
_SHIPPED: Final = Path(__file__).parent
# What `algorithms_of` takes from another edition.
_DECLARED: Final = ("inputs", "clinical", "suv_factor", "algorithms")
# What changes no answer of an algorithm.
_OF_SCORING: Final = ("citation", "task_aliases", "scoring")
_SCHEMA: Final = "$schema"
_MAX_TEXT_LETTERS: Final = 4000


def _or_those_of_another(schema: dict[str, Any]) -> None:
    """The document itself declares inputs and algorithms, or names the edition that does."""
    schema["required"] = [key for key in schema["required"] if key not in _DECLARED]
    schema["anyOf"] = [{"required": ["inputs", "algorithms"]}, {"required": ["algorithms_of"]}]


class NewTestCentres(Document):
    """Number of centres in the test set of which no training patient came, and where it is stated."""

    count: Annotated[int, Field(ge=1, le=1000)]
    source: Text


class Edition(Document):
    """One year of the challenge.

    Attributes:
        citation: what a report asks its readers to cite.
        algorithms_of: an edition of the package whose inputs, clinical variables and algorithms these are.
        suv_factor: spellings of the key in `ehr.json` that holds the factor from Bq/ml to SUV; no clinical variable.
        task_aliases: further values of `--task` by algorithm, such as a challenge's own numbers; they precede ours.
        scoring: metrics, rules and ranking by algorithm; those without are not scored.
        new_test_centres: new centres of the test set; None if their number is not known.
        $schema: for editors.
    """

    model_config = ConfigDict(json_schema_extra=_or_those_of_another)

    format: Annotated[int, Field(ge=2, le=2)]
    name: Name
    title: Text
    citation: str = ""
    algorithms_of: Name | None = None
    inputs: dict[str, Input]
    clinical: tuple[ClinicalVariable, ...] = Field(default=(), validate_default=True)
    suv_factor: UniqueTexts = ()
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    task_aliases: dict[Name, tuple[Word, ...]] = Field(default_factory=dict)
    scoring: Annotated[Mapping[str, Any], Field(min_length=1)]
    new_test_centres: NewTestCentres | None = None
    editor_schema: Text | None = Field(default=None, alias=_SCHEMA)
    _source: str = PrivateAttr("")
    _content: dict[str, Any] | None = PrivateAttr(None)
    _place: str = PrivateAttr("")

    @field_validator("inputs")
    @classmethod
    def _check_inputs(cls, inputs: dict[str, Input]) -> dict[str, Input]:
        named = {name: socket.with_defaults(name) for name, socket in inputs.items()}
        if not any(one.modality == MR for one in named.values()):
            if absent := [name for name in (CT, PET, EHR) if name not in named]:
                raise ValueError(f"{', '.join(absent)} among the inputs, or an MR")
        elif others := [name for name, one in named.items() if one.modality in ("CT", "PET", "dose")]:
            raise ValueError(f"CT and PET, or MR, among the inputs, not MR and {', '.join(others)}")
        check_unique(socket.slug for socket in named.values())
        check_unique(socket.relative_path for socket in named.values())
        return named

    @field_validator("clinical")
    @classmethod
    def _check_clinical(
        cls, clinical: tuple[ClinicalVariable, ...], info: ValidationInfo
    ) -> tuple[ClinicalVariable, ...]:
        if bool(clinical) != (EHR in info.data.get("inputs", {EHR: None})):
            raise ValueError(f"at least one variable with the input {EHR}, and none without it")
        check_unique(variable.name for variable in clinical)
        check_unique(variable.feature for variable in clinical)
        check_unique(_keys(clinical))
        return clinical

    @field_validator("suv_factor")
    @classmethod
    def _check_keys(cls, suv_factor: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        check_unique([*_keys(info.data.get("clinical", ())), *{normalise_key(text) for text in suv_factor}])
        return suv_factor

    @field_validator("algorithms")
    @classmethod
    def _number_algorithms(cls, algorithms: tuple[Algorithm, ...], info: ValidationInfo) -> tuple[Algorithm, ...]:
        check_unique(algorithm.name for algorithm in algorithms)
        check_unique(algorithm.evaluation_image for algorithm in algorithms)
        sockets = info.data.get("inputs")
        if sockets is None:
            return algorithms
        return tuple(algorithm.with_inputs(number, sockets) for number, algorithm in enumerate(algorithms, start=1))

    @field_validator("task_aliases", "scoring")
    @classmethod
    def _check_tasks(cls, by_task: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        names = [algorithm.name for algorithm in info.data.get("algorithms", ())]
        if names and (unknown := [name for name in by_task if name not in names]):
            raise ValueError(f"some of {', '.join(names)}, not {unknown[0]!r}")
        if info.field_name == "task_aliases":
            check_unique([*names, *(alias for aliases in by_task.values() for alias in aliases)])
        return by_task

    def with_origin(self, source: str, place: str, content: dict[str, Any] | None = None) -> Edition:
        """The edition with its origin, see the properties of these names."""
        copy = self.model_copy()
        copy._source, copy._place, copy._content = source, place, content
        return copy

    @property
    def source(self) -> str:
        """Name or path that loads the edition again; empty for one that another document embeds."""
        return self._source

    @property
    def place(self) -> str:
        """The document in messages."""
        return self._place

    @property
    def content(self) -> dict[str, Any] | None:
        """The JSON document of an edition of your own, which files store; None for an edition of the package."""
        return self._content

    @property
    def has_task_folders(self) -> bool:
        """True if a release has a folder for each task: for several algorithms that name no files of their own."""
        return len(self.algorithms) > 1 and not any(one.modality == MR for one in self.inputs.values())

    def reference_folder(self, algorithm: Algorithm) -> str:
        """The folder of an algorithm's reference masks in a cohort: one for all, or one for each scan."""
        one_scan = len({one.scan.slug for one in self.algorithms}) == 1
        return "ground_truth" if one_scan else f"ground_truth_{algorithm.name}"

    def select_for_training(self, task: str | None) -> Edition:
        """The edition of one network: all of it, or one algorithm where the algorithms' networks see other images.

        Raises:
            HecktorError: `task` is needed, not needed, or unknown.
        """
        names = ", ".join(algorithm.name for algorithm in self.algorithms)
        if len({algorithm.channels for algorithm in self.algorithms}) == 1:
            if task is not None:
                raise HecktorError("--task", f"found {task!r}", f"none: one network answers {names}")
            return self
        if task is None:
            raise HecktorError("--task", "found none", f"one of {names}, whose networks see different images")
        algorithm = self.find_algorithm(task)
        scoring = {name: one for name, one in self.scoring.items() if name == algorithm.name}
        copy = self.model_copy(update={"algorithms": (algorithm,), "scoring": scoring})
        return copy.with_origin(self.source, self.place, self.content)

    def find_algorithm(self, name: str | None = None) -> Algorithm:
        """The algorithm of that name, number or alias; aliases precede numbers. None selects the only scored one.

        Raises:
            HecktorError: no algorithm has that name, or several algorithms and no name.
        """
        scored = [algorithm for algorithm in self.algorithms if algorithm.name in self.scoring]
        if name is None and len(scored) == 1:
            return scored[0]
        wanted = "" if name is None else name.strip().lower()
        named = [algorithm for algorithm in self.algorithms if wanted in self.task_aliases.get(algorithm.name, ())]
        named += [algorithm for algorithm in self.algorithms if wanted in algorithm.aliases]
        if named:
            return named[0]
        names = [alias for one in self.algorithms for alias in (*one.aliases, *self.task_aliases.get(one.name, ()))]
        shown = "no task" if name is None else f"task {name!r}"
        raise HecktorError(f"edition {self.name}", f"found {shown}", f"one of {', '.join(dict.fromkeys(names))}")


def _keys(clinical: Iterable[ClinicalVariable]) -> list[str]:
    """The keys of all variables in the form in which they are compared, each spelling of a variable once."""
    return [key for variable in clinical for key in {normalise_key(text) for text in variable.spellings}]


def list_editions() -> tuple[str, ...]:
    """Names of the editions that come with the package."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.json")))


def load_edition(name_or_path: str = DEFAULT_EDITION) -> Edition:
    """Load an edition by its name or from its JSON file.

    Raises:
        HecktorError: no such edition or file, or a document that breaks the schema; the message names the place.
    """
    if name_or_path in list_editions():
        return _shipped(name_or_path)
    path = Path(name_or_path)
    if path.suffix != ".json":
        choices = ", ".join(list_editions())
        raise HecktorError("edition", f"found {name_or_path!r:.60}", f"one of {choices} or the JSON file of an edition")
    return _own(read_json(path, error=HecktorError), path.name, str(path.absolute()))


def parse_edition(content: Mapping[str, Any], place: str = "own_edition") -> Edition:
    """The edition of a document that embeds it, see `Edition.content`. Raises as `load_edition`."""
    return _own(content, place, "")


def write_edition_file(edition: Edition, file: Path) -> Edition:
    """The edition with a source for another command: one that a document embeds is written to `file`."""
    if edition.source:
        return edition
    write_json(file, edition.content)
    return load_edition(str(file))


def remove_scoring(content: Mapping[str, Any]) -> dict[str, Any]:
    """An edition's document without its scoring."""
    return {key: value for key, value in content.items() if key not in _OF_SCORING}


def content_digest(content: Mapping[str, Any] | None) -> str:
    """First digits of the sha256 of an edition's document; `none` for an edition of the package."""
    if content is None:
        return "none"
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@cache
def _shipped(name: str) -> Edition:
    return _parsed(_shipped_content(name), f"{name}.json").with_origin(name, f"{name}.json")


@cache
def _shipped_content(name: str) -> Any:
    return read_json(_SHIPPED / f"{name}.json", error=HecktorError)


def _own(content: Any, place: str, source: str) -> Edition:
    check_texts(content, place, HecktorError, _MAX_TEXT_LETTERS)
    edition = _parsed(content, place)
    text = {key: value for key, value in content.items() if key != _SCHEMA}
    if edition.name not in list_editions():
        return edition.with_origin(source, place, text)
    if text != _shipped_content(edition.name):
        found = f"found {edition.name!r}, an edition of the package with other contents"
        raise HecktorError(f"{place}.name", found, "a name of its own")
    return _shipped(edition.name)


def _parsed(content: Any, place: str) -> Edition:
    if isinstance(content, dict):
        content = {**_taken(content, place), **content}
    return parse_document(content, Edition, place, error=HecktorError)


def _taken(content: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Parts that the edition takes from the one that it names in `algorithms_of`."""
    name = content.get("algorithms_of")
    if name is None:
        return {}
    if stated := [key for key in _DECLARED if key in content]:
        raise HecktorError(f"{place}.{stated[0]}", "found beside `algorithms_of`", "one of them")
    declaring = [one for one in list_editions() if "algorithms" in _shipped_content(one)]
    if name not in declaring:
        raise HecktorError(f"{place}.algorithms_of", f"found {name!r:.60}", f"one of {', '.join(declaring)}")
    return {key: value for key, value in _shipped_content(name).items() if key in _DECLARED}
