"""Training: from a cohort in the release's layout to a model package.

`train` runs every step in order; the steps are functions of their own. Importing this package loads no network library.
"""

from baseline.network.nnunet import Machine
from baseline.network.planning import plan_networks
from baseline.network.plans import PRESETS, NetworkPlan
from baseline.pipeline import (
    TrainingOptions,
    decide_lesions,
    export_model,
    fit_heads,
    measure_out_of_fold,
    train,
    train_networks,
)
from baseline.release.prepare import PrepareOptions, check_release, prepare_release
from baseline.report.report import make_report
from baseline.work import WorkFolders

__all__ = [
    "PRESETS",
    "Machine",
    "NetworkPlan",
    "PrepareOptions",
    "TrainingOptions",
    "WorkFolders",
    "check_release",
    "decide_lesions",
    "export_model",
    "fit_heads",
    "make_report",
    "measure_out_of_fold",
    "plan_networks",
    "prepare_release",
    "train",
    "train_networks",
]
