"""Algorithms as an edition declares them: inputs, answers and the time limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, PrivateAttr, field_validator, model_validator

from contract.documents import Document, Name, Text, UniqueTexts, check_unique
from contract.editions.answers import MASK_LABELS, AnswerSpec, ClassSpec, MaskSpec, RiskSpec
from contract.editions.inputs import CONTOURS, CT, CT_AND_PET, MR, Input, Modality

IMAGE_PREFIX: Final = "hecktor-"


class Algorithm(Document):
    """One algorithm image: its inputs by name (`ct`, `pet`, `ehr`, ...), its answers and the time limit of a case.

    `image` is the name of the container image, without a tag. `number` counts an edition's algorithms from 1.
    """

    name: Name
    title: Text
    input_names: Annotated[UniqueTexts, Field(alias="inputs", min_length=1)]
    optional_input_names: UniqueTexts = Field(default=(), alias="optional_inputs")
    time_limit_s: Annotated[float, Field(gt=0)]
    answers: Annotated[tuple[AnswerSpec, ...], Field(min_length=1)]
    image: Name = Field(default_factory=lambda fields: f"{IMAGE_PREFIX}{fields.get('name', '')}")
    _number: int = PrivateAttr(1)
    _sockets: Mapping[str, Input] = PrivateAttr(default_factory=dict)

    @field_validator("answers")
    @classmethod
    def _check_answers(cls, answers: tuple[AnswerSpec, ...]) -> tuple[AnswerSpec, ...]:
        check_unique(answer.name for answer in answers)
        check_unique(answer.slug for answer in answers)
        check_unique(answer.path for answer in answers)
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
        check_unique([*self.input_names, *self.optional_input_names])
        if self.mask_spec is not None and CONTOURS in (*self.input_names, *self.optional_input_names):
            raise ValueError(f"no mask among the answers of an algorithm with {CONTOURS}")
        return self

    def with_inputs(self, number: int, sockets: Mapping[str, Input]) -> Algorithm:
        """Return the algorithm with its number in an edition and with the input sockets of the edition.

        Raises:
            ValueError: The inputs do not suffice for the answers. The exception's text states the expectation.
        """
        for name in (*self.input_names, *self.optional_input_names):
            if name not in sockets:
                raise ValueError(f"inputs of {self.name} among {', '.join(sockets)}, not {name!r}")
        if CT not in sockets and sockets[self.input_names[0]].modality != MR:
            raise ValueError(f"an MR as the first input of {self.name}, because the mask lies on its grid")
        if CT not in sockets and self.head_specs:
            raise ValueError(f"only masks as answers of {self.name}: risks and classes need CT and PET")
        algorithm = self.with_number(number)
        algorithm._sockets = sockets
        return algorithm

    def with_number(self, number: int) -> Algorithm:
        """Return the algorithm with another number."""
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
        """The modality of `scan`, CT or MR. An MR has neither Hounsfield units nor a PET with uptake."""
        return self.scan.modality or "CT"

    @property
    def registered_inputs(self) -> Mapping[str, Input]:
        """Inputs of an earlier visit that are registered to `scan`, by name; the networks also get them as channels."""
        return {name: socket for name, socket in self.inputs.items() if socket.registered}

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the networks' input channels.

        They are CT and PET, or MR images by name of the input and masks by name of the input and structure.
        """
        if self.modality != MR:
            return CT_AND_PET
        names = [self.input_names[0]]
        for name, socket in self.registered_inputs.items():
            names += [name] if socket.modality == MR else [f"{name} {structure}" for structure in MASK_LABELS]
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
    def mask_spec(self) -> MaskSpec | None:
        """The mask among the answers; None if no answer is a mask."""
        return next((answer for answer in self.answers if answer.kind == "mask"), None)

    @property
    def head_specs(self) -> tuple[RiskSpec | ClassSpec, ...]:
        """The answers of prediction heads: risks and classes."""
        return tuple(answer for answer in self.answers if answer.kind != "mask")

    @property
    def always_answers(self) -> bool:
        """Whether every risk and class has a fallback, so a case gets all answers even if its data is unusable."""
        return bool(self.head_specs) and all(answer.fallback is not None for answer in self.head_specs)

    def find_answer(self, name: str) -> AnswerSpec:
        """Find the declaration of an answer by its name.

        Raises:
            KeyError: No answer has this name.
        """
        return {answer.name: answer for answer in self.answers}[name]
