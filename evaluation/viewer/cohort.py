"""The cases of a viewer with their files, found without reading an image."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from contract.editions import Edition
from contract.editions.declaration import EHR
from contract.errors import HecktorError, InputError
from contract.patient import read_ehr
from evaluation.analyses.sources import (
    PatientFiles,
    edition_of_results,
    find_masks,
    find_results,
    find_scans,
    team_names,
)
from evaluation.editions.profile import load_profile
from evaluation.metrics.rules import MaskRules
from evaluation.page.colours import colours_of
from evaluation.viewer.listing import list_cases, worst_cases

# As `hecktor predict --uncertainty` writes them.
UNCERTAINTY_MAPS: Final = {"uncertainty.mha": "entropy", "disagreement.mha": "disagreement of passes"}


@dataclass(frozen=True)
class ViewerRequest:
    """Folders of a cohort, of results (None without), and of each team's masks and uncertainty maps.

    Without an `edition` it is that of the results.
    """

    cohort: Path
    results: Path | None = None
    masks: Mapping[str, Path] = field(default_factory=dict)
    uncertainty: Mapping[str, Path] = field(default_factory=dict)
    edition: str | None = None


@dataclass(frozen=True)
class UncertaintyMap:
    """A map of one team's uncertainty, in hundredths of a bit."""

    team: str
    title: str
    path: Path


@dataclass(frozen=True)
class CaseSources:
    """The files of a case, and what is needed to show them.

    `without_mask` are the teams that have masks, but none of this case. `suv_factor` is the factor from Bq/ml to SUV in
    the patient's record, None without one.
    """

    files: PatientFiles
    without_mask: tuple[str, ...]
    maps: tuple[UncertaintyMap, ...]
    suv_factor: float | None
    rules: MaskRules
    colours: Mapping[str, str]


@dataclass(frozen=True)
class ViewerCohort:
    """The cases by name, and the content of cases.json."""

    cases: Mapping[str, CaseSources]
    listing: Mapping[str, Any]

    def worst(self, count: int) -> ViewerCohort:
        """The cases with the lowest mean of the first metric over the teams; the first cases without results."""
        chosen = worst_cases(self.listing)[:count]
        listed = [entry for entry in self.listing["cases"] if entry["case"] in chosen]
        cases = {entry["case"]: self.cases[entry["case"]] for entry in listed}
        return replace(self, cases=cases, listing={**self.listing, "cases": listed})


def find_cohort(request: ViewerRequest) -> ViewerCohort:
    """Find every case with its masks, maps and values."""
    edition = edition_of_results(request.results, request.edition)
    task = next((one for one in edition.algorithms if one.mask is not None), None)
    if task is None:
        raise HecktorError(f"edition {edition.name}", "no task with a mask", "cases to look at")
    profile = load_profile(edition.evaluation_profile)
    (rules,) = (one.rules for one in profile.task(task.name).answers.values() if isinstance(one.rules, MaskRules))
    results = [] if request.results is None else find_results(request.results, edition)
    teams = list(dict.fromkeys([*team_names(results), *request.masks]))
    masks = find_masks(request.results or Path(), edition, teams, request.masks)
    scans = find_scans(request.cohort, edition)
    names = [one.case for one in scans]
    for team in request.masks:
        _check_cases(f"--masks {team}", masks[team], names)
    colours = colours_of(list(dict.fromkeys([*teams, *request.uncertainty])))
    cases, centres = {}, {}
    for files in scans:
        predictions = {team: by_case[files.case] for team, by_case in masks.items() if files.case in by_case}
        without = tuple(team for team in masks if team not in predictions)
        maps = _maps_of(files.case, request.uncertainty)
        centres[files.case], suv_factor = _patient(request.cohort, files.case, edition)
        with_masks = replace(files, predictions=predictions)
        cases[files.case] = CaseSources(with_masks, without, maps, suv_factor, rules, colours)
    for team in request.uncertainty:
        named = [name for name, one in cases.items() if any(map_.team == team for map_ in one.maps)]
        _check_cases(f"--uncertainty {team}", named, names)
    of_masks = next((one for one in results if one.task.name == task.name), None)
    return ViewerCohort(cases, list_cases(edition.title, centres, of_masks, colours))


def _maps_of(case: str, folders: Mapping[str, Path]) -> tuple[UncertaintyMap, ...]:
    maps = []
    for team, folder in folders.items():
        paths = [(folder / case / name, title) for name, title in UNCERTAINTY_MAPS.items()]
        maps += [UncertaintyMap(team, title, path) for path, title in paths if path.is_file()]
    return tuple(maps)


def _patient(cohort: Path, case: str, edition: Edition) -> tuple[str | None, float | None]:
    """The centre, and the factor from Bq/ml to SUV, of a case's record; None for each that is unknown."""
    path = edition.inputs[EHR].path_under(cohort / case / "input")
    try:
        record = read_ehr(path, edition.clinical, edition.suv_factor)
    except InputError:  # the release has no record beside the scans
        return None, None
    return record.patient.centre, record.suv_factor


def _check_cases(option: str, cases: Collection[str], cohort: Collection[str]) -> None:
    if not set(cases) & set(cohort):
        raise HecktorError(option, "no file of a case of the cohort", f"files of {', '.join(list(cohort)[:3])}")
