"""Load editions of the challenge: JSON documents that come with the package, or custom editions in files.

The section `scoring` is not interpreted here, but in `evaluation.editions`.
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
from contract.editions.algorithms import Algorithm
from contract.editions.clinical import ClinicalVariable, normalise_key
from contract.editions.inputs import CT, EHR, MR, PET, Input
from contract.errors import HecktorError
from contract.io.files import read_json, write_json

DEFAULT_EDITION: Final = "hecktor2025"
_SHIPPED: Final = Path(__file__).parent
# Keys that `algorithms_of` copies from another edition.
_ALGORITHM_KEYS: Final = ("inputs", "clinical", "suv_factor", "algorithms")
# Keys that do not affect the answers of an algorithm.
_SCORING_KEYS: Final = ("citation", "task_aliases", "scoring")
_SCHEMA: Final = "$schema"
_MAX_TEXT_LENGTH: Final = 4000


def _allow_algorithms_of(schema: dict[str, Any]) -> None:
    """Make inputs and algorithms optional in a document that names another edition in `algorithms_of`."""
    schema["required"] = [key for key in schema["required"] if key not in _ALGORITHM_KEYS]
    schema["anyOf"] = [{"required": ["inputs", "algorithms"]}, {"required": ["algorithms_of"]}]


class NewTestCentres(Document):
    """Number of test centres without training patients, and the source that states it."""

    count: Annotated[int, Field(ge=1, le=1000)]
    source: Text


class Edition(Document):
    """One year of the challenge.

    Attributes:
        citation: Publications that a report asks its readers to cite.
        algorithms_of: Name of an edition of the package whose inputs, clinical variables and algorithms are used.
        suv_factor: Spellings of the key in `ehr.json` that contains the factor from Bq/ml to SUV. It is not a clinical
            variable.
        task_aliases: Further values of `--task` by algorithm, such as a challenge's task numbers, which have precedence
            over the algorithms' numbers.
        scoring: Metrics, rules and ranking by algorithm. Algorithms without an entry are not scored.
        new_test_centres: New centres of the test set; None if their number is not known.
        $schema: Schema of the document, for editors.
    """

    model_config = ConfigDict(json_schema_extra=_allow_algorithms_of)

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
        sockets = {name: socket.with_defaults(name) for name, socket in inputs.items()}
        absent = [name for name in (CT, PET, EHR) if name not in sockets]
        not_with_mr = [name for name, socket in sockets.items() if socket.modality in ("CT", "PET", "dose")]
        has_mr = any(socket.modality == MR for socket in sockets.values())
        if absent and not has_mr:
            raise ValueError(f"{', '.join(absent)} among the inputs (needed without an MR image)")
        if not_with_mr and has_mr:
            raise ValueError(f"either CT and PET or MR among the inputs, not MR together with {', '.join(not_with_mr)}")
        check_unique(socket.slug for socket in sockets.values())
        check_unique(socket.relative_path for socket in sockets.values())
        return sockets

    @field_validator("clinical")
    @classmethod
    def _check_clinical(
        cls, clinical: tuple[ClinicalVariable, ...], info: ValidationInfo
    ) -> tuple[ClinicalVariable, ...]:
        if bool(clinical) != (EHR in info.data.get("inputs", {EHR: None})):
            raise ValueError(f"clinical variables if and only if {EHR} is an input")
        check_unique(variable.name for variable in clinical)
        check_unique(variable.feature for variable in clinical)
        check_unique(_list_keys(clinical))
        return clinical

    @field_validator("suv_factor")
    @classmethod
    def _check_suv_factor(cls, suv_factor: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        factor_keys = {normalise_key(spelling) for spelling in suv_factor}
        check_unique([*_list_keys(info.data.get("clinical", ())), *factor_keys])
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
        unknown = [name for name in by_task if name not in names]
        if names and unknown:
            raise ValueError(f"some of {', '.join(names)}, not {unknown[0]!r}")
        if info.field_name == "task_aliases":
            check_unique([*names, *(alias for aliases in by_task.values() for alias in aliases)])
        return by_task

    def with_origin(self, source: str, place: str, content: dict[str, Any] | None = None) -> Edition:
        """Return a copy with its origin, which the properties `source`, `place` and `content` describe."""
        copy = self.model_copy()
        copy._source = source
        copy._place = place
        copy._content = content
        return copy

    @property
    def source(self) -> str:
        """Name or path that loads the edition again; empty for an edition that another document embeds."""
        return self._source

    @property
    def place(self) -> str:
        """Name of the document in messages."""
        return self._place

    @property
    def content(self) -> dict[str, Any] | None:
        """The JSON document of a custom edition, which result files embed; None for an edition of the package."""
        return self._content

    @property
    def has_task_folders(self) -> bool:
        """Whether a release has a folder for each task: there are several algorithms of CT and PET."""
        return len(self.algorithms) > 1 and not any(socket.modality == MR for socket in self.inputs.values())

    def get_reference_folder(self, algorithm: Algorithm) -> str:
        """Return the name of the folder of an algorithm's reference masks in a cohort.

        All algorithms share one folder if their masks are on the grid of the same scan.
        """
        scans = {declared.scan.slug for declared in self.algorithms}
        return "ground_truth" if len(scans) == 1 else f"ground_truth_{algorithm.name}"

    def select_for_training(self, task: str | None) -> Edition:
        """Return the edition with only the algorithms that one network can serve.

        These are all algorithms if their networks see the same images, otherwise only the algorithm of `task`.

        Raises:
            HecktorError: `task` is unknown, missing although the images differ, or given although they do not.
        """
        names = ", ".join(algorithm.name for algorithm in self.algorithms)
        if len({algorithm.channels for algorithm in self.algorithms}) == 1:
            if task is not None:
                raise HecktorError("--task", f"found {task!r}", f"none: one network answers {names}")
            return self
        if task is None:
            raise HecktorError("--task", "found none", f"one of {names}, whose networks see different images")
        algorithm = self.find_algorithm(task)
        scoring = {name: rules for name, rules in self.scoring.items() if name == algorithm.name}
        copy = self.model_copy(update={"algorithms": (algorithm,), "scoring": scoring})
        return copy.with_origin(self.source, self.place, self.content)

    def find_algorithm(self, name: str | None = None) -> Algorithm:
        """Find an algorithm by its name, alias or number; aliases have precedence over numbers.

        Without a name, the edition must score only one algorithm, which is returned.

        Raises:
            HecktorError: No algorithm has this name; or there is no name, and several algorithms are scored.
        """
        scored = [algorithm for algorithm in self.algorithms if algorithm.name in self.scoring]
        if name is None and len(scored) == 1:
            return scored[0]
        lower_name = "" if name is None else name.strip().lower()
        matching = [
            algorithm for algorithm in self.algorithms if lower_name in self.task_aliases.get(algorithm.name, ())
        ]
        matching += [algorithm for algorithm in self.algorithms if lower_name in algorithm.aliases]
        if matching:
            return matching[0]
        names: list[str] = []
        for algorithm in self.algorithms:
            names += [*algorithm.aliases, *self.task_aliases.get(algorithm.name, ())]
        actual = "no task" if name is None else f"task {name!r}"
        raise HecktorError(f"edition {self.name}", f"found {actual}", f"one of {', '.join(dict.fromkeys(names))}")


def _list_keys(clinical: Iterable[ClinicalVariable]) -> list[str]:
    """List the normalised spellings of all variables, without repetitions within a variable."""
    return [key for variable in clinical for key in {normalise_key(text) for text in variable.spellings}]


def list_editions() -> tuple[str, ...]:
    """List the names of the editions that come with the package."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.json")))


