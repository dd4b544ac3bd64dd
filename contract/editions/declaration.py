"""Answers and algorithms as an edition declares them.

Code branches on an answer's kind, never on a name or a year.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from contract.documents import (
    Document,
    Name,
    Text,
    UniqueTexts,
    Word,
    expect_keys,
    is_integer,
    is_member,
    is_text,
    unique,
)
from contract.editions.clinical import normalised_key, refuse_missing
from contract.editions.inputs import (
    CONTOURS,
    CT,
    CT_AND_PET,
    MR,
    REFERENCE_FILE,
    Input,
    Modality,
    RelativePath,
    ReleaseFile,
    Socket,
)
from contract.labels import FOREGROUND, NAMES

Kind = Literal["mask", "risk", "class"]
Direction = Literal["risk", "time"]
Rule = Literal["", "t_stage_7th", "n_stage_7th"]
ClassValue = bool | int | str
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
# Rules that give a class from the mask, defined in `algorithm.heads.values`.
RULES: Final = tuple(rule for rule in get_args(Rule) if rule)
IMAGE_PREFIX: Final = "hecktor-"
_CLASS_SOCKETS: Final[Mapping[type, str]] = {bool: "Bool", int: "Integer", str: "String"}
_LABELS: Final = {NAMES[label]: label for label in FOREGROUND}
# Keys of each kind of answer: those required, then those allowed.
_KEYS_OF_KIND: Final[Mapping[Kind, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "mask": (("labels",), ("release",)),
    "risk": (("columns",), ("aliases", "head", "direction", "fallback")),
    "class": (
        ("classes", "columns"),
        ("aliases", "head", "words", "row_key", "fallback", "rule", "without", "not_counted"),
    ),
}
_COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {"mask": (), "risk": ("time", "event"), "class": ("class",)}


class Answer(Document):
    """One output of an algorithm.

    Attributes:
        name: name of the answer in model packages and scoring.
        kind: "mask" (labels on the CT's grid), "risk" (one number for each patient) or "class" (one of `classes`).
        slug, title, path: of the output socket.
        labels: structures of a mask and their values, GTVp 1 and GTVn 2.
        release: of a mask, the reference's file below a patient's folder of a release, with `{id}` for the ID.
        columns: columns of the reference table by role: "time" and "event" for a risk, "class" for a class.
        aliases: further spellings of these columns by role; the declared column of a table stands before them.
        head: head in the model package that predicts a risk or class, `name` by default; empty for a mask.
        direction: of a risk: "risk" if a higher value means earlier recurrence, "time" if it means later recurrence.
        classes: JSON values of a class in ascending order; the second of two is the positive class.
        words: lower-case spellings of the classes in tables.
        not_counted: capital spellings in tables, such as T0, that are known but no class: the patient does not count.
        rule: one of `RULES`, which gives the class from the mask if the head fails; empty for none.
        without: structures of the mask with a class that is given exactly where the written mask lacks the structure.
        row_key: key of a class in the rows of metrics.json, `name` by default.
        fallback: value written if the prediction fails and neither `rule` nor the model package gives one; None makes
            a failure an error. The fallback for a mask is always the PET threshold.
    """

    name: Name
    kind: Kind
    slug: Text
    title: Text
    path: RelativePath
    labels: dict[Text, int] = Field(default_factory=dict)
    release: ReleaseFile = REFERENCE_FILE
    columns: dict[Text, Text] = Field(default_factory=dict)
    aliases: dict[Text, UniqueTexts] = Field(default_factory=dict)
    head: Name = Field(default_factory=lambda fields: "" if fields.get("kind") == "mask" else fields.get("name", ""))
    direction: Direction = "risk"
    classes: tuple[ClassValue, ...] = ()
    words: dict[Word, ClassValue] = Field(default_factory=dict)
    not_counted: UniqueTexts = ()
    rule: Rule = ""
    without: dict[Text, ClassValue] = Field(default_factory=dict)
    row_key: Name = Field(default_factory=lambda fields: fields.get("name", ""))
    fallback: float | ClassValue | None = None

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: dict[str, int]) -> dict[str, int]:
        if labels != _LABELS:
            raise ValueError(f"{_LABELS}, which networks, features and metrics know")
        return labels

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        roles = _COLUMNS[info.data["kind"]] if "kind" in info.data else ()
        if not roles:
            return columns
        if set(columns) != set(roles) or len(set(columns.values())) < len(columns):
            raise ValueError(f"a different text for each of {', '.join(roles)}")
        return columns

    @field_validator("aliases")
    @classmethod
    def _check_aliases(cls, aliases: dict[str, tuple[str, ...]], info: ValidationInfo) -> dict[str, tuple[str, ...]]:
        columns = info.data.get("columns", {})
        if columns and not set(aliases) <= set(columns):
            raise ValueError(f"spellings for some of {', '.join(columns)}")
        unique(normalised_key(text) for text in (*columns.values(), *(one for of in aliases.values() for one in of)))
        return aliases

    @field_validator("classes")
    @classmethod
    def _check_classes(cls, values: tuple[ClassValue, ...]) -> tuple[ClassValue, ...]:
        in_order = (
            values == (False, True) and all(isinstance(value, bool) for value in values),
            all(map(is_integer, values)) and all(low < high for low, high in pairwise(map(int, values))),
            all(map(is_text, values)) and len({str(value).lower() for value in values}) == len(values),
        )
        if len(values) < 2 or not any(in_order):
            raise ValueError("false and true, ascending whole numbers or different texts, two or more")
        refuse_missing(values)
        return values

    @field_validator("words", "without")
    @classmethod
    def _check_members(cls, values: dict[str, ClassValue], info: ValidationInfo) -> dict[str, ClassValue]:
        classes = info.data.get("classes", ())
        if not all(is_member(value, classes) for value in values.values()):
            raise ValueError("one of the classes for each key")
        if info.field_name == "words":
            refuse_missing(values)
        if info.field_name == "without" and classes and len(set(values.values())) == len(classes):
            raise ValueError("at least one class that is left with all structures")
        return values

    @field_validator("not_counted")
    @classmethod
    def _capitals(cls, spellings: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.upper() for text in spellings)

    @field_validator("fallback", mode="before")
    @classmethod
    def _check_fallback(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None or info.data.get("kind", "mask") == "mask":
            return value
        if info.data["kind"] == "class":
            classes = info.data.get("classes", ())
            if not is_member(value, classes):
                raise ValueError(f"one of the classes {', '.join(map(str, classes))}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("a finite number")  # noqa: TRY004
        if info.data.get("direction") == "time" and value <= 0:
            raise ValueError("days above 0")
        return float(value)

    @model_validator(mode="after")
    def _check_keys(self) -> Answer:
        required, optional = _KEYS_OF_KIND[self.kind]
        expect_keys(self, ("name", "kind", "slug", "title", "path", *required), optional)
        return self

    @cached_property
    def socket(self) -> Socket:
        """The output socket."""
        kind = "Segmentation" if self.kind == "mask" else "Float"
        if self.kind == "class":
            kind = _CLASS_SOCKETS[type(self.classes[0])]
        return Socket(slug=self.slug, title=self.title, kind=kind, path=self.path)

    @property
    def column_aliases(self) -> dict[str, tuple[str, ...]]:
        """The further spellings of each column."""
        return {column: self.aliases.get(role, ()) for role, column in self.columns.items()}

    @property
    def is_binary(self) -> bool:
        """True for a class answer with two classes."""
        return self.kind == "class" and len(self.classes) == 2


class Algorithm(Document):
    """One algorithm image: its inputs by name (`CT`, `PET`, `EHR`, ...), its answers and the time limit per case.

    `image` is the name of the container image, without a tag. `number` counts an edition's algorithms from 1.
    """

    name: Name
    title: Text
    input_names: Annotated[UniqueTexts, Field(alias="inputs", min_length=1)]
    optional_input_names: UniqueTexts = Field(default=(), alias="optional_inputs")
    time_limit_s: Annotated[float, Field(gt=0)]
    answers: Annotated[tuple[Answer, ...], Field(min_length=1)]
    image: Name = Field(default_factory=lambda fields: f"{IMAGE_PREFIX}{fields.get('name', '')}")
    _number: int = PrivateAttr(1)
    _sockets: Mapping[str, Input] = PrivateAttr(default_factory=dict)

    @field_validator("answers")
    @classmethod
    def _check_answers(cls, answers: tuple[Answer, ...]) -> tuple[Answer, ...]:
        unique(answer.name for answer in answers)
        unique(answer.slug for answer in answers)
        unique(answer.path for answer in answers)
        masks = [answer for answer in answers if answer.kind == "mask"]
        if len(masks) > 1:
            raise ValueError("at most one mask")
        structures = [name for mask in masks for name in mask.labels]
        for answer in answers:
            for name in answer.without:
                if name not in structures:
                    raise ValueError(f"some of {structures} in `without` of {answer.name}, not {name!r}")
            if answer.rule and not masks:
                raise ValueError(f"a mask among the answers for the rule {answer.rule!r}")
        return answers

    @model_validator(mode="after")
    def _check_names(self) -> Algorithm:
        unique([*self.input_names, *self.optional_input_names])
        if self.mask is not None and CONTOURS in (*self.input_names, *self.optional_input_names):
            raise ValueError(f"no mask among the answers of an algorithm with {CONTOURS}")
        return self

    def with_inputs(self, number: int, sockets: Mapping[str, Input]) -> Algorithm:
        """The algorithm as number `number` of an edition with these input sockets.

        Raises:
            ValueError: an input that the edition lacks; the message is the expectation.
        """
        for name in (*self.input_names, *self.optional_input_names):
            if name not in sockets:
                raise ValueError(f"inputs of {self.name} among {', '.join(sockets)}, not {name!r}")
        if CT not in sockets and sockets[self.input_names[0]].modality != MR:
            raise ValueError(f"an MR, on whose grid the mask lies, as the first input of {self.name}")
        if CT not in sockets and self.heads:
            raise ValueError(f"masks alone as answers of {self.name}: risks and classes need CT and PET")
        algorithm = self.numbered(number)
        algorithm._sockets = sockets
        return algorithm

    def numbered(self, number: int) -> Algorithm:
        """The algorithm under another number."""
        algorithm = self.model_copy()
        algorithm._number = number
        return algorithm

    @property
    def number(self) -> int:
        return self._number

    @property
    def scan(self) -> Input:
        """The image on whose grid the mask lies: the CT, or the first MR."""
        return self._sockets.get(CT) or self._sockets[self.input_names[0]]

    @property
    def modality(self) -> Modality:
        """The modality of `scan`, CT or MR: what needs Hounsfield units or uptake stands aside for an MR."""
        return self.scan.modality or "CT"

    @property
    def registered(self) -> Mapping[str, Input]:
        """Inputs of an earlier visit that are registered to `scan`, by name; networks see them as well."""
        return {name: one for name, one in self.inputs.items() if one.registered}

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the networks' input channels: CT and PET, or MR images by name and masks by name and structure."""
        if self.modality != MR:
            return CT_AND_PET
        names = [self.input_names[0]]
        for name, one in self.registered.items():
            names += [name] if one.modality == MR else [f"{name} {structure}" for structure in _LABELS]
        return tuple(names)

    @property
    def inputs(self) -> Mapping[str, Input]:
        """The required input sockets by name."""
        return {name: self._sockets[name] for name in self.input_names}

    @property
    def optional_inputs(self) -> Mapping[str, Input]:
        """The optional input sockets by name."""
        return {name: self._sockets[name] for name in self.optional_input_names}

    @property
    def aliases(self) -> tuple[str, ...]:
        """Values of `--task` that select this algorithm."""
        return (self.name, str(self.number))

    @property
    def evaluation_image(self) -> str:
        """Name of the container image that evaluates the answers, without a tag."""
        return f"{IMAGE_PREFIX}evaluation-{self.image.removeprefix(IMAGE_PREFIX)}"

    @property
    def mask(self) -> Answer | None:
        """The mask among the answers, or None."""
        return next((answer for answer in self.answers if answer.kind == "mask"), None)

    @property
    def heads(self) -> tuple[Answer, ...]:
        """Answers of a prediction head: risks and classes."""
        return tuple(answer for answer in self.answers if answer.kind != "mask")

    @property
    def always_answers(self) -> bool:
        """True if every risk and class has a fallback: then no fault of a case ends without all the answers."""
        return bool(self.heads) and all(answer.fallback is not None for answer in self.heads)

    def answer(self, name: str) -> Answer:
        """The answer called `name`.

        Raises:
            KeyError: no answer has that name.
        """
        return {answer.name: answer for answer in self.answers}[name]
