"""A model package as an experiment: its networks segment each patient, unless this working directory wrote it."""

from __future__ import annotations

from pathlib import Path

from baseline.experiments.answers import Experiment, experiment_of
from baseline.package.existing import use_networks
from baseline.pipeline import fit_heads, measure_out_of_fold, package_checksum
from baseline.work import WorkFolders, checked_name, planned
from contract.archives import SUFFIX
from contract.errors import HecktorError
from contract.files import read_json


def experiment_of_package(work: WorkFolders, package: Path, device: str) -> Experiment:
    """The out-of-fold answers of a package, a folder or `.tar.gz`.

    A package that this working directory exported has seen the patients, so it stands for its plan, whose answers are
    out of fold. Any other package segments all patients, and new heads are fitted: the results are cached under the
    package's name, as a plan. None of the patients may have been in the training of its networks.
    """
    sha256 = package_checksum(package)
    for plan in planned(work.shared):
        if plan.exported_json.is_file() and read_json(plan.exported_json)["sha256"] == sha256:
            return experiment_of(work.shared, plan.name)
    given = WorkFolders(work.shared, checked_name(package.resolve().name.removesuffix(SUFFIX)))
    if given.heads_json.is_file() and not given.networks.is_dir():
        raise HecktorError(package.name, f"{given.name} is another experiment", "another name of the package")
    use_networks(given, package)
    fit_heads(given, measure_out_of_fold(given, device))
    return experiment_of(work.shared, given.name)
