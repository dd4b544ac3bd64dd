"""Train a model package on a cohort in the layout of a release.

`train` runs all steps in order, and each step is also a separate function. `fit_table` fits a head on a DataFrame.
Names are imported on first use, so that `import baseline` and the processes that prepare patients start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baseline.export import export_model
    from baseline.fit import fit_heads
    from baseline.heads.table import FittedTable, fit_table
    from baseline.network.nnunet import Machine
    from baseline.network.planning import plan_networks
    from baseline.network.plans import PRESETS, NetworkPlan
    from baseline.pipeline import TrainingOptions, measure_out_of_fold, postprocess_masks, train, train_networks
    from baseline.release.prepare import check_release, prepare_release
    from baseline.report.report import make_report
    from baseline.work import PrepareOptions, WorkFolders

_MODULE_OF = {
    "FittedTable": "heads.table",
    "PRESETS": "network.plans",
    "Machine": "network.nnunet",
    "NetworkPlan": "network.plans",
    "PrepareOptions": "work",
    "WorkFolders": "work",
    "check_release": "release.prepare",
    "export_model": "export",
    "fit_heads": "fit",
    "fit_table": "heads.table",
    "make_report": "report.report",
    "plan_networks": "network.planning",
    "prepare_release": "release.prepare",
}
__all__ = [
    "PRESETS",
    "FittedTable",
    "Machine",
    "NetworkPlan",
    "PrepareOptions",
    "TrainingOptions",
    "WorkFolders",
    "check_release",
    "export_model",
    "fit_heads",
    "fit_table",
    "make_report",
    "measure_out_of_fold",
    "plan_networks",
    "postprocess_masks",
    "prepare_release",
    "train",
    "train_networks",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"baseline.{_MODULE_OF.get(name, 'pipeline')}"), name)
