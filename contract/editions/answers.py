"""Answers as an edition declares them: a mask, a risk or a class.

Code branches on an answer's kind, never on a name or a year.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from contract.documents import (
    Document,
    Name,
    Text,
    UniqueTexts,
    Word,
    check_unique,
    is_integer,
    is_member,
    is_text,
    make_tag_reader,
)
from contract.editions.clinical import check_no_missing_words, normalise_key
from contract.editions.inputs import REFERENCE_FILE, RelativePath, ReleaseFile, Socket
from contract.labels import FOREGROUND, NAMES

Kind = Literal["mask", "risk", "class"]
Direction = Literal["risk", "time"]
Rule = Literal["", "t_stage_7th", "n_stage_7th"]
ClassValue = bool | int | str
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
# Rules that compute a class from the mask, defined in `algorithm.heads.values`.
RULES: Final = tuple(rule for rule in get_args(Rule) if rule)
_CLASS_SOCKETS: Final[Mapping[type, str]] = {bool: "Bool", int: "Integer", str: "String"}
MASK_LABELS: Final = {NAMES[label]: label for label in FOREGROUND}


class _Answer(Document):
    """One output of an algorithm.

    Attributes:
        name: Name of the answer in model packages and scoring.
        kind: "mask" (labels on the CT's grid), "risk" (one number for each patient) or "class" (one of `classes`).
        slug: Slug of the output socket.
        title: Title of the output socket.
        path: Path of the output socket.
    """

    name: Name
    kind: str
    slug: Text
    title: Text
    path: RelativePath

    @cached_property
    def socket(self) -> Socket:
        """The output socket."""
        return Socket(slug=self.slug, title=self.title, kind=self._socket_kind, path=self.path)

    @property
    @abstractmethod
    def _socket_kind(self) -> str:
        """The platform's kind of the output socket."""


class _WithoutClasses:
    """Empty values of the fields that only classes have, for masks and risks."""

    classes: ClassVar[tuple[ClassValue, ...]] = ()
    words: ClassVar[Mapping[str, ClassValue]] = {}
    not_counted: ClassVar[tuple[str, ...]] = ()
    rule: ClassVar[Rule] = ""
    without: ClassVar[Mapping[str, ClassValue]] = {}
    row_key: ClassVar[str] = ""
    is_binary: ClassVar[bool] = False


class MaskSpec(_WithoutClasses, _Answer):
    """A mask; its fallback is always the PET threshold.

    Attributes:
        labels: Structures of the mask and their values, GTVp 1 and GTVn 2.
        release: The reference's file below a patient's folder of a release, with `{id}` for the ID.
    """

    kind: Literal["mask"]
    labels: dict[Text, int]
    release: ReleaseFile = REFERENCE_FILE
    # Empty values of the fields that only risks and classes have.
    columns: ClassVar[Mapping[str, str]] = {}
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    column_aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    head: ClassVar[str] = ""
    direction: ClassVar[Direction] = "risk"
    fallback: ClassVar[float | ClassValue | None] = None

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: dict[str, int]) -> dict[str, int]:
        if labels != MASK_LABELS:
            raise ValueError(f"{MASK_LABELS}, which networks, features and metrics know")
        return labels

    @property
    def _socket_kind(self) -> str:
        return "Segmentation"


class _HeadSpec(_Answer):
    """An answer of a prediction head.

    Attributes:
        columns: Columns of the reference table by role.
        aliases: Further spellings of these columns by role; the declared column of a table has precedence.
        head: Head in the model package that predicts the answer, by default `name`.
    """

    columns: dict[Text, Text]
    aliases: dict[Text, UniqueTexts] = Field(default_factory=dict)
    head: Name = Field(default_factory=lambda fields: fields.get("name", ""))
    _roles: ClassVar[tuple[str, ...]]

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: dict[str, str]) -> dict[str, str]:
        if set(columns) != set(cls._roles) or len(set(columns.values())) < len(columns):
            raise ValueError(f"a different string for each of {', '.join(cls._roles)}")
        return columns

    @field_validator("aliases")
    @classmethod
    def _check_aliases(cls, aliases: dict[str, tuple[str, ...]], info: ValidationInfo) -> dict[str, tuple[str, ...]]:
        columns = info.data.get("columns", {})
        if columns and not set(aliases) <= set(columns):
            raise ValueError(f"spellings for some of {', '.join(columns)}")
        spellings = [*columns.values(), *(alias for texts in aliases.values() for alias in texts)]
        check_unique(normalise_key(spelling) for spelling in spellings)
        return aliases

    @property
    def column_aliases(self) -> dict[str, tuple[str, ...]]:
        """Further spellings by column."""
        return {column: self.aliases.get(role, ()) for role, column in self.columns.items()}


