"""`hecktor phantoms`: make a cohort of synthetic patients."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.editions import load_edition
from contract.errors import HecktorError, make_write_error
from contract.io.locks import lock_output
from contract.options import Parser, add_edition_option, whole_number
from contract.processes import count_usable_cpus
from rehearsal.phantoms.centres import TRAINING_CENTRES, UNSEEN_CENTRES, find_centre


def main(argv: Sequence[str] | None = None) -> int:
    """Make a cohort; return 0, or 1 after an error on stderr. Usage errors exit with 2."""
    arguments = _build_parser().parse_args(argv)
    from tqdm import tqdm

    from rehearsal.phantoms.cohort import CohortOptions
    from rehearsal.phantoms.make import make_cohort

    try:
        options = CohortOptions(
            seed=arguments.seed,
            centres=tuple(find_centre(code).code for code in arguments.centres.split(",")),
            layout=arguments.layout,
            field_of_view="head_and_neck" if arguments.head_and_neck_only else None,
            edition=load_edition(arguments.edition).source,
            balanced=arguments.balanced,
        )
        patients = make_cohort(options, arguments.patients, arguments.output, arguments.jobs)
        with lock_output(arguments.output):
            list(tqdm(patients, total=arguments.patients, unit="patient", desc="phantoms", disable=None, leave=False))
    except HecktorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        raise make_write_error(str(error.filename or arguments.output), error) from None
    count = "1 patient" if arguments.patients == 1 else f"{arguments.patients} patients"
    print(f"{count} in {arguments.output}, the true values in {arguments.output / 'truth'}")
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor phantoms",
        description="Make synthetic PET/CT head and neck patients with masks, clinical variables and outcomes.",
    )
    add = parser.add_argument
    add("--patients", type=whole_number(1), required=True, metavar="N", help="number of patients")
    add("--seed", type=whole_number(0), required=True, metavar="S", help="seed; the same seed gives the same bytes")
    add(
        "--layout",
        choices=("platform", "release"),
        required=True,
        help="file layout: as mounted by the platform, or as released",
    )
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the cohort; an interrupted run continues")
    add_edition_option(parser)
    all_centres = ",".join(TRAINING_CENTRES + UNSEEN_CENTRES)
    unseen = ",".join(UNSEEN_CENTRES)
    centres_help = f"centres to draw from (default: %(default)s; not in the training data: {unseen})"
    add("--centres", default=all_centres, metavar="A,B,..", help=centres_help)
    add(
        "--jobs",
        type=whole_number(1),
        default=count_usable_cpus(),
        metavar="N",
        help="number of processes (default: %(default)s)",
    )
    add("--head-and-neck-only", action="store_true", help="make only head and neck scans, no whole-body or cut scans")
    add("--balanced", action="store_true", help="half of the patients HPV negative, and relapses in at least 3 of 8")
    return parser
