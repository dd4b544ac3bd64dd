"""A model package as an experiment: its networks segment each patient, unless this working directory wrote it."""

from __future__ import annotations

from pathlib import Path

from algorithm.decisions.rules import NO_DECISIONS
from algorithm.network.package import load_package
from baseline.decisions.decide import apply_rules
from baseline.experiments.answers import Experiment, experiment_of
from baseline.package.existing import use_networks
from baseline.package.exported import package_checksum
from baseline.pipeline import fit_heads, measure_out_of_fold
from baseline.work import DEFAULT_PLAN, WorkFolders, checked_name, planned
from contract.archives import SUFFIX
from contract.errors import HecktorError
from contract.files import read_json


def experiment_of_package(work: WorkFolders, package: Path, device: str, jobs: int = 1) -> Experiment:
    """The out-of-fold answers of a package, a folder or `.tar.gz`.

    A package that this working directory exported has seen the patients, so it stands for its plan, whose answers are
    out of fold. Any other package segments all patients, its rules decide on lesions, and new heads are fitted: the
    results are cached under the package's name, as a plan. None of the patients may have been in the training of its
    networks.
    """
    sha256 = package_checksum(package)
    for plan in planned(work.shared):
        exported = read_json(plan.exported_json) if plan.exported_json.is_file() else {}
        if sha256 == exported.get("sha256"):
            return experiment_of(work.shared, plan.name)
        if sha256 in exported.get("earlier", ()):
            found = f"an earlier package of {plan.name}, whose networks have seen the patients"
            raise HecktorError(package.name, found, f"{plan.name}, or a package that was exported last")
    given = WorkFolders(work.shared, checked_name(package.resolve().name.removesuffix(SUFFIX)))
    if given.name == DEFAULT_PLAN or (given.heads_json.is_file() and not given.networks.is_dir()):
        raise HecktorError(package.name, f"{given.name} is another experiment", "another name of the package")
    use_networks(given, package)
    rules = load_package(given.networks).decisions or NO_DECISIONS
    fit_heads(given, apply_rules(given, measure_out_of_fold(given, device), rules, jobs), jobs)
    return experiment_of(work.shared, given.name)
