"""One edition of the challenge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from contract.documents import Document, Name, Text, UniqueTexts, unique
from contract.editions.clinical import ClinicalVariable, normalised_key
from contract.editions.declaration import Algorithm
from contract.editions.inputs import CT, EHR, MR, PET, Input
from contract.editions.values import is_text
from contract.errors import HecktorError


class Edition(Document):
    """One year of the challenge.

    `evaluation_profile` is a profile, its path or the name of one of the package. `suv_factor` has the spellings of the
    key in `ehr.json` that holds the factor from Bq/ml to SUV; it is no clinical variable. `$schema` is for editors.
    """

    format: Annotated[int, Field(ge=1, le=1)]
    name: Name
    title: Text
    evaluation_profile: str | dict[str, Any]
    inputs: dict[str, Input]
    clinical: tuple[ClinicalVariable, ...] = Field(default=(), validate_default=True)
    suv_factor: UniqueTexts = ()
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    editor_schema: Text | None = Field(default=None, alias="$schema")
    _source: str = PrivateAttr("")
    _content: dict[str, Any] | None = PrivateAttr(None)
    _profile_place: str = PrivateAttr("")

    @field_validator("evaluation_profile", mode="before")
    @classmethod
    def _check_profile(cls, profile: Any) -> Any:
        if not is_text(profile) and not (profile and isinstance(profile, dict)):
            raise ValueError("a profile, or its name or path")
        return profile

    @field_validator("inputs")
    @classmethod
    def _check_inputs(cls, inputs: dict[str, Input]) -> dict[str, Input]:
        named = {name: socket.named(name) for name, socket in inputs.items()}
        if not any(one.modality == MR for one in named.values()):
            if absent := [name for name in (CT, PET, EHR) if name not in named]:
                raise ValueError(f"{', '.join(absent)} among the inputs, or an MR")
        elif others := [name for name, one in named.items() if one.modality in ("CT", "PET", "dose")]:
            raise ValueError(f"CT and PET, or MR, among the inputs, not MR and {', '.join(others)}")
        unique(socket.slug for socket in named.values())
        unique(socket.relative_path for socket in named.values())
        return named

    @field_validator("clinical")
    @classmethod
    def _check_clinical(
        cls, clinical: tuple[ClinicalVariable, ...], info: ValidationInfo
    ) -> tuple[ClinicalVariable, ...]:
        if bool(clinical) != (EHR in info.data.get("inputs", {EHR: None})):
            raise ValueError(f"at least one variable with the input {EHR}, and none without it")
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
        unique(algorithm.evaluation_image for algorithm in algorithms)
        sockets = info.data.get("inputs")
        if sockets is None:
            return algorithms
        return tuple(algorithm.with_inputs(number, sockets) for number, algorithm in enumerate(algorithms, start=1))

    def loaded_from(self, source: str, content: dict[str, Any] | None = None, profile_place: str = "") -> Edition:
        """The edition with the origin of its parts, see the properties of these names."""
        copy = self.model_copy()
        copy._source, copy._content, copy._profile_place = source, content, profile_place
        return copy

    @property
    def source(self) -> str:
        """Name, path or JSON text that loads the edition again, to pass to another command."""
        return self._source

    @property
    def content(self) -> dict[str, Any] | None:
        """Declaration and profile as one JSON document, which files store for an edition of your own.

        None for an edition of the package.
        """
        return self._content

    @property
    def profile_place(self) -> str:
        """The place of an inner profile in messages."""
        return self._profile_place

    @property
    def has_task_folders(self) -> bool:
        """True if a release has a folder for each task: for several algorithms that name no files of their own."""
        return len(self.algorithms) > 1 and not any(one.modality == MR for one in self.inputs.values())

    def reference_folder(self, algorithm: Algorithm) -> str:
        """The folder of an algorithm's reference masks in a cohort: one for all, or one for each scan."""
        one_scan = len({one.scan.slug for one in self.algorithms}) == 1
        return "ground_truth" if one_scan else f"ground_truth_{algorithm.name}"

    def for_training(self, task: str | None) -> Edition:
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
        algorithm, profile = self.algorithm(task), self.evaluation_profile
        if isinstance(profile, dict):
            tasks = {name: one for name, one in profile.get("tasks", {}).items() if name == algorithm.name}
            profile = {**profile, "tasks": tasks}
        copy = self.model_copy(update={"algorithms": (algorithm,), "evaluation_profile": profile})
        return copy.loaded_from(self.source, self.content, self.profile_place)

    @property
    def profile_tasks(self) -> dict[str, tuple[str, ...]]:
        """The tasks that an inner profile scores, with its aliases of each; all tasks if the profile is a name."""
        profile = self.evaluation_profile
        tasks = profile.get("tasks") if isinstance(profile, dict) else None
        if not isinstance(tasks, dict):
            return {algorithm.name: () for algorithm in self.algorithms}
        aliases = {name: task.get("aliases") if isinstance(task, dict) else None for name, task in tasks.items()}
        return {name: tuple(map(str, texts)) if isinstance(texts, list) else () for name, texts in aliases.items()}

    def algorithm(self, name: str | None = None, profile_tasks: Mapping[str, Sequence[str]] | None = None) -> Algorithm:
        """The algorithm of that name or number, or of an alias in the profile, which precedes the numbers.

        None selects the only scored one. `profile_tasks` are by default those of the edition.

        Raises:
            HecktorError: no algorithm has that name, or several algorithms and no name.
        """
        tasks = self.profile_tasks if profile_tasks is None else profile_tasks
        scored = [algorithm for algorithm in self.algorithms if algorithm.name in tasks]
        if name is None and len(scored) == 1:
            return scored[0]
        wanted = "" if name is None else name.strip().lower()
        named = [algorithm for algorithm in scored if wanted in tasks[algorithm.name]]
        named += [algorithm for algorithm in self.algorithms if wanted in algorithm.aliases]
        if named:
            return named[0]
        names = [alias for one in self.algorithms for alias in (*one.aliases, *tasks.get(one.name, ()))]
        shown = "no task" if name is None else f"task {name!r}"
        raise HecktorError(f"edition {self.name}", f"found {shown}", f"one of {', '.join(dict.fromkeys(names))}")


def _keys(clinical: Iterable[ClinicalVariable]) -> list[str]:
    """The keys of all variables in the form in which they are compared, each spelling of a variable once."""
    return [key for variable in clinical for key in {normalised_key(text) for text in variable.spellings}]
