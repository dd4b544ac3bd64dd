"""`hecktor study NAME ...`: run one study, without importing the others, and write its results."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.io.locks import lock_output
from contract.options import Parser, require_paths

# Name of each study, the module that holds it, and its purpose. The module of the study `best-of-k` has the functions
# `add_best_of_k_options(parser)` and `run_best_of_k(parser, options)`, which returns a `StudyResult`.
STUDIES: Final[dict[str, tuple[str, str]]] = {
    "ensemble": ("ensemble", "STAPLE and average of teams' masks, mean and median rank of risks, majority of classes"),
    "boards": ("boards", "two leaderboards of the same teams, such as validation and test: differences, Kendall's tau"),
    "observers": ("observers", "agreement of annotators of the same cases: DSC, HD95, ASD, surface DSC, DSCagg"),
    "thresholds": ("thresholds", "PET thresholding at a range of percentages of SUVmax"),
    "baselines": ("scans", "tumour volume and SUVmax as risks, in tables as teams submit them"),
    "cohort": ("cohort", "patients, volumes, SUVmax, nodes, stages, outcomes by split and centre"),
    "boxes": ("scans", "a box of 144 mm around the oropharynx, found from the PET below the brain"),
    "best-of-k": ("best_of_k", "scores of the best of k random predictions on a cohort"),
    "failures": ("failures", "whether an expected DSC predicts which masks failed"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study and write its results; raise HecktorError for errors that the user can fix."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in {"-h", "--help"}:
        lines = "\n".join(f"  {name:<12} {purpose}" for name, (_, purpose) in STUDIES.items())
        print(f"usage: hecktor study NAME [options]\n\n{lines}\n\nhecktor study NAME --help lists the options.")
        raise SystemExit(0 if arguments else 2)
    name, *rest = arguments
    if name not in STUDIES:
        raise HecktorError(f"study {name!r}", "unknown", f"one of {', '.join(STUDIES)}")
    module_name, purpose = STUDIES[name]
    module: Any = importlib.import_module(f"reporting.studies.{module_name}")
    function_name = name.replace("-", "_")
    parser = Parser(prog=f"hecktor study {name}", description=f"{purpose[0].upper()}{purpose[1:]}.")
    getattr(module, f"add_{function_name}_options")(parser)
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")
    options = parser.parse_args(rest)
    option_names = [(action.option_strings or [action.dest])[-1] for action in parser._actions]
    require_paths(options, *(option for option in option_names if option != "--output"))
    from reporting.studies.outputs import remove_earlier_result  # loads NumPy, which the list of studies does not need

    with lock_output(options.output):
        remove_earlier_result(options.output, name)
        result = getattr(module, f"run_{function_name}")(parser, options)
        file_names = result.write(options.output, name)
    print(f"{result.summary}written: {options.output}: {', '.join(file_names)}")
    return 0
