"""`hecktor study NAME ...`: run one analysis, importing no other, and write its results."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.io.locks import lock_output
from contract.options import Parser, require_paths

# study -> (module with add_options(parser) and run(parser, options) -> StudyResult, purpose)
STUDIES: Final[dict[str, tuple[str, str]]] = {
    "ensemble": ("ensemble", "STAPLE and average of teams' masks, mean and median rank of risks, majority of classes"),
    "boards": ("boards", "two leaderboards of the same teams, such as validation and test: differences, Kendall's tau"),
    "observers": ("observers", "agreement of annotators of the same cases: DSC, HD95, ASD, surface DSC, DSCagg"),
    "thresholds": ("thresholds", "PET thresholding at a range of percentages of SUVmax"),
    "baselines": ("scans", "tumour volume and SUVmax as submitted risks"),
    "cohort": ("cohort", "patients, volumes, SUVmax, nodes, stages, outcomes by split and centre"),
    "boxes": ("boxes", "a box of 144 mm around the oropharynx, found from the PET below the brain"),
    "best-of-k": ("best_of_k", "scores of the best of k random predictions on a cohort"),
    "failures": ("failures", "whether an expected DSC predicts which masks failed"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study and write its results; raises HecktorError for errors that the user can fix."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in {"-h", "--help"}:
        lines = "\n".join(f"  {name:<12} {purpose}" for name, (_, purpose) in STUDIES.items())
        print(f"usage: hecktor study NAME [options]\n\n{lines}\n\nhecktor study NAME --help lists the options.")
        raise SystemExit(0 if arguments else 2)
    name, *rest = arguments
    if name not in STUDIES:
        raise HecktorError(f"study {name!r}", "unknown", f"one of {', '.join(STUDIES)}")
    module, purpose = STUDIES[name]
    study: Any = importlib.import_module(f"reporting.studies.{module}")
    parser = Parser(prog=f"hecktor study {name}", description=f"{purpose[0].upper()}{purpose[1:]}.")
    study.add_options(parser)
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")
    options = parser.parse_args(rest)
    given = [(action.option_strings or [action.dest])[-1] for action in parser._actions]
    require_paths(options, *(option for option in given if option != "--output"))
    with lock_output(options.output):
        result = study.run(parser, options)
        written = result.write(options.output, name)
    print(f"{result.summary}written: {options.output}: {', '.join(written)}")
    return 0
