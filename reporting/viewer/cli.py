"""`hecktor view`: view the cases of a cohort in a browser on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.editions import DEFAULT_EDITION
from contract.options import Parser, add_edition_option, require_folders, whole_number
from evaluation.options import StoreResults, join_team_folders, parse_team_folders

_END_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the viewer until Ctrl-C or SIGTERM; raise HecktorError for errors that the user can fix."""
    options = _build_parser().parse_args(argv)
    require_folders(options, "--cohort", "--results", "--masks")
    print("Reading the cohort and the results ...", file=sys.stderr, flush=True)
    # Imported late, so that --help does not wait for NumPy.
    from reporting.analyses.scans import list_release_cases

    list_release_cases(options.cohort)  # Raises an error for a folder without cases.
    # Imported late, so that the message on a wrong folder does not wait for SimpleITK and SciPy.
    from reporting.viewer.cohort import ViewerRequest, find_cohort
    from reporting.viewer.server import serve_viewer

    masks = join_team_folders("--masks", options.masks)
    cohort = find_cohort(ViewerRequest(options.cohort, options.results, masks, options.edition))
    sys.stderr.writelines(f"warning: {note}\n" for note in cohort.notes)
    # The signals are blocked in every thread, so that they wait for `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
    with serve_viewer(cohort, options.port) as address:
        count = len(cohort.cases)
        print(f"{count} case{'s' * (count != 1)} at {address}", flush=True)
        print("This address works only on this machine. Press Ctrl-C to stop.", flush=True)
        signal.sigwait(_END_SIGNALS)
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hecktor view", description="View cases in a local web page: CT, PET, contours, lesions and values."
    )
    add = parser.add_argument
    cohort = "folder with CT, PET and reference of each case, in the platform's or the release's layout"
    add("--cohort", type=Path, required=True, help=cohort)
    results = "folder with leaderboard.json of `rank` and <team>/metrics.json, as for `hecktor report`"
    add("--results", type=Path, action=StoreResults, help=results)
    masks = "a team's masks <case>.mha, or a folder of such folders (default: <team>/predictions in the results)"
    add("--masks", type=parse_team_folders, action="append", default=[], metavar="TEAM=FOLDER|FOLDER", help=masks)
    add("--port", type=whole_number(0, 65535), default=0, help="port on 127.0.0.1 (default: any free one)")
    add_edition_option(parser, f"the edition of the results, otherwise {DEFAULT_EDITION}")
    return parser
