"""Types of a declared edition. Code branches on an answer's kind, never on a name or a year."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from contract.editions.clinical import ClinicalVariable
from contract.errors import Finding, HecktorError

Kind = Literal["mask", "risk", "class"]
Direction = Literal["risk", "time"]
ClassValue = bool | int | str
KINDS: Final[tuple[Kind, ...]] = ("mask", "risk", "class")
DIRECTIONS: Final[tuple[Direction, ...]] = ("risk", "time")
# Rules that give a class from the mask, defined in `algorithm.heads.staging`.
RULES: Final = ("t_stage_7th", "n_stage_7th")
CT, PET, EHR, CT_PLANNING, RT_DOSE = "ct", "pet", "ehr", "ct_planning", "rt_dose"
INPUT_NAMES: Final = (CT, PET, EHR, CT_PLANNING, RT_DOSE)
IMAGE_PREFIX: Final = "hecktor-"
_IMAGE_KINDS: Final = ("Image", "Segmentation")


@dataclass(frozen=True)
class Socket:
    """An input or output of an algorithm.

    `relative_path` is the image folder or the JSON file below `/input` or `/output`. `pk` is the socket's number in
    `inputs.json` and `predictions.json`.
    """

    slug: str
    title: str
    kind: str
    relative_path: str
    pk: int

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


@dataclass(frozen=True)
class Answer:
    """One output of an algorithm.

    Attributes:
        name: name of the answer in model packages and evaluation profiles.
        kind: "mask" (labels on the CT's grid), "risk" (one number for each patient) or "class" (one of `classes`).
        socket: output socket.
        head: head in the model package that predicts a risk or class; empty for a mask.
        labels: structures of a mask and their values.
        direction: of a risk: "risk" if a higher value means earlier recurrence, "time" if it means later recurrence.
        classes: JSON values of a class in ascending order; the second of two is the positive class.
        words: lower-case spellings of the classes in tables.
        not_counted: capital spellings in tables, such as T0, that are known but no class: the patient does not count.
        rule: one of `RULES`, which gives the class from the mask if the head fails; empty for none.
        without: structures of the mask with a class that is given exactly where the written mask lacks the structure.
        columns: columns of the reference table by role: "time" and "event" for a risk, "class" for a class.
        row_key: key of a class in the rows of metrics.json, `name` by default.
        stand_in: value written if the prediction fails and neither `rule` nor the model package gives one; None makes
            a failure an error. The stand-in for a mask is always the PET threshold.
    """

    name: str
    kind: Kind
    socket: Socket
    head: str = ""
    labels: Mapping[str, int] = field(default_factory=dict)
    direction: Direction = "risk"
    classes: tuple[ClassValue, ...] = ()
    words: Mapping[str, ClassValue] = field(default_factory=dict)
    not_counted: tuple[str, ...] = ()
    rule: str = ""
    without: Mapping[str, ClassValue] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    row_key: str = ""
    stand_in: float | ClassValue | None = None

    @property
    def is_binary(self) -> bool:
        """True for a class answer with two classes."""
        return self.kind == "class" and len(self.classes) == 2


@dataclass(frozen=True)
class Algorithm:
    """One algorithm image: inputs by name (`CT`, `PET`, `EHR`, ...), answers and the time limit per case in seconds.

    `image` is the name of the container image, without a tag. `stale_outputs` maps output paths of older descriptions
    to the names of the answers that replace them, none if nothing does.
    """

    name: str
    number: int
    title: str
    inputs: Mapping[str, Socket]
    optional_inputs: Mapping[str, Socket]
    answers: tuple[Answer, ...]
    time_limit_s: float
    image: str
    stale_outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
        """True if every risk and class has a stand-in: then no fault of a case ends without all the answers."""
        return bool(self.heads) and all(answer.stand_in is not None for answer in self.heads)

    def answer(self, name: str) -> Answer:
        """The answer called `name`.

        Raises:
            KeyError: no answer has that name.
        """
        return {answer.name: answer for answer in self.answers}[name]

    def stale_output(self, path: str) -> Finding | None:
        """A warning for an output path of an older description, or for a file below it; None for other paths.

        `path` is relative to `/output`.
        """
        for stale, names in self.stale_outputs.items():
            if path == stale or path.startswith(f"{stale}/"):
                expected = " and ".join(self.answer(name).socket.relative_path for name in names)
                return Finding(stale, "an output of an older description", expected or "no output in its place")
        return None


@dataclass(frozen=True)
class Edition:
    """One year of the challenge.

    `evaluation_profile` is the name or path of the evaluation profile. `source` is the name or path that loads the
    edition again, for a command that calls another one. `suv_factor` has the spellings of the key in `ehr.json` that
    holds the factor from Bq/ml to SUV; it is no clinical variable.
    """

    name: str
    title: str
    evaluation_profile: str
    inputs: Mapping[str, Socket]
    clinical: tuple[ClinicalVariable, ...]
    algorithms: tuple[Algorithm, ...]
    source: str
    suv_factor: tuple[str, ...] = ()

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
