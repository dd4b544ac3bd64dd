"""Experiments by name or path; the networks of a package segment each patient, unless this directory exported it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from algorithm.decisions.rules import NO_DECISIONS
from algorithm.network.package import load_package
from baseline.decisions.decide import apply_rules
from baseline.experiments.answers import Experiment, experiment_of
from baseline.package.existing import use_networks
from baseline.package.exported import exporting_plan
from baseline.pipeline import fit_heads, measure_out_of_fold
from baseline.work import DEFAULT_PLAN, WorkFolders, checked_name, planned
from contract.archives import SUFFIX
from contract.errors import HecktorError
from contract.packages import MANIFEST


@dataclass(frozen=True)
class GivenPackage:
    """A model package to compare, and the plan in which its answers lie; `exported` if this plan wrote the package."""

    path: Path
    plan: WorkFolders
    exported: bool


def chosen_experiments(work: WorkFolders, names: Sequence[str], device: str, jobs: int = 1) -> list[Experiment]:
    """The experiments of plans, ensembles and packages by name or path; every name is checked before a network runs.

    Raises:
        HecktorError: an unknown experiment, one without masks, or two of the same name.
    """
    packages = [name for name in names if _is_package(work, name)]
    given = dict(zip(packages, given_packages(work, [Path(name) for name in packages]), strict=True))
    plans = {name: experiment_of(work.shared, name) for name in names if name not in given}
    titles = [given[name].plan.name if name in given else plans[name].name for name in names]
    if len(set(titles)) < len(titles):
        raise HecktorError("compare", f"found {', '.join(titles)}", "different experiments")
    return [experiment_of_package(given[name], device, jobs) if name in given else plans[name] for name in names]


def _is_package(work: WorkFolders, name: str) -> bool:
    path = Path(name)
    if path.is_file() or (path / MANIFEST).is_file() or "/" in name or name.endswith((SUFFIX, ".pth")):
        return True
    # A folder in place of a package, unless a plan has this name.
    return path.is_dir() and name not in [plan.name for plan in planned(work.shared)]


def given_packages(work: WorkFolders, packages: Sequence[Path]) -> list[GivenPackage]:
    """The packages with their plans: the one that exported a package, or one under the package's file name.

    Packages with equal file names are told apart by the folders that hold them.

    Raises:
        HecktorError: no model package, an earlier one of this working directory, or the name of another experiment.
    """
    names = [package.resolve().name.removesuffix(SUFFIX) for package in packages]
    given = []
    for package, name in zip(packages, names, strict=True):
        plan = exporting_plan(work.shared, package)
        distinct = name if names.count(name) == 1 else f"{package.resolve().parent.name}-{name}"
        given.append(GivenPackage(package, plan or _plan_named(work, package, distinct), plan is not None))
    return given


def _plan_named(work: WorkFolders, package: Path, name: str) -> WorkFolders:
    """The plan for the answers of a package. Raises `HecktorError` if it has networks of its own."""
    plan = WorkFolders(work.shared, checked_name(name))
    if plan.name == DEFAULT_PLAN or (plan.heads_json.is_file() and not plan.networks.is_dir()):
        raise HecktorError(package.name, f"{plan.name} is another experiment", "another name of the package")
    return plan


def experiment_of_package(given: GivenPackage, device: str, jobs: int = 1) -> Experiment:
    """The out-of-fold answers of a package.

    A package that this working directory exported has seen the patients, so it stands for its plan, whose answers are
    out of fold. Any other package segments all patients, its rules decide on lesions, and new heads are fitted: the
    results are cached in its plan. None of the patients may have been in the training of its networks.
    """
    plan = given.plan
    if not given.exported:
        use_networks(plan, given.path)
        rules = load_package(plan.networks).decisions or NO_DECISIONS
        fit_heads(plan, apply_rules(plan, measure_out_of_fold(plan, device), rules, jobs), jobs)
    return experiment_of(plan.shared, plan.name)