def load_edition(name_or_path: str = DEFAULT_EDITION) -> Edition:
    """Load an edition by its name or from its JSON file.

    Raises:
        HecktorError: The edition or file does not exist, or the document breaks the schema.
    """
    if name_or_path in list_editions():
        return _load_shipped(name_or_path)
    path = Path(name_or_path)
    if path.suffix != ".json":
        choices = ", ".join(list_editions())
        raise HecktorError("edition", f"found {name_or_path!r:.60}", f"one of {choices} or the JSON file of an edition")
    return _parse_custom(read_json(path, error=HecktorError), path.name, str(path.absolute()))


def parse_edition(content: Mapping[str, Any], place: str = "own_edition") -> Edition:
    """Parse an edition that a document embeds (`Edition.content`); raise the errors of `load_edition`."""
    return _parse_custom(content, place, "")


def write_edition_file(edition: Edition, file: Path) -> Edition:
    """Return the edition with a source that other commands can load; an embedded edition is written to `file`."""
    if edition.source:
        return edition
    write_json(file, edition.content)
    return load_edition(str(file))


def remove_scoring(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of an edition without its scoring."""
    return {key: value for key, value in content.items() if key not in _SCORING_KEYS}


def compute_content_digest(content: Mapping[str, Any] | None) -> str:
    """Compute the first 12 digits of the sha256 of an edition's document; `none` for an edition of the package."""
    if content is None:
        return "none"
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@cache
def _load_shipped(name: str) -> Edition:
    return _parse_document(_read_shipped(name), f"{name}.json").with_origin(name, f"{name}.json")


@cache
def _read_shipped(name: str) -> Any:
    return read_json(_SHIPPED / f"{name}.json", error=HecktorError)


def _parse_custom(content: Any, place: str, source: str) -> Edition:
    """Parse the document of a custom edition; an edition of the package is accepted if it is unchanged."""
    check_texts(content, place, HecktorError, _MAX_TEXT_LENGTH)
    edition = _parse_document(content, place)
    document = {key: value for key, value in content.items() if key != _SCHEMA}
    if edition.name not in list_editions():
        return edition.with_origin(source, place, document)
    if document != _read_shipped(edition.name):
        actual = f"found {edition.name!r}, an edition of the package with other contents"
        raise HecktorError(f"{place}.name", actual, "a different name")
    return _load_shipped(edition.name)


def _parse_document(content: Any, place: str) -> Edition:
    if isinstance(content, dict):
        content = {**_copy_algorithms(content, place), **content}
    return parse_document(content, Edition, place, error=HecktorError)


def _copy_algorithms(content: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Copy inputs and algorithms from the edition that a document names in `algorithms_of`."""
    name = content.get("algorithms_of")
    if name is None:
        return {}
    stated = [key for key in _ALGORITHM_KEYS if key in content]
    if stated:
        raise HecktorError(f"{place}.{stated[0]}", "found together with `algorithms_of`", "only one of them")
    declaring = [edition for edition in list_editions() if "algorithms" in _read_shipped(edition)]
    if name not in declaring:
        raise HecktorError(f"{place}.algorithms_of", f"found {name!r:.60}", f"one of {', '.join(declaring)}")
    return {key: value for key, value in _read_shipped(name).items() if key in _ALGORITHM_KEYS}