class RiskSpec(_WithoutClasses, _HeadSpec):
    """A risk, whose reference has the columns "time" and "event".

    Attributes:
        direction: "risk" if a higher value means earlier recurrence, "time" if it means later recurrence.
        fallback: Value written if the prediction fails and the model package has no fallback; None makes a failure an
            error.
    """

    kind: Literal["risk"]
    direction: Direction = "risk"
    fallback: float | None = None
    _roles: ClassVar[tuple[str, ...]] = ("time", "event")
    # A risk has no labels.
    labels: ClassVar[Mapping[str, int]] = {}

    @field_validator("fallback", mode="before")
    @classmethod
    def _check_fallback(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("a finite number")  # noqa: TRY004
        if info.data.get("direction") == "time" and value <= 0:
            raise ValueError("days above 0")
        return float(value)

    @property
    def _socket_kind(self) -> str:
        return "Float"


class ClassSpec(_HeadSpec):
    """A class, whose reference has the column "class".

    Attributes:
        classes: JSON values in ascending order; the second of two is the positive class.
        words: Classes by their lower-case spellings in tables.
        not_counted: Values in tables, such as T0, that are not a class, in upper case. A patient with such a value is
            not scored.
        rule: One of `RULES`, which computes the class from the mask if the head fails; empty without a rule.
        without: Class by structure of the mask. The answer is this class if and only if the written mask does not
            contain the structure.
        row_key: Key of the class in the rows of metrics.json, by default `name`.
        fallback: Value written if the prediction fails, and neither `rule` nor the model package has a fallback; None
            makes a failure an error.
    """

    kind: Literal["class"]
    classes: tuple[ClassValue, ...]
    words: dict[Word, ClassValue] = Field(default_factory=dict)
    not_counted: UniqueTexts = ()
    rule: Rule = ""
    without: dict[Text, ClassValue] = Field(default_factory=dict)
    row_key: Name = Field(default_factory=lambda fields: fields.get("name", ""))
    fallback: ClassValue | None = None
    _roles: ClassVar[tuple[str, ...]] = ("class",)
    # Values of fields that a class does not have.
    labels: ClassVar[Mapping[str, int]] = {}
    direction: ClassVar[Direction] = "risk"

    @field_validator("classes")
    @classmethod
    def _check_classes(cls, values: tuple[ClassValue, ...]) -> tuple[ClassValue, ...]:
        are_booleans = values == (False, True) and all(isinstance(value, bool) for value in values)
        are_integers = all(map(is_integer, values)) and all(low < high for low, high in pairwise(map(int, values)))
        are_texts = all(map(is_text, values)) and len({str(value).lower() for value in values}) == len(values)
        if len(values) < 2 or not (are_booleans or are_integers or are_texts):
            raise ValueError("false and true, ascending whole numbers or different strings, two or more")
        check_no_missing_words(values)
        return values

    @field_validator("words", "without")
    @classmethod
    def _check_members(cls, values: dict[str, ClassValue], info: ValidationInfo) -> dict[str, ClassValue]:
        classes = info.data.get("classes", ())
        if not all(is_member(value, classes) for value in values.values()):
            raise ValueError("one of the classes for each key")
        if info.field_name == "words":
            check_no_missing_words(values)
        if info.field_name == "without" and classes and len(set(values.values())) == len(classes):
            raise ValueError("at least one class without a structure, for masks that contain every structure")
        return values

    @field_validator("not_counted")
    @classmethod
    def _convert_to_upper_case(cls, spellings: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.upper() for text in spellings)

    @field_validator("fallback", mode="before")
    @classmethod
    def _check_fallback(cls, value: Any, info: ValidationInfo) -> Any:
        classes = info.data.get("classes", ())
        if value is not None and not is_member(value, classes):
            raise ValueError(f"one of the classes {', '.join(map(str, classes))}")
        return value

    @property
    def _socket_kind(self) -> str:
        return _CLASS_SOCKETS[type(self.classes[0])]

    @property
    def is_binary(self) -> bool:
        """Whether there are two classes."""
        return len(self.classes) == 2


AnswerSpec: TypeAlias = Annotated[
    Annotated[MaskSpec, Tag("(mask)")] | Annotated[RiskSpec, Tag("(risk)")] | Annotated[ClassSpec, Tag("(class)")],
    Discriminator(
        make_tag_reader("kind"),
        custom_error_type="answer_kind",
        custom_error_message="an answer of kind mask, risk or class",
    ),
]
